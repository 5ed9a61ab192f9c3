// SPDX-License-Identifier: Apache-2.0
#include "serve/engine_loop.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "cluster/launch.h"
#include "model/hf_folder.h"
#include "serve/api_error.h"
#include "train/trainer.h"

namespace tlt::serve {
namespace {

template <class T>
std::vector<T> items_from(const std::vector<T>& items, size_t begin) {
  return begin >= items.size()
             ? std::vector<T>{}
             : std::vector<T>(items.begin() + static_cast<std::ptrdiff_t>(begin), items.end());
}

// The tokens of a response, running or finished, from `begin` on.
template <class Response>
TokenDelta delta_of(const Response& response, size_t begin, int64_t choice) {
  return {.choice = choice,
          .tokens = items_from(response.tokens, begin),
          .logprobs = items_from(response.logprobs, begin),
          .top_logprobs = items_from(response.top_logprobs, begin),
          .finish = {},
          .cached_tokens = 0};
}

}  // namespace

int64_t EngineJob::responses() const {
  int64_t sum = 0;
  for (const rollout::Group& group : groups) sum += group.samples;
  return sum;
}

EngineLoop::EngineLoop(model::PolicyModel& policy, const Options& options,
                       const rollout::StopString* stop_string,
                       std::unique_ptr<rollout::Speculation> speculation)
    : policy_(policy),
      options_(options),
      speculation_(std::move(speculation)),
      engine_(policy, options.engine, stop_string, /*observer=*/nullptr, speculation_.get()),
      alone_(cluster::make_comm(cluster::Launch{}, {})) {
  publish();
}

void EngineLoop::run() {
  try {
    decode();
  } catch (...) {
    fail_all(std::current_exception());
    throw;
  }
}

void EngineLoop::decode() {
  while (true) {
    take_inbox();
    if (active_.empty()) apply_update();
    const bool is_busy = engine_.step();
    publish();  // who has an answer finds it counted
    deliver_running();
    deliver_finished();
    if (is_busy) continue;
    const std::lock_guard lock(mutex_);
    if (is_closed_ && inbox_.empty() && updates_.empty()) return;
  }
}

// Waits while there is nothing to do.
void EngineLoop::take_inbox() {
  std::vector<std::shared_ptr<ResponseChannel>> cancelled;
  bool cancels_all = false;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return !active_.empty() || !inbox_.empty() || !cancelled_.empty() || !updates_.empty() ||
             is_closed_;
    });
    cancelled.swap(cancelled_);
    cancels_all = cancels_all_;
    for (const auto& channel : cancelled) {
      const auto is_meant = [&](const Submission& waiting) { return waiting.channel == channel; };
      const auto waiting = std::ranges::find_if(inbox_, is_meant);
      if (waiting == inbox_.end()) continue;
      stats_.unfinished -= waiting->job.responses();
      inbox_.erase(waiting);
    }
    while (!inbox_.empty() && inbox_.front().after_updates <= begun_updates_)
      starting_.splice(starting_.end(), inbox_, inbox_.begin());
  }
  for (const auto& channel : cancelled) stop(channel);
  for (; !starting_.empty(); starting_.pop_front()) start(starting_.front());
  if (!cancels_all) return;
  engine_.cancel_all();
  deliver_finished();
}

// The same for the same prompt unless it is in use, so that a drafter finds earlier responses to it.
// It affects no token: the groups have random keys.
uint32_t EngineLoop::free_prompt_id(const std::vector<int32_t>& prompt) const {
  const std::string_view bytes(reinterpret_cast<const char*>(prompt.data()),
                               prompt.size() * sizeof(int32_t));
  auto id = static_cast<uint32_t>(std::hash<std::string_view>{}(bytes));
  while (active_.contains(id)) ++id;
  return id;
}

void EngineLoop::start(Submission& submission) {
  const std::shared_ptr<ResponseChannel>& channel = submission.channel;
  int64_t choice = 0;
  try {
    for (rollout::Group& group : submission.job.groups) {
      const int64_t samples = group.samples;
      group.prompt_id = free_prompt_id(group.tokens);
      const uint32_t id = group.prompt_id;
      engine_.submit(std::move(group));
      active_[id] = {.channel = channel,
                     .first_choice = choice,
                     .streams = submission.job.streams,
                     .sent = std::vector<size_t>(static_cast<size_t>(samples)),
                     .unfinished = samples};
      choice += samples;
    }
    channel->open(stats_.weight_version);  // only this thread changes it
  } catch (const InputError&) {
    channel->fail(std::current_exception());
    stop(channel);
    count_finished(submission.job.responses() - choice);  // the others are counted when they end
  }
}

void EngineLoop::stop(const std::shared_ptr<ResponseChannel>& channel) {
  for (const auto& [id, active] : active_) {
    if (active.channel != channel) continue;
    for (uint32_t sample = 0; sample < active.sent.size(); ++sample) engine_.cancel(id, sample);
  }
  deliver_finished();
}

