// Sources: the parts of a dataset, in order: rows of files, read at start, and generators, which
// make an item on request.
//
// Not here   which files (data_options.h); what a row becomes (dataset.h, sft_dataset.h).
// Threading  constant after loading.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "data/sampler.h"

namespace tlt::data {

template <class Item>
class Source {
 public:
  virtual ~Source() = default;
  virtual int64_t size() const = 0;
  // REQUIRES: 0 <= index < size().
  virtual Item item(int64_t index) const = 0;
};

// Items that are all in memory.
template <class Item>
class LoadedItems final : public Source<Item> {
 public:
  explicit LoadedItems(std::vector<Item> items) : items_(std::move(items)) {}
  int64_t size() const override { return std::ssize(items_); }
  Item item(int64_t index) const override { return items_[static_cast<size_t>(index)]; }

 private:
  const std::vector<Item> items_;
};

// Items that are made on request.
template <class Item>
class GeneratedItems final : public Source<Item> {
 public:
  using Make = std::function<Item(int64_t index)>;
  GeneratedItems(int64_t size, Make make) : size_(size), make_(std::move(make)) {}
  int64_t size() const override { return size_; }
  Item item(int64_t index) const override { return make_(index); }

 private:
  const int64_t size_;
  const Make make_;
};

template <class Item>
class Sources {
 public:
  void add(std::shared_ptr<const Source<Item>> source, double weight = 1) {
    size_ += source->size();
    parts_.push_back({.size = source->size(), .weight = weight});
    sources_.push_back(std::move(source));
  }

  int64_t size() const { return size_; }
  const std::vector<SamplerPart>& parts() const { return parts_; }

  // REQUIRES: 0 <= index < size().
  Item item(int64_t index) const {
    TLT_CHECK(index >= 0 && index < size_, index, " of ", size_);
    auto source = sources_.begin();
    for (; index >= (*source)->size(); ++source) index -= (*source)->size();
    return (*source)->item(index);
  }

 private:
  std::vector<std::shared_ptr<const Source<Item>>> sources_;
  std::vector<SamplerPart> parts_;  // in the same order
  int64_t size_ = 0;
};

}  // namespace tlt::data
