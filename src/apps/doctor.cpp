// tlt doctor: checks the machine and advises what to do about what is missing. Exit code 0: tlt
// runs here.
//
// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <torch/version.h>
#include <zmq.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <filesystem>
#include <thread>

#include "apps/commands.h"
#include "apps/memory_plan.h"
#include "apps/row_probe.h"
#include "base/check.h"
#include "base/files.h"
#include "base/version.h"
#include "bench/machine.h"
#include "bench/ridge.h"
#include "ops/cpu.h"
#include "runtime/cuda_plugin.h"

namespace tlt::apps {
namespace {

enum class Verdict { kGood, kNote, kBad };

struct Finding {
  Verdict verdict = Verdict::kGood;
  std::string what, text, advice;
};

Finding good(const std::string& what, const std::string& text) {
  return {Verdict::kGood, what, text, ""};
}

double gigabytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

Finding kernels() {
  const std::vector<std::string> usable = ops::supported_cpu_capabilities();
  if (usable.empty())
    return {Verdict::kBad, "kernels", "none for this processor",
            "use a processor with AVX2 or AVX-512"};
  const std::string text =
      fmt::format("{} (this processor can run {})", usable.front(), fmt::join(usable, ", "));
  if (usable.front() == "avx512bf16") return good("kernels", text);
  return {Verdict::kNote, "kernels", text,
          "bfloat16 is faster with AVX512-BF16 (AMD since Zen 4, Intel since Cooper Lake)"};
}

Finding batch_invariance(const Device& device, at::ScalarType type, const char* name) {
  const std::string difference = first_row_difference(device, type);
  const std::string on = device.is_cpu() ? "" : " on " + device.name();
  if (difference.empty()) return good(name, "batch invariance" + on + ": bit-identical");
  return {Verdict::kBad, name, difference + on,
          "results on this machine depend on the batch; report the processor with this line"};
}

// Of a model folder, or one of the models of tlt simulate.
simulate::ModelShape shape_named(const std::string& name) {
  const bool is_folder = std::filesystem::exists(name + "/config.json");
  return is_folder ? shape_of(model::ModelConfig::read(name), name) : simulate::find_model(name);
}

// Of the weights of a model; nothing on the CPU, whose products do not depend on their sizes.
void add_products(const Device& device, const std::string& model, std::vector<Finding>& findings) {
  TLT_CHECK_INPUT(!device.is_cpu(), "--products ", model,
                  " needs a device whose library has products of many kinds; give --device cuda");
  for (const TriedMatrix& matrix : try_products(device, at::kBFloat16, shape_named(model)))
    findings.push_back({matrix.is_good ? Verdict::kGood : Verdict::kBad, "product",
                        matrix.name + ": " + matrix.text,
                        matrix.is_good ? "" : "report the card with this line"});
}

Finding cores(const bench::Machine& machine) {
  const auto all = static_cast<int>(std::thread::hardware_concurrency());
  const std::string text = fmt::format("{} of {} usable", machine.cores, all);
  if (machine.cores >= all) return good("cores", text);
  return {Verdict::kNote, "cores", text,
          "the process is limited to these by taskset or the container"};
}

// An estimate: on a core with a ridge of 22 rows a model larger than the cache gained 1.19x with 16
// sequences and nothing with 32 (docs/benchmarks.md, tuners).
Finding speculation() {
  const bench::Ridge ridge = bench::measure_ridge(Device::cpu(/*threads=*/0));
  return good(
      "speculation",
      fmt::format("should pay up to about {:.0f} sequences at a time, for a model larger than the "
                  "cache: memory {:.0f} GB/s, bfloat16 {:.2f} TFLOP/s, their ratio (ridge) {:.1f}",
                  ridge.rows(), ridge.bandwidth * 1e-9, ridge.peak * 1e-12, ridge.rows()));
}

Finding memory(const bench::Machine& machine) {
  constexpr int64_t kLittle = int64_t{2} << 30;
  const std::string text =
      fmt::format("{:.1f} GiB, {:.1f} GiB of them free", gigabytes(machine.memory_bytes),
                  gigabytes(machine.available_bytes));
  if (machine.available_bytes >= kLittle) return good("memory", text);
  return {Verdict::kNote, "memory", text,
          "training takes 16 bytes per parameter plus activations; close other programs"};
}

// What --device cuda needs: a line for each part, and one for each card. Nothing is opened.
std::vector<Finding> cuda() {
  const runtime::CudaParts parts = runtime::examine_cuda();
  const runtime::CudaDriver& driver = parts.driver;
  const auto part = [](const char* what, const std::string& text, const std::string& fault) {
    if (fault.empty()) return good(what, text);
    return Finding{Verdict::kNote, what, "--device cuda cannot be used: " + fault, ""};
  };
  std::vector<Finding> findings = {part(
      "CUDA driver", "for CUDA up to " + runtime::cuda_version_text(driver.version), driver.fault)};
  for (const runtime::CudaCard& card : driver.cards)
    findings.push_back(part("CUDA card",
                            fmt::format("{}, sm_{}{}, {:.1f} GiB", card.name, card.major,
                                        card.minor, gigabytes(card.bytes)),
                            runtime::card_fault(card)));
  findings.push_back(part("CUDA torch", parts.torch_path, parts.torch_fault));
  findings.push_back(part("CUDA plug-in", parts.plugin_path, parts.plugin_fault));
  if (driver.fault.empty())
    findings.back().advice = "no GPU has passed the tests yet: TLT_TRY_CUDA=1 (docs/gpu.md)";
  return findings;
}

Finding zeromq() {
  int major = 0, minor = 0, patch = 0;
  zmq_version(&major, &minor, &patch);
  const std::string text = fmt::format("{}.{}.{}", major, minor, patch);
  if (zmq_has("curve")) return good("ZeroMQ", text + " with CURVE");
  return {Verdict::kNote, "ZeroMQ", text + " without CURVE",
          "workers on several hosts need it; install libzmq built with libsodium"};
}

Finding disk() {
  constexpr int64_t kLittle = int64_t{5} << 30;
  const int64_t bytes = free_bytes(".");
  const std::string text = fmt::format("{:.1f} GiB free here", gigabytes(bytes));
  if (bytes >= kLittle) return good("disk", text);
  return {
      Verdict::kNote, "disk", text,
      "a checkpoint takes 14 bytes per parameter; set trainer.default_local_dir to a larger disk"};
}

struct Examined {
  std::string device = "cpu";
  std::vector<std::string> products;  // models
};

std::vector<Finding> examine(const Examined& examined) {
  const Device device = Device::parse(examined.device, /*threads=*/0);
  const bench::Machine machine = bench::read_machine();
  std::vector<Finding> findings = {
      good("tlt", fmt::format("{} ({})", kVersion, kCommit)),
      good("CPU", fmt::format("{}; {}", machine.cpu, fmt::join(machine.features, " "))), kernels()};
  if (findings.back().verdict != Verdict::kBad) {
    findings.push_back(batch_invariance(device, at::kFloat, "float32"));
    findings.push_back(batch_invariance(device, at::kBFloat16, "bfloat16"));
    for (const std::string& model : examined.products) add_products(device, model, findings);
    findings.push_back(speculation());
  }
  findings.push_back(cores(machine));
  findings.push_back(memory(machine));
  findings.push_back(good("torch", TORCH_VERSION));
  for (Finding& finding : cuda()) findings.push_back(std::move(finding));
  findings.push_back(zeromq());
  findings.push_back(disk());
  return findings;
}

int print_plan(const std::string& name, const PlanOptions& options) {
  fmt::print("{}", plan_text(shape_named(name), options, bench::read_machine().memory_bytes));
  return 0;
}

const char* mark(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood:
      return "ok";
    case Verdict::kNote:
      return "note";
    case Verdict::kBad:
      break;
  }
  return "BAD";
}

}  // namespace

