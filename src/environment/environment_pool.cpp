// SPDX-License-Identifier: Apache-2.0
#include "environment/environment_pool.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/json_limits.h"
#include "base/sentence.h"
#include "reward/reward.h"

namespace tlt::environment {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxMessages = 1000;  // of one answer
constexpr int64_t kMaxBatch = 1024;    // calls in one line
constexpr size_t kMostShown = 200;     // bytes of a line in a message

// The words as a command of the shell; `tlt` is this program, wherever it is.
std::string shell_command(std::vector<std::string> words) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (words.front() == "tlt" && self.filename() == "tlt") words.front() = self.string();
  std::string command = "exec";
  for (const std::string& word : words) command += " " + shell_word(word);
  return command;
}

std::string dumped(const Json& json) {
  // A response that was cut within a character is not valid UTF-8.
  return json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string fault_of_list(const Json& list, const char* name) {
  if (!list.is_array()) return check_internal::concat("`", name, "` is no list");
  if (list.size() > kMaxMessages)
    return check_internal::concat("`", name, "` has more than ", kMaxMessages, " entries");
  return "";
}

// Empty: the messages can be rendered.
std::string fault_of_messages(const Json& messages) {
  if (std::string fault = fault_of_list(messages, "messages"); !fault.empty()) return fault;
  for (const Json& message : messages) {
    const bool has_role =
        message.is_object() && message.contains("role") && message["role"].is_string();
    if (!has_role || !message.contains("content") || !message["content"].is_string())
      return "a message is not like {\"role\": \"tool\", \"content\": \"text\"}";
    if (message["role"] == "assistant")
      return "a message has the role assistant, and only the model writes those";
  }
  return "";
}

bool is_reward(const Json& value) {
  return value.is_number() && std::abs(value.get<double>()) <= reward::kMaxScore;
}

bool is_token(const Json& value) {
  return value.is_number_integer() && value >= 0 && value <= std::numeric_limits<int32_t>::max();
}

// The field's value; null if it is missing.
const Json& field(const Json& json, const char* name) {
  static const Json none;
  const auto found = json.find(name);
  return found == json.end() ? none : *found;
}

// Reads what replaces the prompt. The template checks the messages (turn_renderer.h).
void read_prompt(const Json& json, EnvironmentAnswer& answer) {
  if (const Json& prompt = field(json, "prompt"); !prompt.is_null()) {
    answer.fault = fault_of_list(prompt, "prompt");
    if (answer.fault.empty() && prompt.empty()) answer.fault = "`prompt` has no messages";
    answer.prompt = prompt;
  }
  const Json& tokens = field(json, "prompt_token_ids");
  if (tokens.is_null() || !answer.fault.empty()) return;
  if (!tokens.is_array() || tokens.empty() || !std::ranges::all_of(tokens, is_token))
    answer.fault = "`prompt_token_ids` is no list of token ids";
  else if (!answer.messages.empty())
    answer.fault = "`messages` cannot follow `prompt_token_ids`, which are the whole prompt";
  else
    answer.prompt_token_ids = tokens.get<std::vector<int32_t>>();
}

// Reads the fields of an answer; its fault says which one is wrong.
EnvironmentAnswer answer_of(const Json& json) {
  EnvironmentAnswer answer;
  if (const auto error = json.find("error"); error != json.end()) {
    answer.fault =
        "says: " +
        one_sentence(error->is_string() ? error->get<std::string>() : dumped(*error), kMostShown);
    return answer;
  }
  if (const Json& messages = field(json, "messages"); !messages.is_null()) {
    answer.fault = fault_of_messages(messages);
    if (answer.fault.empty()) answer.messages = messages;
  }
  if (answer.fault.empty()) read_prompt(json, answer);
  if (const Json& reward = field(json, "reward"); !reward.is_null()) {
    if (!is_reward(reward)) answer.fault = "`reward` is no number of at most 1e9";
    if (is_reward(reward)) answer.reward = reward.get<double>();
  }
  if (const auto done = json.find("done"); done != json.end()) {
    if (!done->is_boolean()) answer.fault = "`done` is not true or false";
    if (done->is_boolean()) answer.is_done = done->get<bool>();
  }
  if (const auto extra = json.find("extra"); extra != json.end() && extra->is_object())
    for (const auto& [name, value] : extra->items())
      if (value.is_number() && std::isfinite(value.get<double>()))
        answer.extras[name] = value.get<double>();
  if (!answer.fault.empty()) answer.fault = "gave a wrong answer: " + answer.fault;
  return answer;
}

std::string unasked(const std::string& text) {
  return "wrote `" + one_sentence(text, kMostShown) +
         "`, which answers no open call (other output belongs on standard error)";
}

}  // namespace

