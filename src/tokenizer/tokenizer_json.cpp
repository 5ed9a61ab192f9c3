// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_json.h"

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json_fault.h"
#include "base/json_limits.h"
#include "base/utf8.h"

namespace tlt::tokenizer {
namespace {

using SortedJson = nlohmann::json;

constexpr size_t kMaxTokens = 1 << 23;
constexpr size_t kMaxAddedTokens = 1 << 16;
constexpr size_t kMaxTokenBytes = 1 << 16;

int32_t checked_id(const SortedJson& id) {
  TLT_CHECK_INPUT(id.is_number_integer() && id >= 0 && id < kMaxTokens, "token id ", id.dump(),
                  " is not in 0..", kMaxTokens - 1);
  return id.get<int32_t>();
}

std::string checked_text(const std::string& text) {
  TLT_CHECK_INPUT(text.size() <= kMaxTokenBytes, "a token has ", text.size(),
                  " bytes; the limit is ", kMaxTokenBytes);
  return text;
}

bool is_absent(const SortedJson& object, const char* key) {
  return !object.contains(key) || object.at(key).is_null();
}

// Absent, false, 0 or "".
bool is_off(const SortedJson& object, const char* key) {
  if (is_absent(object, key)) return true;
  const SortedJson& value = object.at(key);
  return value == false || value == "" || (value.is_number() && value == 0);
}

const SortedJson& part(const SortedJson& root, const char* key) {
  static const SortedJson null;
  return root.contains(key) ? root.at(key) : null;
}

[[noreturn]] void refuse(const std::string& component, const std::string& type,
                         const std::string& known) {
  throw InputError(component + " of type " + type + " is not supported; known: " + known);
}

std::string type_of(const SortedJson& component) { return component.at("type").get<std::string>(); }

class Reader {
 public:
  explicit Reader(const SortedJson& root) : root_(root) {}

  TokenizerJson run() {
    out_.pre_tokenizer = PreTokenizer(part(root_, "pre_tokenizer"));
    out_.normalizer = Normalizer(part(root_, "normalizer"));
    out_.decoder = TokenDecoder(part(root_, "decoder"));
    read_model(root_.at("model"));
    read_added_tokens(part(root_, "added_tokens"));
    read_post_processor(part(root_, "post_processor"));
    return std::move(out_);
  }

 private:
  void read_model(const SortedJson& model) {
    const std::string type = model.value("type", "BPE");
    if (type != "BPE") refuse("model", type, "BPE");
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      TLT_CHECK_INPUT(is_off(model, key), "model.", key, " = ", model.at(key).dump(),
                      " is not supported");
    }
    out_.bpe = {.is_byte_level = out_.pre_tokenizer.is_byte_level(),
                .ignores_merges = !is_off(model, "ignore_merges"),
                .falls_back = !is_off(model, "byte_fallback"),
                .fuses_unknown = !is_off(model, "fuse_unk")};
    const SortedJson& vocabulary = model.at("vocab");
    TLT_CHECK_INPUT(vocabulary.is_object() && vocabulary.size() <= kMaxTokens,
                    "model.vocab: want an object of at most ", kMaxTokens, " tokens");
    out_.vocabulary.reserve(vocabulary.size());
    for (const auto& [text, id] : vocabulary.items())
      out_.vocabulary.emplace(checked_text(text), checked_id(id));
    read_merges(model.at("merges"));
    read_unknown_token(model);
  }

