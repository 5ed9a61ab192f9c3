// tlt chat: a conversation with a model in the terminal. Responses appear as they are decoded.
//
// Reads lines from standard input, a terminal or not. /clear clears the conversation, /exit or the
// end of the input exits, Ctrl-C stops the response only. The model folder's chat template renders
// the conversation; without one each line is completed as written.
//
// A line that cannot be answered (not UTF-8, or the conversation is too long) is refused. On a
// terminal the program then reads the next line; otherwise it ends with the error.
//
// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <regex>

#include "apps/commands.h"
#include "base/check.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/sentence.h"
#include "chat_template/chat_template.h"
#include "cli/generation_flags.h"
#include "cli/rows.h"
#include "rollout/engine.h"

namespace tlt::apps {
namespace {

struct ChatFlags : cli::GenerationFlags {
  std::string system;

  void add_to(CLI::App& flags) {
    model.add_to(flags);
    flags.add_option("--system", system, "System message of the conversation.");
    cli::GenerationFlags::add_to(flags);
    engine.max_running = 1;
  }
};

// Reads lines of standard input; a signal ends the wait for a line.
class LineInput {
 public:
  enum class Event { kLine, kEnd, kInterrupt };

  static bool is_terminal() { return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1; }

  // kLine: `line` is the next line, without its line break.
  Event next(std::string& line) {
    if (interrupted()) return Event::kInterrupt;  // also before a line that was read already
    for (size_t end = 0; (end = buffer_.find('\n')) == buffer_.npos;) {
      pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      if (interrupted()) return Event::kInterrupt;
      if (::poll(&input, 1, /*timeout=*/-1) < 0) continue;  // a signal
      std::string bytes(1 << 12, '\0');
      bytes.resize(file_.read(bytes.data(), bytes.size()));
      if (bytes.empty() && buffer_.empty()) return Event::kEnd;
      buffer_ += bytes.empty() ? "\n" : bytes;
    }
    const size_t end = buffer_.find('\n');
    line = buffer_.substr(0, end);
    if (line.ends_with('\r')) line.pop_back();
    buffer_.erase(0, end + 1);
    return Event::kLine;
  }

 private:
  FileHandle file_ = open_input("-");
  std::string buffer_;
};

// The messages so far, and their tokens as prompt of the next response.
class Conversation {
 public:
  Conversation(const std::string& model, const tokenizer::Tokenizer& tokenizer, std::string system)
      : tokenizer_(tokenizer),
        template_(chat_template::ChatTemplate::find(model)),
        system_(std::move(system)) {
    TLT_CHECK_INPUT(template_ || system_.empty(), model,
                    ": no chat template in this folder, so --system cannot be used; leave it out");
    clear();
  }

  bool has_template() const { return template_.has_value(); }

  void clear() {
    messages_ = nlohmann::ordered_json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }

  // InputError: not UTF-8, or the template refuses it; then call drop_last().
  std::vector<int32_t> add_user(const std::string& text) {
    if (!template_) return tokenizer_.encode(text);
    messages_.push_back({{"role", "user"}, {"content", text}});
    return tokenizer_.encode(
        template_->render({.messages = messages_, .add_generation_prompt = true}, "chat").text);
  }
  void add_assistant(const std::string& text) {
    if (template_) messages_.push_back({{"role", "assistant"}, {"content", text}});
  }
  // Removes the last message if it is the user's.
  void drop_last() {
    if (!messages_.empty() && messages_.back()["role"] == "user")
      messages_.erase(messages_.size() - 1);
  }

 private:
  const tokenizer::Tokenizer& tokenizer_;
  const std::optional<chat_template::ChatTemplate> template_;
  const std::string system_;
  nlohmann::ordered_json messages_;
};

class ChatSession {
 public:
  ChatSession(const ChatFlags& flags, const model::PolicyModel& policy,
              const tokenizer::Tokenizer& tokenizer)
      : policy_(policy),
        tokenizer_(tokenizer),
        sampling_(std::make_shared<const rollout::SamplingOptions>(flags.sampling)),
        seed_(static_cast<uint64_t>(flags.seed)),
        conversation_(flags.model.model, tokenizer, flags.system),
        speculation_(flags.speculation.make(policy, flags.engine)),
        engine_(policy, flags.engine, /*stop_string=*/nullptr, /*observer=*/nullptr,
                speculation_.get()) {
    if (!conversation_.has_template())
      log_info("{} has no chat template: each line is completed as written", flags.model.model);
  }

