// SPDX-License-Identifier: Apache-2.0
#include "rl/remote_teacher.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/json_limits.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "base/watchdog.h"

namespace tlt::rl {
namespace {

using Json = nlohmann::ordered_json;
using reward::quoted_answer;

constexpr const char* kKeyVariable = "TLT_TEACHER_API_KEY";
constexpr const char* kOption = "distillation.teacher";
// Largest answer: its head and text, and what servers write for each token.
constexpr int64_t kAnswerHeadBytes = 1 << 16, kAnswerTokenBytes = 1 << 10;
constexpr double kStartSeconds = 60;  // for each answer at the start
constexpr double kQuietSeconds = 10;  // without any answer, before a warning
constexpr auto kLookAgain = std::chrono::milliseconds(50);
constexpr double kMostLogprob = 1e-3;  // above 0 by rounding

// The answer's list, with one entry for each token. Throws Error if there is none.
Json prompt_logprobs_of(const std::string& body, size_t tokens) {
  Json answer = parse_limited_json(body);
  const Json::json_pointer place("/choices/0/prompt_logprobs");
  if (!answer.is_object() || !answer.contains(place) || !answer.at(place).is_array())
    throw Error("the teacher's server answered " + quoted_answer(body) +
                ", which has no prompt_logprobs");
  Json list = std::move(answer.at(place));
  if (list.size() != tokens)
    throw Error(fmt::format("the teacher's server answered {} logprobs for {} tokens", list.size(),
                            tokens));
  return list;
}

// The list's entry for a token. Throws Error if there is none.
const Json& entry_of(const Json& list, size_t position, int32_t token) {
  const Json& entries = list[position];
  const std::string id = std::to_string(token);
  if (!entries.is_object() || !entries.contains(id) || !entries.at(id).is_object())
    throw Error(fmt::format("the teacher's server answered no logprob for token {} at position {}",
                            token, position));
  return entries.at(id);
}

float logprob_of(const Json& list, size_t position, int32_t token) {
  const Json& entry = entry_of(list, position, token);
  const Json value = entry.value("logprob", Json());
  const double logprob = value.is_number() ? value.get<double>() : std::nan("");
  // Also refuses NaN and what is not finite as a float, which the update would report as a fault of
  // the student's.
  if (!(logprob <= kMostLogprob && logprob >= std::numeric_limits<float>::lowest()))
    throw Error(
        fmt::format("the teacher's server answered the logprob {} for token {} at position "
                    "{}",
                    quoted_answer(value.dump()), token, position));
  return static_cast<float>(logprob);
}

// Tokens of printable ASCII, spread over the vocabulary.
std::vector<int32_t> probe_of(const tokenizer::Tokenizer& tokenizer) {
  const auto is_plain = [&](int32_t id) {
    const std::string_view text = tokenizer.token_bytes(id);
    return !text.empty() && !tokenizer.is_special(id) &&
           std::ranges::all_of(text, [](unsigned char c) { return c >= ' ' && c < 0x7f; });
  };
  std::vector<int32_t> plain, probe;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (is_plain(id)) plain.push_back(id);
  const auto wanted = static_cast<size_t>(kProbeTokens);
  const size_t stride = std::max<size_t>(1, plain.size() / wanted);
  for (size_t i = 0; i < plain.size() && probe.size() < wanted; i += stride)
    probe.push_back(plain[i]);
  return probe;
}

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

}  // namespace

// The requests of this worker, of which kRequestsInFlight are made at a time.
class RemoteTeacher::Batch {
 public:
  Batch(const RemoteTeacher& teacher, std::span<const train::TrainSample> samples,
        std::vector<size_t> mine)
      : teacher_(teacher), samples_(samples), mine_(std::move(mine)), logprobs_(samples.size()) {
    const size_t threads = std::min(mine_.size(), static_cast<size_t>(kRequestsInFlight));
    for (size_t i = 0; i < threads; ++i) threads_.push_back(start_thread([this] { work(); }));
  }
  ~Batch() {
    stops_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Waits for all of them, the first fault, or `should_stop`. Call once.
  TeacherScores wait(const std::function<bool()>& should_stop) {
    const Stopwatch watch;
    bool is_warned = false;
    while (done_ < mine_.size() && !stops_) {
      report_progress();
      if (should_stop && should_stop()) stops_ = true;
      if (done_ == 0 && !is_warned && watch.seconds() > kQuietSeconds) {
        is_warned = true;
        log_warning("{} has not answered for {:.0f} s; it has up to {:.0f} s for a response",
                    teacher_.completions_.origin, kQuietSeconds, teacher_.answer_seconds_);
      }
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kLookAgain);
    }
    stops_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return {std::move(logprobs_), std::move(fault_)};
  }

 private:
  void work() {
    for (size_t next = 0; (next = next_++) < mine_.size() && !stops_;) {
      try {
        logprobs_[mine_[next]] = score(samples_[mine_[next]]);
        ++done_;
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex_);
        if (fault_.empty() && !stops_) fault_ = error.what();
        stops_ = true;
      }
      changed_.notify_all();
    }
  }

  std::vector<float> score(const train::TrainSample& sample) const {
    const Json list = teacher_.ask(sample.tokens, reward::http_deadline(teacher_.answer_seconds_),
                                   [this] { return stops_.load(); });
    std::vector<float> logprobs;
    for (auto i = static_cast<size_t>(sample.response_begin); i < sample.tokens.size(); ++i)
      logprobs.push_back(logprob_of(list, i, sample.tokens[i]));
    return logprobs;
  }

