// SPDX-License-Identifier: Apache-2.0
#include "apps/row_preview.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/sentence.h"
#include "base/statistics.h"
#include "data/row_fields.h"
#include "data/rows.h"

namespace tlt::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kShownRows = 3;
constexpr size_t kShownBytes = 20'000;  // of a text of such a row

std::string or_none(const std::string& field, const char* option) {
  return field.empty() ? fmt::format("none; set {}", option) : field;
}

void print_role(const char* role, const std::string& field) {
  fmt::print("  {:<16} {}\n", role, one_sentence(field));
}

// Prints the fields that a run reads from such a row. A reward may read no answer or data source.
void print_roles(const Json& row, const data::DataOptions& options) {
  if (data::PairMaker::is_pair(row)) {
    const bool has_prompt = data::find_field(row, options.prompt_key) != nullptr;
    fmt::print("tlt dpo reads\n");
    print_role("prompt", has_prompt ? options.prompt_key : "what chosen and rejected begin with");
    print_role("chosen", "chosen");
    return print_role("rejected", "rejected");
  }
  const bool is_conversation = !data::conversation_of(row, options, "").is_null();
  const std::string response = data::response_field(row, options);
  const bool is_example = is_conversation || !response.empty();
  fmt::print("{}\n", is_example ? "tlt sft reads" : "tlt train reads");
  if (is_conversation && response.empty())
    return print_role("conversation", data::conversation_field(row));
  const bool has_prompt = data::find_field(row, options.prompt_key) != nullptr;
  print_role("prompt", options.prompt_template.empty()
                           ? or_none(has_prompt ? options.prompt_key : "", "data.prompt_key")
                           : "data.prompt_template");
  if (is_example) return print_role("response", response);
  print_role("answer", or_none(data::answer_field(row, options),
                               "data.answer_key if the reward compares with it"));
  print_role("data source", options.data_source.empty()
                                ? or_none(data::source_field(row, options),
                                          "data.reward_fn_key or data.data_source for "
                                          "reward.functions=auto")
                                : options.data_source);
}

data::DataOptions without_limits(data::DataOptions options) {
  options.max_prompt_length = options.max_response_length = INT64_MAX / 2;  // they are added
  options.filter_overlong_prompts = false;
  return options;
}

std::string lines_of(const Json& messages) {
  std::string text;
  for (const Json& message : messages) text += (text.empty() ? "" : "\n") + message.dump();
  return text;
}

void print_percentiles(const char* name, const char* unit, const std::vector<int64_t>& lengths) {
  if (lengths.empty()) return;
  fmt::print("{} in {}: shortest {}, median {}, 90 % up to {}, longest {}\n", name, unit,
             percentile(lengths, 0), percentile(lengths, 0.5), percentile(lengths, 0.9),
             percentile(lengths, 1));
}

void print_longer(const std::vector<int64_t>& lengths, const std::string& option, int64_t limit) {
  if (!lengths.empty())
    fmt::print("longer than {}={}: {}\n", option, limit,
               std::ranges::count_if(lengths, [&](int64_t length) { return length > limit; }));
}

}  // namespace

RowPreview::RowPreview(const data::DataOptions& options, const std::string& model)
    : options_(options), model_(model) {
  if (model.empty()) return;
  tokenizer_.emplace(tokenizer::Tokenizer::load(model));
  renderer_.emplace(without_limits(options), *tokenizer_);
}

RowPreview::Part RowPreview::part(const char* name, std::string text) const {
  const int64_t length = tokenizer_ ? std::ssize(tokenizer_->encode(text)) : std::ssize(text);
  return {name, std::move(text), length};
}

RowPreview::Part RowPreview::conversation(const Json& row, const std::string& place) const {
  if (!renderer_)
    return part("conversation", lines_of(data::conversation_of(row, options_, place)));
  Part whole{.name = "conversation", .text = {}, .length = 0};
  const auto chats = renderer_->try_conversation(row, place);
  for (const data::ChatTokens& chat : *chats) {
    whole.text += (whole.text.empty() ? "" : "\n") + tokenizer_->decode(chat.tokens);
    whole.length = std::max(whole.length, std::ssize(chat.tokens));
  }
  return whole;
}

