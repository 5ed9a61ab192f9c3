// SPDX-License-Identifier: Apache-2.0
#include "cluster/continuing_comm.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/sentence.h"
#include "base/watchdog.h"

namespace tlt::cluster {
namespace {

// A network that breaks connections may do so again, but the end must not be waited for in vain.
constexpr int64_t kMostWithoutLoss = 3;
constexpr std::chrono::milliseconds kNap(20);

// A collective of the present group failed: its section begins again.
class BrokenGroupError : public LostWorkerError {
 public:
  using LostWorkerError::LostWorkerError;
};

std::string place_key(int attempt, int worker) {
  return fmt::format("again/{}/worker_{}", attempt, worker);
}
std::string decision_key(int attempt) { return fmt::format("again/{}/decision", attempt); }

// Reads or writes the store; its exceptions mean that whoever serves it is gone.
template <class Call>
auto with_store(const Call& call) {
  try {
    return call();
  } catch (const InputError&) {
    throw;  // a value that no worker has written
  } catch (const std::exception&) {
    throw LostWorkerError(
        std::string(
            "worker 0, which serves the rendezvous, is lost, and the others cannot continue "
            "without it; ") +
        kResumes);
  }
}

std::vector<int> without(const std::vector<int>& all, const std::vector<int>& some) {
  std::vector<int> rest;
  std::ranges::set_difference(all, some, std::back_inserter(rest));
  return rest;
}

}  // namespace

ContinuingComm::ContinuingComm(std::unique_ptr<Comm> all, c10::intrusive_ptr<c10d::Store> store,
                               Reconnect reconnect, double timeout_seconds)
    : store_(std::move(store)),
      reconnect_(std::move(reconnect)),
      timeout_seconds_(timeout_seconds),
      worker_(all->rank()),
      group_(std::move(all)),
      rank_(worker_) {
  for (int worker = 0; worker < group_->size(); ++worker) workers_.push_back(worker);
}

ContinuingComm::~ContinuingComm() = default;

void ContinuingComm::continue_after_loss(std::function<bool(int)> is_lost) {
  is_lost_ = std::move(is_lost);
  group_->continue_after_loss(is_lost_);
}

void ContinuingComm::check_lost(const std::vector<int>& workers) {
  if (!continues_after_loss()) return Comm::check_lost(workers);
  const auto still_in = std::ranges::find_first_of(workers, workers_);
  if (still_in == workers.end()) return;
  given_up_.insert(workers.begin(), workers.end());
  throw BrokenGroupError(fmt::format("worker {} is lost", *still_in));
}

template <class Call>
auto ContinuingComm::call(const Call& collective) {
  try {
    return collective();
  } catch (const LostWorkerError& error) {
    if (!continues_after_loss()) throw;
    throw BrokenGroupError(error.what());
  }
}

void ContinuingComm::section(const std::string& name, const std::function<void()>& body) {
  if (is_inside_ || !continues_after_loss()) return body();
  is_inside_ = true;
  const std::shared_ptr<void> leave(nullptr, [this](void*) { is_inside_ = false; });
  without_loss_ = 0;
  bool is_done = false;
  for (bool repeats = true; repeats;) {
    try {
      if (!is_done) body();
      is_done = true;
      call([&] { group_->barrier("after " + name); });
      repeats = false;
    } catch (const BrokenGroupError& error) {
      repeats = repeats_after_loss(is_done, error.what());
      is_done = false;
    }
  }
  ++section_;
}

void ContinuingComm::barrier(const std::string& name) {
  section(name, [&] { call([&] { group_->barrier(name); }); });
}

// The tensor is kept until the collective has succeeded: one that fails may have changed it.
template <class Call>
void ContinuingComm::in_place(const char* name, at::Tensor& tensor, const Call& collective) {
  if (is_inside_ || !continues_after_loss()) return call([&] { collective(tensor); });
  at::Tensor result;
  section(name, [&] {
    result = tensor.clone();
    call([&] { collective(result); });
  });
  tensor.copy_(result);
}

void ContinuingComm::all_reduce_sum(at::Tensor& tensor) {
  in_place("sum", tensor, [&](at::Tensor& values) { group_->all_reduce_sum(values); });
}

void ContinuingComm::all_reduce_max(at::Tensor& tensor) {
  in_place("maximum", tensor, [&](at::Tensor& values) { group_->all_reduce_max(values); });
}

// Without a lost rank there would be no worker for its part.
at::Tensor ContinuingComm::reduce_scatter_sum(const at::Tensor& parts,
                                              const std::vector<int64_t>& sizes) {
  TLT_CHECK(is_inside_ || !continues_after_loss(), "reduce_scatter_sum outside of a section");
  return call([&] { return group_->reduce_scatter_sum(parts, sizes); });
}

void ContinuingComm::broadcast(at::Tensor& tensor, int root) {
  in_place("broadcast", tensor, [&](at::Tensor& values) { group_->broadcast(values, root); });
}

void ContinuingComm::all_gather(at::Tensor& parts) {
  in_place("all_gather", parts, [&](at::Tensor& values) { group_->all_gather(values); });
}

std::vector<std::string> ContinuingComm::all_gather_bytes(const std::string& bytes) {
  std::vector<std::string> all;
  section("all_gather_bytes", [&] { all = call([&] { return group_->all_gather_bytes(bytes); }); });
  return all;
}

std::vector<double> ContinuingComm::all_reduce_sum(std::vector<double> values) {
  std::vector<double> sums;
  section("sums", [&] { sums = call([&] { return group_->all_reduce_sum(values); }); });
  return sums;
}

// Forms the next group. Returns whether the section begins again; false: all workers that are left
// have done it.
bool ContinuingComm::repeats_after_loss(bool is_done, const std::string& cause) {
  const Stopwatch watch;
  const std::vector<int> before = workers_;
  bool repeats = true;
  for (group_.reset(); !group_;) {
    ++attempt_;
    const Decision decision = meet({section_, is_done});
    repeats = section_ == decision.place.section && !decision.place.is_done;
    TLT_CHECK(repeats || is_done, "worker ", worker_, " is in section ", section_,
              ", another one in ", decision.place.section);
    is_done = !repeats;
    if (decision.workers == workers_ && ++without_loss_ > kMostWithoutLoss)
      throw LostWorkerError(
          fmt::format("{} groups in succession failed although no worker is lost: {}; {}",
                      without_loss_, cause, kResumes));
    workers_ = decision.workers;
    rank_ = static_cast<int>(std::ranges::find(workers_, worker_) - workers_.begin());
    try {
      group_ = size() == 1 ? make_solo_comm() : reconnect_(attempt_, rank_, size());
      group_->continue_after_loss(is_lost_);
    } catch (const LostWorkerError&) {
      // Another worker was lost meanwhile: they meet again.
    }
  }
  report_loss(before, watch.seconds());
  return repeats;
}

void ContinuingComm::report_loss(const std::vector<int>& before, double seconds) {
  const std::vector<int> lost = without(before, workers_);
  lost_.insert(lost.begin(), lost.end());
  if (rank_ != 0) return;
  if (lost.empty())
    log_warning("connections between the workers broke; they connected again in {:.1f} s", seconds);
  else
    log_warning("{} {} lost; continuing with {}; forming the group again took {:.1f} s",
                lost.size() == 1 ? fmt::format("worker {}", lost[0])
                                 : fmt::format("workers {}", fmt::join(lost, ", ")),
                lost.size() == 1 ? "is" : "are", counted(std::ssize(workers_), "worker"), seconds);
}

ContinuingComm::Decision ContinuingComm::meet(const Place& mine) {
  Decision decision = worker_ == 0 ? decide(mine) : await_decision(mine);
  if (!std::ranges::count(decision.workers, worker_))
    throw LostWorkerError(
        fmt::format("worker {} was silent for too long, and the others continue without it; {}",
                    worker_, kResumes));
  return decision;
}

// On rank 0. A worker that is given up is left out even if it comes: the coordinator has given its
// groups to others.
ContinuingComm::Decision ContinuingComm::decide(const Place& mine) {
  const Stopwatch watch;
  std::map<int, Place> here = {{worker_, mine}};
  std::set<int> awaited(workers_.begin() + 1, workers_.end());
  const auto resolve = [&](int worker) {
    if (given_up_.contains(worker) || is_lost_(worker)) return true;
    const std::string key = place_key(attempt_, worker);
    return with_store([&] {
      if (!store_->check({key})) return watch.seconds() > timeout_seconds_;
      const auto place = nlohmann::json::parse(store_->get_to_str(key));
      here[worker] = {place.at(0).get<int64_t>(), place.at(1).get<bool>()};
      return true;
    });
  };
  while (!awaited.empty()) {
    report_progress();  // the wait has a bound of its own
    std::erase_if(awaited, resolve);
    if (!awaited.empty()) std::this_thread::sleep_for(kNap);
  }
  Decision decision{.workers = {}, .place = {mine.section, true}};
  for (const auto& [worker, place] : here) {
    decision.workers.push_back(worker);
    decision.place.section = std::max(decision.place.section, place.section);
  }
  for (const auto& [worker, place] : here)
    decision.place.is_done &= place.is_done && place.section == decision.place.section;
  const nlohmann::json text = {decision.workers, decision.place.section, decision.place.is_done};
  with_store([&] { store_->set(decision_key(attempt_), text.dump()); });
  return decision;
}

// On the other ranks. Rank 0 may be busy until its next collective, and then wait for a worker.
ContinuingComm::Decision ContinuingComm::await_decision(const Place& mine) {
  const Stopwatch watch;
  const std::string key = decision_key(attempt_);
  const nlohmann::json place = {mine.section, mine.is_done};
  return with_store([&] {
    store_->set(place_key(attempt_, worker_), place.dump());
    while (!store_->check({key})) {
      TLT_CHECK(!is_lost_(0) && watch.seconds() < 3 * timeout_seconds_, "no decision of rank 0");
      report_progress();
      std::this_thread::sleep_for(kNap);
    }
    const auto text = nlohmann::json::parse(store_->get_to_str(key));
    return Decision{text.at(0).get<std::vector<int>>(),
                    {text.at(1).get<int64_t>(), text.at(2).get<bool>()}};
  });
}

}  // namespace tlt::cluster
