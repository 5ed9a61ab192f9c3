// fuzz(): calls a parser with nearly valid inputs and requires that each is accepted, or rejected
// by an InputError of one sentence, within kMaxSeconds of work and kMaxBytes of memory. Anything
// else is a failure: another exception, a crash, a sanitizer report.
//
// The call returns a summary of how it handled the input; an input with a new summary (for an
// error: the sentence without quotations) joins the corpus. So inputs reach deeper into the parser.
//
// A plain run makes plan.inputs inputs from a fixed seed, the same everywhere. Two variables are
// for longer runs (make test-asan builds the program, build-asan/tests/tlt_fuzz_test):
//   TLT_FUZZ_SECONDS=600  this long for each parser, from a new seed, which is printed
//   TLT_FUZZ_INPUT=file   that input only
// The current input is kept in tlt_fuzz_NAME in the folder for temporary files, and stays there
// when the parser fails or the process ends.
//
//   TLT_FUZZ_SECONDS=600 build-asan/tests/tlt_fuzz_test --gtest_filter='*Jinja*'
//
// In a build with TLT_LIBFUZZER (make fuzz) libFuzzer makes the inputs instead, guided by the
// branches that they take; plan and call are the same; an input may take 10 s (libfuzzer.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <iostream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "base/sentence.h"
#include "tests/support/fuzz_plan.h"
#include "tests/support/libfuzzer.h"
#include "tests/support/mutator.h"
#include "tests/support/program.h"

namespace tlt::tests {

class Fuzzer {
 public:
  static constexpr double kMaxSeconds = 1;
  static constexpr int64_t kMaxBytes = int64_t{3} << 30;  // including the sanitizer's

  Fuzzer(const FuzzPlan& plan, FuzzCall call)
      : plan_(plan),
        call_(std::move(call)),
        seconds_(std::getenv("TLT_FUZZ_SECONDS") ? std::atof(std::getenv("TLT_FUZZ_SECONDS")) : 0),
        seed_(seconds_ > 0 ? std::random_device()() : 1),
        kept_(std::filesystem::temp_directory_path() / ("tlt_fuzz_" + plan.name),
              O_RDWR | O_CREAT) {}

  void run() {
    if (const char* file = std::getenv("TLT_FUZZ_INPUT")) return try_text(read_text(file));
    Mutator mutator(seed_, plan_.dictionary);
    std::cout << plan_.name << ": seed " << seed_ << std::endl;
    for (const std::string& text : plan_.corpus) try_text(text);
    EXPECT_GT(accepted_, 0) << plan_.name << ": nothing of the corpus is accepted";
    while (!is_over()) try_text(next(mutator));
    say();
    EXPECT_GT(refused_ + kinds_.size(), plan_.corpus.size() / 10) << "the texts change nothing";
    if (failures_ == 0) std::filesystem::remove(kept_.path());
  }

 private:
  // Time of work, not of waiting: the machine may be busy otherwise.
  static double now() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  bool is_over() const {
    if (failures_ >= 5) return true;
    return seconds_ > 0 ? now() - start_ > seconds_ : tried_ >= plan_.inputs;
  }

  std::string next(Mutator& mutator) {
    const std::string& text = pick(mutator);
    const std::string& other = pick(mutator);
    std::string made =
        plan_.mutate ? plan_.mutate(mutator, text, other) : mutator.bytes(text, other);
    if (made.size() > plan_.max_bytes) made.resize(plan_.max_bytes);
    return made;
  }
  // An input of the corpus or a found one; accepted ones more often.
  const std::string& pick(Mutator& mutator) const {
    const auto& found = found_[mutator.one_in(4)];
    return found.empty() || mutator.one_in(2) ? mutator.one_of(plan_.corpus)
                                              : mutator.one_of(found);
  }

  void try_text(const std::string& text) {
    keep(text);
    ++tried_;
    const double begin = now();
    std::string kind;
    bool is_refused = false;
    try {
      kind = call_(text);
      ++accepted_;
    } catch (const InputError& error) {
      is_refused = true;
      ++refused_;
      expect_sentence(error.what());
      kind = kind_of(error.what());
    } catch (const std::exception& error) {
      fail(std::string("an exception that is no InputError: ") + error.what());
    }
    const double seconds = now() - begin;
    slowest_ = std::max(slowest_, seconds);
    if (seconds > kMaxSeconds) fail("it took " + std::to_string(seconds) + " s");
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    if (used.ru_maxrss > kMaxBytes >> 10)
      fail("the process has " + std::to_string(used.ru_maxrss) + " KiB");
    if (kinds_.size() < kMaxKinds && kinds_.insert(kind).second) found_[is_refused].push_back(text);
  }

  // A sentence without its quotations.
  static std::string kind_of(const std::string& sentence) {
    std::string kind;
    for (size_t i = 0; i < sentence.size() && kind.size() < 80; ++i) {
      const char c = sentence[i];
      if (c == '"' || c == '\'' || c == '`')
        i = std::min(sentence.find(c, i + 1), sentence.size());
      else if (c < '0' || c > '9')
        kind += c;
    }
    return kind;
  }

  void expect_sentence(const std::string& message) {
    if (message.empty() || message.size() > kMaxSentenceBytes ||
        message.find('\n') != message.npos || message.find("[json.exception.") != message.npos)
      fail("not one sentence: " + message.substr(0, kMaxSentenceBytes));
  }

  // Writes the current input to a file, so that it survives the process.
  void keep(const std::string& text) {
    kept_.write_at(0, text);
    kept_.truncate(std::ssize(text));
    const itimerval patience = {.it_interval = {}, .it_value = {.tv_sec = 30, .tv_usec = 0}};
    setitimer(ITIMER_VIRTUAL, &patience, nullptr);  // ends the process if a call does not end
  }

  void fail(const std::string& what) {
    const std::string place = kept_.path() + "." + std::to_string(++failures_);
    std::filesystem::copy_file(kept_.path(), place,
                               std::filesystem::copy_options::overwrite_existing);
    ADD_FAILURE() << plan_.name << ", seed " << seed_ << ", text " << tried_ << ": " << what
                  << "\nthe text is in " << place;
  }

  void say() const {
    std::cout << plan_.name << ": " << tried_ << " texts, " << accepted_ << " accepted, "
              << refused_ << " refused, " << kinds_.size() << " kinds, " << now() - start_
              << " s, the slowest " << slowest_ << " s" << std::endl;
  }

  static constexpr size_t kMaxKinds = 5000;

  const FuzzPlan& plan_;
  const FuzzCall call_;
  const double seconds_;  // 0: a plain run
  const uint64_t seed_;
  FileHandle kept_;  // the current input
  const double start_ = now();

  std::array<std::vector<std::string>, 2> found_;  // accepted, rejected
  std::set<std::string> kinds_;
  int64_t tried_ = 0, accepted_ = 0, failures_ = 0;
  size_t refused_ = 0;
  double slowest_ = 0;
};

inline void fuzz(const FuzzPlan& plan, const FuzzCall& call) {
#ifdef TLT_LIBFUZZER
  run_libfuzzer(plan, call);
#else
  Fuzzer(plan, call).run();
#endif
}

}  // namespace tlt::tests
