// SPDX-License-Identifier: Apache-2.0
#include "drafter_training/draft_buffer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tlt::drafter_training {
namespace {

constexpr int64_t kFewestTokens = 4;  // of a piece: a smaller one has no pair worth a pass
constexpr double kShareOfLastStep = 0.5;

}  // namespace

class DraftBuffer::Rows {
 public:
  explicit Rows(std::shared_ptr<int64_t> bytes) : bytes_(std::move(bytes)) {}
  ~Rows() { *bytes_ -= counted_; }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  int64_t size() const { return std::ssize(tokens_); }
  const std::vector<int32_t>& tokens() const { return tokens_; }

  void append(const at::Tensor& hidden, std::span<const int32_t> tokens) {
    const at::Tensor rows =
        hidden.is_cpu() && hidden.is_contiguous() ? hidden : hidden.cpu().contiguous();
    TLT_CHECK(rows.size(0) == std::ssize(tokens), rows.size(0), " states for ", tokens.size());
    hidden_ = rows.size(1);
    type_ = rows.scalar_type();
    states_.append(static_cast<const char*>(rows.const_data_ptr()), rows.nbytes());
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    count();
  }

  // Copies rows first … last - 1 to an [n, D] tensor's memory at `to`; returns the end.
  char* copy(int64_t first, int64_t last, char* to) const {
    const auto row = states_.size() / tokens_.size();
    const size_t bytes = row * static_cast<size_t>(last - first);
    std::memcpy(to, states_.data() + row * static_cast<size_t>(first), bytes);
    return to + bytes;
  }
  at::Tensor empty(int64_t rows) const { return at::empty({rows, hidden_}, type_); }

  nlohmann::json facts() const {
    return {{"tokens", size()},
            {"hidden", hidden_},
            {"is_float32", type_ == at::kFloat},
            {"bytes", states_.size()}};
  }
  void write(std::string& out) const {
    out.append(reinterpret_cast<const char*>(tokens_.data()), tokens_.size() * sizeof(int32_t));
    out += states_;
  }
  // Reads what write() wrote from the front of `bytes` and removes it there.
  void read(const nlohmann::json& facts, std::string_view& bytes) {
    const auto tokens = facts.at("tokens").get<size_t>(), size = facts.at("bytes").get<size_t>();
    hidden_ = facts.at("hidden").get<int64_t>();
    type_ = facts.at("is_float32").get<bool>() ? at::kFloat : at::kBFloat16;
    TLT_CHECK(tokens <= bytes.size() / sizeof(int32_t) &&
                  size <= bytes.size() - tokens * sizeof(int32_t) &&
                  size == tokens * static_cast<size_t>(hidden_) * c10::elementSize(type_),
              "a draft buffer that does not match its description");
    tokens_.resize(tokens);
    std::memcpy(tokens_.data(), bytes.data(), tokens * sizeof(int32_t));
    bytes.remove_prefix(tokens * sizeof(int32_t));
    states_ = bytes.substr(0, size);
    bytes.remove_prefix(size);
    count();
  }

 private:
  void count() {
    const auto now =
        static_cast<int64_t>(states_.capacity() + tokens_.capacity() * sizeof(int32_t));
    *bytes_ += now - counted_;
    counted_ = now;
  }

  const std::shared_ptr<int64_t> bytes_;
  std::vector<int32_t> tokens_;
  std::string states_;  // raw bytes; grows as rows are appended
  int64_t hidden_ = 0;
  at::ScalarType type_ = at::kFloat;
  int64_t counted_ = 0;
};

int64_t DraftBuffer::Sequence::tokens() const { return prompt->size() + response->size(); }

DraftBuffer::DraftBuffer(const Limits& limits)
    : limits_(limits), bytes_(std::make_shared<int64_t>(0)) {
  TLT_CHECK(limits.bytes > 0, limits.bytes);
}

DraftBuffer::~DraftBuffer() = default;

void DraftBuffer::begin_step() {
  is_open_ = true;
  before_ = std::exchange(now_, {});
  growing_.clear();
  prompts_.clear();
}

void DraftBuffer::offer_prompt(uint32_t prompt_id, int32_t position, const at::Tensor& hidden,
                               std::span<const int32_t> tokens) {
  std::shared_ptr<Rows>& rows = prompts_[prompt_id];
  if (position == 0) rows = std::make_shared<Rows>(bytes_);
  if (!rows || rows->size() != position) return;  // began before the step, or was dropped
  rows->append(hidden, tokens);
}

void DraftBuffer::offer(uint32_t prompt_id, uint32_t sample, int32_t position,
                        const at::Tensor& hidden, std::span<const int32_t> tokens) {
  if (!is_open_) return;
  if (sample == kPrompt) return offer_prompt(prompt_id, position, hidden, tokens);
  auto found = growing_.find({prompt_id, sample});
  if (found != growing_.end() && position == found->second->prompt->size()) {
    // Offered from its prompt on again: the sequence migrated to another worker and back, or its
    // prompt occurs twice in this step. The earlier piece stays.
    growing_.erase(found);
    found = growing_.end();
  }
  if (found == growing_.end()) {
    const auto prompt = prompts_.find(prompt_id);
    if (prompt == prompts_.end() || !prompt->second || prompt->second->size() != position) return;
    now_.push_back(std::make_shared<Sequence>(
        Sequence{prompt->second, std::make_unique<Rows>(bytes_), begun_++}));
    found = growing_.emplace(std::pair(prompt_id, sample), now_.back()).first;
  }
  Sequence& sequence = *found->second;
  TLT_CHECK(position == sequence.tokens(), "state ", position, " of prompt ", prompt_id,
            ", sample ", sample, " after ", sequence.tokens(), " tokens");
  sequence.response->append(hidden, tokens);
  if (*bytes_ > limits_.bytes) shrink();
}

