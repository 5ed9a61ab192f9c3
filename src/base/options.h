// Options: declared once, with the component they belong to. Recipe, command line, dump, help and
// the docs page are generated from the same list.
//
// Not here   the tree of all options (run/run_options.h); validation of values: each struct has its
//            own check().
// Threading  thread-compatible. Options are const once the run has started.
//
//   struct RolloutOptions {
//     int64_t n = 1;
//     OptimOptions optim;
//     void visit(auto& v) {
//       v(n, "n", Affects::kResults, "Responses per prompt.");
//       v.group("optim", optim);                                // rollout.optim.lr
//     }
//     void check() const;
//   };
//
//   RunOptions options;
//   const std::vector<OptionRef> refs = collect_options(options);   // points into `options`
//   apply_toml_file(refs, "recipe.toml");
//   apply_override(refs, "rollout.n=8");
//   write_file_atomic(folder + "/options.toml", to_toml(refs));
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tlt {

// The aspect of a run that an option affects.
enum class Affects {
  kResults,  // tokens, losses, weights
  kSpeed,    // time and memory only; tests/invariants/speed_options_keep_results_test.cpp checks it
  kPlace,    // where things are read, written and run
};

using OptionValue = std::variant<bool*, int64_t*, double*, std::string*, std::vector<int64_t>*,
                                 std::vector<double>*, std::vector<std::string>*>;

template <class T>
concept OptionType = requires(T* value) {
  OptionValue(std::in_place_type<T*>, value);
};

// One option: its full name ("rollout.optim.lr") and a pointer to its value.
struct OptionRef {
  std::string name;
  Affects affects;
  std::string help;
  OptionValue value;
};

class OptionCollector {
 public:
  template <OptionType T>
  void operator()(T& value, std::string_view name, Affects affects, std::string_view help) {
    add(name, affects, help, &value);
  }

  template <class T>
  void group(std::string_view name, T& options) {
    const size_t outer = enter(name);
    options.visit(*this);
    leave(outer);
  }

  std::vector<OptionRef> take() { return std::move(refs_); }

 private:
  void add(std::string_view name, Affects affects, std::string_view help, OptionValue value);
  size_t enter(std::string_view group);
  void leave(size_t outer);

  std::string prefix_;
  std::vector<OptionRef> refs_;
};

// All options below `root`, in the order of declaration. The references point into `root`.
template <class T>
std::vector<OptionRef> collect_options(T& root) {
  OptionCollector collector;
  root.visit(collector);
  return collector.take();
}

// Returns what to set instead of an unknown name; empty: no hint. For names of another system and
// of earlier versions, which this layer does not know.
using NameHint = std::function<std::string(std::string_view name)>;

// The array of tables of an options.toml that has its history (run/overrides.h). Recipes may have it;
// it sets no option.
inline constexpr std::string_view kHistoryTable = "override";

// Sets the options that the TOML file or text names and leaves the others. Ignores verl's prefix
// "actor_rollout_ref."; accepts an integer for a double and a single value for a list. Throws
// InputError with location, line and key: unknown name (with the hint, or else the nearest known
// name; of further ones the lines), wrong type, a name given twice, TOML that does not parse.
void apply_toml_file(const std::vector<OptionRef>& refs, const std::string& path,
                     const NameHint& hint = {});
void apply_toml_text(const std::vector<OptionRef>& refs, std::string_view text,
                     const std::string& place, const NameHint& hint = {});

// Sets one option from "rollout.n=8" and returns its name. Strings need no quotes; lists are [1, 2]
// or 1,2; True and False are accepted as booleans.
std::string apply_override(const std::vector<OptionRef>& refs, std::string_view text,
                           const NameHint& hint = {});

// The option that a user who typed this name may have meant; empty: none is near. In order of
// preference: the same last word in the same section (actor.lr: actor.optim.lr); a name of the
// section that contains all its words or starts with it (data.batch_size: data.train_batch_size);
// at most two typing errors; the same last word elsewhere; a similar spelling.
std::string nearest_option(const std::vector<OptionRef>& refs, std::string_view name);

// The name without verl's prefix "actor_rollout_ref.".
std::string_view without_verl_prefix(std::string_view name);

// The value as TOML, which reads back to exactly the same value.
std::string to_text(const OptionValue& value);

// Every option with its value and, as a comment, what it affects and its description. Reads back to
// exactly the same values.
std::string to_toml(const std::vector<OptionRef>& refs);

// A Markdown table per section: name, value, what it affects, description.
std::string to_markdown(const std::vector<OptionRef>& refs);

// "results", "speed" or "place".
std::string_view to_string(Affects affects);

// "name = value" lines of the options that affect `affects`: sent between workers and kept in
// checkpoints, to be compared with first_difference().
std::string options_digest(const std::vector<OptionRef>& refs, Affects affects = Affects::kResults);

// Empty when both digests are the same, else the first difference: "rollout.n is 8 here and 16
// there".
std::string first_difference(std::string_view here, std::string_view there);

}  // namespace tlt
