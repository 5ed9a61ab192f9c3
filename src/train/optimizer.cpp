// SPDX-License-Identifier: Apache-2.0
#include "train/optimizer.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "base/check.h"
#include "train/muon.h"

namespace tlt::train {
namespace {

// Parts of an update end at multiples of this: rows of a weight come in panels, which are written
// faster as a whole.
constexpr int64_t kRows = ops::Weight::kPanel;
// Elements that one worker sends to the others at a time, to bound the copies: 4 MiB of float32.
constexpr int64_t kSent = int64_t{1} << 20;

int64_t row_size(const at::Tensor& tensor) { return tensor.dim() == 2 ? tensor.size(1) : 1; }

std::vector<int64_t> with_rows(std::vector<int64_t> shape, int64_t rows) {
  shape[0] = rows;
  return shape;
}

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

// Calls body(first, rows) for parts of a range that are at most `elements` or one panel.
void for_parts(const RowRange& range, int64_t row_size, int64_t elements,
               const std::function<void(int64_t first, int64_t rows)>& body) {
  const int64_t step = std::max<int64_t>(1, elements / (kRows * row_size)) * kRows;
  for (int64_t done = 0; done < range.rows; done += step)
    body(range.first + done, std::min(step, range.rows - done));
}

// Which parameters Muon trains. Each of their matrices is updated as a whole, by one worker.
std::vector<bool> muon_parameters(const std::vector<model::Parameter>& parameters,
                                  const OptimOptions& options) {
  std::vector<bool> are;
  for (const model::Parameter& parameter : parameters)
    are.push_back(options.is_muon() && is_hidden_matrix(parameter));
  return are;
}

}  // namespace

void Optimizer::update_range(const Coefficients& c, std::span<const float> gradients,
                             float* __restrict master, float* __restrict average,
                             float* __restrict square) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    const float gradient = gradients[i] * c.clip;
    const float weight = master[i] * c.kept;
    average[i] += (gradient - average[i]) * (1 - c.beta1);
    square[i] = square[i] * c.beta2 + gradient * gradient * (1 - c.beta2);
    master[i] =
        weight - c.step_size * (average[i] / (std::sqrt(square[i]) / c.square_scale + c.epsilon));
  }
}

void sum_squares(const Device& device, const at::Tensor& values, std::span<double> sums) {
  const float* data = values.data_ptr<float>();
  for_chunks(device, values.numel(), [&](int64_t chunk, int64_t first, int64_t last) {
    double sum = 0;
    for (int64_t i = first; i < last; ++i)
      sum += static_cast<double>(data[i]) * static_cast<double>(data[i]);
    sums[static_cast<size_t>(chunk)] = sum;
  });
}

void add_squares(const Device& device, const at::Tensor& values, double& total) {
  std::vector<double> sums(static_cast<size_t>(chunks(values.numel())));
  sum_squares(device, values, sums);
  for (const double sum : sums) total += sum;
}

Optimizer::Optimizer(const std::vector<model::Parameter>& parameters, const Device& device,
                     const OptimOptions& options, cluster::Comm* sharers)
    : parameters_(parameters),
      device_(device),
      options_(options),
      sharers_(sharers),
      shards_(parameters, sharers ? sharers->size() : 1, muon_parameters(parameters, options)) {
  options.check();
  if (!device.is_cpu()) uploads_.emplace(device);
  const std::vector<bool> are_muon = muon_parameters(parameters, options);
  for (size_t p = 0; p < parameters.size(); ++p) {
    const RowRange range = shards_.of(p, sharers ? sharers->rank() : 0);
    const at::Tensor whole = parameters[p].read(device).cpu().contiguous();
    const at::Tensor master =
        range.rows == whole.size(0) ? whole : whole.narrow(0, range.first, range.rows).clone();
    states_.push_back({.range = range,
                       .is_muon = are_muon[p],
                       .master = master,
                       .average = at::zeros_like(master),
                       .square = are_muon[p] ? at::Tensor() : at::zeros_like(master)});
  }
}

