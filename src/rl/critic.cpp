// SPDX-License-Identifier: Apache-2.0
#include "rl/critic.h"

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tlt::rl {
namespace {

constexpr const char* kOptimizerFile = "/state/critic.safetensors";
constexpr const char* kStateText = "critic.json";

}  // namespace

Critic::Critic(const run::RunOptions& options, const run::RunContext& context, int64_t total_steps,
               std::function<bool()> should_stop)
    : options_(options),
      context_(context),
      model_(run::make_critic(options, context)),
      should_stop_(std::move(should_stop)),
      trainer_(model_->network(), options.critic_options(), *context.comm,
               {.total_steps = total_steps, .critic = model_.get()}) {
  trainer_.set_should_stop(should_stop_);
}

bool Critic::trains_policy(int64_t steps_done) const {
  return steps_done + 1 >= options_.trainer.critic_warmup;
}

void Critic::add_values(std::span<train::TrainSample> samples) {
  auto values = train::score_samples(model_->network(), samples,
                                     {.max_tokens = options_.actor.max_tokens,
                                      .should_stop = should_stop_,
                                      .critic = model_.get()},
                                     *context_.comm);
  for (size_t i = 0; i < samples.size(); ++i) samples[i].values = std::move(values[i]);
}

train::TrainStats Critic::update(std::span<const train::TrainSample> samples,
                                 train::TrainStats done) {
  train::TrainStats stats =
      trainer_.update(samples, train::LossKind::kValue,
                      options_.actor.ppo_mini_batch_size * options_.rollout.n, std::move(done));
  trainer_.release_memory();
  return stats;
}

void Critic::gather() {
  if (context_.is_first() || optimizer().is_shared()) snapshot_ = optimizer().snapshot();
}

void Critic::save(train::CheckpointParts& parts) {
  const nlohmann::json state = {{"optimizer_steps", optimizer().steps()},
                                {"skipped_in_row", optimizer().skipped_in_row()}};
  parts.texts[kStateText] = state.dump() + "\n";
  const std::string& source = options_.critic.model.path;
  parts.files.push_back([write = model_->snapshot(source.empty() ? options_.model.path : source),
                         optimizer = std::exchange(snapshot_, {})](const std::string& folder) {
    write(folder + "/critic");
    model::write_safetensors(folder + kOptimizerFile, optimizer);
  });
}

void Critic::resume(const train::CheckpointPlace& checkpoint) {
  const std::string place = checkpoint.folder + "/state/" + kStateText;
  const auto text = train::read_text(checkpoint, kStateText);
  TLT_CHECK_INPUT(text, place, " is missing: the checkpoint has no critic");
  const nlohmann::json state = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const auto number = [&](const char* name) {
    TLT_CHECK_INPUT(state.is_object() && state.contains(name) && state[name].is_number_integer(),
                    place, " has no ", name, "; the checkpoint is damaged");
    return state[name].get<int64_t>();
  };
  train::load_optimizer(checkpoint.folder + kOptimizerFile, trainer_.optimizer(),
                        number("optimizer_steps"));
  trainer_.optimizer().restore_skipped_in_row(number("skipped_in_row"));
}

}  // namespace tlt::rl
