// SPDX-License-Identifier: Apache-2.0
#include "rl/resume.h"

#include <ATen/ATen.h>

#include "base/check.h"
#include "base/log.h"

namespace tlt::rl {

std::string resume_digest(const RunOptions& options) {
  RunOptions copy = options;
  copy.trainer.total_training_steps = 0;
  copy.trainer.total_epochs = 0;
  return options_digest(collect_options(copy));
}

std::optional<ResumePoint> find_resume_point(const RunOptions& options,
                                             const std::string& run_folder,
                                             const std::string& checkpoints, cluster::Comm& comm) {
  if (options.trainer.resume_mode == "disable") return std::nullopt;
  const auto place = train::find_latest(checkpoints);
  // Every worker must start from the same step: a folder that only some of them see is an error.
  at::Tensor steps = at::tensor({place ? place->step : 0, place ? -place->step : 0}, at::kLong);
  comm.all_reduce_max(steps);
  TLT_CHECK_INPUT(steps[0].item<int64_t>() == -steps[1].item<int64_t>(), checkpoints,
                  ": the workers see different checkpoints; the run folder must be on a disk that "
                  "all of them share");
  if (!place) return std::nullopt;
  SavedState saved = parse_state(train::read_text(*place, train::kLoopText).value(),
                                 place->folder + "/state/" + train::kLoopText);
  const std::string difference = first_difference(resume_digest(options), saved.options);
  TLT_CHECK_INPUT(
      difference.empty(), run_folder, " has a run with other options (", difference,
      "); give another trainer.experiment_name, or trainer.resume_mode=disable to move that run "
      "aside and start again");
  if (comm.rank() == 0) log_info("resuming from {}, step {}", place->folder, saved.state.step);
  return ResumePoint{*place, std::move(saved)};
}

}  // namespace tlt::rl
