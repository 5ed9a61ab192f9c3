// SPDX-License-Identifier: Apache-2.0
#include "cluster/messages.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tlt::cluster {
namespace {

// In the order of the kinds.
constexpr std::array<const char*, 6> kEvents = {"begin",    "take", "started",
                                                "returned", "done", "heartbeat"};
constexpr std::array<const char*, 8> kCommands = {"give", "recall", "no_work", "step_done",
                                                  "lost", "exit",   "alive",   "train"};

template <class Message, class Names>
std::string encode_with(const Message& message, const Names& names) {
  return nlohmann::json{{"kind", names[static_cast<size_t>(message.kind)]},
                        {"step", message.step},
                        {"group", message.group}}
      .dump();
}

template <class Message, class Names>
Message decode_with(const std::string& text, int worker, const Names& names) {
  TLT_CHECK(static_cast<int64_t>(text.size()) <= kMaxMessageBytes, text.size(),
            " bytes from or to worker ", worker);
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto number = [&](const char* name) {
    return json.contains(name) && json[name].is_number_integer();
  };
  TLT_CHECK(json.is_object() && json.contains("kind") && json["kind"].is_string() &&
                number("step") && number("group"),
            "control message '", text, "' from or to worker ", worker);
  const auto kind = std::find(names.begin(), names.end(), json["kind"].get<std::string>());
  TLT_CHECK(kind != names.end(), "control message '", text, "' from or to worker ", worker);
  return {.kind = static_cast<typename Message::Kind>(kind - names.begin()),
          .worker = worker,
          .step = json["step"].get<int64_t>(),
          .group = json["group"].get<int64_t>()};
}

}  // namespace

std::string encode(const Event& event) { return encode_with(event, kEvents); }
std::string encode(const Command& command) { return encode_with(command, kCommands); }
Event decode_event(const std::string& text, int worker) {
  return decode_with<Event>(text, worker, kEvents);
}
Command decode_command(const std::string& text, int worker) {
  return decode_with<Command>(text, worker, kCommands);
}

}  // namespace tlt::cluster