Optimizer::Optimizer(const model::PolicyShard& shard, const OptimOptions& options,
                     bool takes_snapshots)
    : Optimizer(shard.part().parameters(), shard.model().device(), options) {
  TLT_CHECK(!options.is_muon(), "Muon needs whole matrices");
  shard_ = &shard;
  takes_snapshots_ = takes_snapshots;
}

std::span<const Optimizer::Kind> Optimizer::kinds(size_t parameter) const {
  static const Kind adamw[] = {{"master.", &State::master},
                               {"first_moment.", &State::average},
                               {"second_moment.", &State::square}};
  static const Kind muon[] = {{"master.", &State::master}, {"momentum.", &State::average}};
  if (states_[parameter].is_muon) return muon;
  return adamw;
}

void Optimizer::set_options(const OptimOptions& options) {
  TLT_CHECK(!is_in_step(), "the previous step has not ended");
  options.check();
  TLT_CHECK(options.optimizer == options_.optimizer, "the state is that of ", options_.optimizer);
  options_ = options;
}

// Of a parameter: the first of this worker's elements.
int64_t Optimizer::first_element(size_t parameter) const {
  const State& state = states_[parameter];
  return state.range.first * row_size(state.master);
}

// The squares are summed by chunks, those of all parameters in their order. If the workers share the
// state each chunk is of one of them: a sum with the zeros of the others changes no bit.
double Optimizer::norm_of(const GradientView& gradients) const {
  if (shard_) return norm_of_group(gradients);
  std::vector<int64_t> begins = {0};  // by parameter: its first chunk
  for (const model::Parameter& parameter : parameters_)
    begins.push_back(begins.back() + chunks(c10::multiply_integers(parameter.shape())));
  std::vector<double> squares(static_cast<size_t>(begins.back()));
  Place place;
  const std::vector<Bucket> buckets =
      next_buckets(place, parameters_.size(), kAll, bucket_elements(device_), [&](size_t p) {
        const ElementRange own = shards_.chunks_of(p, sharers_ ? sharers_->rank() : 0);
        return Extent{.elements = own.size(), .first = own.first};
      });
  gradients.read(buckets, [&](const Bucket& bucket, const at::Tensor& values) {
    for_spans(bucket, values, [&](const TensorSpan& span, const at::Tensor& gradient) {
      const int64_t chunk = begins[span.tensor] + span.first / kChunk;
      sum_squares(device_, gradient, std::span(squares).subspan(static_cast<size_t>(chunk)));
    });
  });
  if (sharers_) squares = sharers_->all_reduce_sum(std::move(squares));
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
}

// The same of the whole model: the ranks gather one gradient after the other.
double Optimizer::norm_of_group(const GradientView& gradients) const {
  double total = 0;
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const std::vector<int64_t> shape = parameters_[p].shape();
    const Bucket whole = {{.tensor = p, .last = c10::multiply_integers(shape)}};
    gradients.read({whole}, [&](const Bucket&, const at::Tensor& values) {
      add_squares(device_, shard_->gather(p, values.view(shape)), total);
    });
  }
  return std::sqrt(total);
}

double Optimizer::step(const GradientView& gradients, double learning_rate) {
  const double norm = norm_of(gradients);
  begin_step(norm, learning_rate);
  while (try_update(gradients, kAll)) {
  }
  end_step();
  return norm;
}

void Optimizer::begin_step(double norm, double learning_rate) {
  TLT_CHECK(!is_in_step(), "the previous step has not ended");
  TLT_CHECK(std::isfinite(norm), "the norm of the gradient is ", norm);
  // As in torch's clip_grad_norm_.
  const double clip =
      options_.clip_grad > 0 ? std::min(1.0, options_.clip_grad / (norm + 1e-6)) : 1.0;
  const auto t = static_cast<double>(steps_ + 1);
  step_ = {.clip = static_cast<float>(clip),
           .kept = static_cast<float>(1 - learning_rate * options_.weight_decay),
           .beta1 = static_cast<float>(options_.betas[0]),
           .beta2 = static_cast<float>(options_.betas[1]),
           .epsilon = static_cast<float>(options_.eps),
           .rate = learning_rate,
           .step_size = static_cast<float>(learning_rate / (1 - std::pow(options_.betas[0], t))),
           .square_scale = static_cast<float>(std::sqrt(1 - std::pow(options_.betas[1], t)))};
  place_ = Place{};
}

