// SPDX-License-Identifier: Apache-2.0
#include "cluster/control.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "cluster/address.h"
#include "cluster/comm.h"
#include "cluster/job_secret.h"
#include "cluster/launch.h"
#include "cluster/worker_protocol.h"

namespace tlt::cluster {
namespace {

constexpr int kLingerMilliseconds = 1000;  // at the end, to send what is still queued

double now() { return steady_clock().seconds(); }

std::chrono::milliseconds wait_of(double seconds) {
  return std::chrono::milliseconds(std::max<int64_t>(1, static_cast<int64_t>(seconds * 1000)));
}

// An event that poll() can wait for, set from another thread.
class WakeUp {
 public:
  WakeUp() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { TLT_CHECK(fd_ >= 0); }
  ~WakeUp() { close(fd_); }
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;

  int fd() const { return fd_; }
  void set() const { eventfd_write(fd_, 1); }
  void clear() const {
    eventfd_t value = 0;
    eventfd_read(fd_, &value);
  }

 private:
  const int fd_;
};

// zmq::poll() that is repeated when a signal interrupts it (the process was stopped and continued).
template <size_t kCount>
void poll(std::array<zmq::pollitem_t, kCount>& items, std::chrono::milliseconds bound) {
  for (zmq::pollitem_t& item : items) item.revents = 0;
  const int result = zmq_poll(items.data(), static_cast<int>(kCount), bound.count());
  TLT_CHECK(result >= 0 || errno == EINTR, zmq_strerror(errno));
}

struct KeyPair {
  std::string public_key, secret_key;
};

// Who has a pair of keys.
constexpr const char* kCoordinator = "CURVE key of the coordinator";
constexpr const char* kWorkers = "CURVE key of the workers";

// The keys of `owner`: the same in every process with this secret; random without a secret.
KeyPair make_key_pair(const std::string& job_secret, const char* owner) {
  std::array<char, 41> public_key{}, secret_key{};
  if (job_secret.empty()) {
    TLT_CHECK(zmq_curve_keypair(public_key.data(), secret_key.data()) == 0,
              "ZeroMQ was built without CURVE: ", zmq_strerror(errno));
  } else {
    const std::string bytes = derive_key(job_secret, owner);
    zmq_z85_encode(secret_key.data(), reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    TLT_CHECK(zmq_curve_public(public_key.data(), secret_key.data()) == 0,
              "ZeroMQ was built without CURVE: ", zmq_strerror(errno));
  }
  return {.public_key = public_key.data(), .secret_key = secret_key.data()};
}

// What a client derives from the secret; the endpoint is missing.
ControlKeys derive_client_keys(const std::string& job_secret) {
  const KeyPair client = make_key_pair(job_secret, kWorkers);
  return {.endpoint = {},
          .server_public = make_key_pair(job_secret, kCoordinator).public_key,
          .client_public = client.public_key,
          .client_secret = client.secret_key};
}

std::string bytes_of_key(const std::string& key) {
  std::array<uint8_t, 32> bytes{};
  TLT_CHECK(zmq_z85_decode(bytes.data(), key.c_str()) != nullptr, "no CURVE key");
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void configure(zmq::socket_t& socket) {
  socket.set(zmq::sockopt::ipv6, true);
  socket.set(zmq::sockopt::maxmsgsize, kMaxMigrationBytes);
  socket.set(zmq::sockopt::linger, kLingerMilliseconds);
}

// Sends a message and, if it has one, its migration as a second frame.
template <class Message>
void send_message(zmq::socket_t& socket, const Message& message, zmq::send_flags flags) {
  const bool has_migration = !message.migration.empty();
  socket.send(zmq::buffer(encode(message)),
              has_migration ? flags | zmq::send_flags::sndmore : flags);
  if (has_migration) socket.send(zmq::buffer(message.migration), flags);
}

// The frame that may follow the message `body`.
std::string receive_migration(zmq::socket_t& socket, const zmq::message_t& body) {
  zmq::message_t migration;
  if (!body.more()) return {};
  TLT_CHECK(socket.recv(migration) && !migration.more(), "control message of the wrong form");
  return migration.to_string();
}

// The event in the frames of a message: identity, event, and the migration if there is one.
// nullopt: no worker writes such a message.
std::optional<Event> try_decode(const std::vector<zmq::message_t>& frames, int workers) {
  const std::string identity = frames[0].to_string();
  int worker = -1;
  std::from_chars(identity.data(), identity.data() + identity.size(), worker);
  const bool is_worker =
      worker >= 0 && worker < workers && identity == std::to_string(worker);  // ControlClient's
  if (!is_worker || frames.size() < 2 || frames.size() > 3) return std::nullopt;
  try {
    Event event = decode_event(frames[1].to_string(), worker);
    if (frames.size() == 3) event.migration = frames[2].to_string();
    return event;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Binds the socket to the first free port of the range.
void bind_tcp(zmq::socket_t& socket, const std::string& address, const PortRange& ports) {
  const std::string endpoint =
      "tcp://" + (address.find(':') == std::string::npos ? address : "[" + address + "]") + ":";
  if (ports.begin == 0) return socket.bind(endpoint + "*");
  first_free_port(ports, [&](int port) {
    const bool is_bound = zmq_bind(socket.handle(), (endpoint + std::to_string(port)).c_str()) == 0;
    TLT_CHECK_INPUT(is_bound || zmq_errno() == EADDRINUSE, "cannot listen at ", endpoint, port,
                    ": ", zmq_strerror(zmq_errno()), "; set TLT_PORT_RANGE to other ports");
    return is_bound;
  });
}

}  // namespace

void ControlOptions::check() const {
  TLT_CHECK_INPUT(heartbeat_seconds > 0 && lost_after_seconds >= 3 * heartbeat_seconds,
                  "lost_after_seconds is ", lost_after_seconds, " but heartbeat_seconds is ",
                  heartbeat_seconds, "; give at least three times as much");
}

class ControlServer::Impl {
 public:
  Impl(const std::string& address, int workers, const ControlOptions& options,
       const std::string& job_secret, const PortRange& ports)
      : workers_(workers),
        options_(options),
        coordinator_(workers, options.lost_after_seconds, options.min_workers_for_training, now()) {
    // Bound before any connection: the library asks it whether a client's key is allowed.
    authenticator_ = zmq::socket_t(context_, zmq::socket_type::rep);
    authenticator_.bind("inproc://zeromq.zap.01");
    const KeyPair server = make_key_pair(job_secret, kCoordinator);
    const KeyPair client = make_key_pair(job_secret, kWorkers);
    router_ = zmq::socket_t(context_, zmq::socket_type::router);
    configure(router_);
    router_.set(zmq::sockopt::router_mandatory, true);  // a message to a closed connection fails
    router_.set(zmq::sockopt::curve_server, true);
    router_.set(zmq::sockopt::curve_secretkey, server.secret_key);
    bind_tcp(router_, address, ports);
    const std::string bound = router_.get(zmq::sockopt::last_endpoint);
    keys_ = {.endpoint = bound,
             .server_public = server.public_key,
             .client_public = client.public_key,
             .client_secret = client.secret_key};
    thread_ = start_thread([this] { run(); });
  }

  ~Impl() {
    stop_.set();
    thread_.join();
  }

  const ControlKeys& keys() const { return keys_; }
  int64_t messages() const { return messages_; }

  WorkerState state(int worker) const {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    return coordinator_.state(worker);
  }

  bool is_silent(int worker) const {
    const std::lock_guard lock(mutex_);
    return coordinator_.is_silent(worker, now());
  }

  void lose(int worker) {
    {
      const std::lock_guard lock(mutex_);
      to_lose_.push_back(worker);
    }
    wake_up_.set();
  }

 private:
  void run() {
    try {
      std::array<zmq::pollitem_t, 4> items = {{{router_.handle(), 0, ZMQ_POLLIN, 0},
                                               {authenticator_.handle(), 0, ZMQ_POLLIN, 0},
                                               {nullptr, stop_.fd(), ZMQ_POLLIN, 0},
                                               {nullptr, wake_up_.fd(), ZMQ_POLLIN, 0}}};
      const std::chrono::milliseconds bound =
          wait_of(std::min(options_.heartbeat_seconds, options_.lost_after_seconds / 4));
      while (items[2].revents == 0) {
        poll(items, bound);
        while (authenticate()) {
        }
        while (receive()) {
        }
        wake_up_.clear();
        send([&] { return lose_named(); });
        // After all received events: their senders are alive.
        send([&] { return coordinator_.tick(now()); });
        look_at_connections();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
    }
  }

  // Answers one authentication request of the library (ZeroMQ RFC 27): version, request id, domain,
  // address, identity, mechanism, key.
  bool authenticate() {
    std::vector<std::string> frames;
    zmq::message_t frame;
    do {
      if (!authenticator_.recv(frame, zmq::recv_flags::dontwait)) return false;
      frames.push_back(frame.to_string());
    } while (frame.more());
    const bool good = frames.size() == 7 && frames[5] == "CURVE" &&
                      frames[6] == bytes_of_key(keys_.client_public);
    const std::array<std::string, 6> answer = {"1.0",
                                               frames.size() > 1 ? frames[1] : "",
                                               good ? "200" : "400",
                                               good ? "" : "unknown key",
                                               "",
                                               ""};
    for (size_t i = 0; i < answer.size(); ++i)
      authenticator_.send(zmq::buffer(answer[i]),
                          i + 1 < answer.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    return true;
  }

  bool receive() {
    std::vector<zmq::message_t> frames;
    do {
      if (!router_.recv(frames.emplace_back(), zmq::recv_flags::dontwait)) return false;
    } while (frames.back().more());
    ++messages_;
    const std::optional<Event> event = try_decode(frames, workers_);
    if (event) {
      heard_.insert(event->worker);
      send([&] { return coordinator_.on(*event, now()); });
    } else {
      warn_once("malformed control message",
                "a control message that no worker of this run writes was dropped");
    }
    return true;
  }

  // REQUIRES: mutex_ is held.
  std::vector<WorkerCommand> lose_named() {
    std::vector<WorkerCommand> commands;
    for (const int worker : std::exchange(to_lose_, {}))
      for (WorkerCommand& command : coordinator_.lose(worker))
        commands.push_back(std::move(command));
    return commands;
  }

  template <class Ask>
  void send(const Ask& ask) {
    std::vector<WorkerCommand> commands;
    {
      const std::lock_guard lock(mutex_);
      commands = ask();
    }
    for (const WorkerCommand& command : commands) {
      if (command.kind == WorkerCommand::Kind::kLost)
        warn_once("lost worker " + std::to_string(command.group),
                  "worker {} is lost: its connection is closed, or no message for {} s",
                  command.group, options_.lost_after_seconds);
      try_send(command);
    }
  }

  // False: there is no connection to the worker. A full queue drops the message; the worker's
  // silence is noticed later.
  bool try_send(const WorkerCommand& command) {
    try {
      if (router_.send(zmq::buffer(std::to_string(command.worker)),
                       zmq::send_flags::sndmore | zmq::send_flags::dontwait))
        send_message(router_, command, zmq::send_flags::none);
      return true;
    } catch (const zmq::error_t& error) {
      if (error.num() != EHOSTUNREACH) throw;
      return false;
    }
  }

  // Each heartbeat, for the workers that had a connection.
  void look_at_connections() {
    if (now() < next_look_) return;
    next_look_ = now() + options_.heartbeat_seconds;
    for (const int worker : heard_) {
      const bool is_connected =
          try_send({.kind = WorkerCommand::Kind::kAlive, .worker = worker, .step = 0});
      const std::lock_guard lock(mutex_);
      coordinator_.set_connected(worker, is_connected, now());
    }
  }

  // Constant after construction.
  const int workers_;
  const ControlOptions options_;
  ControlKeys keys_;
  WakeUp stop_, wake_up_;             // synchronize themselves
  std::atomic<int64_t> messages_{0};  // received

  // The server's thread only.
  zmq::context_t context_;
  zmq::socket_t authenticator_;
  zmq::socket_t router_;
  std::set<int> heard_;  // workers that have sent a message
  double next_look_ = 0;

  mutable std::mutex mutex_;
  Coordinator coordinator_;   // protected by mutex_
  std::vector<int> to_lose_;  // protected by mutex_
  std::exception_ptr error_;  // protected by mutex_

  std::thread thread_;
};

ControlServer::ControlServer(const std::string& address, int workers, const ControlOptions& options,
                             const std::string& job_secret, const PortRange& ports)
    : impl_(std::make_unique<Impl>(address, workers, options, job_secret, ports)) {}
ControlServer::~ControlServer() = default;
const ControlKeys& ControlServer::keys() const { return impl_->keys(); }
WorkerState ControlServer::state(int worker) const { return impl_->state(worker); }
bool ControlServer::is_silent(int worker) const { return impl_->is_silent(worker); }
void ControlServer::lose(int worker) { impl_->lose(worker); }
int64_t ControlServer::messages() const { return impl_->messages(); }

class ControlClient::Impl {
 public:
  Impl(const ControlKeys& keys, int worker, const ControlOptions& options)
      : worker_(worker),
        options_(options),
        last_message_(now()),
        last_heard_(last_message_),
        protocol_(worker) {
    dealer_ = zmq::socket_t(context_, zmq::socket_type::dealer);
    configure(dealer_);
    dealer_.set(zmq::sockopt::routing_id, std::to_string(worker));
    dealer_.set(zmq::sockopt::curve_serverkey, keys.server_public);
    dealer_.set(zmq::sockopt::curve_publickey, keys.client_public);
    dealer_.set(zmq::sockopt::curve_secretkey, keys.client_secret);
    dealer_.connect(keys.endpoint);
    thread_ = start_thread([this] { run(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_up_.set();
    thread_.join();
  }

  // Calls `ask(protocol, events)` under the lock and queues the events for the client's thread.
  template <class Ask>
  auto with_protocol(const Ask& ask) {
    const std::lock_guard lock(mutex_);
    check_alive();
    const size_t waiting = outgoing_.size();
    auto result = ask(protocol_, outgoing_);
    if (outgoing_.size() > waiting) wake_up_.set();
    return result;
  }

  double training_ended_at() {
    const std::lock_guard lock(mutex_);
    return training_ended_at_;
  }

  bool is_coordinator_silent() const { return now() - last_message_ > options_.lost_after_seconds; }

  void wait_for_news(double seconds) {
    std::unique_lock lock(mutex_);
    news_.wait_for(lock, wait_of(seconds), [&] {
      return protocol_.has_group() || protocol_.has_finished() || protocol_.step_done() ||
             protocol_.was_given_up() || error_ != nullptr;
    });
    check_alive();
  }

 private:
  // REQUIRES: mutex_ is held.
  void check_alive() const {
    if (error_) std::rethrow_exception(error_);
    if (protocol_.was_given_up())
      throw LostWorkerError(
          fmt::format("worker {} was silent for more than {} s and was marked as lost; {}", worker_,
                      options_.lost_after_seconds, kResumes));
  }

  void run() {
    try {
      std::array<zmq::pollitem_t, 2> items = {
          {{dealer_.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, wake_up_.fd(), ZMQ_POLLIN, 0}}};
      double next_heartbeat = 0;
      bool stopping = false;
      while (!stopping) {
        if (now() >= next_heartbeat) {
          send({.kind = Event::Kind::kHeartbeat, .worker = worker_});
          next_heartbeat = now() + options_.heartbeat_seconds;
        }
        poll(items, wait_of(next_heartbeat - now()));
        wake_up_.clear();
        bool news = false;
        while (receive()) news = true;
        stopping = send_outgoing();
        if (news) news_.notify_all();
        check_coordinator();
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      news_.notify_all();
    }
  }

  bool receive() {
    zmq::message_t body;
    if (!dealer_.recv(body, zmq::recv_flags::dontwait)) return false;
    last_message_ = last_heard_ = now();
    const std::lock_guard lock(mutex_);
    const bool trained = protocol_.may_train();
    WorkerCommand command = decode_command(body.to_string(), worker_);
    command.migration = receive_migration(dealer_, body);
    protocol_.on(command, outgoing_);
    if (trained && !protocol_.may_train()) training_ended_at_ = last_heard_;
    return true;
  }

  // Sends the queued events. Returns true when the client is stopping.
  bool send_outgoing() {
    std::vector<Event> events;
    bool stopping = false;
    {
      const std::lock_guard lock(mutex_);
      events.swap(outgoing_);
      stopping = stopping_;
    }
    for (const Event& event : events) send(event);
    return stopping;
  }

  // A full queue (the coordinator is gone) drops the message; check_coordinator() throws later.
  void send(const Event& event) { send_message(dealer_, event, zmq::send_flags::dontwait); }

  bool is_between_steps() {
    const std::lock_guard lock(mutex_);
    return protocol_.step_done();
  }

  // Between two steps rank 0 may be stopped for long: collectives have a bound of their own.
  void check_coordinator() {
    const double time = now();
    const bool was_suspended = time - last_look_ > options_.lost_after_seconds / 2;
    last_look_ = time;
    if (was_suspended) last_message_ = time;
    if (was_suspended || is_between_steps()) last_heard_ = time;
    if (time - last_heard_ > options_.lost_after_seconds)
      throw LostWorkerError(
          fmt::format("worker {} has no message from the coordinator (rank 0) for {} s; {}",
                      worker_, options_.lost_after_seconds, kResumes));
  }

  // Constant after construction.
  const int worker_;
  const ControlOptions options_;
  WakeUp wake_up_;                    // synchronizes itself
  std::atomic<double> last_message_;  // or the end of a suspension; synchronizes itself

  // The client's thread only.
  double last_heard_;
  double last_look_ = now();
  zmq::context_t context_;
  zmq::socket_t dealer_;

  std::mutex mutex_;
  std::condition_variable news_;
  WorkerProtocol protocol_;       // protected by mutex_
  std::vector<Event> outgoing_;   // protected by mutex_
  std::exception_ptr error_;      // protected by mutex_
  double training_ended_at_ = 0;  // protected by mutex_
  bool stopping_ = false;         // protected by mutex_

  std::thread thread_;
};

ControlClient::ControlClient(const ControlKeys& keys, int worker, const ControlOptions& options)
    : impl_(std::make_unique<Impl>(keys, worker, options)) {}
ControlClient::~ControlClient() = default;

void ControlClient::begin_step(int64_t step, int64_t groups) {
  impl_->with_protocol([&](WorkerProtocol& protocol, std::vector<Event>& out) {
    return protocol.begin_step(step, groups, out), 0;
  });
}

std::optional<int64_t> ControlClient::try_take() {
  return impl_->with_protocol(
      [](WorkerProtocol& protocol, std::vector<Event>& out) { return protocol.try_take(out); });
}

void ControlClient::done(int64_t group) {
  impl_->with_protocol([&](WorkerProtocol& protocol, std::vector<Event>& out) {
    return protocol.done(group, out), 0;
  });
}

bool ControlClient::has_migration() {
  return impl_->with_protocol(
      [](WorkerProtocol& protocol, std::vector<Event>&) { return protocol.has_migration(); });
}

std::string ControlClient::take_migration() {
  return impl_->with_protocol(
      [](WorkerProtocol& protocol, std::vector<Event>&) { return protocol.take_migration(); });
}

void ControlClient::offer(int64_t groups) {
  impl_->with_protocol([&](WorkerProtocol& protocol, std::vector<Event>& out) {
    return protocol.offer(groups, out), 0;
  });
}

bool ControlClient::should_hand_over() {
  return impl_->with_protocol(
      [](WorkerProtocol& protocol, std::vector<Event>&) { return protocol.should_hand_over(); });
}

void ControlClient::hand_over(std::string rollouts) {
  impl_->with_protocol([&](WorkerProtocol& protocol, std::vector<Event>& out) {
    return protocol.hand_over(std::move(rollouts), out), 0;
  });
}

std::string ControlClient::take_finished() {
  return impl_->with_protocol([](WorkerProtocol& protocol, std::vector<Event>& out) {
    return protocol.take_finished(out);
  });
}

void ControlClient::report(const WorkerLoad& load) {
  impl_->with_protocol([&](WorkerProtocol& protocol, std::vector<Event>& out) {
    return protocol.report(load, out), 0;
  });
}

bool ControlClient::should_migrate() {
  return impl_->with_protocol(
      [](WorkerProtocol& protocol, std::vector<Event>&) { return protocol.should_migrate(); });
}

void ControlClient::move(std::string migration) {
  impl_->with_protocol([&](WorkerProtocol& protocol, std::vector<Event>& out) {
    return protocol.move(std::move(migration), out), 0;
  });
}

void ControlClient::stop() {
  impl_->with_protocol(
      [](WorkerProtocol& protocol, std::vector<Event>& out) { return protocol.stop(out), 0; });
}

bool ControlClient::is_interrupted() {
  return impl_->with_protocol(
      [](WorkerProtocol& protocol, std::vector<Event>&) { return protocol.is_interrupted(); });
}

bool ControlClient::was_stopped() {
  return impl_->with_protocol(
      [](WorkerProtocol& protocol, std::vector<Event>&) { return protocol.was_stopped(); });
}

bool ControlClient::step_done() {
  return impl_->with_protocol(
      [](WorkerProtocol& protocol, std::vector<Event>&) { return protocol.step_done(); });
}

void ControlClient::wait_for_news(double seconds) { impl_->wait_for_news(seconds); }

bool ControlClient::may_train() {
  return impl_->with_protocol(
      [](WorkerProtocol& protocol, std::vector<Event>&) { return protocol.may_train(); });
}

double ControlClient::training_ended_at() { return impl_->training_ended_at(); }

std::vector<int> ControlClient::lost_workers() {
  return impl_->with_protocol(
      [](WorkerProtocol& protocol, std::vector<Event>&) { return protocol.lost_workers(); });
}

bool ControlClient::is_silent(int worker) { return worker == 0 && impl_->is_coordinator_silent(); }

namespace {

// What rank 0 sends to the other workers: the endpoint, and the keys if they cannot derive them.
std::string encode_keys(const ControlKeys& keys, bool is_derived) {
  nlohmann::json parts = nlohmann::json::array({keys.endpoint});
  if (!is_derived)
    for (const std::string& key : {keys.server_public, keys.client_public, keys.client_secret})
      parts.push_back(key);
  return parts.dump();
}

ControlKeys decode_keys(const std::string& text, const std::string& job_secret) {
  const nlohmann::json parts = nlohmann::json::parse(text);
  const auto part = [&](size_t index) { return parts.at(index).get<std::string>(); };
  if (job_secret.empty())
    return {.endpoint = part(0),
            .server_public = part(1),
            .client_public = part(2),
            .client_secret = part(3)};
  ControlKeys keys = derive_client_keys(job_secret);
  keys.endpoint = part(0);
  return keys;
}

// The source of rank 0: its own client, and the server, which outlives it.
class CoordinatorsGroups final : public GroupSource {
 public:
  CoordinatorsGroups(std::unique_ptr<ControlServer> server, const ControlOptions& options)
      : server_(std::move(server)), client_(server_->keys(), /*worker=*/0, options) {}

  void begin_step(int64_t step, int64_t groups) override { client_.begin_step(step, groups); }
  [[nodiscard]] std::optional<int64_t> try_take() override { return client_.try_take(); }
  void done(int64_t group) override { client_.done(group); }
  [[nodiscard]] bool has_migration() override { return client_.has_migration(); }
  [[nodiscard]] std::string take_migration() override { return client_.take_migration(); }
  void report(const WorkerLoad& load) override { client_.report(load); }
  void offer(int64_t groups) override { client_.offer(groups); }
  [[nodiscard]] bool should_hand_over() override { return client_.should_hand_over(); }
  void hand_over(std::string rollouts) override { client_.hand_over(std::move(rollouts)); }
  [[nodiscard]] std::string take_finished() override { return client_.take_finished(); }
  [[nodiscard]] bool should_migrate() override { return client_.should_migrate(); }
  void move(std::string migration) override { client_.move(std::move(migration)); }
  void stop() override { client_.stop(); }
  [[nodiscard]] bool is_interrupted() override { return client_.is_interrupted(); }
  [[nodiscard]] bool was_stopped() override { return client_.was_stopped(); }
  [[nodiscard]] bool step_done() override {
    static_cast<void>(server_->state(0));  // rethrows the server's error
    return client_.step_done();
  }
  void wait_for_news(double seconds) override { client_.wait_for_news(seconds); }
  [[nodiscard]] bool may_train() override { return client_.may_train(); }
  double training_ended_at() override { return client_.training_ended_at(); }
  [[nodiscard]] std::vector<int> lost_workers() override { return client_.lost_workers(); }
  [[nodiscard]] bool is_silent(int worker) override { return server_->is_silent(worker); }
  void lose(int worker) override { server_->lose(worker); }

 private:
  const std::unique_ptr<ControlServer> server_;
  ControlClient client_;
};

}  // namespace

std::unique_ptr<GroupSource> make_group_source(Comm& comm, const Launch& launch,
                                               const ControlOptions& options) {
  options.check();
  if (comm.size() == 1) return std::make_unique<LocalGroups>();
  std::unique_ptr<ControlServer> server;
  std::string text;
  if (comm.rank() == 0) {
    server = std::make_unique<ControlServer>(own_address(launch), comm.size(), options,
                                             launch.job_secret, launch.ports);
    text = encode_keys(server->keys(), /*is_derived=*/!launch.job_secret.empty());
  }
  text = comm.all_gather_bytes(text).front();
  if (server) return std::make_unique<CoordinatorsGroups>(std::move(server), options);
  return std::make_unique<ControlClient>(decode_keys(text, launch.job_secret), comm.rank(),
                                         options);
}

}  // namespace tlt::cluster
