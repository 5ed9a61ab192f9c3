// SPDX-License-Identifier: Apache-2.0
#include "run/rollout.h"

#include <cstring>
#include <type_traits>

#include "base/check.h"

namespace tlt::run {
namespace {

class Writer {
 public:
  template <class T>
  void value(const T& x) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&x), sizeof x);
  }
  template <class List>
  void list(const List& items) {
    value<uint64_t>(items.size());
    bytes_.append(reinterpret_cast<const char*>(items.data()), items.size() * sizeof(items[0]));
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T value() {
    T x;
    std::memcpy(&x, take(sizeof x).data(), sizeof x);
    return x;
  }
  template <class List>
  List list() {
    List items;
    const auto count = value<uint64_t>();
    TLT_CHECK(count <= bytes_.size() / sizeof(items[0]), "a list of ", count, " items in ",
              bytes_.size(), " bytes");
    items.resize(count);
    std::memcpy(items.data(), take(count * sizeof(items[0])).data(), count * sizeof(items[0]));
    return items;
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::string_view take(size_t count) {
    TLT_CHECK(count <= bytes_.size(), "serialized rollouts are truncated");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  std::string_view bytes_;
};

}  // namespace

std::string pack(const std::vector<Rollout>& rollouts) {
  Writer out;
  for (const Rollout& r : rollouts) {
    out.value(r.prompt);
    out.value(r.response.prompt_id);
    out.value(r.response.rl_step);
    out.value(r.response.sample);
    out.value(r.response.finish);
    out.value(r.response.target_forwards);
    out.list(r.response.tokens);
    out.list(r.response.logprobs);
    out.value(r.score);
    out.list(r.fault);
    out.value<uint64_t>(r.extras.size());
    for (const auto& [name, value] : r.extras) {
      out.list(name);
      out.value(value);
    }
  }
  return out.take();
}

std::vector<Rollout> unpack(std::string_view bytes) {
  Reader in(bytes);
  std::vector<Rollout> rollouts;
  while (!in.at_end()) {
    Rollout& r = rollouts.emplace_back();
    r.prompt = in.value<uint32_t>();
    r.response.prompt_id = in.value<uint32_t>();
    r.response.rl_step = in.value<uint32_t>();
    r.response.sample = in.value<uint32_t>();
    r.response.finish = in.value<rollout::FinishReason>();
    r.response.target_forwards = in.value<int64_t>();
    r.response.tokens = in.list<std::vector<int32_t>>();
    r.response.logprobs = in.list<std::vector<float>>();
    r.score = in.value<double>();
    r.fault = in.list<std::string>();
    for (auto extras = in.value<uint64_t>(); extras > 0; --extras) {
      std::string name = in.list<std::string>();
      r.extras[std::move(name)] = in.value<double>();
    }
  }
  return rollouts;
}

}  // namespace tlt::run
