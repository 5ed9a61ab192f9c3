// SPDX-License-Identifier: Apache-2.0
#include "tests/support/libfuzzer.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/files.h"
#include "base/sentence.h"

// libFuzzer's interface (compiler-rt, FuzzerInterface.h).
extern "C" {
int LLVMFuzzerRunDriver(int* argc, char*** argv, int (*call)(const uint8_t* data, size_t size));
size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed);
}

namespace tlt::tests {
namespace {

// Of the only parser of this process.
const FuzzPlan* current_plan = nullptr;
const FuzzCall* current_call = nullptr;

[[noreturn]] void fail(const char* what, const char* detail) {
  std::fprintf(stderr, "%s: %s: %s\n", current_plan->name.c_str(), what, detail);
  std::abort();
}

int try_input(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    (*current_call)(text);
  } catch (const InputError& error) {
    const std::string sentence = error.what();
    if (sentence.empty() || sentence.size() > kMaxSentenceBytes ||
        sentence.find('\n') != sentence.npos)
      fail("not one sentence", sentence.substr(0, kMaxSentenceBytes).c_str());
  } catch (const std::exception& error) {
    fail("an exception that is no InputError", error.what());
  }
  return 0;
}

// A word as libFuzzer's dictionaries have it.
std::string quoted(const std::string& word) {
  std::string text = "\"";
  for (const char c : word) {
    char code[8];
    std::snprintf(code, sizeof code, "\\x%02x", static_cast<unsigned char>(c));
    text += code;
  }
  return text + "\"\n";
}

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

std::vector<std::string> arguments_for(const FuzzPlan& plan) {
  const std::string folder = variable("TLT_FUZZ_CORPUS", "runs/fuzz") + "/" + plan.name;
  std::filesystem::create_directories(folder);
  for (size_t i = 0; i < plan.corpus.size(); ++i)
    write_file_atomic(folder + "/given_" + std::to_string(i), plan.corpus[i]);
  std::string dictionary;
  for (const std::string& word : plan.dictionary) dictionary += quoted(word);
  write_file_atomic(folder + ".dict", dictionary);
  return {"tlt_fuzz_test",
          folder,
          "-dict=" + folder + ".dict",
          "-artifact_prefix=" + folder + ".",
          "-max_total_time=" + variable("TLT_FUZZ_SECONDS", "60"),
          "-max_len=" + std::to_string(plan.max_bytes),
          "-timeout=10",
          "-rss_limit_mb=3072",
          "-print_final_stats=1"};
}

}  // namespace

void run_libfuzzer(const FuzzPlan& plan, const FuzzCall& call) {
  TLT_CHECK(current_plan == nullptr, "a process can fuzz one parser; choose it by --gtest_filter");
  current_plan = &plan;
  current_call = &call;
  std::vector<std::string> words = arguments_for(plan);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  int count = static_cast<int>(words.size());
  char** arguments = pointers.data();
  std::exit(LLVMFuzzerRunDriver(&count, &arguments, try_input));
}

}  // namespace tlt::tests

// Every other change is the plan's, which knows the format; the rest are libFuzzer's own.
size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  using namespace tlt::tests;
  if (seed % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const FuzzPlan& plan = *current_plan;
  Mutator mutator(seed, plan.dictionary);
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::string& other = mutator.one_of(plan.corpus);
  std::string made = plan.mutate ? plan.mutate(mutator, text, other) : mutator.bytes(text, other);
  made.resize(std::min(made.size(), max_size));
  std::memcpy(data, made.data(), made.size());
  return made.size();
}