  // Runs until the input ends; returns the exit code.
  int run() {
    using Event = LineInput::Event;
    const bool is_terminal = LineInput::is_terminal();
    if (is_terminal)
      log_info("/clear clears the conversation, /exit or Ctrl-D exits, Ctrl-C stops a response");
    while (true) {
      if (is_terminal) cli::print_text("> ");
      std::string line;
      const Event event = input_.next(line);
      if (event == Event::kInterrupt && interrupt_signal() == SIGTERM) return interrupt_exit_code();
      if (event == Event::kEnd || line == "/exit") break;
      if (event == Event::kInterrupt) {
        clear_interrupt();
        if (is_terminal) cli::print_text("\n");
      } else {
        try {
          take(line);
        } catch (const InputError& error) {
          if (!is_terminal) throw;
          conversation_.drop_last();
          log_error("{}", error.what());
        }
      }
    }
    if (is_terminal) cli::print_text("\n");
    return 0;
  }

 private:
  void take(const std::string& line) {
    static const std::regex command_pattern("/[a-z]+");
    if (line.empty()) return;
    if (line == "/clear") {
      conversation_.clear();
    } else if (std::regex_match(line, command_pattern)) {
      throw InputError("unknown command " + line + "; use /clear or /exit");
    } else {
      conversation_.add_assistant(answer(conversation_.add_user(line)));
    }
  }

  // On a terminal, escape sequences of a model's text have no effect; a pipe gets the bytes.
  void print(const std::string& text) const {
    cli::print_text(is_terminal_ ? printable_lines(text) : text);
  }

  // Streams the response, without its end-of-sequence token, and returns it.
  std::string answer(std::vector<int32_t> tokens) {
    const int64_t positions = policy_.config().max_positions;
    TLT_CHECK_INPUT(std::ssize(tokens) < positions, "the conversation has ", tokens.size(),
                    " tokens and the model ", positions, " positions; /clear begins a new one");
    tokenizer::StreamingDecoder decoder(tokenizer_);
    std::string text;
    size_t shown = 0;
    const auto show = [&](std::span<const int32_t> response) {
      std::string more;
      for (; shown < response.size(); ++shown) more += decoder.push(response[shown]);
      print(more);
      text += more;
    };
    const uint32_t turn = turns_++;
    engine_.submit(
        {.prompt_id = turn, .tokens = std::move(tokens), .sampling = sampling_, .seed = seed_});
    while (!interrupted() && engine_.step()) show(engine_.tokens_so_far(turn, 0));
    engine_.cancel_all();
    const rollout::Response response = engine_.take_finished().front();
    const bool is_ended = response.finish == rollout::FinishReason::kStop;
    show(std::span(response.tokens).first(response.tokens.size() - (is_ended ? 1 : 0)));
    const std::string rest = decoder.finish();
    print(rest + "\n");
    if (response.finish == rollout::FinishReason::kLength)
      log_info("stopped after {} tokens; raise --max-new-tokens or /clear", response.tokens.size());
    if (interrupt_signal() == SIGINT) clear_interrupt();
    return text + rest;
  }

  const model::PolicyModel& policy_;
  const tokenizer::Tokenizer& tokenizer_;
  const std::shared_ptr<const rollout::SamplingOptions> sampling_;
  const uint64_t seed_;
  const bool is_terminal_ = ::isatty(STDOUT_FILENO) == 1;
  LineInput input_;
  Conversation conversation_;
  const std::unique_ptr<rollout::Speculation> speculation_;
  rollout::Engine engine_;
  uint32_t turns_ = 0;  // prompt id of the next response, so each has its own uniforms
};

}  // namespace

int run_chat(const cli::Arguments& arguments) {
  ChatFlags flags;
  CLI::App app("A conversation with a model in the terminal.");
  flags.add_to(app);
  if (!cli::try_parse(app, arguments)) return 0;
  flags.check();
  install_interrupt_handler();

  const auto policy = flags.model.load();
  const auto tokenizer = flags.model.load_tokenizer(*policy);
  TLT_CHECK_INPUT(tokenizer, flags.model.model,
                  " has no tokenizer.json; copy the model's tokenizer.json there");
  return ChatSession(flags, *policy, *tokenizer).run();
}

}  // namespace tlt::apps