bool Optimizer::try_update(const GradientView& gradients, int64_t elements) {
  TLT_CHECK(is_in_step(), "begin_step() was not called");
  const std::vector<Bucket> buckets =
      next_buckets(*place_, states_.size(), elements, bucket_elements(device_), [&](size_t p) {
        const at::Tensor& master = states_[p].master;
        return Extent{.elements = master.numel(),
                      .unit = kRows * row_size(master),
                      .first = first_element(p)};
      });
  gradients.read(buckets,
                 [&](const Bucket& bucket, const at::Tensor& values) { update(bucket, values); });
  return !buckets.empty();
}

void Optimizer::end_step() {
  TLT_CHECK(is_in_step(), "begin_step() was not called");
  place_.reset();
  ++steps_;
  skipped_in_row_ = 0;
  if (sharers_) exchange_weights();
  if (shard_) shard_->publish();
}

// Every worker sends the weights that its model holds, so all have the same weights afterwards.
void Optimizer::exchange_weights() const {
  for (int owner = 0; owner < sharers_->size(); ++owner) {
    std::vector<SentRows> sent;  // together
    int64_t elements = 0;
    for (size_t p = 0; p < parameters_.size(); ++p)
      for_parts(shards_.of(p, owner), row_size(states_[p].master), kSent,
                [&](int64_t first, int64_t rows) {
                  const int64_t more = rows * row_size(states_[p].master);
                  if (elements > 0 && elements + more > kSent) {
                    send_weights(owner, sent);
                    sent.clear();
                    elements = 0;
                  }
                  sent.push_back({p, {.first = first, .rows = rows}});
                  elements += more;
                });
    if (elements > 0) send_weights(owner, sent);
  }
}

// A worker's rows, to all others, as one tensor of bytes: parameters may differ in type.
void Optimizer::send_weights(int owner, const std::vector<SentRows>& sent) const {
  const bool is_mine = owner == sharers_->rank();
  std::vector<at::Tensor> values, bytes;
  for (const auto& [p, range] : sent) {
    const model::Parameter& weights = parameters_[p];
    values.push_back(
        is_mine ? weights.read(device_, {.name = "", .first_row = range.first, .rows = range.rows})
                      .cpu()
                : at::empty(with_rows(weights.shape(), range.rows), weights.round_to));
    bytes.push_back(values.back().view(-1).view(at::kByte));
  }
  at::Tensor all = at::cat(bytes);
  sharers_->broadcast(all, owner);
  if (is_mine) return;
  int64_t begin = 0;
  for (size_t i = 0; i < sent.size(); ++i) {
    bytes[i].copy_(all.narrow(0, begin, bytes[i].numel()));
    begin += bytes[i].numel();
    parameters_[sent[i].parameter].write(device_, values[i].to(device_.torch()),
                                         sent[i].range.first);
  }
}

void Optimizer::update(const Bucket& bucket, const at::Tensor& gradients) {
  Bucket updated;
  for_spans(bucket, gradients, [&](const TensorSpan& span, const at::Tensor& gradient) {
    if (states_[span.tensor].is_muon) {
      add_to_momentum(span, gradient);
    } else {
      update_rows(span, gradient);
      updated.push_back(span);
    }
  });
  write(updated);
}

// Of AdamW.
void Optimizer::update_rows(const TensorSpan& span, const at::Tensor& gradient) {
  State& state = states_[span.tensor];
  Coefficients c = step_;
  if (!parameters_[span.tensor].decays) c.kept = 1;
  const int64_t first = span.first - first_element(span.tensor);
  const float* from = gradient.data_ptr<float>();
  float *master = state.master.data_ptr<float>() + first,
        *average = state.average.data_ptr<float>() + first,
        *square = state.square.data_ptr<float>() + first;
  for_chunks(device_, span.size(), [&](int64_t, int64_t begin, int64_t end) {
    update_range(c, {from + begin, from + end}, master + begin, average + begin, square + begin);
  });
}