void EngineLoop::apply_update() {
  Update update;
  {
    const std::lock_guard lock(mutex_);
    if (updates_.empty()) return;
    update = std::move(updates_.front());
    updates_.pop_front();
    ++begun_updates_;
  }
  bool has_changed = false;
  try {
    has_changed = update.job();
  } catch (...) {
    return update.version.set_exception(std::current_exception());
  }
  if (has_changed) {
    engine_.new_weights();
    if (speculation_) speculation_->new_weights();
  }
  const std::lock_guard lock(mutex_);
  if (has_changed) ++stats_.weight_version;
  update.version.set_value(stats_.weight_version);
}

void EngineLoop::deliver_running() {
  for (const auto& sequence : engine_.running_sequences()) {
    Active& active = active_.at(sequence->group->request.prompt_id);
    size_t& sent = active.sent[sequence->sample];
    if (!active.streams || sent == sequence->tokens.size()) continue;
    active.channel->push(delta_of(*sequence, sent, active.first_choice + sequence->sample));
    sent = sequence->tokens.size();
  }
}

void EngineLoop::deliver_finished() {
  const std::vector<rollout::Response> finished = engine_.take_finished();
  count_finished(std::ssize(finished));
  for (const rollout::Response& response : finished) {
    const auto found = active_.find(response.prompt_id);
    TLT_CHECK(found != active_.end(), "a response to prompt ", response.prompt_id);
    Active& active = found->second;
    TokenDelta delta = delta_of(response, active.sent[response.sample],
                                active.first_choice + int64_t{response.sample});
    delta.finish = response.finish;
    delta.cached_tokens = response.cached_tokens;
    active.channel->push(std::move(delta));
    if (--active.unfinished == 0) active_.erase(found);
  }
}

void EngineLoop::count_finished(int64_t responses) {
  if (responses == 0) return;
  const std::lock_guard lock(mutex_);
  stats_.unfinished -= responses;
}

void EngineLoop::publish() {
  const rollout::EngineStats engine = engine_.stats();
  rollout::SpeculationStats speculation;
  if (speculation_) speculation = speculation_->stats();
  const std::lock_guard lock(mutex_);
  stats_.engine = engine;
  stats_.speculation = speculation;
}

void EngineLoop::admit(int64_t responses) {
  if (is_closed_) throw unavailable("the server is stopping; send the request to another one");
  if (stats_.unfinished + responses > max_responses())
    throw too_many_requests(std::to_string(stats_.unfinished) +
                            " responses run or wait, and this server takes at most " +
                            std::to_string(max_responses()) + "; try again later");
  stats_.unfinished += responses;
}

std::shared_ptr<ResponseChannel> EngineLoop::submit(EngineJob job) {
  const int64_t responses = job.responses();
  const std::lock_guard lock(mutex_);
  admit(responses);
  auto channel = std::make_shared<ResponseChannel>();
  inbox_.push_back({std::move(job), channel, begun_updates_ + std::ssize(updates_)});
  changed_.notify_one();
  return channel;
}

void EngineLoop::cancel(const std::shared_ptr<ResponseChannel>& channel) {
  const std::lock_guard lock(mutex_);
  cancelled_.push_back(channel);
  changed_.notify_one();
}

int64_t EngineLoop::update_weights(const std::string& folder) {
  const int64_t version = run_while_idle([this, &folder] {
    model::reload_policy(policy_, folder);
    return true;
  });
  log_info("weights of {}: version {}", folder, version);
  return version;
}

int64_t EngineLoop::run_while_idle(std::function<bool()> job) {
  std::future<int64_t> version;
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_) throw unavailable("the server is stopping");
    updates_.push_back({std::move(job), {}});
    version = updates_.back().version.get_future();
    changed_.notify_one();
  }
  return version.get();
}

ScoredPrompts EngineLoop::score(const std::vector<std::vector<int32_t>>& prompts) {
  std::vector<train::TrainSample> samples;
  for (const std::vector<int32_t>& prompt : prompts) {
    train::TrainSample& sample = samples.emplace_back();
    sample.tokens = prompt;
    sample.response_begin = 1;
    sample.group = std::ssize(samples);
  }
  {
    const std::lock_guard lock(mutex_);
    admit(std::ssize(prompts));
  }
  struct Admitted {
    EngineLoop& loop;
    const int64_t prompts;
    ~Admitted() { loop.count_finished(prompts); }
  } const admitted{*this, std::ssize(prompts)};
  ScoredPrompts scored;
  scored.weight_version = run_while_idle([&] {
    scored.logprobs = train::score_samples(policy_, samples, {}, *alone_);
    return false;
  });
  return scored;
}

void EngineLoop::close(bool cancels) {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  cancels_all_ = cancels;
  changed_.notify_one();
}

LoopStats EngineLoop::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void EngineLoop::fail_all(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  for (const auto& [id, active] : active_) active.channel->fail(error);
  for (const Submission& submission : starting_) submission.channel->fail(error);
  for (const Submission& waiting : inbox_) waiting.channel->fail(error);
  for (Update& update : updates_) update.version.set_exception(error);
  active_.clear();
  starting_.clear();
  inbox_.clear();
  updates_.clear();
}

}  // namespace tlt::serve
