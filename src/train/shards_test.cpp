// SPDX-License-Identifier: Apache-2.0
#include "train/shards.h"

#include <c10/util/accumulate.h>
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "tests/support/golden_batch.h"
#include "train/chunks.h"

namespace tlt::train {
namespace {

// Every row belongs to one worker, in the order of ranks.
TEST(ShardsTest, PartsAreContiguousAndComplete) {
  for (const std::string& name : kGoldenModels) {
    const auto model = golden_model(name);
    const auto& parameters = model->parameters();
    for (const int workers : {1, 2, 3, 5, 8, 1000}) {
      SCOPED_TRACE(name + ", " + std::to_string(workers) + " workers");
      const Shards shards(parameters, workers);
      int owner = 0;
      for (size_t p = 0; p < parameters.size(); ++p) {
        int64_t next = 0;
        for (int worker = 0; worker < workers; ++worker) {
          const RowRange range = shards.of(p, worker);
          ASSERT_GE(range.rows, 0);
          if (range.rows == 0) continue;
          EXPECT_EQ(range.first, next);
          EXPECT_GE(worker, owner) << parameters[p].name();
          EXPECT_EQ(range.first % ops::Weight::kPanel, 0);
          owner = worker;
          next += range.rows;
        }
        EXPECT_EQ(next, parameters[p].shape()[0]) << parameters[p].name();
      }
    }
  }
}

// A share is the worker's rows of all parameters, one after the other; each chunk belongs to the
// worker that has its first element.
TEST(ShardsTest, SharesAndChunksAreThoseOfTheRows) {
  for (const bool are_whole : {false, true})
    for (const std::string& name : kGoldenModels) {
      const auto model = golden_model(name);
      const auto& parameters = model->parameters();
      for (const int workers : {1, 2, 3, 5, 8, 1000}) {
        SCOPED_TRACE(name + ", " + std::to_string(workers) + " workers");
        const Shards shards(parameters, workers, std::vector<bool>(parameters.size(), are_whole));
        EXPECT_EQ(shards.share_of(0).first, 0);
        std::vector<int64_t> ends(static_cast<size_t>(workers));  // of rows and chunks
        int64_t begin = 0;
        for (size_t p = 0; p < parameters.size(); ++p) {
          const int64_t elements = c10::multiply_integers(parameters[p].shape()),
                        row = elements / parameters[p].shape()[0];
          std::vector<int> owners(static_cast<size_t>(chunks(elements)), -1);
          for (int worker = 0; worker < workers; ++worker) {
            const RowRange range = shards.of(p, worker);
            const int64_t first = range.first * row, last = first + range.rows * row;
            const ElementRange share = shards.share_of(worker), own = shards.chunks_of(p, worker);
            if (range.rows > 0) {
              EXPECT_GE(begin + first, share.first);
              EXPECT_LE(begin + last, share.last);
              EXPECT_TRUE(own.size() == 0 || own.last >= last);
              ends[static_cast<size_t>(worker)] = begin + (own.size() > 0 ? own.last : last);
            }
            for (int64_t chunk = 0; chunk < std::ssize(owners); ++chunk) {
              if (chunk * kChunk < first || chunk * kChunk >= last) continue;
              EXPECT_EQ(std::exchange(owners[static_cast<size_t>(chunk)], worker), -1);
              EXPECT_LE(own.first, chunk * kChunk);
              EXPECT_GE(own.last, std::min(elements, (chunk + 1) * kChunk));
            }
            EXPECT_EQ(own.size() > 0, std::ranges::count(owners, worker) > 0);
          }
          EXPECT_EQ(std::ranges::count(owners, -1), 0) << parameters[p].name();
          begin += elements;
        }
        for (int worker = 0; worker < workers; ++worker) {
          const ElementRange share = shards.share_of(worker), rest = shards.chunk_end_of(worker);
          EXPECT_EQ(share.last, worker + 1 < workers ? shards.share_of(worker + 1).first : begin);
          EXPECT_EQ(rest.first, share.last);
          if (share.size() > 0) {
            EXPECT_EQ(rest.last, ends[static_cast<size_t>(worker)]);
          }
        }
      }
    }
}

// Fused projections are several tensors.
TEST(ShardsTest, WholeTensorsAreOfOneWorker) {
  for (const std::string& name : kGoldenModels) {
    const auto model = golden_model(name);
    const auto& parameters = model->parameters();
    for (const int workers : {1, 2, 3, 5, 8, 1000}) {
      SCOPED_TRACE(name + ", " + std::to_string(workers) + " workers");
      const Shards shards(parameters, workers, std::vector<bool>(parameters.size(), true));
      std::set<int> owners;
      for (size_t p = 0; p < parameters.size(); ++p) {
        std::map<int64_t, int64_t> found;  // last row by first row
        for (int worker = 0; worker < workers; ++worker)
          if (const RowRange range = shards.of(p, worker); range.rows > 0) {
            found[range.first] = range.first + range.rows;
            owners.insert(worker);
          }
        int64_t next = 0;
        for (const auto& [first, last] : found) {
          EXPECT_EQ(first, next) << parameters[p].name();
          next = last;
        }
        EXPECT_EQ(next, parameters[p].shape()[0]) << parameters[p].name();
        for (const model::Parameter::Part& part : parameters[p].parts) {
          const auto after = found.upper_bound(part.first_row);
          EXPECT_GE(std::prev(after)->second, part.first_row + part.rows) << part.name;
        }
      }
      EXPECT_TRUE(workers > 3 || std::ssize(owners) == workers) << "each has a part";
    }
  }
}

// Except for a panel of the widest matrix at either end.
TEST(ShardsTest, PartsAreOfAboutTheSameSize) {
  for (const std::string& name : kGoldenModels) {
    const auto model = golden_model(name);
    const auto& parameters = model->parameters();
    int64_t all = 0, panel = 0;
    const auto row_size = [](const auto& shape) { return shape.size() == 2 ? shape[1] : 1; };
    for (const model::Parameter& parameter : parameters) {
      const auto shape = parameter.shape();
      all += shape[0] * row_size(shape);
      panel = std::max(panel, ops::Weight::kPanel * row_size(shape));
    }
    for (const int workers : {1, 2, 3, 5}) {
      const Shards shards(parameters, workers);
      int64_t sum = 0;
      for (int worker = 0; worker < workers; ++worker) {
        int64_t part = 0;
        for (size_t p = 0; p < parameters.size(); ++p)
          part += shards.of(p, worker).rows * row_size(parameters[p].shape());
        EXPECT_LT(std::abs(part - all / workers), panel + 1) << worker << " of " << workers;
        sum += part;
      }
      EXPECT_EQ(sum, all);
    }
  }
}

}  // namespace
}  // namespace tlt::train
