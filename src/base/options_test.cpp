// SPDX-License-Identifier: Apache-2.0
#include "base/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/random.h"

namespace tlt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct OptimOptions {
  double lr = 1e-6;
  bool fused = true;
  void visit(auto& v) {
    v(lr, "lr", Affects::kResults, "Learning rate.");
    v(fused, "fused", Affects::kSpeed, "One kernel a step.");
  }
};

struct ActorOptions {
  int64_t n = 1;
  OptimOptions optim;
  std::string loss = "token-mean";
  void visit(auto& v) {
    v(n, "n", Affects::kResults, "Responses per prompt.");
    v.group("optim", optim);
    v(loss, "loss", Affects::kResults, "token-mean | seq-mean.");
  }
};

struct RunOptions {
  int64_t seed = 1;
  ActorOptions rollout;
  std::vector<std::string> configs = {"8_4_32", "4_4_16"};
  std::vector<int64_t> thresholds = {1, 2, 5, 21};
  std::vector<double> weights;
  std::string folder;
  void visit(auto& v) {
    v(seed, "seed", Affects::kResults, "Seed of all random numbers.");
    v.group("rollout", rollout);
    v(configs, "speculative.configs", Affects::kSpeed, "Strategies.");
    v(thresholds, "speculative.thresholds", Affects::kSpeed, "Batch sizes.");
    v(weights, "reward.weights", Affects::kResults, "Weights.");
    v(folder, "trainer.folder", Affects::kPlace, "Where the run is kept.");
  }
};

struct TableOptions {
  std::string variables = "{}";
  std::string text = "x";
  void visit(auto& v) {
    v(variables, "variables", Affects::kResults, "A table.");
    v(text, "text", Affects::kResults, "A text.");
  }
};

struct TwiceOptions {
  int64_t n = 1;
  void visit(auto& v) {
    v(n, "n", Affects::kResults, "");
    v(n, "n", Affects::kResults, "");
  }
};

class OptionsTest : public testing::Test {
 protected:
  void read(std::string_view text) { apply_toml_text(refs_, text, "recipe.toml"); }

