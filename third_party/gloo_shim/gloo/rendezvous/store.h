// Declarations for ProcessGroupGloo.hpp of torch 2.11: see the README of gloo_shim.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

// ProcessGroupGloo.hpp overrides the second set of functions when this is defined, as
// libtorch_cpu.so was built.
#define GLOO_STORE_HAS_STORE_V2 1

namespace gloo::rendezvous {

class Store {
 public:
  using Bytes = std::vector<char>;
  using Keys = std::vector<std::string>;

  virtual ~Store() = default;

  virtual void set(const std::string& key, const Bytes& value) = 0;
  virtual Bytes get(const std::string& key) = 0;
  virtual void wait(const Keys& keys) = 0;
  virtual void wait(const Keys& keys, const std::chrono::milliseconds& timeout) = 0;

  virtual bool has_v2_support() = 0;
  virtual std::vector<Bytes> multi_get(const Keys& keys) = 0;
  virtual void multi_set(const Keys& keys, const std::vector<Bytes>& values) = 0;
  virtual void append(const std::string& key, const Bytes& value) = 0;
  virtual int64_t add(const std::string& key, int64_t value) = 0;
};

}  // namespace gloo::rendezvous