std::vector<RowPreview::Part> RowPreview::parts_of_pair(const Json& row,
                                                        const std::string& place) const {
  const auto text_of = [&](const std::string& name) {
    const Json& field = *data::find_field(row, name);
    return field.is_array() ? lines_of(field) : data::text_of(field);
  };
  if (!pairs_) {
    std::vector<Part> parts;
    for (const std::string& name :
         {options_.prompt_key, std::string("chosen"), std::string("rejected")})
      if (data::find_field(row, name) != nullptr)
        parts.push_back(part(name == options_.prompt_key ? "prompt" : name.c_str(), text_of(name)));
    return parts;
  }
  const data::PairMaker::Made made = pairs_->make(row, /*number=*/0, place);
  if (!made.pair) return {Part{"chosen", "(equal to rejected: tlt dpo leaves the pair out)", 0}};
  const auto decoded = [&](const char* name, const data::SftExample& example, bool is_response) {
    const auto middle = example.tokens.begin() + example.response_begin;
    const std::vector<int32_t> tokens(is_response ? middle : example.tokens.begin(),
                                      is_response ? example.tokens.end() : middle);
    return Part{name, tokenizer_->decode(tokens), std::ssize(tokens)};
  };
  return {decoded("prompt", made.pair->chosen, false), decoded("chosen", made.pair->chosen, true),
          decoded("rejected", made.pair->rejected, true)};
}

std::vector<RowPreview::Part> RowPreview::parts_of(const Json& row,
                                                   const std::string& place) const {
  if (data::PairMaker::is_pair(row)) return parts_of_pair(row, place);
  if (!data::conversation_of(row, options_, place).is_null()) return {conversation(row, place)};
  data::check_prompt_type(row, options_, place);
  std::vector<Part> parts;
  if (renderer_) {
    Part prompt{"prompt", renderer_->text(row, place), 0};
    prompt.length = std::ssize(*renderer_->try_tokens(prompt.text, place));
    parts.push_back(std::move(prompt));
  } else if (!options_.prompt_template.empty()) {
    parts.push_back(
        part("prompt", data::PromptTemplate(options_.prompt_template).render(row, place)));
  } else {
    const Json& prompt = data::require_prompt(row, options_, place);
    parts.push_back(
        part("prompt", prompt.is_string() ? prompt.get<std::string>() : lines_of(prompt)));
  }
  if (const std::string field = data::response_field(row, options_); !field.empty())
    parts.push_back(part("response", data::text_of(*data::find_field(row, field))));
  return parts;
}

void RowPreview::add(const Json& row, const std::string& place) {
  if (rows_++ == 0) print_roles(row, options_);
  if (tokenizer_ && !pairs_ && data::PairMaker::is_pair(row))
    pairs_.emplace(without_limits(options_), *tokenizer_);
  const std::vector<Part> parts = parts_of(row, place);
  for (const Part& part : parts)
    (part.name == "prompt"         ? prompts_
     : part.name == "conversation" ? conversations_
                                   : responses_)
        .push_back(part.length);
  const bool is_text = data::find_field(row, "chosen") == nullptr ||
                       data::find_field(row, "chosen")->is_string();  // not a conversation
  if (renderer_ && is_text && parts[0].name == "prompt" && renderer_->leaves_out_template(row))
    ++texts_without_template_;
  if (rows_ > kShownRows) return;
  const std::string answer =
      data::answer_field(row, options_).empty()
          ? ""
          : data::ground_truth_of(row, options_, place, /*is_required=*/true);
  fmt::print("---- {}: {} {}{}\n{}\n", one_sentence(place), parts[0].length, unit(),
             answer.empty() ? "" : ", answer " + printable_lines(answer, kShownBytes),
             printable_lines(parts[0].text, kShownBytes));
  for (size_t i = 1; i < parts.size(); ++i)
    fmt::print("-- {}: {} {}\n{}\n", parts[i].name, parts[i].length, unit(),
               printable_lines(parts[i].text, kShownBytes));
}

void RowPreview::print_lengths() const {
  fmt::print("----\n");
  print_percentiles("prompts", unit(), prompts_);
  print_percentiles("responses", unit(), responses_);
  print_percentiles("conversations", unit(), conversations_);
  if (!tokenizer_) return;
  print_longer(prompts_, "data.max_prompt_length", options_.max_prompt_length);
  print_longer(responses_, "data.max_response_length", options_.max_response_length);
  print_longer(conversations_, "data.max_prompt_length + data.max_response_length",
               options_.max_prompt_length + options_.max_response_length);
  if (texts_without_template_ > 0)
    fmt::print(
        "warning: {} of {} prompts are plain text, and the chat template of {} is not applied to "
        "them; for a chat model set data.chat_template=model\n",
        texts_without_template_, rows_, model_);
}

}  // namespace tlt::apps
