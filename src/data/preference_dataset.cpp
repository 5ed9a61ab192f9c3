// SPDX-License-Identifier: Apache-2.0
#include "data/preference_dataset.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "data/countdown_source.h"
#include "data/row_fields.h"
#include "data/row_numbers.h"
#include "data/rows.h"

namespace tlt::data {
namespace {

using Json = nlohmann::ordered_json;

// Problems of which to make a generated pair.
constexpr uint32_t kMaxProblems = 100;

// "chosen" or "rejected": a text, or a list of messages; ShareGPT has a single message.
Json answer_of(const Json& row, const char* name, const std::string& place) {
  const Json* field = find_field(row, name);
  TLT_CHECK_INPUT(field != nullptr, place, ": no \"", name,
                  "\"; a row of tlt dpo has prompt, chosen and rejected");
  TLT_CHECK_INPUT(field->is_string() || field->is_array() || field->is_object(), place, ": \"",
                  name, "\" must be a text or a list of messages");
  if (field->is_string()) return *field;
  return as_messages(field->is_array() ? *field : Json::array({*field}), place);
}

bool begins_with_assistant(const Json& messages) {
  return !messages.empty() && messages.front().is_object() &&
         messages.front().value("role", Json()) == "assistant";
}

// How many messages both lists begin with.
size_t common_messages(const Json& chosen, const Json& rejected) {
  size_t count = 0;
  while (count < std::min(chosen.size(), rejected.size()) && chosen[count] == rejected[count])
    ++count;
  return count;
}

// The messages of a field; null: there is none, or it is no list.
Json list_of(const Json& row, const std::string& name, const std::string& place) {
  const Json* field = name.empty() ? nullptr : find_field(row, name);
  return field != nullptr && field->is_array() ? as_messages(*field, place) : Json();
}

// The messages of a prompt that chosen and rejected do not repeat; null: the row has none.
Json separate_prompt(const Json& row, const DataOptions& options, const std::string& place) {
  if (Json prompt = list_of(row, options.prompt_key, place); !prompt.is_null()) return prompt;
  const Json* prompt = find_field(row, options.prompt_key);
  if (prompt != nullptr && prompt->is_string()) return user_message(prompt->get<std::string>());
  return list_of(row, conversation_field(row), place);
}

// The pair of a generated problem, for row `number`.
PreferencePair generated_pair(const CountdownSource& source, const ExampleMaker& examples,
                              int64_t index, int64_t number) {
  const auto fits = [&](const std::vector<int32_t>& response) {
    return std::ssize(response) <= examples.max_response_length();
  };
  for (uint32_t attempt = 0; attempt < kMaxProblems; ++attempt) {
    const auto made = source.try_preference(index, attempt);
    if (!made) continue;
    const auto chosen = examples.response_tokens(made->chosen),
               rejected = examples.response_tokens(made->rejected);
    const auto prompt = examples.renderer().try_tokens(made->problem.prompt(), "countdown");
    if (prompt && fits(chosen) && fits(rejected))
      return {.chosen = examples.join(*prompt, chosen, number),
              .rejected = examples.join(*prompt, rejected, number)};
  }
  throw InputError("none of " + std::to_string(kMaxProblems) +
                   " countdown problems gave a pair of a right and a wrong response of up to " +
                   std::to_string(examples.max_response_length()) +
                   " tokens; raise data.max_response_length, or lower patience= (with 1 none is "
                   "wrong)");
}

// Reads the files in order and counts rows.
class PreferenceLoader {
 public:
  PreferenceLoader(const DataOptions& options, const tokenizer::Tokenizer& tokenizer, Split split)
      : maker_(std::make_shared<PairMaker>(options, tokenizer)), numbers_(options, split) {}

