// What other processes and earlier runs wrote: control messages, and the state of a checkpoint.
//
// SPDX-License-Identifier: Apache-2.0
#include "cluster/messages.h"
#include "run/loop_state.h"
#include "tests/support/fuzz.h"

namespace tlt::tests {
namespace {

using cluster::Event;
using cluster::WorkerCommand;

// A text that is no message is an Error: no file of the user has it. What is accepted is written
// as a text that is read to the same message.
template <class Decode>
FuzzCall decode_with(const Decode& decode) {
  return [decode](const std::string& text) {
    const auto message = [&] {
      try {
        return decode(text, 1);
      } catch (const Error&) {
        throw InputError("refused");
      }
    }();
    const std::string written = encode(message);
    TLT_CHECK(std::ssize(written) <= cluster::kMaxMessageBytes, written);
    TLT_CHECK(decode(written, 1) == message, written);
    return std::to_string(static_cast<int>(message.kind)) + (message.group < 0 ? "-" : "+");
  };
}

FuzzPlan plan_of(const std::string& name) {
  return {.name = name,
          .dictionary = {"kind", "step",   "group",   "begin", "take", "load", "sequences",
                         "give", "recall", "moved",   "{",     "}",    "[",    "\"",
                         ":",    ",",      "\\u0000", "\xff",  "null", "1.5"},
          .inputs = 20000,
          .max_bytes = 1 << 10,
          .mutate = [](Mutator& mutator, const std::string& text, const std::string& other) {
            return mutator.one_in(2) ? mutator.bytes(text, other) : mutator.json(text, other);
          }};
}

TEST(MessagesFuzzTest, EventsAreDecodedOrRejected) {
  FuzzPlan plan = plan_of("events");
  for (int kind = 0; kind <= static_cast<int>(Event::Kind::kHeartbeat); ++kind)
    plan.corpus.push_back(encode(Event{.kind = static_cast<Event::Kind>(kind),
                                       .worker = 1,
                                       .step = kind,
                                       .group = 3,
                                       .load = {.sequences = 1, .tokens = 2, .remaining = 3}}));
  fuzz(plan, decode_with(cluster::decode_event));
}

TEST(MessagesFuzzTest, CommandsAreDecodedOrRejected) {
  FuzzPlan plan = plan_of("commands");
  for (int kind = 0; kind <= static_cast<int>(WorkerCommand::Kind::kMigrate); ++kind)
    plan.corpus.push_back(encode(WorkerCommand{
        .kind = static_cast<WorkerCommand::Kind>(kind), .worker = 1, .step = kind, .group = 3}));
  fuzz(plan, decode_with(cluster::decode_command));
}

TEST(MessagesFuzzTest, LoopStatesAreReadOrRejected) {
  FuzzPlan plan = plan_of("loop_state");
  plan.dictionary = {"step", "gen_batches", "epoch", "index", "optimizer_steps", "1e99", "[", "{"};
  plan.max_bytes = 1 << 17;
  plan.corpus = {run::to_json({.state = {.step = 3, .gen_batches = 4, .cursor = {1, 20}},
                               .optimizer_steps = 6,
                               .skipped_in_row = 1}),
                 R"({"step": 1, "epoch": 0, "index": 0, "optimizer_steps": 1})"};
  fuzz(plan, [](const std::string& text) {
    const run::SavedState saved = run::parse_state(text, "loop.json");
    const std::string written = run::to_json(saved);
    TLT_CHECK(run::to_json(run::parse_state(written, "loop.json")) == written, written);
    return std::string(saved.state.step < 0 ? "negative" : "");
  });
}

}  // namespace
}  // namespace tlt::tests
