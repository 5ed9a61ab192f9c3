// SPDX-License-Identifier: Apache-2.0
#include "run/rollout.h"

#include "base/bytes.h"

namespace tlt::run {
namespace {

void pack_numbers(const std::map<std::string, double>& numbers, ByteWriter& out) {
  out.value<uint64_t>(numbers.size());
  for (const auto& [name, value] : numbers) {
    out.list(name);
    out.value(value);
  }
}

std::map<std::string, double> unpack_numbers(ByteReader& in) {
  std::map<std::string, double> numbers;
  for (auto left = in.value<uint64_t>(); left > 0; --left) {
    std::string name = in.list<std::string>();
    numbers[std::move(name)] = in.value<double>();
  }
  return numbers;
}

}  // namespace

std::string pack(const std::vector<Rollout>& rollouts) {
  ByteWriter out;
  for (const Rollout& r : rollouts) {
    out.value(r.prompt);
    out.value(r.response.prompt_id);
    out.value(r.response.rl_step);
    out.value(r.response.sample);
    out.value(r.response.finish);
    out.value(r.response.target_forwards);
    out.list(r.response.tokens);
    out.list(r.response.logprobs);
    out.list(r.response.entropies);
    out.list(r.response.observed);
    out.list(r.own_prompt);
    out.value<uint8_t>(r.episode ? 1 : 0);
    if (r.episode) {
      out.value(r.episode->reward);
      out.list(r.episode->fault);
      pack_numbers(r.episode->extras, out);
    }
    out.value(r.finish_seconds);
    out.value<uint8_t>(r.is_scored ? 1 : 0);
    out.value(r.score);
    out.list(r.answer);
    out.list(r.fault);
    pack_numbers(r.extras, out);
  }
  return out.take();
}

std::vector<Rollout> unpack(std::string_view bytes) {
  ByteReader in(bytes);
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
    r.response.entropies = in.list<std::vector<float>>();
    r.response.observed = in.list<std::vector<rollout::TokenSpan>>();
    r.own_prompt = in.list<std::vector<int32_t>>();
    if (in.value<uint8_t>() != 0) {
      r.episode.emplace();
      r.episode->reward = in.value<double>();
      r.episode->fault = in.list<std::string>();
      r.episode->extras = unpack_numbers(in);
    }
    r.finish_seconds = in.value<double>();
    r.is_scored = in.value<uint8_t>() != 0;
    r.score = in.value<double>();
    r.answer = in.list<std::string>();
    r.fault = in.list<std::string>();
    r.extras = unpack_numbers(in);
  }
  return rollouts;
}

}  // namespace tlt::run
