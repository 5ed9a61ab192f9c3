// SPDX-License-Identifier: Apache-2.0
#include "simulate/cost_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/json_count.h"
#include "base/json_lines.h"

namespace tlt::simulate {
namespace {

constexpr double kWeightBytes = 2;    // bfloat16
constexpr double kGradientBytes = 8;  // an int64 sum (train/gradient_sum.h)
// Of a parameter: master weight and moments read and written, gradient read, weight written.
constexpr double kOptimizerBytes = 12 + 12 + 4 + 2;
// Of a parameter in a checkpoint: bfloat16 weight, float32 master weight and moments.
constexpr double kCheckpointBytes = 2 + 12;
// Bytes/s from a device to the memory of its host: 80 % of the 32 GB/s of PCIe 4.0 x16.
constexpr double kHostBandwidth = 25e9;

constexpr int64_t kMostRows = int64_t{1} << 20;  // of a measured pass

// Passes of a run follow each other, so their mean counts; files of earlier versions have medians.
double pass_seconds(const nlohmann::json& row, const std::string& part) {
  const auto mean = row.find(part + "_seconds_mean");
  return (mean != row.end() ? *mean : row.at(part + "_seconds_p50")).get<double>();
}

// Rows of each sequence in a measured pass.
int64_t rows_of_each(const nlohmann::json& row) {
  const auto& as = row.at("as");
  if (as == "tree") return json_count(row, "rows");
  return as == "sequences" ? 1 : json_count(row, "tree_rows");
}

// What more rows than the measured ones add to the draft trees of several sequences is what the same
// rows add to the tree of one.
void add_trees_of_batches(std::vector<speculation::ForwardCost>& costs) {
  std::map<int64_t, std::map<double, double>> trees;  // seconds by context and rows
  std::map<std::pair<int64_t, int64_t>, speculation::ForwardCost> most;  // by context and batch
  for (const speculation::ForwardCost& cost : costs) {
    if (cost.batch == 1) trees[cost.context][static_cast<double>(cost.rows)] = cost.seconds;
    auto& pass = most.try_emplace({cost.context, cost.batch}, cost).first->second;
    if (cost.rows > pass.rows) pass = cost;
  }
  for (const auto& [key, pass] : most) {
    const auto& points = trees[pass.context];
    if (pass.batch == 1 || points.empty()) continue;
    const speculation::Curve tree{{points.begin(), points.end()}};
    const double reached = tree.at(static_cast<double>(pass.rows));
    for (int64_t rows = 2 * pass.rows; rows <= 8 * pass.batch; rows *= 2) {
      const double more = std::max(0.0, tree.at(static_cast<double>(rows)) - reached);
      costs.push_back({pass.batch, rows, pass.seconds + more, pass.context});
    }
  }
}

}  // namespace

CostModel::CostModel(Setup setup) : setup_(std::move(setup)) {
  setup_.constants.check();
  if (!setup_.measured.empty())
    measured_.emplace(setup_.measured, std::vector<speculation::DraftCost>{});
  if (!setup_.measured_alone.empty())
    measured_alone_.emplace(setup_.measured_alone, std::vector<speculation::DraftCost>{});
}

double CostModel::roofline(double read_parameters, double row_parameters, double rows) const {
  const CostConstants& c = setup_.constants;
  const double reading = kWeightBytes * read_parameters /
                         (devices() * setup_.device.memory_bandwidth * c.memory_efficiency);
  const double arithmetic =
      2 * row_parameters * rows / (devices() * setup_.device.peak * c.compute_efficiency);
  return std::pow(std::pow(reading, c.overlap) + std::pow(arithmetic, c.overlap), 1 / c.overlap);
}

// A ring moves 2 (n - 1) / n of the bytes through each link.
double CostModel::all_reduces(double count, double rows) const {
  if (setup_.tensor_parallel == 1) return 0;
  const double bytes = kWeightBytes * rows * static_cast<double>(setup_.model.hidden);
  return count * (setup_.constants.collective_seconds +
                  bytes * 2 * (devices() - 1) / devices() / setup_.device.link_bandwidth);
}

double CostModel::forward(double rows, double sequences, double context, double neighbours) const {
  if (measured_alone_ && neighbours < 1)
    return neighbours * forward(rows, sequences, context) +
           (1 - neighbours) * measured_alone_->target_seconds(rows, sequences, context);
  if (measured_) return measured_->target_seconds(rows, sequences, context);
  const auto layers = static_cast<double>(setup_.model.layers);
  const double kv =
      sequences * context * setup_.model.kv_bytes() /
      (devices() * setup_.device.memory_bandwidth * setup_.constants.context_efficiency);
  return setup_.constants.layer_seconds * layers + all_reduces(2 * layers, rows) + kv +
         roofline(setup_.model.read_parameters(rows), setup_.model.row_parameters(), rows);
}

double CostModel::prefill(double rows, double neighbours) const {
  return forward(rows + 1, 1, 0, neighbours) - forward(1, 1, 0, neighbours);
}

double CostModel::drafting(const drafter::Strategy& strategy, double sequences,
                           bool has_model) const {
  if (!has_model) return setup_.constants.cycle_seconds;
  const double parameters = setup_.model.draft_parameters() + setup_.model.draft_head_parameters(),
               rows = sequences * static_cast<double>(strategy.width);
  const double level = setup_.constants.level_seconds + setup_.constants.layer_seconds +
                       all_reduces(2, rows) + roofline(parameters, parameters, rows);
  return setup_.constants.cycle_seconds + static_cast<double>(strategy.depth) * level;
}

// 6 FLOP for each parameter and token; attention has 4 x heads x head size for each earlier token,
// and three times as many with the backward pass.
double CostModel::training(double tokens, double mean_length) const {
  const ModelShape& model = setup_.model;
  const double attention = 12.0 *
                           static_cast<double>(model.layers * model.query_heads * model.head_size) *
                           mean_length / 2;
  return tokens * (6 * model.row_parameters() + attention) /
         (devices() * setup_.device.peak * setup_.constants.train_efficiency);
}

double CostModel::draft_training(double tokens) const {
  return tokens * 6 * (setup_.model.draft_parameters() + setup_.model.draft_head_parameters()) /
         (devices() * setup_.device.peak * setup_.constants.train_efficiency);
}

double CostModel::checkpoint_bytes(bool has_draft_model) const {
  return kCheckpointBytes *
         (setup_.model.parameters() + (has_draft_model ? setup_.model.draft_parameters() : 0));
}

double CostModel::checkpoint_copy(bool has_draft_model) const {
  return checkpoint_bytes(has_draft_model) / devices() /
         std::min(kHostBandwidth, setup_.device.memory_bandwidth / 2);
}

double CostModel::optimizer(int64_t workers) const {
  const double of_device = setup_.model.parameters() / devices();
  const auto all = static_cast<double>(workers);
  const double sum = workers == 1 ? 0
                                  : 2 * (all - 1) / all * of_device * kGradientBytes /
                                        setup_.device.network_bandwidth;
  return sum + of_device * kOptimizerBytes / setup_.device.memory_bandwidth;
}

double CostModel::exchange(double bytes, int64_t workers) const {
  return workers == 1 ? 0 : bytes / (setup_.device.network_bandwidth * devices());
}

double CostModel::weight_sync() const {
  const double bytes = kWeightBytes * setup_.model.parameters() / devices();
  return setup_.tensor_parallel == 1 ? 2 * bytes / setup_.device.memory_bandwidth
                                     : bytes / setup_.device.link_bandwidth;
}

double CostModel::weight_broadcast() const {
  return kWeightBytes * setup_.model.parameters() / devices() / setup_.device.network_bandwidth;
}

int64_t CostModel::kv_tokens(double memory_share) const {
  const double weights = kWeightBytes * setup_.model.parameters(),
               room = memory_share * setup_.device.memory_bytes * devices() - weights;
  const double least = 1024 * setup_.model.kv_bytes();  // one short sequence
  const double needed = (weights + least) / (memory_share * setup_.device.memory_bytes);
  TLT_CHECK_INPUT(room >= least, setup_.model.name, " does not fit: its weights take ",
                  std::round(weights / 1e9), " GB and ", setup_.tensor_parallel, " x ",
                  setup_.device.name, " have ",
                  std::round(memory_share * setup_.device.memory_bytes * devices() / 1e9),
                  " GB for them; give tensor_model_parallel_size=",
                  std::exp2(std::ceil(std::log2(std::max(needed, 1.0)))), " or more");
  return static_cast<int64_t>(room / setup_.model.kv_bytes());
}

speculation::CostTable CostModel::table(const std::vector<drafter::Strategy>& strategies,
                                        int64_t most_sequences, int64_t most_rows) const {
  if (measured_ && strategies.empty()) return *measured_;
  std::vector<speculation::ForwardCost> forwards;
  std::vector<speculation::DraftCost> drafts;
  for (int64_t batch = 1; batch < 2 * most_sequences; batch *= 2) {
    for (const double context : {128.0, 1024.0})
      for (int64_t rows = batch; rows <= std::max(most_rows, batch); rows *= 2)
        forwards.push_back(
            {.batch = batch,
             .rows = rows,
             .seconds = forward(static_cast<double>(rows), static_cast<double>(batch), context),
             .context = static_cast<int64_t>(context)});
    for (const drafter::Strategy& strategy : strategies)
      for (const bool has_model : {true, false})
        drafts.push_back({has_model ? "eagle" : "suffix", strategy, batch,
                          drafting(strategy, static_cast<double>(batch), has_model)});
  }
  return {forwards, drafts};
}

std::vector<speculation::ForwardCost> read_forward_costs(const std::string& path) {
  std::vector<speculation::ForwardCost> costs;
  JsonLinesReader reader(path);
  for (nlohmann::json row; reader.try_next(row);) {
    try {
      const auto rows = json_count(row, "rows"), of_each = rows_of_each(row);
      TLT_CHECK_INPUT(of_each >= 1 && rows % of_each == 0, reader.place(), ": ", rows,
                      " rows of trees with ", of_each, "; give lines of tlt bench forward");
      costs.push_back({.batch = rows / of_each,
                       .rows = rows,
                       .seconds = pass_seconds(row, "forward") + pass_seconds(row, "head"),
                       .context = json_count(row, "context")});
    } catch (const nlohmann::json::exception&) {
      throw InputError(reader.place() + ": not a line of tlt bench forward");
    }
    const speculation::ForwardCost& cost = costs.back();
    TLT_CHECK_INPUT(cost.rows >= 1 && cost.rows <= kMostRows && cost.seconds > 0, reader.place(),
                    ": ", cost.rows, " rows in ", cost.seconds,
                    " s; give lines of tlt bench forward");
  }
  TLT_CHECK_INPUT(!costs.empty(), path,
                  ": no forward passes; give the output of tlt bench forward "
                  "--as tree,trees,sequences");
  add_trees_of_batches(costs);
  return costs;
}

}  // namespace tlt::simulate