  std::shared_ptr<const Source<PreferencePair>> read(const std::string& file) {
    if (CountdownSource::is_named_by(file)) {
      const auto rows = numbers_.generated(file, CountdownSource::Use::kDemonstrations);
      return std::make_shared<GeneratedItems<PreferencePair>>(
          rows.source.size, [rows, maker = maker_](int64_t index) {
            return generated_pair(rows.source, maker->examples(), index, rows.first_row + index);
          });
    }
    std::vector<PreferencePair> pairs;
    for_each_row(file, [&](const Json& row, const std::string& place) {
      if (!numbers_.is_full()) add(row, numbers_.next(), place, pairs);
    });
    return std::make_shared<LoadedItems<PreferencePair>>(std::move(pairs));
  }

  int64_t left_out() const { return left_out_; }
  int64_t equal_pairs() const { return equal_pairs_; }

 private:
  void add(const Json& row, int64_t number, const std::string& place,
           std::vector<PreferencePair>& pairs) {
    PairMaker::Made made = maker_->make(row, number, place);
    if (made.pair) {
      pairs.push_back(std::move(*made.pair));
    } else {
      ++(made.is_equal ? equal_pairs_ : left_out_);
    }
  }

  const std::shared_ptr<const PairMaker> maker_;
  RowNumbers numbers_;
  int64_t left_out_ = 0, equal_pairs_ = 0;
};

}  // namespace

// A row in one form.
struct PairMaker::Fields {
  Json prompt;            // messages; null: the row's prompt, and two texts
  Json chosen, rejected;  // texts, or the messages after the prompt