  // The error message of the call; "" when it throws nothing.
  template <class Call>
  static std::string message(const Call& call) {
    try {
      call();
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
  std::string read_message(std::string_view text) {
    return message([&] { read(text); });
  }
  std::string override_message(std::string_view text) {
    return message([&] { apply_override(refs_, text); });
  }

  RunOptions options_;
  const std::vector<OptionRef> refs_ = collect_options(options_);
};

TEST_F(OptionsTest, NamesAreFullPathsInOrderOfDeclaration) {
  std::vector<std::string> names;
  for (const OptionRef& ref : refs_) names.push_back(ref.name);
  EXPECT_THAT(names, ElementsAre("seed", "rollout.n", "rollout.optim.lr", "rollout.optim.fused",
                                 "rollout.loss", "speculative.configs", "speculative.thresholds",
                                 "reward.weights", "trainer.folder"));
}

TEST_F(OptionsTest, OptionDeclaredTwiceThrows) {
  TwiceOptions twice;
  EXPECT_THROW(collect_options(twice), Error);
}

TEST_F(OptionsTest, RecipeSetsOnlyWhatItNames) {
  read(
      "seed = 7\n[rollout]\nn = 8\n[rollout.optim]\nlr = 2e-5\nfused = "
      "false\n[speculative]\nconfigs = ['1_1_2']\n");
  EXPECT_EQ(options_.seed, 7);
  EXPECT_EQ(options_.rollout.n, 8);
  EXPECT_EQ(options_.rollout.optim.lr, 2e-5);
  EXPECT_FALSE(options_.rollout.optim.fused);
  EXPECT_EQ(options_.rollout.loss, "token-mean");
  EXPECT_THAT(options_.configs, ElementsAre("1_1_2"));
  EXPECT_THAT(options_.thresholds, ElementsAre(1, 2, 5, 21));
}

TEST_F(OptionsTest, IntegerForADoubleAndValueForAListAreAccepted) {
  read("rollout.optim.lr = 1\nreward.weights = 3\nspeculative.thresholds = 4");
  EXPECT_EQ(options_.rollout.optim.lr, 1.0);
  EXPECT_THAT(options_.weights, ElementsAre(3.0));
  EXPECT_THAT(options_.thresholds, ElementsAre(4));
}

TEST_F(OptionsTest, VerlPrefixIsIgnored) {
  read("[actor_rollout_ref.rollout]\nn = 5");
  EXPECT_EQ(options_.rollout.n, 5);
  apply_override(refs_, "actor_rollout_ref.rollout.n=6");
  EXPECT_EQ(options_.rollout.n, 6);
}

TEST_F(OptionsTest, NameGivenTwiceIsAnError) {
  EXPECT_THAT(read_message("[rollout]\nn = 1\n[actor_rollout_ref.rollout]\nn = 2"),
              HasSubstr("rollout.n is given twice"));
}

TEST_F(OptionsTest, UnknownNameSaysLineAndNearestKnownName) {
  EXPECT_EQ(read_message("seed = 1\n[rollout]\nlsos = 'x'"),
            "recipe.toml:3: unknown option: rollout.lsos; did you mean rollout.loss?");
  EXPECT_EQ(read_message("[rolout]\nn = 2"),
            "recipe.toml:2: unknown option: rolout.n; did you mean rollout.n?");
  EXPECT_EQ(read_message("lr = 1"),
            "recipe.toml:1: unknown option: lr; did you mean rollout.optim.lr?");
  EXPECT_EQ(read_message("sede = 1"), "recipe.toml:1: unknown option: sede; did you mean seed?");
  EXPECT_EQ(override_message("rollout.optim.rl=1"),
            "command line: unknown option: rollout.optim.rl; did you mean rollout.optim.lr?");
  EXPECT_EQ(override_message("critic.warmup_share=1"),
            "command line: unknown option: critic.warmup_share; `tlt options` lists all of them");
}

TEST_F(OptionsTest, GroupIsNotAnOptionAndViceVersa) {
  EXPECT_EQ(read_message("rollout = 3"),
            "recipe.toml:1: rollout is a group of options; set one of them, such as rollout.n");
  EXPECT_THAT(read_message("[rollout.n]\nx = 3"),
              HasSubstr("recipe.toml:2: unknown option: rollout.n.x"));
  EXPECT_THAT(read_message("[[rollout]]\nn = 3"), HasSubstr("rollout is a group of options"));
  EXPECT_THAT(read_message("[rolout]"), HasSubstr("recipe.toml:1: unknown option: rolout"));
  EXPECT_EQ(read_message("[rollout]"), "");
}

TEST_F(OptionsTest, StringOfATableMayBeGivenAsATable) {
  TableOptions options;
  const auto refs = collect_options(options);
  apply_toml_text(refs, "variables = {think = false, names = [\"a\\nb\"], x = {y = 1}}", "r.toml");
  const auto without_space = [&] {
    std::string text = options.variables;
    std::erase(text, ' ');
    return text;
  };
  const std::string want = R"({"names":["a\nb"],"think":false,"x":{"y":1}})";
  EXPECT_EQ(without_space(), want);
  apply_toml_text(refs, to_toml(refs), "dump.toml");
  EXPECT_EQ(without_space(), want);
  apply_override(refs, "variables={think = true}");
  EXPECT_EQ(options.variables, "{think = true}");
  for (const char* one : {"+variables.think=False", "variables.words=two of them",
                          "++variables.x.y=[1, 2]", "variables.none=null"})
    apply_override(refs, one);
  EXPECT_EQ(options.variables,
            R"({"think":false,"words":"two of them","x":{"y":[1,2]},"none":null})");
  EXPECT_THROW(apply_override(refs, "variables.words.z=1"), InputError);
  options.variables = "{not a table";
  EXPECT_THROW(apply_override(refs, "variables.words=1"), InputError);
  // Writing it again overflowed the stack.
  options.variables = "{\"a\":" + std::string(200'000, '[') + std::string(200'000, ']') + "}";
  EXPECT_THROW(apply_override(refs, "variables.words=1"), InputError);
  EXPECT_THROW(apply_toml_text(refs, "text = {a = 1}", "r.toml"), InputError);
}

TEST_F(OptionsTest, WrongTypeSaysExpectedAndGivenType) {
  EXPECT_EQ(read_message("\nrollout.n = '8'"),
            "recipe.toml:2: rollout.n: expected an integer, got the string '8'");
  EXPECT_EQ(read_message("rollout.n = 8.0"),
            "recipe.toml:1: rollout.n: expected an integer, got the number 8.0");
  EXPECT_EQ(read_message("rollout.loss = 8"),
            "recipe.toml:1: rollout.loss: expected a string, got the integer 8");
  EXPECT_EQ(read_message("rollout.optim.fused = 1"),
            "recipe.toml:1: rollout.optim.fused: expected true or false, got the integer 1");
  EXPECT_THAT(read_message("reward.weights = [1, 'a']"),
              HasSubstr("expected a list of numbers, got the list"));
  EXPECT_THAT(read_message("seed = 2020-01-01"), HasSubstr("expected an integer, got 2020-01-01"));
  EXPECT_EQ(override_message("rollout.n=many"),
            "command line: rollout.n: expected an integer, got many");
  EXPECT_EQ(override_message("rollout.n="),
            "command line: rollout.n: expected an integer, got nothing");
}

TEST_F(OptionsTest, WrongValueLeavesTheOptionUnchanged) {
  EXPECT_NE(override_message("speculative.thresholds=[1,x]"), "");
  EXPECT_NE(read_message("speculative.thresholds=[7,'x']"), "");
  EXPECT_THAT(options_.thresholds, ElementsAre(1, 2, 5, 21));
}

TEST_F(OptionsTest, BrokenTomlSaysWhere) {
  EXPECT_THAT(read_message("seed = 1\nseed = 2"), HasSubstr("recipe.toml:2:"));
  EXPECT_THAT(read_message("seed = \n"), HasSubstr("not TOML"));
}

// The parser walks the tables of a dotted key recursively: 50,000 of them overflowed the stack.
TEST_F(OptionsTest, KeyWithManyDotsIsRefused) {
  std::string key = "a";
  for (int i = 0; i < 50'000; ++i) key += ".b";
  const std::string complaint = "a key with more than 16 dots is not supported";
  EXPECT_EQ(read_message(key + " = 1"), "recipe.toml: " + complaint);
  EXPECT_EQ(read_message("[" + key + "]"), "recipe.toml: " + complaint);
  EXPECT_EQ(read_message("seed = {" + key + " = 1}"), "recipe.toml: " + complaint);
  EXPECT_EQ(override_message(key + "=1"), "command line: " + complaint);
  EXPECT_THAT(override_message("reward.weights=[{" + key + "=1}]"),
              HasSubstr("reward.weights: expected a list of numbers"));
  const std::string list = "x = [" + std::string(300, ' ');
  EXPECT_THAT(first_difference(list + "1]\n", list + "{" + key + "=1}]\n"),
              HasSubstr(" here and [ "));
}

// Comparing it with the known names takes time in proportion to its length times theirs.
TEST_F(OptionsTest, LongNameHasNoNearestOne) {
  EXPECT_EQ(nearest_option(refs_, std::string(1'000'000, 'x')), "");
}

TEST_F(OptionsTest, MissingRecipeIsAnInputError) {
  EXPECT_THAT(message([&] { apply_toml_file(refs_, "/nowhere/recipe.toml"); }),
              HasSubstr("/nowhere/recipe.toml: cannot open: No such file"));
}

TEST_F(OptionsTest, OverrideIsReadByTheTypeOfTheOption) {
  for (const char* text : {"rollout.n = 8", "rollout.optim.lr=1e-5", "rollout.optim.fused=False",
                           "seed=0x10", "rollout.loss=8_4_48", "trainer.folder=runs/a=b c"}) {
    apply_override(refs_, text);
  }
  EXPECT_EQ(options_.rollout.n, 8);
  EXPECT_EQ(options_.rollout.optim.lr, 1e-5);
  EXPECT_FALSE(options_.rollout.optim.fused);
  EXPECT_EQ(options_.seed, 16);
  EXPECT_EQ(options_.rollout.loss, "8_4_48");
  EXPECT_EQ(options_.folder, "runs/a=b c");
  apply_override(refs_, "trainer.folder=\"with \\\"quotes\\\"\"");
  EXPECT_EQ(options_.folder, "with \"quotes\"");
  apply_override(refs_, "trainer.folder=");
  EXPECT_EQ(options_.folder, "");
}

TEST_F(OptionsTest, OverrideReadsListsWithAndWithoutBrackets) {
  apply_override(refs_, "speculative.configs=[8_4_48, \"a,b\" ,'c']");
  EXPECT_THAT(options_.configs, ElementsAre("8_4_48", "a,b", "c"));
  apply_override(refs_, "speculative.configs=x.jsonl,y.jsonl");
  EXPECT_THAT(options_.configs, ElementsAre("x.jsonl", "y.jsonl"));
  apply_override(refs_, "speculative.configs=countdown:seed=1,size=2");
  EXPECT_THAT(options_.configs, ElementsAre("countdown:seed=1,size=2"));
  apply_override(refs_, "speculative.configs=a=1,b=2,made:c=3, d_e=4,size,f:g=5");
  EXPECT_THAT(options_.configs, ElementsAre("a=1", "b=2", "made:c=3,d_e=4", "size", "f:g=5"));
  apply_override(refs_, "speculative.thresholds=3,4");
  EXPECT_THAT(options_.thresholds, ElementsAre(3, 4));
  apply_override(refs_, "reward.weights=[0.5,2]");
  EXPECT_THAT(options_.weights, ElementsAre(0.5, 2.0));
  apply_override(refs_, "reward.weights=[]");
  EXPECT_THAT(options_.weights, IsEmpty());
}

TEST_F(OptionsTest, OverrideWithoutNameOrWithMoreTomlFails) {
  EXPECT_THAT(override_message("rollout.n"), HasSubstr("give name=value, such as rollout.n=8"));
  EXPECT_NE(override_message("=8"), "");
  EXPECT_NE(override_message("rollout.n=1\nseed = 5"), "");
  EXPECT_EQ(options_.seed, 1);
}

TEST_F(OptionsTest, DumpIsGroupedAndCommented) {
  EXPECT_EQ(to_toml(refs_),
            "# [results] Seed of all random numbers.\n"
            "seed = 1\n"
            "\n"
            "[rollout]\n"
            "# [results] Responses per prompt.\n"
            "n = 1\n"
            "# [results] token-mean | seq-mean.\n"
            "loss = \"token-mean\"\n"
            "\n"
            "[rollout.optim]\n"
            "# [results] Learning rate.\n"
            "lr = 1e-06\n"
            "# [speed] One kernel a step.\n"
            "fused = true\n"
            "\n"
            "[speculative]\n"
            "# [speed] Strategies.\n"
            "configs = [\"8_4_32\", \"4_4_16\"]\n"
            "# [speed] Batch sizes.\n"
            "thresholds = [1, 2, 5, 21]\n"
            "\n"
            "[reward]\n"
            "# [results] Weights.\n"
            "weights = []\n"
            "\n"
            "[trainer]\n"
            "# [place] Where the run is kept.\n"
            "folder = \"\"\n");
}

TEST_F(OptionsTest, DumpReadsBackToExactlyTheSameValues) {
  RandomStream random(1, {});
  const auto any_double = [&] { return std::bit_cast<double>(random.below(UINT64_MAX)); };
  const auto any_string = [&] {
    std::string text;
    for (uint64_t i = random.below(6); i > 0; --i) {
      constexpr std::array<const char*, 12> kPieces = {"a",    "\"", "\\", "\n", "\t", "\x01",
                                                       "\x7f", "é",  "'",  "# ", "]",  "\r"};
      text += kPieces[random.below(kPieces.size())];
    }
    return text;
  };
  for (int round = 0; round < 500; ++round) {
    options_.seed = static_cast<int64_t>(random.below(UINT64_MAX));
    options_.rollout.n =
        round % 2 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
    options_.rollout.optim.lr = any_double();
    options_.rollout.optim.fused = random.below(2);
    options_.rollout.loss = any_string();
    options_.folder = any_string();
    options_.configs.assign(random.below(3), any_string());
    options_.weights.assign(random.below(3), any_double());
    RunOptions back;
    const auto back_refs = collect_options(back);
    apply_toml_text(back_refs, to_toml(refs_), "dump");
    for (size_t i = 0; i < refs_.size(); ++i) {
      EXPECT_EQ(to_text(refs_[i].value), to_text(back_refs[i].value))
          << refs_[i].name << " in round " << round;
    }
    if (!std::isnan(options_.rollout.optim.lr)) {
      EXPECT_EQ(back.rollout.optim.lr, options_.rollout.optim.lr);
    }
    EXPECT_EQ(back.folder, options_.folder);
    EXPECT_EQ(back.seed, options_.seed);
  }
}

TEST_F(OptionsTest, DumpKeepsNonFiniteAndIntegralDoubles) {
  for (const double value :
       {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), 0.0,
        -0.0, 3.0, 1e22, 5e-324, 0.1 + 0.2}) {
    options_.rollout.optim.lr = value;
    RunOptions back;
    apply_toml_text(collect_options(back), to_toml(refs_), "dump");
    EXPECT_EQ(std::bit_cast<uint64_t>(back.rollout.optim.lr), std::bit_cast<uint64_t>(value))
        << value;
  }
}

TEST(NearestOptionTest, SectionAndWordsRankBeforeSpelling) {
  int64_t value = 0;
  std::vector<OptionRef> refs;
  for (const char* name :
       {"data.seed", "data.train_batch_size", "data.gen_batch_size", "spec.train.batch_size",
        "spec.train.optim.lr", "actor.optim.lr", "actor.clip_low", "actor.clip_c",
        "trainer.total_epochs", "trainer.total_training_steps", "rollout.temperature"})
    refs.push_back({name, Affects::kResults, "", &value});
  const std::pair<const char*, const char*> names[] = {
      {"actor.lr", "actor.optim.lr"},
      {"lr", "actor.optim.lr"},
      {"data.batch_size", "data.train_batch_size"},
      {"actor.clip", "actor.clip_low"},
      {"trainer.total_steps", "trainer.total_training_steps"},
      {"trainer.total_epoch", "trainer.total_epochs"},
      {"rollout.temp", "rollout.temperature"},
      {"rollout.batch_size", "spec.train.batch_size"},
      {"date.sede", "data.seed"},
      {"critic.warmup", ""}};
  for (const auto& [typed, meant] : names) EXPECT_EQ(nearest_option(refs, typed), meant) << typed;
}

TEST_F(OptionsTest, MarkdownIsATableWithEscapedBars) {
  const std::string page = to_markdown(refs_);
  EXPECT_THAT(page, HasSubstr("| option | default | affects | meaning |\n|---|---|---|---|\n"));
  EXPECT_THAT(page, HasSubstr("| `rollout.optim.lr` | `1e-06` | results | Learning rate. |\n"));
  EXPECT_THAT(page, HasSubstr("token-mean \\| seq-mean."));
  EXPECT_THAT(page, HasSubstr("\n\n## rollout\n\n| option"));
}

TEST_F(OptionsTest, DigestDependsOnOptionsOfItsKindOnly) {
  RunOptions other;
  const auto other_refs = collect_options(other);
  other.rollout.optim.fused = false;
  other.folder = "elsewhere";
  EXPECT_EQ(first_difference(options_digest(refs_), options_digest(other_refs)), "");
  other.rollout.n = 16;
  EXPECT_EQ(first_difference(options_digest(refs_), options_digest(other_refs)),
            "rollout.n is 1 here and 16 there");
  EXPECT_EQ(first_difference(options_digest(refs_, Affects::kSpeed),
                             options_digest(other_refs, Affects::kSpeed)),
            "rollout.optim.fused is true here and false there");
}

TEST_F(OptionsTest, DifferenceOfLongListsIsAMissingItem) {
  std::string many = "files = [";
  for (int i = 0; i < 20; ++i) many += "\"shard, \\\"" + std::to_string(i) + "\", ";
  EXPECT_EQ(first_difference(many + "\"b\", \"a\"]\n", many + "\"a\"]\n"),
            "files has \"b\" here and not there");
  EXPECT_EQ(first_difference(many + "\"a\"]\n", many + "\"a\", \"b\"]\n"),
            "files has \"b\" there and not here");
  EXPECT_EQ(first_difference("files = []\n", many + "\"a\"]\n"),
            "files has \"shard, \\\"0\" there and not here");
  EXPECT_EQ(first_difference("files = [\"a\"]\n", "files = [\"b\"]\n"),
            "files is [\"a\"] here and [\"b\"] there");
}

TEST_F(OptionsTest, DigestNamesAnOptionOneSideLacks) {
  EXPECT_EQ(first_difference("a = 1\nb = 2\n", "a = 1\n"), "b is 2 here and unknown there");
  EXPECT_EQ(first_difference("a = 1\n", "a = 1\nb = \"x = y\"\n"),
            "b is unknown here and \"x = y\" there");
  EXPECT_EQ(first_difference("", ""), "");
}

}  // namespace
}  // namespace tlt
