// SPDX-License-Identifier: Apache-2.0
#include "model/policy_shard.h"

#include <ATen/ATen.h>

#include "base/check.h"

namespace tlt::model {
namespace {

std::vector<int64_t> with_ranks(int64_t ranks, at::IntArrayRef sizes) {
  std::vector<int64_t> all = sizes.vec();
  all.insert(all.begin(), ranks);
  return all;
}

}  // namespace

PolicyShard::PolicyShard(const PolicyModel& model, TensorParallelRanks& ranks)
    : model_(model), ranks_(ranks), part_(model, ranks) {}

PolicyShard::Cut PolicyShard::cut_of(size_t parameter) const {
  const std::vector<int64_t> whole = model_.parameters()[parameter].shape(),
                             part = part_.parameters()[parameter].shape();
  if (whole == part) return Cut::kNone;
  return whole[0] == part[0] ? Cut::kColumns : Cut::kRows;
}

std::vector<int64_t> PolicyShard::projections_of(size_t parameter) const {
  std::vector<int64_t> rows;
  for (const Parameter::Part& part : model_.parameters()[parameter].parts)
    rows.push_back(part.rows);
  return rows;
}

at::Tensor PolicyShard::gather(size_t parameter, const at::Tensor& mine) const {
  const Parameter& whole = model_.parameters()[parameter];
  TLT_CHECK(mine.sizes() == at::IntArrayRef(part_.parameters()[parameter].shape()), whole.name());
  const Cut cut = cut_of(parameter);
  if (cut == Cut::kNone) return mine.clone();
  at::Tensor parts = at::empty(with_ranks(ranks_.size(), mine.sizes()), mine.options());
  parts.select(0, ranks_.rank()).copy_(mine);
  ranks_.all_gather(parts);
  if (cut == Cut::kColumns)
    return parts.transpose(0, 1).reshape(at::IntArrayRef(whole.shape())).contiguous();
  at::Tensor out = at::empty(whole.shape(), mine.options());
  for (int64_t rank = 0; rank < ranks_.size(); ++rank)
    for (const auto& [from, count, to] :
         rows_of_slice(projections_of(parameter), ranks_.size(), rank))
      out.narrow(0, from, count).copy_(parts.select(0, rank).narrow(0, to, count));
  return out;
}

at::Tensor PolicyShard::part_of(size_t parameter, const at::Tensor& whole) const {
  const std::vector<int64_t> shape = part_.parameters()[parameter].shape();
  const Cut cut = cut_of(parameter);
  if (cut == Cut::kNone) return whole.clone();
  if (cut == Cut::kColumns)
    return whole.narrow(1, ranks_.rank() * shape[1], shape[1]).clone(at::MemoryFormat::Contiguous);
  at::Tensor part = at::zeros(shape, whole.options());
  for (const auto& [from, count, to] :
       rows_of_slice(projections_of(parameter), ranks_.size(), ranks_.rank()))
    part.narrow(0, to, count).copy_(whole.narrow(0, from, count));
  return part;
}

void PolicyShard::publish() const {
  const Device& device = model_.device();
  for (size_t i = 0; i < model_.parameters().size(); ++i) {
    if (cut_of(i) == Cut::kNone) continue;  // shared with the model
    const Parameter& part = part_.parameters()[i];
    const at::Tensor mine =
        part.read(device, {.name = "", .first_row = 0, .rows = part.shape()[0]});
    model_.parameters()[i].write(device, gather(i, mine.cpu()).to(device.torch()));
  }
}

}  // namespace tlt::model
