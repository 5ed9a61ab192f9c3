// SPDX-License-Identifier: Apache-2.0
#include "cluster/messages.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tlt::cluster {
namespace {

// In the order of the kinds.
constexpr std::array<const char*, 12> kEvents = {"begin", "take",  "started", "returned",
                                                 "done",  "load",  "moved",   "heartbeat",
                                                 "stop",  "offer", "want",    "handed_over"};
constexpr std::array<const char*, 12> kCommands = {"give", "recall", "no_work",   "step_done",
                                                   "lost", "exit",   "alive",     "train",
                                                   "move", "stop",   "hand_over", "finished"};

template <class Message, class Names>
nlohmann::json encode_with(const Message& message, const Names& names) {
  return {{"kind", names[static_cast<size_t>(message.kind)]},
          {"step", message.step},
          {"group", message.group}};
}

nlohmann::json parse(const std::string& text, int worker) {
  TLT_CHECK(static_cast<int64_t>(text.size()) <= kMaxMessageBytes, text.size(),
            " bytes from or to worker ", worker);
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  TLT_CHECK(json.is_object(), "control message '", text, "' from or to worker ", worker);
  return json;
}

int64_t number(const nlohmann::json& json, const char* name, int worker) {
  TLT_CHECK(json.contains(name) && json[name].is_number_integer(), "control message '", json.dump(),
            "' from or to worker ", worker, " without ", name);
  return json[name].get<int64_t>();
}

template <class Message, class Names>
Message decode_with(const nlohmann::json& json, int worker, const Names& names) {
  const auto kind = json.contains("kind") && json["kind"].is_string()
                        ? std::find(names.begin(), names.end(), json["kind"].get<std::string>())
                        : names.end();
  TLT_CHECK(kind != names.end(), "control message '", json.dump(), "' from or to worker ", worker);
  Message message;
  message.kind = static_cast<typename Message::Kind>(kind - names.begin());
  message.worker = worker;
  message.step = number(json, "step", worker);
  message.group = number(json, "group", worker);
  return message;
}

}  // namespace

std::string encode(const Event& event) {
  nlohmann::json json = encode_with(event, kEvents);
  if (event.kind == Event::Kind::kLoad) {
    json["sequences"] = event.load.sequences;
    json["tokens"] = event.load.tokens;
    json["remaining"] = event.load.remaining;
    json["room"] = event.load.room;
  }
  return json.dump();
}

std::string encode(const WorkerCommand& command) { return encode_with(command, kCommands).dump(); }

Event decode_event(const std::string& text, int worker) {
  const nlohmann::json json = parse(text, worker);
  Event event = decode_with<Event>(json, worker, kEvents);
  if (event.kind == Event::Kind::kLoad)
    event.load = {.sequences = number(json, "sequences", worker),
                  .tokens = number(json, "tokens", worker),
                  .remaining = number(json, "remaining", worker),
                  .room = number(json, "room", worker)};
  return event;
}

WorkerCommand decode_command(const std::string& text, int worker) {
  return decode_with<WorkerCommand>(parse(text, worker), worker, kCommands);
}

}  // namespace tlt::cluster
