// SPDX-License-Identifier: Apache-2.0
#include "cluster/process_group_comm.h"

#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO  // the wheel's libtorch_cpu has Gloo; its headers check this
#endif
#include <ATen/ATen.h>
#include <c10/util/Logging.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <iomanip>
#include <map>
#include <numeric>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/check.h"
#include "base/checksum.h"
#include "base/log.h"
#include "base/sentence.h"
#include "base/watchdog.h"
#include "cluster/address.h"
#include "cluster/authenticated_store.h"
#include "cluster/continuing_comm.h"
#include "cluster/job_secret.h"
#include "cluster/launch.h"
#include "cluster/listeners.h"
#include "cluster/store_guard.h"
#include "runtime/cuda_driver.h"
#include "runtime/cuda_plugin.h"

namespace tlt::cluster {
namespace {

using Clock = std::chrono::steady_clock;
using StorePtr = c10::intrusive_ptr<c10d::Store>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// The message of an exception of c10d or Gloo on one line, without its stack trace and without the
// places in their source files: "[/pytorch/…/pair.cc:547] Connection closed by peer".
std::string reason(const std::exception& error) {
  static const std::regex place(R"(\[[^\]\s]*\.(cc|cpp|h):[0-9]+\] *)");
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = c10_error != nullptr ? c10_error->msg() : error.what();
  text = std::regex_replace(text, place, "");
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string seconds_text(double seconds) {
  std::ostringstream out;
  out << seconds << " s";
  return out.str();
}

std::string describe(const char* call, const at::Tensor& tensor) {
  std::ostringstream out;
  out << call << " of " << tensor.scalar_type() << " " << tensor.sizes();
  return out.str();
}

// Silences c10d, which logs harmless conditions to stderr (a host without a reverse name) and, with
// a stack trace, errors that our own Error reports anyway.
void silence_c10d() {
  constexpr int kFatal = 3;
  FLAGS_caffe2_log_level = std::max<int>(FLAGS_caffe2_log_level, kFatal);
}

// The host where rank 0, or torchrun's agent, serves the rendezvous.
std::string store_host(const Launch& launch) {
  return launch.one_host() && !launch.launcher_serves_store ? "127.0.0.1" : launch.master_address;
}

bool serves_store(const Launch& launch) {
  return launch.rank == 0 && !launch.launcher_serves_store;
}

StorePtr make_store(const Launch& launch, const CommOptions& options) {
  silence_c10d();
  const bool serves = serves_store(launch);
  c10d::TCPStoreOptions store_options;
  store_options.port = static_cast<uint16_t>(launch.master_port);
  store_options.isServer = serves;
  store_options.waitWorkers = false;  // join() waits instead: it can name missing ranks
  store_options.timeout = milliseconds(options.rendezvous_seconds);
  if (serves) store_options.masterListenFd = listen_at_master(launch).fd;
  const std::string host = store_host(launch);
  try {
    return c10::make_intrusive<c10d::PrefixStore>(
        "tlt/" + launch.store_prefix, c10::make_intrusive<c10d::TCPStore>(host, store_options));
  } catch (const std::exception& error) {
    throw Error("rank " + std::to_string(launch.rank) + " cannot reach rank 0 at " + host +
                " port " + std::to_string(launch.master_port) + " within " +
                seconds_text(options.rendezvous_seconds) + ": " + reason(error));
  }
}

// The ranks that have not written their key of `keys`.
std::string missing_ranks(c10d::Store& store, const std::vector<std::string>& keys) {
  std::string ranks;
  try {
    for (size_t rank = 0; rank < keys.size(); ++rank)
      if (!store.check({keys[rank]})) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  } catch (const InputError& error) {
    return error.what();
  } catch (const std::exception&) {
    return "rank 0, which serves it, is gone";
  }
  return "no response from rank " + ranks;
}

// Writes a nonce and waits until every rank has written one. Returns all of them, by rank.
std::string exchange_nonces(c10d::Store& store, const Launch& launch, const CommOptions& options) {
  const auto key = [](int rank) { return "joined/" + std::to_string(rank); };
  std::vector<std::string> keys;
  for (int rank = 0; rank < launch.world_size; ++rank) keys.push_back(key(rank));
  const std::string mine = random_hex();
  std::string first;  // of the process that was the first to claim this rank
  std::string nonces;
  try {
    first = store.compareSet(key(launch.rank), "", mine);
    if (first == mine) {
      store.wait(keys, milliseconds(options.rendezvous_seconds));
      for (const std::string& each : keys) nonces += store.get_to_str(each);
    }
  } catch (const InputError&) {
    // Rank 0 serves the store: the other ranks are to read the same value.
    if (launch.rank == 0) std::this_thread::sleep_for(std::chrono::seconds(2));
    throw;
  } catch (const std::exception& error) {
    throw Error("rendezvous of " + std::to_string(launch.world_size) +
                " workers: " + missing_ranks(store, keys) + " after " +
                seconds_text(options.rendezvous_seconds) + ": " + reason(error));
  }
  TLT_CHECK_INPUT(first == mine, "a second process says it is rank ", launch.rank,
                  "; give each worker a rank of its own, or another MASTER_PORT to another run");
  return nonces;
}

// What the workers share once all have joined.
struct Session {
  StorePtr store;   // returns values that were written with `key` only
  std::string key;  // from the job secret and a nonce of every rank, so that recorded values of
                    // another session with the same secret are refused
};

Session join(const Launch& launch, const CommOptions& options) {
  const StorePtr store = make_store(launch, options);
  const std::string place =
      "the rendezvous at " + store_host(launch) + " port " + std::to_string(launch.master_port);
  const std::string key = derive_key(launch.job_secret, "rendezvous");
  const StorePtr entrance = make_authenticated_store(store, key, place);
  const std::string session_key = hmac_sha256(key, exchange_nonces(*entrance, launch, options));
  return {.store = make_authenticated_store(store, session_key, place), .key = session_key};
}

// Seconds for the workers that are left to connect again: they have all said that they are here.
constexpr double kReconnectSeconds = 30;

// The ranks of one process group of a session.
struct Members {
  int rank = 0;
  int size = 1;
  int attempt = 0;                // 0: all workers; each later group has fewer
  std::string part = {};          // of a split Comm: its name; empty: not one
  std::vector<int> workers = {};  // of a split Comm: the workers' numbers, by rank

  std::string name() const { return part.empty() ? "group_" + std::to_string(attempt) : part; }
};

// Every worker has its connections now, to the store and to the others.
void refuse_strangers(const NewListeners& listeners) {
  if (listeners.refuse_connections() == 0)
    warn_once("open listeners",
              "this kernel cannot close the ports of the rendezvous and of Gloo to strangers "
              "(docs/trust.md)");
}

// Of the connections to the rendezvous, made before it refused further ones, only those of the
// workers stay. All workers together.
void close_strangers(const Launch& launch, const Session& session, Comm& comm) {
  if (launch.launcher_serves_store) return;
  std::string mine;
  for (const std::string& address : connections_to(launch.master_port)) mine += address + "\n";
  std::set<std::string> known;
  for (const std::string& addresses : comm.all_gather_bytes(mine)) {
    std::istringstream lines(addresses);
    for (std::string line; std::getline(lines, line);) known.insert(line);
  }
  if (!serves_store(launch)) return;
  // After an answer, and one more, the store has accepted what had connected before.
  for (int i = 0; i < 2; ++i) session.store->getNumKeys();
  const int closed =
      close_other_connections(launch.master_port, known, static_cast<int>(known.size()));
  if (closed > 0)
    log_warning("{} to the rendezvous closed: no worker has made {}", counted(closed, "connection"),
                closed == 1 ? "it" : "them");
  if (closed < 0)
    warn_once("connections of the rendezvous",
              "the workers' connections have other addresses here than there, so those of other "
              "programs to the rendezvous stay open (docs/trust.md)");
}

class ProcessGroupComm final : public Comm {
 public:
  ProcessGroupComm(const Launch& launch, const CommOptions& options, const Session& session,
                   const Members& members)
      : rank_(members.rank),
        size_(members.size),
        launch_(launch),
        session_(session),
        members_(members),
        options_(options),
        group_key_(hmac_sha256(session.key, members.name())),
        store_(c10::make_intrusive<c10d::PrefixStore>(members.name(), session.store)) {
    const double to_connect = members.attempt == 0
                                  ? options.timeout_seconds
                                  : std::min(options.timeout_seconds, kReconnectSeconds);
    store_->setTimeout(milliseconds(to_connect));
    auto gloo_options = c10d::ProcessGroupGloo::Options::create(milliseconds(to_connect));
    gloo_options->devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForHostname(own_address(launch)));
    run("connecting to all ranks", [&] {
      gloo_ = c10::make_intrusive<c10d::ProcessGroupGloo>(
          c10::make_intrusive<c10d::PrefixStore>("gloo", store_), rank_, size_,
          std::move(gloo_options));
    });
    check_peers();
    store_->setTimeout(milliseconds(options.timeout_seconds));
    gloo_->setTimeout(milliseconds(options.timeout_seconds));
  }

  // With a CUDA device, before the first collective of its tensors. All workers together.
  void connect_cards() {
    if (options_.cuda_device < 0) return;
    const auto cards = runtime::read_cuda_driver().cards;
    check_different_cards(*this, cards.at(static_cast<size_t>(options_.cuda_device)).uuid);
    const auto make = runtime::cuda_function<c10d::Backend*(c10d::Store*, int, int, int, int64_t)>(
        "tlt_make_nccl_backend");
    const auto store = c10::make_intrusive<c10d::PrefixStore>("nccl", store_);
    nccl_ = c10::intrusive_ptr<c10d::Backend>::reclaim(
        make(store.get(), rank_, size_, options_.cuda_device,
             milliseconds(options_.timeout_seconds).count()));
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int worker(int rank) const override {
    return members_.workers.empty() ? rank : members_.workers.at(static_cast<size_t>(rank));
  }

  std::unique_ptr<Comm> split(int color) override {
    Members members{.size = 0,
                    .part = members_.name() + "_split_" + std::to_string(splits_++) + "_" +
                            std::to_string(color)};
    const std::string mine = std::to_string(color);
    const std::vector<std::string> colors = all_gather_bytes(mine);
    for (int rank = 0; rank < size_; ++rank) {
      if (colors[rank] != mine) continue;
      if (rank == rank_) members.rank = members.size;
      members.workers.push_back(worker(rank));
      ++members.size;
    }
    if (members.size == 1) return make_solo_comm();
    const NewListeners listeners;
    auto part = std::make_unique<ProcessGroupComm>(launch_, options_, session_, members);
    part->connect_cards();
    refuse_strangers(listeners);
    return part;
  }

  void all_gather(at::Tensor& parts) override {
    TLT_CHECK(parts.dim() > 0 && parts.size(0) == size_ && parts.is_contiguous(), "all_gather of ",
              parts.sizes(), " on ", size_, " ranks");
    at::Tensor all = parts.detach().view({-1}), mine = parts.select(0, rank_).flatten().clone();
    wait(describe("all_gather", parts), [&] { return backend(parts)._allgather_base(all, mine); });
  }

  void barrier(const std::string& name) override {
    // Equal names have equal hashes: then the maximum of (hash, -hash) is (hash, -hash) again.
    const auto hash = static_cast<int64_t>(std::hash<std::string>()(name) >> 1);
    at::Tensor extremes = at::tensor({hash, -hash}, at::kLong);
    reduce("barrier '" + name + "'", extremes, c10d::ReduceOp::MAX);
    const int64_t* values = extremes.const_data_ptr<int64_t>();
    TLT_CHECK(values[0] == -values[1], "rank ", rank_, " is at barrier '", name,
              "', another rank at a barrier of another name");
  }

  void all_reduce_sum(at::Tensor& tensor) override {
    reduce(describe("all_reduce_sum", tensor), tensor, c10d::ReduceOp::SUM);
  }

  void all_reduce_max(at::Tensor& tensor) override {
    reduce(describe("all_reduce_max", tensor), tensor, c10d::ReduceOp::MAX);
  }

  // By an exchange of the parts: c10d's reduce-scatter takes parts of equal size only.
  at::Tensor reduce_scatter_sum(const at::Tensor& parts,
                                const std::vector<int64_t>& sizes) override {
    TLT_CHECK(
        parts.scalar_type() == at::kLong && parts.is_contiguous() && std::ssize(sizes) == size_ &&
            parts.numel() == std::accumulate(sizes.begin(), sizes.end(), int64_t{0}),
        describe("reduce_scatter_sum", parts), " for ", sizes.size(), " of ", size_, " ranks");
    const int64_t mine = sizes[rank_];
    at::Tensor input = parts.detach(), received = at::empty({size_ * mine}, parts.options());
    std::vector<int64_t> sent = sizes, expected(sizes.size(), mine);
    if (parts.numel() > 0)
      wait(describe("reduce_scatter_sum", parts),
           [&] { return backend(parts).alltoall_base(received, input, expected, sent); });
    return received.view({size_, mine}).sum(at::IntArrayRef{0});
  }

  void broadcast(at::Tensor& tensor, int root) override {
    TLT_CHECK(root >= 0 && root < size_, "root ", root, " of ", size_);
    const std::string what = describe("broadcast", tensor) + " from rank " + std::to_string(root);
    in_buckets(tensor, [&](std::vector<at::Tensor>& bucket) {
      c10d::BroadcastOptions broadcast_options;
      broadcast_options.rootRank = root;
      wait(what, [&] { return backend(tensor).broadcast(bucket, broadcast_options); });
    });
  }

  std::vector<std::string> all_gather_bytes(const std::string& bytes) override {
    at::Tensor lengths = at::zeros({size_}, at::kLong);
    lengths[rank_] = static_cast<int64_t>(bytes.size());
    reduce("all_gather_bytes (lengths)", lengths, c10d::ReduceOp::SUM);
    std::vector<std::string> all(size_);
    for (int from = 0; from < size_; ++from) {
      std::string& text = all[from];
      text = from == rank_ ? bytes : std::string(lengths[from].item<int64_t>(), '\0');
      at::Tensor view = at::from_blob(text.data(), {static_cast<int64_t>(text.size())}, at::kByte);
      broadcast(view, from);
    }
    return all;
  }

  std::vector<double> all_reduce_sum(std::vector<double> values) override {
    at::Tensor view =
        at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kDouble);
    all_reduce_sum(view);
    return values;
  }

  // This group fails all the same; if the others continue, the next one finds out who is left.
  void continue_after_loss(std::function<bool(int)> is_lost) override {
    names_others_ = is_lost == nullptr || !options_.continues_after_loss;
  }

 private:
  c10d::Backend& backend(const at::Tensor& tensor) const {
    if (tensor.is_cpu()) return *gloo_;
    TLT_CHECK(nccl_ && tensor.is_cuda(), "no collectives for a tensor on ", tensor.device());
    return *nccl_;
  }

  // Sends every other rank, over the connection to it, what only a worker of this group can
  // compute, and expects the same from it: a stranger may have connected in its place.
  void check_peers() {
    const auto proof = [&](int from, int to) {
      return hmac_sha256(group_key_, std::to_string(from) + " to " + std::to_string(to));
    };
    std::string sent, received;
    for (int to = 0; to < size_; ++to) sent += proof(rank_, to);
    received.resize(sent.size());
    const auto bytes = [](std::string& text) {
      return at::from_blob(text.data(), {static_cast<int64_t>(text.size())}, at::kByte);
    };
    at::Tensor input = bytes(sent), output = bytes(received);
    std::vector<int64_t> equal_parts;
    run("checking all connections",
        [&] { gloo_->alltoall_base(output, input, equal_parts, equal_parts)->wait(); });
    const size_t length = sent.size() / static_cast<size_t>(size_);
    for (int from = 0; from < size_; ++from)
      TLT_CHECK_INPUT(
          equal_in_constant_time(
              std::string_view(received).substr(static_cast<size_t>(from) * length, length),
              proof(from, rank_)),
          "what is connected to rank ", rank_, " as rank ", from,
          " is no worker of this job: another program has taken its connection; start again, on a "
          "network that only the workers reach");
  }

  void reduce(const std::string& what, at::Tensor& tensor, c10d::ReduceOp::RedOpType operation) {
    const at::ScalarType type = tensor.scalar_type();
    TLT_CHECK(
        type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kLong,
        what);
    in_buckets(tensor, [&](std::vector<at::Tensor>& bucket) {
      c10d::AllreduceOptions reduce_options;
      reduce_options.reduceOp = operation;
      wait(what, [&] { return backend(tensor).allreduce(bucket, reduce_options); });
    });
  }

  template <class Call>
  void in_buckets(at::Tensor& tensor, const Call& call) {
    TLT_CHECK(tensor.is_contiguous(), "a collective needs a contiguous tensor, got ",
              tensor.sizes(), " strides ", tensor.strides());
    const at::Tensor flat = tensor.detach().view({-1});
    const int64_t step =
        std::max<int64_t>(1, options_.bucket_bytes / static_cast<int64_t>(tensor.element_size()));
    for (int64_t begin = 0; begin < flat.numel(); begin += step) {
      std::vector<at::Tensor> bucket = {flat.slice(0, begin, std::min(begin + step, flat.numel()))};
      call(bucket);
    }
  }

  template <class Start>
  void wait(const std::string& what, const Start& start) {
    ++collectives_;
    run(what, [&] {
      const WorkPtr work = start();
      if (nccl_) wait_on_host(*work);
      work->wait();
    });
    report_progress();
  }

  // NCCL's wait() only makes the stream wait; a lost rank would not be noticed.
  void wait_on_host(c10d::Work& work) const {
    const Clock::time_point deadline = Clock::now() + milliseconds(options_.timeout_seconds);
    while (!work.isCompleted()) {
      TLT_CHECK(Clock::now() < deadline, "no result after ", options_.timeout_seconds, " s");
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  // Calls `body`; turns an exception into an Error that names the collective and the ranks that
  // did not respond.
  template <class Body>
  void run(const std::string& what, const Body& body) {
    const std::string here = what + " (collective " + std::to_string(collectives_) + ")";
    if (!failure_.empty())
      throw LostWorkerError(here + " after a collective that failed: " + failure_);
    const Clock::time_point start = Clock::now();
    try {
      body();
    } catch (const std::exception& error) {
      gloo_.reset();  // ranks that wait for this one fail now too
      std::ostringstream out;
      out << here << " failed on rank " << rank_ << " of " << size_ << numbers() << " after "
          << std::fixed << std::setprecision(1)
          << std::chrono::duration<double>(Clock::now() - start).count() << " s; "
          << (names_others_ ? others(here) + ": " : "") << reason(error);
      out << "; " << kResumes;
      failure_ = out.str();
      throw LostWorkerError(failure_);
    }
  }

  // Writes to the store where this rank failed, and gives the others two seconds to do the same: a
  // rank that reports nothing is dead or stuck. Rank 0 serves the store, so it waits a second
  // longer.
  std::string others(const std::string& here) noexcept {
    const auto key = [](int rank) { return "failed/" + std::to_string(rank); };
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(rank_ == 0 ? 3 : 2);
    c10d::Store& store = *store_;
    std::map<int, std::string> reports;
    try {
      store.setTimeout(std::chrono::seconds(1));
      store.set(key(rank_), here);
      for (; static_cast<int>(reports.size()) < size_ && Clock::now() < deadline; nap()) {
        for (int rank = 0; rank < size_; ++rank)
          if (!reports.contains(rank) && store.check({key(rank)}))
            reports[rank] = store.get_to_str(key(rank));
      }
    } catch (const InputError& error) {
      return error.what();
    } catch (const std::exception&) {
      // If rank 0 has reported, it has ended since; the reports read so far are used.
      if (!reports.contains(0)) return "rank 0, which serves the rendezvous, is gone";
    }
    std::string text;
    for (int rank = 0; rank < size_; ++rank)
      if (!reports.contains(rank)) text += (text.empty() ? "" : ", ") + std::to_string(rank);
    text = text.empty() ? "every rank reported" : "no response from rank " + text;
    for (const auto& [rank, there] : reports)
      if (there != here) text += "; rank " + std::to_string(rank) + " failed in " + there;
    return text;
  }

  // " (workers 2, 3)" of a split Comm, whose ranks are not those of the launcher.
  std::string numbers() const {
    std::string text;
    for (const int worker : members_.workers)
      text += (text.empty() ? " (workers " : ", ") + std::to_string(worker);
    return text.empty() ? text : text + ")";
  }

  static void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

  const int rank_;
  const int size_;
  const Launch launch_;  // with session_ for split()
  const Session session_;
  const Members members_;
  const CommOptions options_;
  const std::string group_key_;
  const StorePtr store_;
  c10::intrusive_ptr<c10d::Backend> gloo_;  // null after a collective that failed
  c10::intrusive_ptr<c10d::Backend> nccl_;  // null: no CUDA device
  int64_t collectives_ = 0;
  int64_t splits_ = 0;
  bool names_others_ = true;  // looks for the ranks that did not respond; takes seconds
  std::string failure_;       // of the first collective that failed; there is none after it
};

// The first group, and the session that all of them share.
std::unique_ptr<ProcessGroupComm> meet(const Launch& launch, const CommOptions& options,
                                       Session& session) {
  std::optional<StoreGuard> guard;
  if (serves_store(launch)) guard.emplace(launch.master_port);
  std::unique_ptr<ProcessGroupComm> comm;
  try {
    session = join(launch, options);
    comm = std::make_unique<ProcessGroupComm>(
        launch, options, session, Members{.rank = launch.rank, .size = launch.world_size});
  } catch (const std::exception&) {
    if (!guard || guard->fault().empty()) throw;
  }
  // Also if the last connection was made before: the store has no connections any more.
  if (guard && !guard->fault().empty()) throw InputError(guard->fault());
  return comm;
}

}  // namespace

std::unique_ptr<Comm> make_process_group_comm(const Launch& launch, const CommOptions& options) {
  // Gloo and the store write to sockets whose reader may be dead: that must be an error with a
  // message, not the silent end of this process.
  std::signal(SIGPIPE, SIG_IGN);
  raise_descriptor_limit();
  if (launch.rank == 0 && !launch.one_host() && launch.job_secret.empty())
    warn_once("no job secret",
              "the workers run on several hosts without a job secret: whatever reaches their ports "
              "can join the run or end it; give every worker the same random TLT_JOB_SECRET "
              "(docs/trust.md)");
  const NewListeners listeners(launch.listen_fd);
  Session session;
  auto comm = meet(launch, options, session);
  comm->connect_cards();
  refuse_strangers(listeners);
  close_strangers(launch, session, *comm);
  if (!options.continues_after_loss) return comm;
  TLT_CHECK(options.cuda_device < 0, "NCCL groups are not formed again");
  const Reconnect reconnect = [=](int attempt, int rank, int size) {
    const NewListeners new_listeners;
    auto again = std::make_unique<ProcessGroupComm>(
        launch, options, session, Members{.rank = rank, .size = size, .attempt = attempt});
    refuse_strangers(new_listeners);
    return again;
  };
  return std::make_unique<ContinuingComm>(std::move(comm), session.store, reconnect,
                                          options.timeout_seconds);
}

}  // namespace tlt::cluster
