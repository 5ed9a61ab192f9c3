// SPDX-License-Identifier: Apache-2.0
#include "train/shards.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <set>

#include "tests/support/golden_batch.h"

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