// Of Muon, which moves its matrices of a parameter once the last of their gradients has come.
void Optimizer::add_to_momentum(const TensorSpan& span, const at::Tensor& gradient) {
  State& state = states_[span.tensor];
  const int64_t first = span.first - first_element(span.tensor);
  if (first == 0) direction_ = at::empty_like(state.average);
  const float clip = step_.clip;
  const float* from = gradient.data_ptr<float>();
  float *average = state.average.data_ptr<float>() + first,
        *to = direction_.data_ptr<float>() + first;
  for_chunks(device_, span.size(), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float clipped = from[i] * clip;
      average[i] += (clipped - average[i]) * (1 - kMuonMomentum);
      to[i] = clipped + (average[i] - clipped) * kMuonMomentum;  // Nesterov's
    }
  });
  if (first + span.size() == state.average.numel()) move_matrices(span.tensor);
}

// Each projection of a fused parameter is a matrix of its own, as it is in the model's files.
void Optimizer::move_matrices(size_t parameter) {
  State& state = states_[parameter];
  const RowRange own = state.range;
  const int64_t columns = row_size(state.master);
  for (const model::Parameter::Part& part : parameters_[parameter].parts) {
    if (part.first_row < own.first || part.first_row >= own.first + own.rows) continue;
    const auto mine = [&](const at::Tensor& all) {
      return all.narrow(0, part.first_row - own.first, part.rows);
    };
    const at::Tensor direction = orthogonalized(device_, mine(direction_));
    const auto rate = static_cast<float>(step_.rate * muon_scale(part.rows, columns));
    const float* change = direction.data_ptr<float>();
    float* values = mine(state.master).data_ptr<float>();
    for_chunks(device_, part.rows * columns, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[i] = values[i] * step_.kept - rate * change[i];
    });
    for_parts({.first = part.first_row, .rows = part.rows}, columns, bucket_elements(device_),
              [&](int64_t first, int64_t rows) {
                write({TensorSpan{parameter, first * columns, (first + rows) * columns}});
              });
  }
  direction_ = at::Tensor();
}

// Gives the model the master weights of a bucket, which has whole rows.
void Optimizer::write(const Bucket& bucket) {
  std::vector<at::Tensor> weights;
  for (const TensorSpan& span : bucket) {
    const at::Tensor& master = states_[span.tensor].master;
    const int64_t row = row_size(master), first = span.first - first_element(span.tensor);
    weights.push_back(master.narrow(0, first / row, span.size() / row));
  }
  if (uploads_) weights = uploads_->upload(weights);
  for (size_t i = 0; i < bucket.size(); ++i)
    parameters_[bucket[i].tensor].write(device_, weights[i],
                                        bucket[i].first / row_size(weights[i]));
}

int64_t Optimizer::bytes() const {
  int64_t bytes = 0;
  for (size_t p = 0; p < states_.size(); ++p)
    for (const Kind& kind : kinds(p))
      bytes += static_cast<int64_t>((states_[p].*kind.tensor).nbytes());
  return bytes;
}

std::vector<std::pair<std::string, at::Tensor>> Optimizer::state() const {
  TLT_CHECK(!is_shared(), "a shared state has no state(); use snapshot()");
  std::vector<std::pair<std::string, at::Tensor>> state;
  for (size_t p = 0; p < states_.size(); ++p)
    for (const Kind& kind : kinds(p))
      state.emplace_back(kind.prefix + parameters_[p].name(), states_[p].*kind.tensor);
  return state;
}

std::vector<model::TensorSource> Optimizer::snapshot() const {
  std::vector<model::TensorSource> copies;
  if (!takes_snapshots_) return copies;
  for (size_t p = 0; p < states_.size(); ++p)
    for (const Kind& kind : kinds(p)) {
      const at::Tensor copy = snapshot(p, kind);
      if (copy.defined())
        copies.push_back(model::TensorSource::of(kind.prefix + parameters_[p].name(), copy));
    }
  return copies;
}

