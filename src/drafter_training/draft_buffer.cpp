// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/draft_buffer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/json_count.h"
#include "base/json_fault.h"
#include "base/random.h"

namespace tlt::drafter_training {
namespace {

constexpr int64_t kFewestTokens = 4;  // of a piece: a smaller one has no pair worth a pass
constexpr double kShareOfLastStep = 0.5;
constexpr int64_t kMostColumns = int64_t{1} << 24;

bool is_held_out(const HiddenSequence& sequence) {
  return sequence.number % DraftBuffer::kHeldOutEvery == 0;
}

// --- checkpoints: a description and raw bytes ---

nlohmann::json facts_of(const TokenStates& rows) {
  const at::Tensor states = rows.size() > 0 ? rows.states(0, rows.size()) : at::empty({0, 0});
  return {{"tokens", rows.size()},
          {"hidden", states.size(1)},
          {"is_float32", states.scalar_type() == at::kFloat},
          {"bytes", states.nbytes()}};
}

void write(const TokenStates& rows, std::string& out) {
  if (rows.size() == 0) return;
  const at::Tensor states = rows.states(0, rows.size());
  out.append(reinterpret_cast<const char*>(rows.tokens().data()),
             rows.tokens().size() * sizeof(int32_t));
  out.append(static_cast<const char*>(states.const_data_ptr()), states.nbytes());
}

// Reads what write() wrote from the front of `bytes` and removes it there.
void read(const nlohmann::json& facts, std::string_view& bytes, const DraftBuffer::Limits& limits,
          TokenStates& rows) {
  const auto count = json_count<size_t>(facts, "tokens"), size = json_count<size_t>(facts, "bytes");
  const auto hidden = json_count(facts, "hidden");
  const auto type = facts.at("is_float32").get<bool>() ? at::kFloat : at::kBFloat16;
  TLT_CHECK_INPUT(count <= bytes.size() / sizeof(int32_t) && hidden <= kMostColumns &&
                      size <= bytes.size() - count * sizeof(int32_t) &&
                      size == count * static_cast<size_t>(hidden) * c10::elementSize(type),
                  "it does not match its description");
  if (count == 0) return;
  TLT_CHECK_INPUT(limits.columns == 0 || hidden == limits.columns, "its states have ", hidden,
                  " columns, and the draft model reads ", limits.columns);
  std::vector<int32_t> tokens(count);
  at::Tensor states = at::empty({static_cast<int64_t>(count), hidden}, type);
  std::memcpy(tokens.data(), bytes.data(), count * sizeof(int32_t));
  bytes.remove_prefix(count * sizeof(int32_t));
  const auto is_token = [&](int32_t token) {
    return limits.vocabulary == 0 || (token >= 0 && token < limits.vocabulary);
  };
  TLT_CHECK_INPUT(std::ranges::all_of(tokens, is_token), "it has tokens beyond the vocabulary");
  std::memcpy(states.mutable_data_ptr(), bytes.data(), size);
  bytes.remove_prefix(size);
  rows.append({states}, tokens);
}

}  // namespace

DraftBuffer::DraftBuffer(const Limits& limits) : limits_(limits) {
  TLT_CHECK(limits.bytes > 0, limits.bytes);
}

void DraftBuffer::begin_step() {
  is_open_ = true;
  before_ = std::exchange(now_, {});
  growing_.forget_all();
}

void DraftBuffer::on_hidden_states(uint32_t prompt_id, uint32_t sample, int32_t position,
                                   const Rows& hidden, std::span<const int32_t> tokens) {
  if (!is_open_) return;
  if (auto begun = growing_.add(prompt_id, sample, position, hidden, tokens)) {
    begun->number = begun_++;
    now_.push_back(std::move(begun));
  }
  shrink();
}

void DraftBuffer::shrink() {
  while (bytes() > limits_.bytes && sequences() > 0) {
    Kept& oldest = before_.empty() ? now_ : before_;
    growing_.forget(*oldest.front());
    oldest.erase(oldest.begin());
  }
  if (bytes() > limits_.bytes) growing_.forget_all();
}

DraftBuffer::Kept DraftBuffer::drawable(const Kept& kept) const {
  Kept result;
  for (const auto& sequence : kept)
    if (!is_held_out(*sequence) && sequence->tokens() >= kFewestTokens &&
        sequence->response.size() > 0)
      result.push_back(sequence);
  return result;
}

int64_t DraftBuffer::drawable_tokens() const {
  int64_t tokens = 0;
  for (const Kept* kept : {&now_, &before_})
    for (const auto& sequence : drawable(*kept)) tokens += sequence->tokens();
  return tokens;
}

std::vector<DraftSample> DraftBuffer::draw(int64_t tokens, int64_t window) {
  TLT_CHECK(window >= kFewestTokens && tokens >= window, tokens, " tokens in pieces of ", window);
  Kept now = drawable(now_), before = drawable(before_);
  std::vector<DraftSample> samples;
  while (tokens >= kFewestTokens && !(now.empty() && before.empty())) {
    RandomStream random(limits_.seed, {.step = drawn_});
    const bool is_old = now.empty() || (!before.empty() && random.uniform() < kShareOfLastStep);
    Kept& kept = is_old ? before : now;
    size_t chosen = random.below(kept.size());
    // From the previous step take the longer of two: this step lacks long responses.
    if (const size_t other = random.below(kept.size());
        is_old && kept[other]->tokens() > kept[chosen]->tokens())
      chosen = other;
    const std::shared_ptr<HiddenSequence> sequence = kept[chosen];
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(chosen));  // at most once per batch
    const int64_t size = std::min({window, tokens, sequence->tokens()});
    // At a random offset, but not so early that the piece has little of the response.
    const int64_t latest = sequence->tokens() - size;
    const int64_t earliest = std::clamp<int64_t>(sequence->prompt->size() - size / 2, 0, latest);
    const int64_t first =
        earliest + static_cast<int64_t>(random.below(static_cast<uint64_t>(latest - earliest + 1)));
    samples.push_back(piece_of(sequence, first, size, drawn_++));
    tokens -= size;
  }
  return samples;
}

