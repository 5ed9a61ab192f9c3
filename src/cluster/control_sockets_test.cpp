// In FastRL (docs/paper_map.md) two threads share a ZeroMQ socket of a request-reply type, which
// requires that each request is answered before the next.
//
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zmq.h>

#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "cluster/control.h"

namespace tlt::cluster {
namespace {

using ::testing::Each;
using ::testing::SizeIs;

// Records which threads have read or written a socket between start() and stop().
class SocketWatch {
 public:
  static SocketWatch& instance() {
    static SocketWatch watch;
    return watch;
  }

  void start() {
    const std::lock_guard lock(mutex_);
    looks_ = true;
    threads_.clear();
  }
  std::vector<std::set<std::thread::id>> stop() {
    const std::lock_guard lock(mutex_);
    looks_ = false;
    std::vector<std::set<std::thread::id>> result;
    for (const auto& [socket, threads] : threads_) result.push_back(threads);
    return result;
  }
  void see(void* socket) {
    const std::lock_guard lock(mutex_);
    if (looks_) threads_[socket].insert(std::this_thread::get_id());
  }

 private:
  std::mutex mutex_;
  bool looks_ = false;                                  // protected by mutex_
  std::map<void*, std::set<std::thread::id>> threads_;  // protected by mutex_
};

// The library's own function, which the one of the same name below replaces.
template <class Function>
Function* library(Function* /*of*/, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace
}  // namespace tlt::cluster

// Replace the library's functions in this program.
extern "C" {
int zmq_send(void* socket, const void* data, size_t size, int flags) {
  static const auto real = tlt::cluster::library(zmq_send, "zmq_send");
  tlt::cluster::SocketWatch::instance().see(socket);
  return real(socket, data, size, flags);
}
int zmq_msg_send(zmq_msg_t* message, void* socket, int flags) {
  static const auto real = tlt::cluster::library(zmq_msg_send, "zmq_msg_send");
  tlt::cluster::SocketWatch::instance().see(socket);
  return real(message, socket, flags);
}
int zmq_msg_recv(zmq_msg_t* message, void* socket, int flags) {
  static const auto real = tlt::cluster::library(zmq_msg_recv, "zmq_msg_recv");
  tlt::cluster::SocketWatch::instance().see(socket);
  return real(message, socket, flags);
}
int zmq_poll(zmq_pollitem_t* items, int count, long timeout) {
  static const auto real = tlt::cluster::library(zmq_poll, "zmq_poll");
  for (int i = 0; i < count; ++i)
    if (items[i].socket) tlt::cluster::SocketWatch::instance().see(items[i].socket);
  return real(items, count, timeout);
}
}

namespace tlt::cluster {
namespace {

ControlOptions training() {
  ControlOptions options{.heartbeat_seconds = 0.01, .lost_after_seconds = 20};
  options.min_workers_for_training = 1;
  return options;
}

// Calls everything a worker may call.
void ask_everything(GroupSource& source) {
  if (const auto group = source.try_take()) source.done(*group);
  static_cast<void>(source.has_migration());
  static_cast<void>(source.take_migration());
  source.report({.sequences = 1, .tokens = 1, .remaining = 1});
  static_cast<void>(source.should_migrate());
  static_cast<void>(source.may_train());
  static_cast<void>(source.training_ended_at());
  static_cast<void>(source.lost_workers());
  static_cast<void>(source.step_done());
}

// Two threads call each worker's source, and a third one the coordinator's state.
TEST(ControlSocketsTest, SocketIsUsedByOneThread) {
  ControlServer server("127.0.0.1", 2, training());
  std::vector<std::set<std::thread::id>> users;
  {
    ControlClient clients[] = {{server.keys(), 0, training()}, {server.keys(), 1, training()}};
    SocketWatch::instance().start();
    std::vector<std::thread> threads;
    for (ControlClient& client : clients) {
      client.begin_step(1, 200);
      for (int i = 0; i < 2; ++i)
        threads.emplace_back([&] {
          for (; !client.step_done(); client.wait_for_news(0.001)) ask_everything(client);
        });
    }
    while (!clients[0].step_done()) static_cast<void>(server.state(0));
    for (std::thread& thread : threads) thread.join();
    users = SocketWatch::instance().stop();
  }
  EXPECT_THAT(users, SizeIs(4));  // two workers', and the coordinator's for messages and for keys
  EXPECT_THAT(users, Each(SizeIs(1)));
}

// Calls do not wait for an answer: here none ever arrives.
TEST(ControlSocketsTest, WorkerContinuesWithoutAnAnswer) {
  const ControlKeys keys = ControlServer("127.0.0.1", 1, training()).keys();  // is gone
  ControlClient client(keys, 0, training());
  client.begin_step(1, 2);
  const Stopwatch watch;
  for (int i = 0; i < 1000; ++i) ask_everything(client);
  EXPECT_LT(watch.seconds(), 2);
  EXPECT_FALSE(client.step_done());
}

}  // namespace
}  // namespace tlt::cluster
