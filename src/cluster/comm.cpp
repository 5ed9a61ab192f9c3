// SPDX-License-Identifier: Apache-2.0
#include "cluster/comm.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/options.h"
#include "cluster/launch.h"
#include "cluster/process_group_comm.h"

namespace tlt::cluster {
namespace {

class SoloComm final : public Comm {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void barrier(const std::string&) override {}
  void all_reduce_sum(at::Tensor&) override {}
  void all_reduce_max(at::Tensor&) override {}
  at::Tensor reduce_scatter_sum(const at::Tensor& parts, const std::vector<int64_t>&) override {
    return parts.clone();
  }
  void broadcast(at::Tensor&, int root) override { TLT_CHECK(root == 0, "root ", root); }
  void all_gather(at::Tensor&) override {}
  std::unique_ptr<Comm> split(int) override { return make_solo_comm(); }
  std::vector<std::string> all_gather_bytes(const std::string& bytes) override { return {bytes}; }
  std::vector<double> all_reduce_sum(std::vector<double> values) override { return values; }
};

}  // namespace

std::unique_ptr<Comm> make_solo_comm() { return std::make_unique<SoloComm>(); }

void CommOptions::check() const {
  TLT_CHECK_INPUT(timeout_seconds > 0 && rendezvous_seconds > 0, "timeout_seconds is ",
                  timeout_seconds, " and rendezvous_seconds is ", rendezvous_seconds,
                  "; give more than 0");
}

std::unique_ptr<Comm> make_comm(const Launch& launch, const CommOptions& options) {
  options.check();
  if (launch.world_size == 1) return make_solo_comm();
  return make_process_group_comm(launch, options);
}

void handshake(Comm& comm, const std::string& version, const std::string& options) {
  const std::vector<std::string> all =
      comm.all_gather_bytes(nlohmann::json{{"version", version}, {"options", options}}.dump());
  std::vector<nlohmann::json> all_values;
  for (const std::string& text : all) all_values.push_back(nlohmann::json::parse(text));
  for (size_t rank = 1; rank < all_values.size(); ++rank) {
    const std::string version_here = all_values[rank]["version"],
                      version_of_0 = all_values[0]["version"];
    TLT_CHECK_INPUT(version_here == version_of_0, "rank ", rank, " runs tlt ", version_here,
                    " but rank 0 runs tlt ", version_of_0,
                    "; install the same version on every host");
    const std::string difference = first_difference(all_values[rank]["options"].get<std::string>(),
                                                    all_values[0]["options"].get<std::string>());
    TLT_CHECK_INPUT(difference.empty(), "rank ", rank,
                    " (here) and rank 0 (there) were started with other options: ", difference,
                    "; give every rank the same recipe, overrides and environment");
  }
}

void check_same_inputs(Comm& comm, const std::vector<Input>& inputs) {
  nlohmann::json mine = nlohmann::json::array();
  for (const Input& input : inputs) mine.push_back({input.name, input.fingerprint});
  const std::vector<std::string> all = comm.all_gather_bytes(mine.dump());
  const nlohmann::json first = nlohmann::json::parse(all[0]);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const nlohmann::json other = nlohmann::json::parse(all[rank]);
    const auto [here, there] = std::ranges::mismatch(other, first);
    TLT_CHECK_INPUT(here == other.end() && there == first.end(), "rank ", rank,
                    " reads other contents than rank 0 for ",
                    (here == other.end() ? *there : *here).at(0).get<std::string>(),
                    "; copy what rank 0 reads to every host");
  }
}

void check_different_cards(Comm& comm, const std::string& card) {
  const std::vector<std::string> cards = comm.all_gather_bytes(card);
  for (size_t rank = 0; rank < cards.size(); ++rank)
    for (size_t other = 0; other < rank; ++other)
      TLT_CHECK_INPUT(cards[rank] != cards[other], "ranks ", other, " and ", rank,
                      " have the same card, which NCCL does not allow; start as many workers on a "
                      "host as it has cards, with trainer.device=cuda");
}

}  // namespace tlt::cluster
