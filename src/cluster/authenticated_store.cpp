// SPDX-License-Identifier: Apache-2.0
#include "cluster/authenticated_store.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/checksum.h"

namespace tlt::cluster {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kMacBytes = 32;
constexpr size_t kMaxValueBytes = size_t{64} << 10;  // Gloo writes 8 bytes per worker, and a name

class AuthenticatedStore final : public c10d::Store {
 public:
  AuthenticatedStore(c10::intrusive_ptr<c10d::Store> store, std::string key, std::string place)
      : store_(std::move(store)), key_(std::move(key)), place_(std::move(place)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<AuthenticatedStore>(store_->clone(), key_, place_);
  }

  using c10d::Store::compareSet;
  using c10d::Store::set;

  void set(const std::string& name, const Bytes& value) override {
    store_->set(name, seal(name, value));
  }

  Bytes compareSet(const std::string& name, const Bytes& expected, const Bytes& value) override {
    const Bytes before = expected.empty() ? expected : seal(name, expected);  // empty: no value yet
    return open(name, store_->compareSet(name, before, seal(name, value)));
  }

  Bytes get(const std::string& name) override { return open(name, store_->get(name)); }

  bool check(const std::vector<std::string>& names) override {
    if (!store_->check(names)) return false;
    for (const std::string& name : names) get(name);
    return true;
  }

  int64_t add(const std::string& name, int64_t) override {
    throw Error("the rendezvous has no counters (key " + name + "): they carry no HMAC");
  }

  bool deleteKey(const std::string& name) override { return store_->deleteKey(name); }
  int64_t getNumKeys() override { return store_->getNumKeys(); }
  void wait(const std::vector<std::string>& names) override { store_->wait(names); }
  void wait(const std::vector<std::string>& names,
            const std::chrono::milliseconds& timeout) override {
    store_->wait(names, timeout);
  }
  const std::chrono::milliseconds& getTimeout() const noexcept override {
    return store_->getTimeout();
  }
  void setTimeout(const std::chrono::milliseconds& timeout) override {
    store_->setTimeout(timeout);
  }

 private:
  std::string mac(const std::string& name, const std::string& value) const {
    return hmac_sha256(key_, std::to_string(name.size()) + ":" + name + value);
  }

  Bytes seal(const std::string& name, const Bytes& value) const {
    TLT_CHECK(value.size() <= kMaxValueBytes, value.size(), " bytes for key ", name);
    std::string text(value.begin(), value.end());
    text += mac(name, text);
    return Bytes(text.begin(), text.end());
  }

  Bytes open(const std::string& name, const Bytes& sealed) const {
    constexpr const char* kAdvice =
        "; give every worker the same TLT_JOB_SECRET, and if they have it, another MASTER_PORT: "
        "another program writes to this one";
    TLT_CHECK_INPUT(sealed.size() <= kMaxValueBytes + kMacBytes, place_, " has a value of ",
                    sealed.size(), " bytes (key ", name, "), more than a worker writes", kAdvice);
    const std::string text(sealed.begin(), sealed.end());
    const size_t length = text.size() - std::min(text.size(), kMacBytes);
    const std::string value = text.substr(0, length);
    TLT_CHECK_INPUT(equal_in_constant_time(text.substr(length), mac(name, value)), place_,
                    " has a value that was not written with the job secret of this worker (key ",
                    name, ")", kAdvice);
    return Bytes(value.begin(), value.end());
  }

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string key_;
  const std::string place_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> make_authenticated_store(
    const c10::intrusive_ptr<c10d::Store>& store, const std::string& key,
    const std::string& place) {
  return c10::make_intrusive<AuthenticatedStore>(store, key, place);
}

}  // namespace tlt::cluster