std::vector<DraftSample> DraftBuffer::held_out(int64_t tokens, int64_t window) const {
  std::vector<DraftSample> samples;
  for (const Kept* kept : {&now_, &before_})
    for (const auto& sequence : *kept) {
      const int64_t first = std::max<int64_t>(0, sequence->prompt->size() - 2);
      const int64_t size = std::min({window, tokens, sequence->tokens() - first});
      if (!is_held_out(*sequence) || size < kFewestTokens) continue;
      samples.push_back(piece_of(sequence, first, size, 0));
      tokens -= size;
    }
  return samples;
}

// A line of JSON that describes the sequences, followed by their tokens and states.
std::string DraftBuffer::save() const {
  nlohmann::json facts = {
      {"begun", begun_}, {"drawn", drawn_}, {"sequences", nlohmann::json::array()}};
  std::string rows;
  for (const Kept* kept : {&before_, &now_})
    for (const auto& sequence : *kept) {
      facts["sequences"].push_back({{"is_before", kept == &before_},
                                    {"number", sequence->number},
                                    {"prompt", facts_of(*sequence->prompt)},
                                    {"response", facts_of(sequence->response)}});
      write(*sequence->prompt, rows);
      write(sequence->response, rows);
    }
  return facts.dump() + "\n" + rows;
}

void DraftBuffer::add(std::string_view bytes) {
  const size_t end = bytes.find('\n');
  TLT_CHECK_INPUT(end != std::string_view::npos, "not a draft buffer");
  try {
    const nlohmann::json facts = nlohmann::json::parse(bytes.substr(0, end));
    bytes.remove_prefix(end + 1);
    for (const nlohmann::json& its : facts.at("sequences")) {
      const auto prompt = growing_.make_tokens();
      read(its.at("prompt"), bytes, limits_, *prompt);
      const auto sequence = std::make_shared<HiddenSequence>(prompt);
      read(its.at("response"), bytes, limits_, sequence->response);
      sequence->number = json_count(its, "number");
      (its.at("is_before").get<bool>() ? before_ : now_).push_back(sequence);
    }
    begun_ = std::max(begun_, json_count(facts, "begun"));
    drawn_ = std::max(drawn_, json_count<uint32_t>(facts, "drawn"));
  } catch (const nlohmann::json::exception& error) {
    throw InputError("not a draft buffer (" + json_fault(error) + ")");
  }
  TLT_CHECK_INPUT(bytes.empty(), bytes.size(), " bytes after a draft buffer");
  shrink();
}

}  // namespace tlt::drafter_training