  // Moves what both lists begin with to the prompt.
  void take_common_prompt(size_t common) {
    const auto part = [](const Json& list, size_t begin, size_t end) {
      const auto at = [&](size_t i) { return list.begin() + static_cast<std::ptrdiff_t>(i); };
      return Json(Json::array_t(at(begin), at(end)));
    };
    prompt = part(chosen, 0, common);
    chosen = part(chosen, common, chosen.size());
    rejected = part(rejected, common, rejected.size());
  }
};

PairMaker::PairMaker(const DataOptions& options, const tokenizer::Tokenizer& tokenizer)
    : options_(options), maker_(options, tokenizer) {}

bool PairMaker::is_pair(const Json& row) {
  return find_field(row, "chosen") != nullptr && find_field(row, "rejected") != nullptr;
}

PairMaker::Made PairMaker::make(const Json& row, int64_t number, const std::string& place) const {
  const Fields fields = fields_of(row, options_, place);
  if (fields.chosen == fields.rejected) return {.pair = std::nullopt, .is_equal = true};
  Made made;
  made.pair = fields.prompt.is_null() ? try_texts(row, fields, number, place)
                                      : try_messages(row, fields, number, place);
  made.is_equal = made.pair && made.pair->chosen.tokens == made.pair->rejected.tokens;
  if (made.is_equal) made.pair.reset();
  return made;
}

PairMaker::Fields PairMaker::fields_of(const Json& row, const DataOptions& options,
                                       const std::string& place) {
  Fields found{.prompt = {},
               .chosen = answer_of(row, "chosen", place),
               .rejected = answer_of(row, "rejected", place)};
  TLT_CHECK_INPUT(found.chosen.is_string() == found.rejected.is_string(), place,
                  ": one of chosen and rejected is a text and the other a list of messages; give "
                  "both in one form");
  if (!found.chosen.is_string() && found.chosen != found.rejected)
    find_prompt(row, options, place, found);
  return found;
}

// As in TRL: that of the row if chosen and rejected are answers to it, else what both begin with.
void PairMaker::find_prompt(const Json& row, const DataOptions& options, const std::string& place,
                            Fields& found) {
  const auto are_answers = [&] {
    return begins_with_assistant(found.chosen) && begins_with_assistant(found.rejected);
  };
  const size_t common = common_messages(found.chosen, found.rejected);
  if (are_answers() || common == 0) {
    found.prompt = separate_prompt(row, options, place);
  } else {
    found.take_common_prompt(common);
    const Json prompt = list_of(row, options.prompt_key, place);
    TLT_CHECK_INPUT(prompt.is_null() || prompt == found.prompt, place,
                    ": the messages that chosen and rejected begin with are not those of the "
                    "prompt; give the prompt once");
  }
  TLT_CHECK_INPUT(!found.prompt.is_null() && !found.prompt.empty(), place,
                  ": chosen and rejected have no first message in common, and the row has no "
                  "prompt; give a prompt, or begin both with its messages");
  TLT_CHECK_INPUT(are_answers(), place, ": after the prompt, of ", found.prompt.size(),
                  " messages, chosen and rejected must both continue with a message of the "
                  "assistant");
}

std::optional<PreferencePair> PairMaker::try_texts(const Json& row, const Fields& fields,
                                                   int64_t number, const std::string& place) const {
  const auto prompt = maker_.renderer().try_tokens(maker_.renderer().text(row, place), place);
  const auto chosen = maker_.try_response(fields.chosen, "chosen response", place);
  const auto rejected = maker_.try_response(fields.rejected, "rejected response", place);
  if (!prompt || !chosen || !rejected) return std::nullopt;
  return PreferencePair{.chosen = maker_.join(*prompt, *chosen, number),
                        .rejected = maker_.join(*prompt, *rejected, number)};
}

std::optional<PreferencePair> PairMaker::try_messages(const Json& row, const Fields& fields,
                                                      int64_t number,
                                                      const std::string& place) const {
  const auto answer = [&](const Json& messages, const char* name) {
    const std::string where = place + ": " + name;
    return maker_.try_conversation(answer_tokens(row, fields.prompt, messages, where), number,
                                   where);
  };
  auto chosen = answer(fields.chosen, "chosen"), rejected = answer(fields.rejected, "rejected");
  if (!chosen || !rejected) return std::nullopt;
  return PreferencePair{.chosen = std::move(*chosen), .rejected = std::move(*rejected)};
}

// The conversation with the spans of the messages after the prompt.
ChatTokens PairMaker::answer_tokens(const Json& row, const Json& prompt, const Json& messages,
                                    const std::string& place) const {
  const auto of_assistant = [](const Json& list) {
    return std::ranges::count_if(
        list, [](const Json& message) { return message.value("role", Json()) == "assistant"; });
  };
  Json conversation = prompt;
  for (const Json& message : messages) conversation.push_back(message);
  std::vector<ChatTokens> rows = maker_.renderer().training_rows(row, conversation, place);
  int64_t spans = 0;
  for (const ChatTokens& one : rows) spans += std::ssize(one.spans);
  ChatTokens last = std::move(rows.back());
  const int64_t wanted = of_assistant(messages), known = std::ssize(last.spans);
  TLT_CHECK_INPUT(
      spans == of_assistant(conversation) && wanted <= known, place,
      ": the chat template writes earlier messages of the assistant differently once more follow, "
      "so the answer is not one sequence; give answers of one message");
  last.spans.erase(last.spans.begin(), last.spans.end() - wanted);
  return last;
}

PreferenceDataset PreferenceDataset::load(const DataOptions& options,
                                          const tokenizer::Tokenizer& tokenizer, Split split) {
  options.check();
  const SplitFiles named = options.files_of(split);
  PreferenceDataset dataset;
  PreferenceLoader loader(options, tokenizer, split);
  for (size_t i = 0; i < named.files.size(); ++i)
    dataset.sources_.add(loader.read(named.files[i]), named.weight(i));
  dataset.left_out_ = loader.left_out();
  dataset.equal_pairs_ = loader.equal_pairs();
  TLT_CHECK_INPUT(dataset.size() > 0, named.option, ": no pairs in ", named.files[0],
                  named.files.size() > 1 ? " and the other files" : "", " (", dataset.left_out_,
                  " were too long, and in ", dataset.equal_pairs_,
                  " chosen and rejected are equal); give one pair a line");
  return dataset;
}

}  // namespace tlt::data