EnvironmentPool::EnvironmentPool(const EnvironmentOptions& options,
                                 std::function<Clock::time_point()> now)
    : options_(options),
      now_(std::move(now)),
      command_(shell_command(options.command)),
      timeout_(to_duration(options.timeout_seconds)),
      programs_(static_cast<size_t>(options.processes)) {}

// Together: the time that a program has to exit does not add up.
EnvironmentPool::~EnvironmentPool() {
  for (Program& program : programs_) {
    if (!program.child) continue;
    flush(program);
    program.child->close_input();
  }
}

void EnvironmentPool::check(const Json& row) {
  const int64_t episode = open(row, /*seed=*/0);
  std::vector<EnvironmentAnswer> answers;
  while ((answers = poll()).empty()) wait(/*seconds=*/1);
  close(episode);
  TLT_CHECK_INPUT(answers.front().fault.empty(), answers.front().fault,
                  " when an episode of the first row was begun (docs/environments.md)");
}

int64_t EnvironmentPool::open(const Json& row, uint32_t seed) {
  const auto program = std::ranges::min_element(
      programs_, {}, [](const Program& one) { return one.episodes.size(); });
  const int64_t episode = ++last_episode_;
  program->episodes.insert(episode);
  program_of_[episode] = static_cast<size_t>(program - programs_.begin());
  if (!program->child) {
    program->child = std::make_unique<sandbox::ChildProcess>(command_);
    program->last_answer = now_();
  }
  send(*program, episode, {{"call", "reset"}, {"episode", episode}, {"seed", seed}, {"row", row}});
  return episode;
}

void EnvironmentPool::step(int64_t episode, const EnvironmentTurn& turn) {
  send(programs_[program_of_.at(episode)], episode,
       {{"call", "step"},
        {"episode", episode},
        {"turn", turn.turn},
        {"message", turn.message},
        {"tool_calls", turn.tool_calls}});
}

void EnvironmentPool::send(Program& program, int64_t episode, const Json& call) {
  const int64_t id = ++last_id_;
  Json request = {{"id", id}};
  request.update(call);
  program.calls[id] = {.episode = episode, .sent = now_()};
  post(program, request);
}

void EnvironmentPool::post(Program& program, const Json& call) {
  if (program.max_batch == 1) return program.child->post(dumped(call));
  program.unwritten.push_back(dumped(call));
}

// In lines that a program with tlt's own limit can read.
void EnvironmentPool::flush(Program& program) {
  std::string line;
  int64_t calls = 0;
  const auto write = [&] {
    if (calls > 0) program.child->post(calls > 1 ? "[" + line + "]" : line);
    line.clear();
    calls = 0;
  };
  for (const std::string& call : std::exchange(program.unwritten, {})) {
    if (calls == program.max_batch || line.size() + call.size() + 3 > sandbox::kMaxLineBytes)
      write();
    line += (calls++ > 0 ? "," : "") + call;
  }
  write();
}

void EnvironmentPool::flush() {
  for (Program& program : programs_)
    if (program.child) flush(program);
}

void EnvironmentPool::close(int64_t episode) {
  const auto found = program_of_.find(episode);
  if (found == program_of_.end()) return;
  Program& program = programs_[found->second];
  forget(program, episode);
  if (program.child) post(program, {{"call", "close"}, {"episode", episode}});
}

void EnvironmentPool::close_all() {
  while (!program_of_.empty()) close(program_of_.begin()->first);
  answers_.clear();
  flush();
}

void EnvironmentPool::forget(Program& program, int64_t episode) {
  program.episodes.erase(episode);
  program_of_.erase(episode);
  for (auto& [id, call] : program.calls)
    if (call.episode == episode) call.episode = kClosed;
}

