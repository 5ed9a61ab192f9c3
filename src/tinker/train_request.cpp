// SPDX-License-Identifier: Apache-2.0
#include "tinker/train_request.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "base/check.h"
#include "tinker/wire.h"

namespace tlt::tinker {
namespace {

constexpr size_t kMaxData = 8192;
constexpr size_t kMaxFieldNameBytes = 200;
// tinker_public.DType
constexpr uint64_t kFloat32 = 1, kInt64 = 2;

// Defaults of the API's clip thresholds.
constexpr double kClipLow = 0.8, kClipHigh = 1.2;

[[noreturn]] void refuse_field(const char* message, int64_t field) {
  throw InputError("field " + std::to_string(field) + " of " + message +
                   " is not known to this server; it has that of the client tinker 0.38");
}

std::string name_of(std::string_view text, const char* what) {
  TLT_CHECK_INPUT(text.size() <= kMaxFieldNameBytes, what, " has ", text.size(),
                  " bytes; give at most ", kMaxFieldNameBytes);
  return std::string(text);
}

template <class T>
std::vector<T> numbers_of(std::string_view bytes, const std::string& where) {
  TLT_CHECK_INPUT(bytes.size() % sizeof(T) == 0, where, " has ", bytes.size(),
                  " bytes, which is no number of values");
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

struct Tensor {
  std::string_view dense;
  uint64_t type = 0;
  std::vector<int64_t> shape;
};

Tensor read_tensor(std::string_view bytes, const std::string& where) {
  Tensor tensor;
  for (WireReader in(bytes); in.next();) {
    if (in.field() == 1)
      tensor.dense = in.bytes();
    else if (in.field() == 3)
      tensor.type = in.varint();
    else if (in.field() == 4)
      in.append_integers(tensor.shape);
    else if (in.field() == 2)
      throw InputError(where + " is sparse; give a dense tensor of one dimension");
    else
      refuse_field("Tensor", in.field());
  }
  TLT_CHECK_INPUT(tensor.shape.size() <= 1, where, " has ", tensor.shape.size(),
                  " dimensions; this server trains on one target per position, so give one");
  return tensor;
}

void read_input(std::string_view bytes, const std::string& place, Datum& datum) {
  std::string name;
  std::string_view value;
  for (WireReader in(bytes); in.next();) {
    if (in.field() == 1)
      name = name_of(in.bytes(), "the name of a loss_fn_input");
    else if (in.field() == 2)
      value = in.bytes();
    else
      refuse_field("LossFnInputs", in.field());
  }
  const std::string where = place + ": " + name;
  const Tensor tensor = read_tensor(value, where);
  if (name == "target_tokens") {
    TLT_CHECK_INPUT(tensor.type == kInt64, where, " is not of type int64");
    datum.targets = numbers_of<int64_t>(tensor.dense, where);
    return;
  }
  TLT_CHECK_INPUT(tensor.type == kFloat32, where, " is not of type float32");
  std::vector<float> values = numbers_of<float>(tensor.dense, where);
  TLT_CHECK_INPUT(std::ranges::all_of(values, [](float x) { return std::isfinite(x); }), where,
                  " has a value that is not finite");
  datum.values[name] = std::move(values);
}

void read_chunk(std::string_view bytes, const std::string& place, Datum& datum) {
  for (WireReader in(bytes); in.next();) {
    TLT_CHECK_INPUT(in.field() == 1, place,
                    ": only chunks of tokens (EncodedTextChunk) are "
                    "available, no images and no audio");
    for (WireReader text(in.bytes()); text.next();) {
      if (text.field() != 1) refuse_field("EncodedTextChunk", text.field());
      const auto tokens = numbers_of<int32_t>(text.bytes(), place + ": model_input");
      datum.tokens.insert(datum.tokens.end(), tokens.begin(), tokens.end());
    }
  }
}

Datum read_datum(std::string_view bytes, const std::string& place) {
  Datum datum;
  for (WireReader in(bytes); in.next();) {
    if (in.field() == 1)
      read_chunk(in.bytes(), place, datum);
    else if (in.field() == 2)
      read_input(in.bytes(), place, datum);
    else if (in.field() != 3 && in.field() != 4)  // spans: they say where tokens come from
      refuse_field("Datum", in.field());
  }
  return datum;
}

void read_config(std::string_view bytes, std::map<std::string, double>& config) {
  std::string name;
  std::optional<double> number;
  for (WireReader in(bytes); in.next();) {
    if (in.field() == 1)
      name = name_of(in.bytes(), "the name of a loss_fn_config");
    else if (in.field() == 2)
      for (WireReader value(in.bytes()); value.next();)
        if (value.field() == 1) number = value.number();
  }
  TLT_CHECK_INPUT(number, "loss_fn_config ", name, " is not a number");
  config[name] = *number;
}

// The older form, which the client writes besides the other one.
void read_old_config(std::string_view bytes, std::map<std::string, double>& config) {
  std::string name;
  double number = 0;
  for (WireReader in(bytes); in.next();) {
    if (in.field() == 1) name = name_of(in.bytes(), "the name of a loss_fn_config");
    if (in.field() == 2) number = in.number();
  }
  config.emplace(std::move(name), number);
}

// Takes a number out of the configuration.
double take(std::map<std::string, double>& config, const char* name, double otherwise) {
  const auto found = config.extract(name);
  return found.empty() ? otherwise : found.mapped();
}

using Config = std::map<std::string, double>;

train::LossOptions clipped_loss(Config& config, const char* loss_mode) {
  const double low = take(config, "clip_low_threshold", kClipLow),
               high = take(config, "clip_high_threshold", kClipHigh);
  TLT_CHECK_INPUT(low >= 0 && low <= 1 && high >= 1 && high <= 1e6, "clip_low_threshold is ", low,
                  " and clip_high_threshold ", high,
                  "; give one from 0 to 1 and one from 1 to 1000000");
  train::LossOptions loss;
  loss.policy_loss.loss_mode = loss_mode;
  loss.clip_ratio_low = 1 - low;
  loss.clip_ratio_high = high - 1;
  loss.clip_ratio_c = std::numeric_limits<double>::infinity();  // no second clip
  return loss;
}

train::LossOptions importance_loss() {
  train::LossOptions loss;
  loss.clip_ratio_low = 1;
  loss.clip_ratio_high = loss.clip_ratio_c = std::numeric_limits<double>::infinity();
  return loss;
}

train::DroOptions dro_loss(Config& config) {
  TLT_CHECK_INPUT(config.contains("beta"),
                  "dro has no beta in loss_fn_config, and the API names no default; give one, such "
                  "as {\"beta\": 0.05}");
  const train::DroOptions loss = {.beta = take(config, "beta", 0)};
  loss.check();
  return loss;
}

train::StepwiseTrainer::Loss loss_of(const TrainRequest& request) {
  Config config = request.config;
  train::StepwiseTrainer::Loss loss;
  if (request.loss_fn == "cross_entropy")
    std::get<train::LossOptions>(loss).policy_loss.loss_mode = "gpg";
  else if (request.loss_fn == "importance_sampling")
    loss = importance_loss();
  else if (request.loss_fn == "ppo")
    loss = clipped_loss(config, "vanilla");
  else if (request.loss_fn == "cispo")
    loss = clipped_loss(config, "cispo");
  else if (request.loss_fn == "dro")
    loss = dro_loss(config);
  else
    throw InputError("loss_fn is '" + request.loss_fn +
                     "', which this server does not have; use cross_entropy, "
                     "importance_sampling, ppo, cispo or dro");
  TLT_CHECK_INPUT(config.empty(), "loss_fn_config has ", config.begin()->first, ", which ",
                  request.loss_fn,
                  " does not have; ppo and cispo have clip_low_threshold and "
                  "clip_high_threshold, dro has beta");
  return loss;
}

// Checks and converts one datum.
class SampleMaker {
 public:
  SampleMaker(const Datum& datum, std::string place, const TokenLimits& limits)
      : datum_(datum), place_(std::move(place)) {
    const size_t size = datum.tokens.size();
    TLT_CHECK_INPUT(size >= 1, place_, ": model_input has no tokens");
    TLT_CHECK_INPUT(std::ssize(datum.tokens) < limits.max_positions, place_, ": model_input has ",
                    size, " tokens; the model has ", limits.max_positions,
                    " positions, one of them for the last target");
    TLT_CHECK_INPUT(datum.targets.size() == size, place_, ": ", datum.targets.size(),
                    " target_tokens for ", size, " tokens; give one for each");
    for (size_t i = 0; i < size; ++i) {
      const int64_t token = datum.tokens[i], target = datum.targets[i];
      TLT_CHECK_INPUT(
          token >= 0 && token < limits.vocabulary && target >= 0 && target < limits.vocabulary,
          place_, ": token ", token < 0 || token >= limits.vocabulary ? token : target,
          " is not in the model's vocabulary of ", limits.vocabulary);
    }
  }

  // Empty: the next tokens.
  std::vector<int32_t> targets() const {
    if (std::equal(datum_.tokens.begin() + 1, datum_.tokens.end(), datum_.targets.begin()))
      return {};
    return {datum_.targets.begin(), datum_.targets.end()};
  }
  train::TrainSample supervised() const {
    check_names({"weights"});
    const std::vector<float> weights = values("weights", 1);
    return finish({.advantages = weights,
                   .logprobs = std::vector<float>(weights.size()),
                   .weights = {},
                   .counts = weights});
  }
  // dro: tokens with an advantage of 0 count, too.
  train::TrainSample reinforced(bool is_dro) const {
    check_names({"logprobs", "advantages", "weights"});
    for (const char* name : {"logprobs", "advantages"})
      TLT_CHECK_INPUT(datum_.values.contains(name), place_, ": no ", name,
                      " in loss_fn_inputs; give one for each token");
    Values all = {.advantages = values("advantages", 0),
                  .logprobs = values("logprobs", 0),
                  .weights = {},
                  .counts = values("weights", 1)};
    if (datum_.values.contains("weights")) all.weights = all.counts;
    for (size_t i = 0; i < all.counts.size(); ++i)
      if (!is_dro && all.advantages[i] == 0) all.counts[i] = 0;
    return finish(all);
  }

 private:
  void check_names(const std::vector<std::string>& names) const {
    for (const auto& [name, unused] : datum_.values)
      TLT_CHECK_INPUT(std::ranges::count(names, name) > 0, place_, ": loss_fn_inputs has ", name,
                      ", which this loss does not have; leave it out");
  }
  std::vector<float> values(const std::string& name, float otherwise) const {
    const auto found = datum_.values.find(name);
    if (found == datum_.values.end()) return std::vector<float>(datum_.tokens.size(), otherwise);
    TLT_CHECK_INPUT(found->second.size() == datum_.tokens.size(), place_, ": ",
                    found->second.size(), " ", name, " for ", datum_.tokens.size(),
                    " tokens; give one for each");
    return found->second;
  }
  // By token; counts: 0 for those that are not learned from; weights: empty: 1.
  struct Values {
    std::vector<float> advantages, logprobs, weights, counts;
  };
  // The response begins with the first target that counts; those before it are the prompt.
  train::TrainSample finish(const Values& all) const {
    train::TrainSample sample;
    sample.tokens = datum_.tokens;
    sample.tokens.push_back(static_cast<int32_t>(datum_.targets.back()));
    const auto first_of = [](const std::vector<float>& values) {
      return std::ranges::find_if(values, [](float x) { return x != 0; }) - values.begin();
    };
    const std::ptrdiff_t size = std::ssize(all.counts);
    std::ptrdiff_t first = first_of(all.counts);
    if (first == size) first = first_of(all.logprobs);  // not learned from
    if (first == size) first = 0;
    sample.response_begin = static_cast<int32_t>(first) + 1;
    sample.advantages.assign(all.advantages.begin() + first, all.advantages.end());
    sample.rollout_logprobs.assign(all.logprobs.begin() + first, all.logprobs.end());
    if (!all.weights.empty()) sample.weights.assign(all.weights.begin() + first, all.weights.end());
    return sample;
  }

  const Datum& datum_;
  const std::string place_;
};

bool have_same_prompt(const train::TrainSample& a, const train::TrainSample& b) {
  return a.response_begin == b.response_begin &&
         std::equal(a.tokens.begin(), a.tokens.begin() + a.response_begin, b.tokens.begin());
}

}  // namespace

TrainRequest TrainRequest::read(std::string_view body) {
  TrainRequest request;
  for (WireReader in(body); in.next();) {
    switch (in.field()) {
      case 1:
        request.model_id = name_of(in.bytes(), "model_id");
        break;
      case 2:
        request.seq_id = static_cast<int64_t>(in.varint());
        break;
      case 3:
        TLT_CHECK_INPUT(request.data.size() < kMaxData, "more than ", kMaxData,
                        " data in one request; send several");
        request.data.push_back(
            read_datum(in.bytes(), "data[" + std::to_string(request.data.size()) + "]"));
        break;
      case 4:
        request.loss_fn = name_of(in.bytes(), "loss_fn");
        break;
      case 5:
        read_old_config(in.bytes(), request.config);
        break;
      case 6:
        request.forward_only = in.varint() != 0;
        break;
      case 7:
        read_config(in.bytes(), request.config);
        break;
      default:
        refuse_field("ForwardBackwardRequest", in.field());
    }
  }
  return request;
}

TrainBatch make_batch(const TrainRequest& request, const TokenLimits& limits) {
  TLT_CHECK_INPUT(!request.data.empty(), "the request has no data");
  TrainBatch batch{.samples = {}, .targets = {}, .loss = loss_of(request)};
  const bool is_supervised = request.loss_fn == "cross_entropy", is_dro = request.loss_fn == "dro";
  for (const Datum& datum : request.data) {
    const SampleMaker maker(datum, "data[" + std::to_string(batch.samples.size()) + "]", limits);
    train::TrainSample sample = is_supervised ? maker.supervised() : maker.reinforced(is_dro);
    sample.id = std::ssize(batch.samples);
    if (!is_supervised && !batch.samples.empty()) {
      const train::TrainSample& last = batch.samples.back();
      sample.group = last.group + (have_same_prompt(sample, last) ? 0 : 1);
    }
    batch.samples.push_back(std::move(sample));
    batch.targets.push_back(maker.targets());
  }
  return batch;
}

std::string write_output(double loss, const std::vector<std::vector<float>>& logprobs) {
  std::vector<float> all;
  std::vector<int64_t> offsets = {0};  // in bytes
  for (const std::vector<float>& one : logprobs) {
    all.insert(all.end(), one.begin(), one.end());
    offsets.push_back(static_cast<int64_t>(all.size() * sizeof(float)));
  }
  WireWriter tensor, field, record, metric, output;
  tensor.bytes(1, bytes_of(all));
  tensor.bytes(2, bytes_of(offsets));
  tensor.varint(3, kFloat32);
  field.bytes(1, "logprobs");
  field.message(2, tensor);
  record.message(2, field);
  record.varint(3, logprobs.size());
  metric.bytes(1, "loss:sum");
  metric.number(2, loss);
  output.bytes(1, "ArrayRecord");
  output.message(2, record);
  output.message(3, metric);
  return output.text();
}

}  // namespace tlt::tinker
