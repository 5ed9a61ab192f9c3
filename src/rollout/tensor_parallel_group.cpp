// SPDX-License-Identifier: Apache-2.0
#include "rollout/tensor_parallel_group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace tlt::rollout {
namespace {

constexpr double kAliveSeconds = 1;
// Of a message that needs one collective only: a pass of some hundred rows, or the hidden states of
// a few.
constexpr size_t kMessageWords = 4096;

// What a message asks for.
enum Request : int32_t {
  kMakeRunner,
  kClearPages,
  kReleaseCache,
  kPass,
  kLogits,
  kAlive,
  kRelease
};

void append(std::vector<int32_t>& words, std::span<const int32_t> list) {
  words.push_back(static_cast<int32_t>(list.size()));
  words.insert(words.end(), list.begin(), list.end());
}

// The batch of an engine: its segments have pages, and no shared prefix.
void append(std::vector<int32_t>& words, const ops::Batch& batch) {
  append(words, batch.tokens);
  append(words, batch.positions);
  words.push_back(batch.tree_rows);
  words.push_back(static_cast<int32_t>(batch.segments.size()));
  for (const ops::Segment& segment : batch.segments) {
    TLT_CHECK(segment.shared_prefix < 0);
    for (const int32_t word : {segment.first_row, segment.rows, segment.first_position,
                               segment.levels, segment.first_tree_row})
      words.push_back(word);
    append(words,
           std::span(segment.pages, static_cast<size_t>(ops::pages_for(segment.end_position()))));
  }
}

}  // namespace

class WordReader {
 public:
  explicit WordReader(std::span<const int32_t> words) : words_(words) {}

  int32_t next() {
    TLT_CHECK(!words_.empty(), "a message of the group's leader ends too early");
    const int32_t word = words_.front();
    words_ = words_.subspan(1);
    return word;
  }
  std::vector<int32_t> list() {
    const int32_t count = next();
    TLT_CHECK(count >= 0 && count <= std::ssize(words_), "a list of ", count, " in ", words_.size(),
              " words");
    std::vector<int32_t> words(words_.begin(), words_.begin() + count);
    words_ = words_.subspan(static_cast<size_t>(count));
    return words;
  }

  void copy(void* to, size_t bytes) {
    TLT_CHECK(bytes <= words_.size_bytes(), bytes, " bytes of ", words_.size(), " words");
    std::memcpy(to, words_.data(), bytes);
    words_ = words_.subspan(bytes / sizeof(int32_t));
  }

 private:
  std::span<const int32_t> words_;
};

// A follower's counterpart of a runner.
struct TensorParallelGroup::FollowedCache {
  FollowedCache(const model::PolicyModel& model, const kv::KvShape& shape, int64_t pages)
      : cache(model.device(), shape, pages), activations(model, /*max_rows=*/1) {}

  void read_batch(WordReader& in) {
    batch.clear();
    pages.clear();
    batch.tokens = in.list();
    batch.positions = in.list();
    batch.tree_rows = in.next();
    batch.segments.resize(static_cast<size_t>(in.next()));
    for (ops::Segment& segment : batch.segments) {
      for (int32_t* word : {&segment.first_row, &segment.rows, &segment.first_position,
                            &segment.levels, &segment.first_tree_row})
        *word = in.next();
      pages.push_back(in.list());
      segment.pages = pages.back().data();
    }
  }

  kv::KvCache cache;
  model::Activations activations;
  ops::Batch batch;                             // of the last pass
  std::vector<std::vector<ops::PageId>> pages;  // of its segments
};

// The leader's runner. Changes of the cache between two passes are sent with the second one.
class TensorParallelGroup::Runner final : public ModelRunner {
 public:
  Runner(TensorParallelGroup& group, int32_t id, int64_t pages, int64_t max_rows)
      : ModelRunner(group.shard_.model(), group.kv_shape(), pages, max_rows),
        group_(group),
        id_(id) {}
  ~Runner() override { group_.dropped_.push_back(id_); }

  const at::Tensor& forward(const ops::Batch& batch) override {
    Words words = {kPass, id_, static_cast<int32_t>(kept_.size())};
    for (const KeptPath& kept : kept_) {
      words.push_back(kept.segment);
      append(words, kept.path);
    }
    append(words, copies_);
    append(words, batch);
    kept_.clear();
    copies_.clear();
    group_.send(words);
    has_written_ = true;
    return group_.shard_.part().forward(batch, cache_, activations_);
  }

  void logits(const at::Tensor& hidden, at::Tensor& out) override {
    const at::Tensor rows = hidden.contiguous();
    Words words = {kLogits, static_cast<int32_t>(rows.size(0))};
    words.resize(2 + rows.nbytes() / sizeof(int32_t));  // a row is a multiple of 16 elements
    std::memcpy(words.data() + 2, rows.const_data_ptr(), rows.nbytes());
    group_.send(words);
    group_.shard_.part().logits(rows, out);
  }

  void copy_pages(std::span<const ops::PageCopy> copies) override {
    ModelRunner::copy_pages(copies);
    for (const ops::PageCopy& copy : copies) copies_.insert(copies_.end(), {copy.from, copy.to});
  }