std::vector<EnvironmentAnswer> EnvironmentPool::poll() {
  flush();
  for (Program& program : programs_) {
    if (program.child) read(program);
    if (program.child) check_time(program);
  }
  return std::exchange(answers_, {});
}

bool EnvironmentPool::wait(double seconds) {
  flush();
  std::vector<sandbox::ChildProcess*> children;
  for (Program& program : programs_)
    if (program.child) children.push_back(program.child.get());
  return sandbox::ChildProcess::wait_for_any(children, seconds);
}

void EnvironmentPool::read(Program& program) {
  std::vector<std::string> lines;
  const auto outcome = program.child->exchange(&lines);
  for (const std::string& line : lines)
    if (!try_take_line(program, line)) return;
  if (outcome == sandbox::ChildProcess::Outcome::kTooLong) {
    end(program,
        check_internal::concat("wrote a line of more than ", sandbox::kMaxLineBytes, " bytes"));
  } else if (outcome == sandbox::ChildProcess::Outcome::kEnded) {
    end(program, program.child->end());
  }
}

bool EnvironmentPool::try_take_line(Program& program, const std::string& line) {
  const Json answer = parse_limited_json(line);
  if (answer.is_discarded()) {
    end(program, unasked(line));
    return false;
  }
  if (answer.is_array() && program.max_batch > 1)
    return std::ranges::all_of(answer, [&](const Json& one) { return try_take(program, one); });
  return try_take(program, answer);
}

bool EnvironmentPool::try_take(Program& program, const Json& answer) {
  const bool has_id =
      answer.is_object() && answer.contains("id") && answer["id"].is_number_integer();
  const auto call = program.calls.find(has_id ? answer["id"].get<int64_t>() : 0);
  if (call == program.calls.end()) {
    end(program, unasked(dumped(answer)));
    return false;
  }
  const int64_t episode = call->second.episode;
  program.calls.erase(call);
  program.last_answer = now_();
  if (episode != kClosed) take(program, episode, answer);
  return true;
}

void EnvironmentPool::take(Program& program, int64_t episode, const Json& answer) {
  EnvironmentAnswer taken = answer_of(answer);
  if (const Json& batch = field(answer, "max_batch"); !batch.is_null()) {
    if (!batch.is_number_integer() || batch < 1)
      return fail(program, episode, "gave a wrong answer: `max_batch` is no number from 1 on");
    program.max_batch = std::max(program.max_batch, std::min(batch.get<int64_t>(), kMaxBatch));
  }
  if (!taken.fault.empty()) return fail(program, episode, taken.fault);
  taken.episode = episode;
  if (taken.is_done) forget(program, episode);
  answers_.push_back(std::move(taken));
}

// A program that is slow with one call and answers others is kept; one that is silent is ended.
void EnvironmentPool::check_time(Program& program) {
  const Clock::time_point late = now_() - timeout_;
  const std::string what = check_internal::concat(
      "gave no answer within ", options_.timeout_seconds, " seconds (environment.timeout_seconds)");
  std::vector<int64_t> failed;
  for (const auto& [id, call] : program.calls) {
    if (call.sent > late) continue;
    if (program.last_answer <= call.sent) return end(program, what);
    if (call.episode != kClosed) failed.push_back(call.episode);
  }
  for (const int64_t episode : failed) fail(program, episode, what);
}

void EnvironmentPool::fail(Program& program, int64_t episode, const std::string& what) {
  answers_.push_back({.episode = episode, .fault = named(what)});
  forget(program, episode);
  post(program, {{"call", "close"}, {"episode", episode}});
}

void EnvironmentPool::end(Program& program, const std::string& what) {
  program.child->end();
  const std::string words = program.child->last_words();
  const std::string fault =
      named(what) + (words.empty() ? "" : "; its standard error ends in: " + words);
  for (const int64_t episode : program.episodes) {
    // An answer that arrived just before stands for nothing any more.
    std::erase_if(answers_, [&](const EnvironmentAnswer& it) { return it.episode == episode; });
    answers_.push_back({.episode = episode, .fault = fault});
    program_of_.erase(episode);
  }
  program = {};
}

std::string EnvironmentPool::named(const std::string& what) const {
  return "environment.command `" +
         one_sentence(command_.substr(std::string_view("exec ").size()), kMostShown) + "` " + what;
}

}  // namespace tlt::environment
