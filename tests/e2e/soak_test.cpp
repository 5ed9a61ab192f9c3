// Resource use of a long run stays bounded: memory, open files and threads of every worker, and the
// bytes of the draft buffer.
//
// TLT_SOAK_STEPS=300 sets the number of steps, at least 72, and prints the resource use:
// build/tests/tlt_fault_injection_slow_test --gtest_filter='Soak*'
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "tests/support/small_run.h"

namespace tlt {
namespace {

using tests::Program;
using tests::read_text;
using tests::Scratch;
using tests::worker_of;

constexpr int kSoakWorkers = 2;
constexpr double kBufferBytes = 300'000;  // less than the states of two steps

// Small limits, so that all caches are full when the measurement begins.
std::vector<std::string> soak_run(const std::filesystem::path& folder, int steps) {
  return tests::small_run(
      folder, steps, kSoakWorkers,
      {"trainer.threads=1", "trainer.save_freq=4", "trainer.max_ckpt_to_keep=2",
       "trainer.timeout_seconds=3600", "trainer.test_freq=5",
       "data.val_files=[\"countdown:seed=7,size=4\"]", "data.max_response_length=96",
       "rollout.kv_memory_bytes=16000000", "speculative.train.training_interval_steps=1",
       "speculative.memory_bytes=" + std::to_string(static_cast<int64_t>(4 * kBufferBytes))});
}

// One value per step.
using Series = std::vector<double>;

// Steps in which buffers grow to their final sizes, at a time that depends on what idle workers
// compute.
constexpr int kWarmUp = 48;
constexpr int kShortRun = 72;  // steps

// Growth of a series after the warm-up: the median slope between any two values (Theil-Sen), times
// the number of values. A jump changes it little, and a steady leak below the noise is detected.
double growth(const Series& all) {
  const Series late(all.begin() + kWarmUp, all.end());
  Series slopes;
  for (size_t i = 0; i < late.size(); ++i)
    for (size_t j = i + 1; j < late.size(); ++j)
      slopes.push_back((late[j] - late[i]) / static_cast<double>(j - i));
  const auto middle = slopes.begin() + std::ssize(slopes) / 2;
  std::nth_element(slopes.begin(), middle, slopes.end());
  return *middle * static_cast<double>(late.size());
}

// Allowed growth of a worker. Measured: 0.1 MB of 235 over 300 steps; 3 MB would be a leak of 12 KB
// per step. In a short run buffers may still grow a little.
double most_megabytes(int steps) { return steps < 100 ? 5 : 3; }
constexpr double kMostThings = 0.9;  // threads, files: not even one more over the whole series

TEST(SoakGrowthTest, DetectsALeakBelowTheNoise) {
  std::mt19937 random(3);
  for (const int steps : {kShortRun, 300}) {
    Series memory, files, warm;
    for (int step = 0; step < steps; ++step) {
      warm.push_back(200 + 40 * std::min(1.0, 4.0 * step / steps) +
                     static_cast<double>(random() % 3));
      memory.push_back(warm.back() + 20.0 * step / steps);
      files.push_back(40 + static_cast<double>(random() % 3) + 4.0 * step / steps);
    }
    EXPECT_LT(growth(warm), most_megabytes(steps)) << steps;
    EXPECT_GT(growth(memory), most_megabytes(steps)) << steps;
    EXPECT_GT(growth(files), kMostThings) << steps;
    warm.back() += 500;
    warm[warm.size() / 2] += 500;
    EXPECT_LT(growth(warm), most_megabytes(steps)) << steps;
  }
}

// A value of /proc/…/status.
std::optional<double> status_of(pid_t process, const std::string& name) {
  const std::string text = read_text("/proc/" + std::to_string(process) + "/status");
  const size_t at = text.find("\n" + name + ":");
  if (at == std::string::npos) return std::nullopt;
  return std::atof(text.c_str() + at + name.size() + 2);
}

// Current resource use of a worker.
struct Taken {
  double megabytes = 0, threads = 0, files = 0;
};
std::optional<Taken> taken_by(pid_t process) {
  std::error_code gone;
  const std::filesystem::directory_iterator files("/proc/" + std::to_string(process) + "/fd", gone);
  const auto kilobytes = status_of(process, "RssAnon"), threads = status_of(process, "Threads");
  if (gone || !kilobytes || !threads) return std::nullopt;
  return Taken{*kilobytes / 1024, *threads,
               static_cast<double>(std::distance(begin(files), end(files)))};
}

TEST(SoakTest, ResourceUseOfALongRunStaysBounded) {
  const char* asked = std::getenv("TLT_SOAK_STEPS");
  const int steps = std::max(asked ? std::atoi(asked) : 0, kShortRun);
  const Scratch scratch;
  Program program(soak_run(scratch / "run", steps), scratch / "log");
  pid_t workers[kSoakWorkers] = {-1, -1};
  std::map<std::string, Series> series;
  std::ifstream metrics;
  int code = 0;
  while (!program.wait_for(0.005, &code)) {
    if (!metrics.is_open()) metrics.open(scratch / "run/metrics.jsonl");
    metrics.clear();
    const auto place = metrics.tellg();
    std::string line;
    if (!std::getline(metrics, line) || metrics.eof()) {  // not a whole line yet
      metrics.clear();
      metrics.seekg(place);
      continue;
    }
    const auto row = nlohmann::json::parse(line);
    series["draft buffer, bytes"].push_back(row.at("drafter/buffer_bytes"));
    for (int rank = 0; rank < kSoakWorkers; ++rank) {
      pid_t& worker = workers[rank];
      if (worker < 0) worker = worker_of(program.pid(), rank);
      const auto taken = taken_by(worker);
      if (!taken || row.at("step") == steps) continue;  // the worker exits
      const std::string name = "worker " + std::to_string(rank);
      series[name + ", MB"].push_back(taken->megabytes);
      series[name + ", threads"].push_back(taken->threads);
      series[name + ", files"].push_back(taken->files);
    }
  }
  ASSERT_EQ(code, 0) << program.output();
  ASSERT_EQ(series.size(), 3 * kSoakWorkers + 1);
  for (const auto& [name, all] : series) {
    ASSERT_GT(std::ssize(all), steps * 3 / 4) << name;
    if (asked)
      std::cout << name << ": " << all.front() << " at first, " << all[kWarmUp]
                << " after the warm-up, " << all.back() << " at last; grows by " << growth(all)
                << std::endl;
    if (name.ends_with("bytes")) {
      EXPECT_LE(*std::ranges::max_element(all), kBufferBytes) << name;
      EXPECT_GT(*std::min_element(all.begin() + 2, all.end()), kBufferBytes / 2) << name;
    } else {
      EXPECT_LE(growth(all), name.ends_with("MB") ? most_megabytes(steps) : kMostThings) << name;
    }
  }
}

}  // namespace
}  // namespace tlt