int run_doctor(const cli::Arguments& arguments) {
  CLI::App app("Checks this machine and advises what to do about what is missing.");
  std::string planned, teacher;
  Examined examined;
  PlanOptions plan;
  app.option_defaults()->always_capture_default();
  app.add_option("--device", examined.device, "The device whose batch invariance is checked.");
  app.add_option("--products", examined.products,
                 "With --device: also tries the matrix products with the weights of these models, "
                 "named as for --plan.")
      ->delimiter(',');
  app.add_option(
      "--plan", planned,
      "Prints the memory that tlt train takes for this model instead: a folder, or one of "
      "the names of tlt simulate, as Qwen2.5-7B.");
  app.add_option("--workers", plan.workers, "With --plan: workers.");
  app.add_option("--length", plan.length, "With --plan: tokens of a prompt and its response.");
  app.add_option("--sequences", plan.sequences,
                 "With --plan: sequences that a worker decodes at the same time.");
  app.add_option("--tensor-parallel-size", plan.group,
                 "With --plan: rollout.tensor_model_parallel_size.");
  app.add_flag("--distributed-optimizer", plan.distributed_optimizer,
               "With --plan: actor.use_distributed_optimizer=true.");
  app.add_flag("--muon", plan.muon, "With --plan: actor.optim.optimizer=Muon.");
  app.add_flag("--critic", plan.critic,
               "With --plan: a critic as large as the model (algorithm.adv_estimator=gae).");
  app.add_option("--teacher", teacher,
                 "With --plan: the teacher of distillation.teacher, named as the model.");
  if (!cli::try_parse(app, arguments)) return 0;
  if (!teacher.empty()) plan.teacher = shape_named(teacher);
  if (!planned.empty()) return print_plan(planned, plan);
  bool is_usable = true;
  for (const Finding& finding : examine(examined)) {
    fmt::print("{:<5}{:<15}{}\n", mark(finding.verdict), finding.what, finding.text);
    if (!finding.advice.empty()) fmt::print("{:<20}-> {}\n", "", finding.advice);
    is_usable = is_usable && finding.verdict != Verdict::kBad;
  }
  fmt::print("{}\n", is_usable ? "OK" : "tlt cannot run on this machine.");
  return is_usable ? 0 : 1;
}

}  // namespace tlt::apps