  const RemoteTeacher& teacher_;
  const std::span<const train::TrainSample> samples_;
  const std::vector<size_t> mine_;            // of the samples
  std::vector<std::vector<float>> logprobs_;  // a thread writes those of its requests
  std::atomic<size_t> next_ = 0, done_ = 0;
  std::atomic<bool> stops_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string fault_;                 // guarded by mutex_
  std::vector<std::thread> threads_;  // last: they use the rest
};

RemoteTeacher::RemoteTeacher(const std::string& url, double answer_seconds)
    : answer_seconds_(answer_seconds),
      key_(reward::api_key(kKeyVariable)),
      base_(reward::parse_http_url(kOption, url)) {
  while (base_.path.ends_with('/')) base_.path.pop_back();
  completions_ = {.origin = base_.origin, .path = base_.path + "/completions"};
}

Json RemoteTeacher::ask(std::span<const int32_t> tokens, reward::HttpClock::time_point deadline,
                        const std::function<bool()>& should_stop) const {
  const Json request = {{"model", model_},
                        {"prompt", tokens},
                        {"max_tokens", 1},
                        {"temperature", 0},
                        {"prompt_logprobs", 0}};
  const std::string body = reward::post_json(
      {&completions_, 1},
      {.body = request.dump(),
       .bearer_token = key_,
       .max_answer_bytes = kAnswerHeadBytes + kAnswerTokenBytes * std::ssize(tokens),
       .max_tries = std::numeric_limits<int>::max(),
       .should_stop = should_stop},
      deadline);
  return prompt_logprobs_of(body, tokens.size());
}

void RemoteTeacher::start(const tokenizer::Tokenizer& tokenizer) {
  const reward::HttpUrl models{.origin = base_.origin, .path = base_.path + "/models"};
  const reward::HttpAnswer answer =
      reward::exchange(models, {.bearer_token = key_}, reward::http_deadline(kStartSeconds));
  TLT_CHECK_INPUT(answer.status != 0, kOption, ": ", models.origin, " ", answer.fault,
                  "; start the server there, or correct the URL");
  TLT_CHECK_INPUT(answer.status != 401 && answer.status != 403, kOption, ": ", models.origin,
                  " wants a key (status ", answer.status, "); set the environment variable ",
                  kKeyVariable);
  const Json list = parse_limited_json(answer.body);
  const Json::json_pointer id("/data/0/id");
  TLT_CHECK_INPUT(
      answer.status == 200 && list.is_object() && list.contains(id) && list.at(id).is_string(),
      kOption, ": ", models.origin, models.path, " answered status ", answer.status, " and ",
      quoted_answer(answer.body), ", which is no list of models; give the URL up to /v1");
  model_ = list.at(id).get<std::string>();
  check_tokens(tokenizer);
}

void RemoteTeacher::check_tokens(const tokenizer::Tokenizer& tokenizer) const {
  const std::vector<int32_t> probe = probe_of(tokenizer);
  int64_t compared = 0;
  try {
    const Json list = ask(probe, reward::http_deadline(kStartSeconds), {});
    for (size_t i = 1; i < probe.size(); ++i) {
      logprob_of(list, i, probe[i]);
      const Json text = entry_of(list, i, probe[i]).value("decoded_token", Json());
      if (!text.is_string()) continue;
      ++compared;
      const std::string theirs = text.get<std::string>(), mine(tokenizer.token_bytes(probe[i]));
      if (without_spaces(theirs) != without_spaces(mine))
        throw Error(
            fmt::format("token {} is {} in the teacher's vocabulary and {} in the "
                        "student's; give a teacher with the same tokenizer",
                        probe[i], quoted_answer(theirs), quoted_answer(mine)));
    }
  } catch (const InputError&) {
    throw;
  } catch (const Error& error) {
    throw InputError(fmt::format("{}: {}", kOption, error.what()));
  }
  log_info("{}: {} at {}; {}", kOption, model_, base_.origin,
           compared > 0 ? fmt::format("{} of its tokens are the student's", compared)
                        : "it gives no texts of tokens, so these are not compared");
}

TeacherScores RemoteTeacher::score(std::span<const train::TrainSample> samples, cluster::Comm& comm,
                                   const std::function<bool()>& should_stop) const {
  TeacherScores all;
  comm.section("teacher", [&] {
    std::vector<size_t> mine;
    for (auto i = static_cast<size_t>(comm.rank()); i < samples.size();
         i += static_cast<size_t>(comm.size()))
      if (samples[i].response_size() > 0) mine.push_back(i);
    TeacherScores own = Batch(*this, samples, mine).wait(should_stop);
    ByteWriter out;  // fault, then (sample, logprobs) of this worker
    out.list(own.fault);
    for (const size_t i : mine) {
      out.value(static_cast<int64_t>(i));
      out.list(own.logprobs[i]);
    }
    all = {.logprobs = std::vector<std::vector<float>>(samples.size()), .fault = ""};
    for (const std::string& bytes : comm.all_gather_bytes(out.take())) {
      ByteReader in(bytes);
      const auto fault = in.list<std::string>();
      if (all.fault.empty()) all.fault = fault;
      while (!in.at_end()) {
        const auto i = in.value<int64_t>();
        all.logprobs.at(static_cast<size_t>(i)) = in.list<std::vector<float>>();
      }
    }
  });
  return all;
}

}  // namespace tlt::rl
