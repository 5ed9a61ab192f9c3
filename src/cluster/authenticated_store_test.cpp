// SPDX-License-Identifier: Apache-2.0
#include "cluster/authenticated_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/check.h"
#include "tests/support/test_folder.h"

namespace tlt::cluster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class AuthenticatedStoreTest : public ::testing::Test {
 protected:
  using StorePtr = c10::intrusive_ptr<c10d::Store>;

  // What the store says about the value of a key; "" if it returns one.
  std::string complaint(const std::string& key) const {
    return thrown_message<InputError>([&] { store_->get_to_str(key); });
  }
  void expect_refused(const std::string& key) const {
    EXPECT_THAT(complaint(key),
                AllOf(HasSubstr("the rendezvous has a value that was not written with the job "
                                "secret of this worker (key " +
                                key + ");"),
                      HasSubstr("give every worker the same TLT_JOB_SECRET")));
  }

  const StorePtr raw_ = c10::make_intrusive<c10d::HashStore>();  // what a stranger writes to
  const StorePtr store_ = make_authenticated_store(raw_, "key", "the rendezvous");
  const StorePtr same_ = make_authenticated_store(raw_, "key", "the rendezvous");
  const StorePtr other_ = make_authenticated_store(raw_, "other key", "the rendezvous");
};

TEST_F(AuthenticatedStoreTest, ValuesOfTheSameKeyAreReturned) {
  const std::string values[] = {"", std::string("a\0b", 3), std::string(65536, 'x')};
  for (const std::string& value : values) {
    store_->set("name", value);
    EXPECT_EQ(same_->get_to_str("name"), value);
    EXPECT_EQ(store_->clone()->get_to_str("name"), value);
  }
  const std::vector<std::string> names = {"name"};
  store_->wait(names);
  EXPECT_TRUE(store_->check(names));
  EXPECT_TRUE(store_->deleteKey("name"));
  EXPECT_FALSE(store_->check(names));
}

TEST_F(AuthenticatedStoreTest, OnlyTheFirstCompareSetWins) {
  EXPECT_EQ(store_->compareSet("name", "", "first"), "first");
  EXPECT_EQ(same_->compareSet("name", "", "second"), "first");
  EXPECT_EQ(same_->compareSet("name", "first", "third"), "third");
  EXPECT_EQ(store_->get_to_str("name"), "third");
}

TEST_F(AuthenticatedStoreTest, ValueOfAStrangerIsRefused) {
  const std::vector<std::string> names = {"name"};
  for (const std::string& value : {std::string("x"), std::string(100, 'x')}) {
    raw_->set("name", value);
    expect_refused("name");
    EXPECT_THROW(store_->check(names), InputError);
    EXPECT_THROW(store_->compareSet("name", "", "mine"), InputError);
  }
  raw_->set("name", "");
  expect_refused("name");
}

TEST_F(AuthenticatedStoreTest, ValueOfAnotherKeyIsRefused) {
  other_->set("name", "value");
  expect_refused("name");
}

TEST_F(AuthenticatedStoreTest, ValueUnderAnotherNameIsRefused) {
  store_->set("joined/1", "value");
  raw_->set("joined/2", raw_->get_to_str("joined/1"));
  expect_refused("joined/2");
}

TEST_F(AuthenticatedStoreTest, ChangedValueIsRefused) {
  store_->set("name", "value");
  const std::string sealed = raw_->get_to_str("name");
  for (size_t i = 0; i < sealed.size(); ++i) {
    std::string changed = sealed;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    raw_->set("name", changed);
    EXPECT_NE(complaint("name"), "") << "byte " << i;
  }
  raw_->set("name", sealed.substr(1));
  expect_refused("name");
}

TEST_F(AuthenticatedStoreTest, LargeValueIsRefusedByName) {
  raw_->set("name", std::string(100'000, 'x'));
  EXPECT_THAT(complaint("name"),
              HasSubstr("the rendezvous has a value of 100000 bytes (key name), more than a worker "
                        "writes"));
  EXPECT_THROW(store_->set("name", std::string(65537, 'x')), Error);
}

TEST_F(AuthenticatedStoreTest, CountersAreRefused) {
  EXPECT_THAT(thrown_message([&] { store_->add("name", 1); }), HasSubstr("no counters"));
}

}  // namespace
}  // namespace tlt::cluster
