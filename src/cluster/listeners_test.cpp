// SPDX-License-Identifier: Apache-2.0
#include "cluster/listeners.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cluster/address.h"
#include "tests/support/connection.h"

namespace tlt::cluster {
namespace {

using tests::Connection;

TEST(ListenersTest, NewSocketsTakeNoFurtherConnection) {
  const Listener old = listen_on("127.0.0.1", 0);
  const Listener inherited = listen_on("127.0.0.1", 0);
  const NewListeners listeners(inherited.fd);
  const Listener fresh = listen_on("127.0.0.1", 0);
  const Connection early(fresh.fd);
  ASSERT_TRUE(early.is_open());
  const int accepted = accept(fresh.fd, nullptr, nullptr);
  ASSERT_GE(accepted, 0);

  EXPECT_EQ(listeners.refuse_connections(), 2);
  EXPECT_FALSE(Connection(fresh.fd).is_open());
  EXPECT_FALSE(Connection(inherited.fd).is_open());
  EXPECT_TRUE(Connection(old.fd).is_open());

  char byte = 'x';
  EXPECT_EQ(send(early.fd(), &byte, 1, 0), 1);
  byte = '\0';
  EXPECT_EQ(recv(accepted, &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x');
  for (const int fd : {old.fd, inherited.fd, fresh.fd, accepted}) close(fd);
}

TEST(ListenersTest, DescriptorsThatDoNotListenAreLeftOut) {
  const size_t before = listening_sockets().size();
  const int unconnected = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(listening_sockets().size(), before);
  const Listener listener = listen_on("127.0.0.1", 0);
  EXPECT_EQ(listening_sockets().size(), before + 1);
  close(unconnected);
  close(listener.fd);
}

TEST(ListenersTest, DescriptorLimitBecomesTheHardLimit) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  raise_descriptor_limit();
  rlimit after{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace tlt::cluster