  void read_merges(const SortedJson& merges) {
    TLT_CHECK_INPUT(merges.is_array() && merges.size() <= kMaxTokens,
                    "model.merges: want a list of at most ", kMaxTokens, " merges");
    out_.merges.reserve(merges.size());
    for (const SortedJson& merge : merges) {
      std::string left, right;
      if (merge.is_string()) {
        const auto& text = merge.get_ref<const std::string&>();
        if (text.starts_with("#version")) continue;
        const size_t space = text.find(' ');
        TLT_CHECK_INPUT(
            space != std::string::npos && text.find(' ', space + 1) == std::string::npos,
            "merge \"", text, "\" is not two tokens with a space between");
        left = text.substr(0, space), right = text.substr(space + 1);
      } else {
        TLT_CHECK_INPUT(merge.is_array() && merge.size() == 2, "merge ", merge.dump(),
                        " is not two tokens");
        left = merge.at(0).get<std::string>(), right = merge.at(1).get<std::string>();
      }
      out_.merges.push_back({token(left), token(right), token(left + right)});
    }
  }

  int32_t token(const std::string& text) const {
    const auto found = out_.vocabulary.find(text);
    TLT_CHECK_INPUT(found != out_.vocabulary.end(), "model.merges: \"", text,
                    "\" is not in the vocabulary");
    return found->second;
  }

  // With a byte-level pre-tokenizer nothing is unknown if all 256 bytes are tokens.
  void read_unknown_token(const SortedJson& model) {
    if (out_.bpe.is_byte_level) {
      const bool is_harmless =
          (is_off(model, "unk_token") && !out_.bpe.falls_back) || has_all_bytes();
      TLT_CHECK_INPUT(is_harmless, "model.unk_token = ", part(model, "unk_token").dump(),
                      ", byte_fallback = ", out_.bpe.falls_back,
                      ": not supported without a byte-level vocabulary of all 256 bytes");
      out_.bpe.falls_back = false;
    } else if (!is_off(model, "unk_token")) {
      const auto text = model.at("unk_token").get<std::string>();
      const auto found = out_.vocabulary.find(text);
      TLT_CHECK_INPUT(found != out_.vocabulary.end(), "model.unk_token = \"", text,
                      "\" is not in the vocabulary");
      out_.bpe.unknown = found->second;
    }
  }

  bool has_all_bytes() const {
    for (int byte = 0; byte < 256; ++byte) {
      if (!out_.vocabulary.contains(byte_level_text(std::string(1, static_cast<char>(byte)))))
        return false;
    }
    return true;
  }

  void read_added_tokens(const SortedJson& tokens) {
    TLT_CHECK_INPUT(tokens.size() <= kMaxAddedTokens, "added_tokens: more than ", kMaxAddedTokens);
    for (const SortedJson& entry : tokens) {
      AddedToken added{.text = checked_text(entry.at("content").get<std::string>()),
                       .id = checked_id(entry.at("id")),
                       .is_single_word = entry.value("single_word", false),
                       .strips_left = entry.value("lstrip", false),
                       .strips_right = entry.value("rstrip", false),
                       .is_normalized = entry.value("normalized", true),
                       .is_special = entry.value("special", false)};
      const auto known = out_.vocabulary.find(added.text);
      TLT_CHECK_INPUT(known == out_.vocabulary.end() || known->second == added.id, "added token \"",
                      added.text, "\" has id ", added.id, ", but the vocabulary gives it ",
                      known->second);
      out_.added_tokens.push_back(std::move(added));
    }
  }

  void read_post_processor(const SortedJson& processor) {
    if (processor.is_null()) return;
    const std::string type = type_of(processor);
    if (type == "ByteLevel") return;  // changes offsets only
    if (type == "Sequence") {
      for (const SortedJson& step : processor.at("processors")) read_post_processor(step);
    } else if (type != "TemplateProcessing") {  // added to no text here
      refuse("post_processor", type, "ByteLevel, TemplateProcessing, Sequence");
    }
  }

  const SortedJson& root_;
  TokenizerJson out_;
};

}  // namespace

TokenizerJson TokenizerJson::parse(std::string_view json, const std::string& name) {
  check_json_depth(json, name);
  try {
    return Reader(SortedJson::parse(json)).run();
  } catch (const SortedJson::exception& error) {
    throw InputError(name + ": " + json_fault(error));
  } catch (const InputError& error) {
    throw InputError(name + ": " + error.what());
  }
}

}  // namespace tlt::tokenizer