  void keep_paths(const ops::Batch& batch, std::span<const ops::KeptPath> paths) override {
    TLT_CHECK(copies_.empty(), "paths are kept before pages are copied");
    ModelRunner::keep_paths(batch, paths);
    for (const ops::KeptPath& kept : paths)
      kept_.push_back({static_cast<int32_t>(kept.segment - batch.segments.data()),
                       {kept.rows.begin(), kept.rows.end()}});
  }

  void clear_pages(std::span<const ops::PageId> pages) override {
    ModelRunner::clear_pages(pages);
    Words words = {kClearPages, id_};
    append(words, pages);
    group_.send(words);
  }

  void keep_alive() override { group_.keep_alive(); }

 protected:
  void release_cache() override {
    ModelRunner::release_cache();
    group_.send({kReleaseCache, id_});
  }

 private:
  TensorParallelGroup& group_;
  const int32_t id_;
  std::vector<KeptPath> kept_;
  Words copies_;  // from, to, from, to …
};

TensorParallelGroup::TensorParallelGroup(const model::PolicyModel& model, cluster::Comm& comm)
    : comm_(comm), shard_(model, *this) {}

TensorParallelGroup::~TensorParallelGroup() = default;

std::unique_ptr<ModelRunner> TensorParallelGroup::make_runner(int64_t pages, int64_t max_rows) {
  TLT_CHECK(leads(), "rank ", comm_.rank(), " of a tensor parallel group has no engine");
  const int32_t id = next_runner_++;
  send({kMakeRunner, id, static_cast<int32_t>(pages)});
  return std::make_unique<Runner>(*this, id, pages, max_rows);
}

void TensorParallelGroup::release(const std::string& result) {
  send({kRelease});
  comm_.all_gather_bytes(result);
}

void TensorParallelGroup::keep_alive() {
  if (since_send_.seconds() > kAliveSeconds) send({kAlive});
}

void TensorParallelGroup::send(const Words& words) {
  message_ = {0};
  append(message_, std::exchange(dropped_, {}));
  message_.insert(message_.end(), words.begin(), words.end());
  message_.front() = static_cast<int32_t>(message_.size());
  message_.resize(std::max(message_.size(), kMessageWords));
  exchange_message();
  since_send_.restart();
}

const TensorParallelGroup::Words& TensorParallelGroup::receive() {
  message_.resize(kMessageWords);
  exchange_message();
  return message_;
}

// In one collective, as latency counts; the words that do not fit, in a second one.
void TensorParallelGroup::exchange_message() {
  const auto view = [&](size_t first, size_t end) {
    return at::from_blob(message_.data() + first, {static_cast<int64_t>(end - first)}, at::kInt);
  };
  at::Tensor begin = view(0, kMessageWords);
  comm_.broadcast(begin, /*root=*/0);
  const auto length = static_cast<size_t>(message_.front());
  message_.resize(std::max(length, kMessageWords));
  if (length <= kMessageWords) return;
  at::Tensor rest = view(kMessageWords, length);
  comm_.broadcast(rest, /*root=*/0);
}

std::string TensorParallelGroup::follow() {
  TLT_CHECK(!leads(), "the leader of a tensor parallel group does not follow");
  std::string result;
  while (execute(receive(), result)) {
  }
  return result;
}

// False: the leader has released this rank, with `result`.
bool TensorParallelGroup::execute(const Words& words, std::string& result) {
  WordReader in(words);
  in.next();  // the length
  for (const int32_t id : in.list()) caches_.erase(id);
  switch (static_cast<Request>(in.next())) {
    case kMakeRunner: {
      const int32_t id = in.next();
      caches_[id] = std::make_unique<FollowedCache>(shard_.model(), kv_shape(), in.next());
      return true;
    }
    case kClearPages: {
      kv::KvCache& cache = caches_.at(in.next())->cache;
      for (const int32_t page : in.list()) cache.clear_page(page);
      return true;
    }
    case kReleaseCache:
      caches_.at(in.next())->cache.try_release();
      return true;
    case kPass:
      execute_pass(in);
      return true;
    case kLogits:
      execute_logits(in);
      return true;
    case kAlive:
      return true;
    case kRelease:
      result = comm_.all_gather_bytes({}).front();
      return false;
  }
  TLT_CHECK(false, "a message of no kind");
}

void TensorParallelGroup::execute_pass(WordReader& in) {
  FollowedCache& followed = *caches_.at(in.next());
  for (int32_t kept = in.next(); kept > 0; --kept) {
    const ops::Segment& segment = followed.batch.segments.at(static_cast<size_t>(in.next()));
    followed.cache.keep_path(followed.batch, segment, in.list());
  }
  const Words copies = in.list();
  for (size_t i = 0; i + 1 < copies.size(); i += 2)
    followed.cache.copy_page(copies[i], copies[i + 1]);
  followed.read_batch(in);
  shard_.part().forward(followed.batch, followed.cache, followed.activations);
}

void TensorParallelGroup::execute_logits(WordReader& in) {
  const model::PolicyModel& model = shard_.model();
  const int64_t rows = in.next();
  const at::Tensor& hidden =
      hidden_.resize(model.device(), rows, model.config().hidden, model.type());
  in.copy(hidden.data_ptr(), hidden.nbytes());
  logits_.resize(model.device(), rows, model.config().vocabulary, at::kFloat);
  shard_.part().logits(hidden, logits_.view());
}

}  // namespace tlt::rollout
