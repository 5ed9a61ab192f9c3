// Errors for unknown option names (B12), and the page and list of all options (B24).
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/first_use/support.h"

namespace tlt::first_use {
namespace {

Ended train_with(const std::string& option) {
  return run_program({"train", "model.path=none", option + "=1"});
}

TEST(OptionsTest, SuggestionsAreOfTheSameSection) {  // B12
  const std::pair<const char*, const char*> names[] = {
      {"actor.lr", "actor.optim.lr"},
      {"data.batch_size", "data.train_batch_size"},
      {"trainer.total_steps", "trainer.total_training_steps"},
      {"rollout.temp", "rollout.temperature"},
      {"actor_rollout_ref.rollout.max_num_seq", "rollout.max_num_seqs"},
      {"reward.function", "reward.functions"}};
  for (const auto& [typed, meant] : names)
    expect_refusal(train_with(typed), HasSubstr(std::string("; did you mean ") + meant + "?\n"));
}

TEST(OptionsTest, NamesOfVerlSuggestTheOptionOfTlt) {  // B12
  const std::pair<const char*, const char*> names[] = {
      {"actor_rollout_ref.actor.grad_clip", "verl's actor.grad_clip is actor.optim.clip_grad here"},
      {"actor.clip_ratio", "set actor.clip_ratio_low and actor.clip_ratio_high"},
      {"rollout.gpu_memory_utilization", "give bytes: rollout.kv_memory_bytes"},
      {"trainer.n_gpus_per_node", "give the number of workers: --workers"},
      {"rollout.do_sample", "greedy decoding is rollout.temperature=0"},
      {"critic.ppo_epochs", "the critic is trained with the actor's options"}};
  for (const auto& [typed, answer] : names) expect_refusal(train_with(typed), HasSubstr(answer));
  const std::string recipe = scratch_file("verl.toml", "[actor]\ngrad_clip = 1.0\n");
  expect_refusal(run_program({"train", recipe}),
                 HasSubstr("verl.toml:2: unknown option: actor.grad_clip; verl's"));
}

TEST(OptionsTest, DroppedOptionsNameTheirConstant) {
  for (const std::string suffix : {"kv_memory_bytes", "prompt_memory_bytes"})
    expect_refusal(train_with("speculative.eagle." + suffix),
                   HasSubstr("replaced by speculative.memory_bytes, of which it is a part\n"));
  const char* const window = "it is always 512 now; set speculative.train.step_tokens\n";
  expect_refusal(train_with("speculative.train.window"), HasSubstr(window));
  expect_refusal(run_program({"options", "speculative.train.window"}), HasSubstr(window));
  const std::string recipe =
      scratch_file("old.toml", "[speculative.train]\nwindow = 512\nval_steps = 8\n");
  expect_refusal(run_program({"train", recipe}),
                 HasSubstr("old.toml:3: unknown option: speculative.train.val_steps; it is always "
                           "8 now; further unknown options, by line: 2\n"));
}

TEST(OptionsTest, OptionsPageIsTheOutputOfTheProgram) {  // B24
  const std::string page = read_file(std::string(TLT_SOURCE_DIR) + "/docs/options.md", 1 << 20);
  EXPECT_EQ(run_program({"options", "--markdown"}).out, page)
      << "run `build/tlt options --markdown > docs/options.md`";
  EXPECT_THAT(page, HasSubstr("\n## rollout\n"));
}

TEST(OptionsTest, AFilterShowsSomeOptions) {  // B24
  const Ended one = run_program({"options", "rollout.n"});
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(one.out, "rollout.n = 8  [results]\n    Responses per prompt: the size of a group.\n");
  const Ended some = run_program({"options", "actor_rollout_ref.rollout.top"});
  EXPECT_THAT(some.out, AllOf(HasSubstr("rollout.top_k = -1  [results]\n"),
                              HasSubstr("rollout.top_p = 1.0"), Not(HasSubstr("val_kwargs"))));
  EXPECT_THAT(run_program({"options", "temperature"}).out,
              AllOf(HasSubstr("rollout.temperature"), HasSubstr("rollout.val_kwargs.temperature")));
  expect_refusal(run_program({"options", "rollout.gpu_memory_utilization"}),
                 HasSubstr("give bytes: rollout.kv_memory_bytes"));
  expect_refusal(run_program({"options", "actor.lr"}), HasSubstr("did you mean actor.optim.lr?"));
}

TEST(OptionsTest, JsonIsForPrograms) {  // B24
  const Ended ended = run_program({"options", "rollout.n", "--json"});
  EXPECT_EQ(nlohmann::json::parse(ended.out),
            nlohmann::json::array({{{"name", "rollout.n"},
                                    {"default", 8},
                                    {"affects", "results"},
                                    {"help", "Responses per prompt: the size of a group."}}}));
  const auto all = nlohmann::json::parse(run_program({"options", "--json"}).out);
  EXPECT_GT(all.size(), 100U);
  EXPECT_LE(all.size(), 154U)
      << "an option without a reason to change it is a constant (run/dropped_options.h)";
}

}  // namespace
}  // namespace tlt::first_use
