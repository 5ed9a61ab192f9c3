// tlt: the program. Catches all errors. Exit codes: 2 for a user error, 3 for a lost worker, 1 for
// any other; docs/launching.md has all of them.
//
// SPDX-License-Identifier: Apache-2.0
#include <c10/util/Exception.h>
#include <c10/util/Logging.h>
#include <fmt/core.h>
#include <malloc.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <string_view>

#include "apps/commands.h"
#include "base/check.h"
#include "base/files.h"
#include "base/log.h"
#include "base/sentence.h"
#include "base/version.h"
#include "bench/scenarios.h"
#include "cluster/comm.h"
#include "cluster/launch.h"

namespace tlt::apps {
namespace {

constexpr int kFailure = 1, kInputFailure = 2, kLostWorker = 3;

int run_completion(const cli::Arguments& arguments);
int run_man(const cli::Arguments& arguments);

constexpr cli::Command kCommands[] = {
    {"train", "RL training.", run_train},
    {"sft", "Supervised fine-tuning (SFT).", run_sft},
    {"dpo", "Training on preferences (DPO).", run_dpo},
    {"draft", "Training of a draft model before the first rollout.", run_draft},
    {"export", "Export of a draft model for SGLang or vLLM.", run_export},
    {"eval", "Scores of a model on data, and comparisons of a run's checkpoints.", run_eval},
    {"report", "A report of one or more runs as an HTML file.", run_report},
    {"generate", "Responses to prompts.", run_generate},
    {"chat", "A conversation with a model in the terminal.", run_chat},
    {"serve", "An HTTP server with the protocol of OpenAI's API.", run_serve},
    {"score", "Log-probabilities of given tokens or strings.", run_score},
    {"reward", "Scores of given responses with the reward of a recipe.", run_reward},
    {"environment", "An embedded multi-turn environment, on standard input and output.",
     run_environment},
    {"tokenize", "Text to tokens and back.", run_tokenize},
    {"data", "Columns of a data file, and its prompts as the model gets them.", run_data},
    {"import", "A recipe from a configuration of verl or FastRL.", run_import},
    {"bench", "Benchmarks of decoding and training.", bench::run_bench},
    {"simulate", "RL steps of a cluster in virtual time: what a device, a model and a way give.",
     run_simulate},
    {"options", "The options of a recipe and their defaults.", run_options},
    {"doctor", "Checks this machine: kernels, memory, libraries.", run_doctor},
    {"completion", "Completion of this program's commands for bash, zsh or fish.", run_completion},
    {"man", "The manual page.", run_man},
};

int run_completion(const cli::Arguments& arguments) {
  return print_completion(kCommands, arguments);
}
int run_man(const cli::Arguments& arguments) { return print_man_page(kCommands, arguments); }

// A training step repeatedly frees and allocates tensors of megabytes. On the heap this is cheap;
// with mmap every page would fault again. 32 MiB is the largest threshold that glibc accepts.
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

// libtorch also throws what it logs; report() then prints it as one sentence without a stack trace.
void silence_libtorch() { FLAGS_caffe2_log_level = c10::GLOG_FATAL; }

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// "tlt generate", with the rank if there are several workers.
std::string message_prefix(const cli::Arguments& arguments) {
  std::string name = arguments.command;
  for (const cli::Command& command : kCommands)
    if (!arguments.words.empty() && command.name == arguments.words.front())
      name += " " + arguments.words.front();
  try {
    const cluster::Launch launch = cluster::read_launch(cluster::process_environment());
    if (launch.world_size > 1)
      name += fmt::format(" (worker {} of {})", launch.rank, launch.world_size);
  } catch (const Error&) {
    // The launcher's variables are the error that the message reports.
  }
  return name;
}

int report(const cli::Arguments& arguments, const std::string& message, int exit_code) {
  show_status("");
  fmt::print(stderr, "{}: {}\n", message_prefix(arguments),
             one_sentence(message, kMaxLogLineBytes));
  return exit_code;
}

// An exception in a thread of a library, such as Gloo's when the descriptors run out, would end the
// process by SIGABRT.
[[noreturn]] void report_thread_error() {
  std::string what = "an error of unknown kind";
  try {
    const std::exception_ptr error = std::current_exception();
    if (error == nullptr) std::abort();
    std::rethrow_exception(error);
  } catch (const std::exception& error) {
    what = first_line(error.what());
  } catch (...) {
  }
  if (what.find("Too many open files") != what.npos)
    what += "; raise the limit of open files (ulimit -n)";
  std::_Exit(report(cli::Arguments{"tlt", {}, {}}, "a thread ended: " + what, kFailure));
}

// ZeroMQ prints a reason and aborts where the system refuses it a descriptor or a thread. Calls only
// what a signal handler may call.
void report_abort(int) {
  constexpr std::string_view kText =
      "tlt: a library ended the program, for the reason above; if that is about files, threads or "
      "memory, raise the limit (ulimit -n, -u, -v) and start again with the same command\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText.data(), kText.size());
  _exit(kFailure);
}

int run(const cli::Arguments& arguments) {
  if (arguments.words == std::vector<std::string>{"--version"}) {
    fmt::print("tlt {} ({})\n", kVersion, kCommit);
    return 0;
  }
  try {
    return cli::run_command(kCommands, arguments);
  } catch (const std::filesystem::filesystem_error& error) {
    throw_file_error(error.path1().string(), "be used", error.code().value());
  }
}

int run_and_catch(const cli::Arguments& arguments) {
  try {
    const int exit_code = run(arguments);
    return std::fflush(stdout) == 0
               ? exit_code
               : report(arguments, "standard output cannot be written", kFailure);
  } catch (const InputError& error) {
    return report(arguments, error.what(), kInputFailure);
  } catch (const cluster::LostWorkerError& error) {
    return report(arguments, error.what(), kLostWorker);
  } catch (const Error& error) {
    return report(arguments, error.what(), kFailure);
  } catch (const c10::Error& error) {
    return report(arguments, first_line(error.what_without_backtrace()), kFailure);
  } catch (const std::bad_alloc&) {
    return report(arguments,
                  "out of memory; reduce the number of running sequences or the tokens per pack",
                  kFailure);
  } catch (const std::exception& error) {
    return report(arguments, first_line(error.what()), kFailure);
  } catch (...) {
    return report(arguments, "an error of unknown kind", kFailure);
  }
}

}  // namespace
}  // namespace tlt::apps

int main(int argc, char** argv) {
  tlt::apps::keep_freed_memory();
  tlt::apps::silence_libtorch();
  std::set_terminate(tlt::apps::report_thread_error);
  std::signal(SIGABRT, tlt::apps::report_abort);
  tlt::cluster::process_environment();  // before a child process could inherit the job secret
  const int code = tlt::apps::run_and_catch({"tlt", {argv + 1, argv + argc}, {argv, argv + argc}});
  std::fflush(nullptr);
  std::_Exit(code);  // without the destructors of libtorch's tables of operators, which take 55 ms
}