// A copy of a tensor of state(), undefined on workers that are not the first with a part of it.
at::Tensor Optimizer::snapshot(size_t parameter, const Kind& kind) const {
  const at::Tensor& mine = states_[parameter].*kind.tensor;
  if (sharers_) return gather(parameter, kind);
  if (!shard_) return mine.clone();
  const at::Tensor whole = shard_->gather(parameter, mine);
  return shard_->rank() == 0 ? whole : at::Tensor();
}

// snapshot() of workers that share the state.
at::Tensor Optimizer::gather(size_t parameter, const Kind& kind) const {
  const at::Tensor& mine = states_[parameter].*kind.tensor;
  const RowRange range = states_[parameter].range;
  const std::vector<int64_t> shape = parameters_[parameter].shape();
  const bool is_first = sharers_->rank() == 0;
  const at::Tensor whole = is_first ? at::empty(shape, at::kFloat) : at::Tensor();
  for (int owner = 0; owner < sharers_->size(); ++owner)
    for_parts(shards_.of(parameter, owner), row_size(mine), kSent,
              [&](int64_t first, int64_t rows) {
                at::Tensor values = owner == sharers_->rank()
                                        ? mine.narrow(0, first - range.first, rows)
                                        : at::empty(with_rows(shape, rows), at::kFloat);
                if (owner != 0) sharers_->broadcast(values, owner);
                if (is_first) whole.narrow(0, first, rows).copy_(values);
              });
  return whole;
}

void Optimizer::load(const std::vector<std::pair<std::string, at::Tensor>>& state, int64_t steps) {
  std::vector<model::TensorSource> sources;
  for (const auto& [name, tensor] : state) sources.push_back(model::TensorSource::of(name, tensor));
  load(sources, steps);
}

// InputError unless they are all tensors of this optimizer's state(); `tensors`: how many there are.
void Optimizer::check_state(const std::map<std::string, const model::TensorSource*>& given,
                            size_t tensors) const {
  const char* const of_another = "; it belongs to another model or actor.optim.optimizer";
  size_t needed = 0;
  for (size_t p = 0; p < states_.size(); ++p) needed += kinds(p).size();
  TLT_CHECK_INPUT(tensors == needed, "the optimizer state has ", tensors,
                  " tensors, the model needs ", needed, of_another);
  for (size_t p = 0; p < states_.size(); ++p)
    for (const Kind& kind : kinds(p)) {
      const model::Parameter& parameter = whole_parameters()[p];
      const std::string name = kind.prefix + parameter.name();
      const auto found = given.find(name);
      TLT_CHECK_INPUT(found != given.end(), "the optimizer state has no ", name, of_another);
      const std::vector<int64_t>&got = found->second->shape, want = parameter.shape();
      TLT_CHECK_INPUT(got == want && found->second->type == at::kFloat, "the optimizer state's ",
                      name, " has shape ", at::IntArrayRef(got), ", the model needs ",
                      at::IntArrayRef(want), of_another);
    }
}

void Optimizer::load(const std::vector<model::TensorSource>& state, int64_t steps) {
  std::map<std::string, const model::TensorSource*> given;
  for (const model::TensorSource& source : state) given.emplace(source.name, &source);
  check_state(given, state.size());  // before anything changes
  for (size_t p = 0; p < states_.size(); ++p)
    for (const Kind& kind : kinds(p)) {
      const at::Tensor whole = given.at(kind.prefix + parameters_[p].name())->values();
      State& own = states_[p];
      const at::Tensor part =
          shard_ ? shard_->part_of(p, whole) : whole.narrow(0, own.range.first, own.range.rows);
      (own.*kind.tensor).copy_(part);
      if (kind.tensor != &State::master) continue;
      whole_parameters()[p].write(device_, whole.to(device_.torch()));
      if (shard_) parameters_[p].write(device_, part.to(device_.torch()));
    }
  steps_ = steps;
  place_.reset();
}

}  // namespace tlt::train
