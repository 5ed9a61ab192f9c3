// Embedded environments: programs for environment.command that tlt has itself, and the reference of
// its protocol (`tlt environment NAME`, docs/environments.md).
//
//   countdown   combine the row's numbers to make its target: a tool `calculator`, and answers in
//               <answer>…</answer>, of which the last of three counts
//   python      a tool `python`, which runs code in the sandbox; a turn without a call ends the
//               episode, and reward.functions score it
//
// Threading  one thread at a time.
//
//   std::unique_ptr<Embedded> countdown = make_embedded("countdown");
//   serve(*countdown, std::cin, std::cout);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tlt::environment {

// What an episode answers to a turn.
struct Observation {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  double reward = 0;
  bool is_done = false;
  std::map<std::string, double> extras = {};
};

struct CalledTool {
  std::string id, name;
  nlohmann::ordered_json arguments;
};

// One episode. Errors are thrown: they fail the episode.
class Episode {
 public:
  virtual ~Episode() = default;
  virtual Observation step(const std::string& content, const std::vector<CalledTool>& calls) = 0;
};

class Embedded {
 public:
  virtual ~Embedded() = default;
  // Begins an episode with the row of the call reset.
  virtual std::unique_ptr<Episode> reset(const nlohmann::ordered_json& row) = 0;
};

// The message with a tool's answer.
nlohmann::ordered_json tool_message(const CalledTool& call, const std::string& content);

std::unique_ptr<Embedded> make_countdown_game();
// InputError: there is no sandbox on this machine.
std::unique_ptr<Embedded> make_python_tool();

// InputError: no such environment.
std::unique_ptr<Embedded> make_embedded(const std::string& name);

// Answers calls until the input ends.
void serve(Embedded& environment, std::istream& calls, std::ostream& answers);

}  // namespace tlt::environment