void DraftBuffer::shrink() {
  while (*bytes_ > limits_.bytes && sequences() > 0) {
    Kept& oldest = before_.empty() ? now_ : before_;
    const std::shared_ptr<Sequence> gone = oldest.front();
    oldest.erase(oldest.begin());
    std::erase_if(growing_, [&](const auto& entry) { return entry.second == gone; });
  }
  if (*bytes_ > limits_.bytes) prompts_.clear();
}

DraftSample DraftBuffer::piece(const std::shared_ptr<Sequence>& sequence, int64_t first,
                               int64_t tokens, uint32_t id) {
  const int64_t prompt = sequence->prompt->size(), last = first + tokens;
  const int64_t from_prompt = std::clamp<int64_t>(prompt - first, 0, tokens);
  const auto& prompt_tokens = sequence->prompt->tokens();
  const auto& response_tokens = sequence->response->tokens();
  DraftSample sample;
  sample.tokens.assign(prompt_tokens.begin() + std::min(first, prompt),
                       prompt_tokens.begin() + std::min(first, prompt) + from_prompt);
  sample.tokens.insert(sample.tokens.end(),
                       response_tokens.begin() + std::max<int64_t>(0, first - prompt),
                       response_tokens.begin() + std::max<int64_t>(0, last - prompt));
  sample.response_begin = static_cast<int32_t>(from_prompt);
  sample.id = id;
  sample.states = [sequence, first, last, prompt, from_prompt] {
    at::Tensor states = sequence->response->empty(last - first);
    auto* to = static_cast<char*>(states.mutable_data_ptr());
    if (from_prompt > 0) to = sequence->prompt->copy(first, first + from_prompt, to);
    if (last > prompt)
      sequence->response->copy(std::max<int64_t>(0, first - prompt), last - prompt, to);
    return states;
  };
  return sample;
}

DraftBuffer::Kept DraftBuffer::drawable(const Kept& kept) const {
  Kept result;
  for (const auto& sequence : kept)
    if (!sequence->is_held_out() && sequence->tokens() >= kFewestTokens &&
        sequence->response->size() > 0)
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
    const std::shared_ptr<Sequence> sequence = kept[chosen];
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(chosen));  // at most once per batch
    const int64_t size = std::min({window, tokens, sequence->tokens()});
    // At a random offset, but not so early that the piece has little of the response.
    const int64_t latest = sequence->tokens() - size;
    const int64_t earliest = std::clamp<int64_t>(sequence->prompt->size() - size / 2, 0, latest);
    const int64_t first =
        earliest + static_cast<int64_t>(random.below(static_cast<uint64_t>(latest - earliest + 1)));
    samples.push_back(piece(sequence, first, size, drawn_++));
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
      if (!sequence->is_held_out() || size < kFewestTokens) continue;
      samples.push_back(piece(sequence, first, size, 0));
      tokens -= size;
    }
  return samples;
}

// --- checkpoints ---

// A line of JSON that describes the sequences, followed by their tokens and states.
std::string DraftBuffer::save() const {
  nlohmann::json facts = {
      {"begun", begun_}, {"drawn", drawn_}, {"sequences", nlohmann::json::array()}};
  std::string rows;
  for (const Kept* kept : {&before_, &now_})
    for (const auto& sequence : *kept) {
      facts["sequences"].push_back({{"is_before", kept == &before_},
                                    {"number", sequence->number},
                                    {"prompt", sequence->prompt->facts()},
                                    {"response", sequence->response->facts()}});
      sequence->prompt->write(rows);
      sequence->response->write(rows);
    }
  return facts.dump() + "\n" + rows;
}

std::shared_ptr<DraftBuffer::Sequence> DraftBuffer::read_sequence(const nlohmann::json& facts,
                                                                  std::string_view& bytes) {
  auto sequence = std::make_shared<Sequence>(Sequence{std::make_shared<Rows>(bytes_),
                                                      std::make_unique<Rows>(bytes_),
                                                      facts.at("number").get<int64_t>()});
  sequence->prompt->read(facts.at("prompt"), bytes);
  sequence->response->read(facts.at("response"), bytes);
  return sequence;
}

void DraftBuffer::add(std::string_view bytes) {
  const size_t end = bytes.find('\n');
  TLT_CHECK(end != std::string_view::npos, "not a draft buffer");
  try {
    const nlohmann::json facts = nlohmann::json::parse(bytes.substr(0, end));
    bytes.remove_prefix(end + 1);
    for (const nlohmann::json& its : facts.at("sequences"))
      (its.at("is_before").get<bool>() ? before_ : now_).push_back(read_sequence(its, bytes));
    begun_ = std::max(begun_, facts.at("begun").get<int64_t>());
    drawn_ = std::max(drawn_, facts.at("drawn").get<uint32_t>());
  } catch (const nlohmann::json::exception& error) {
    TLT_CHECK(false, "not a draft buffer: ", error.what());
  }
  TLT_CHECK(bytes.empty(), bytes.size(), " bytes after a draft buffer");
  shrink();
}

}  // namespace tlt::drafter_training
