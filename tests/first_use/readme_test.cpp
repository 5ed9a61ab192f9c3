// The commands of README.md and docs/ can be pasted: every subcommand, flag, option, recipe and
// tool in them exists. recipes_test.cpp runs the recipes.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "tests/first_use/support.h"

namespace tlt::first_use {
namespace {

namespace fs = std::filesystem;

struct CommandLine {
  std::string place;  // "README.md:12"
  std::string text;
};

std::string read_source(const std::string& name) {
  return read_file(std::string(TLT_SOURCE_DIR) + "/" + name, 1 << 24);
}

std::vector<std::string> pages() {
  std::vector<std::string> names = {"README.md"};
  for (const auto& entry : fs::directory_iterator(std::string(TLT_SOURCE_DIR) + "/docs"))
    if (entry.path().extension() == ".md")
      names.push_back("docs/" + entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

// Lines of code blocks (fenced, or indented by four spaces) with continuations joined, and code
// spans (between backticks).
std::vector<CommandLine> code_of(const std::string& page) {
  std::vector<CommandLine> found;
  std::istringstream lines(read_source(page));
  bool is_fenced = false, continues = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string place = page + ":" + std::to_string(++number);
    if (line.starts_with("```")) {
      is_fenced = !is_fenced;
      continue;
    }
    if (is_fenced || line.starts_with("    ")) {
      const bool joins = line.ends_with('\\');
      if (joins) line.pop_back();
      if (continues)
        found.back().text += line;
      else
        found.push_back({place, line});
      continues = joins;
      continue;
    }
    static const std::regex kCode("`([^`]+)`");
    for (std::sregex_iterator code(line.begin(), line.end(), kCode), end; code != end; ++code)
      found.push_back({place, (*code)[1]});
  }
  return found;
}

// The words of the first command of a shell line, without quotes; a comment, a pipe or a
// redirection ends it.
std::vector<std::string> shell_words(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  char quote = 0;
  for (const char c : text + " ") {
    if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == ' ') {
      if (!word.empty()) words.push_back(std::exchange(word, ""));
    } else if (std::string("|>&;#").find(c) != std::string::npos && word.empty()) {
      break;
    } else {
      word += c;
    }
  }
  return words;
}

// Placeholders: FILE, N, "…", [key=value …].
bool is_placeholder(const std::string& word) {
  return word.find("…") != std::string::npos || word.find('[') == 0 || word.find("key=") == 0 ||
         std::ranges::none_of(word, [](unsigned char c) { return std::islower(c); });
}

class Checker {
 public:
  Checker()
      : options_(run_program({"options", "--markdown"}).out),
        makefile_("\n" + read_source("Makefile")) {}

  // The fault of a line; empty: none, or not a command of this repository.
  std::string fault(const std::string& text) {
    std::vector<std::string> words = shell_words(text);
    if (words.empty()) return "";
    if (words[0] == "make") return words.size() > 1 ? make_fault(words) : "";
    if (words[0] == "tlt" || words[0] == "build/tlt") return program_fault(words);
    if (words[0] == "python3") return file_fault(words);
    return "";
  }
  int checked() const { return checked_; }

 private:
  std::string make_fault(const std::vector<std::string>& words) {
    ++checked_;
    for (size_t i = 1; i < words.size(); ++i)
      if (words[i].find('=') == std::string::npos && !is_placeholder(words[i]) &&
          makefile_.find("\n" + words[i] + ":") == std::string::npos)
        return "the Makefile has no target " + words[i];
    return "";
  }

  std::string file_fault(const std::vector<std::string>& words) {
    ++checked_;
    static const std::regex kOurs("(recipes|tools|models|tests)/.*");
    for (const std::string& word : words) {
      const std::string path = word.substr(word.find('=') + 1);
      if (std::regex_match(path, kOurs) && !is_placeholder(path) &&
          !fs::exists(std::string(TLT_SOURCE_DIR) + "/" + path))
        return path + " does not exist";
    }
    return "";
  }

  std::string program_fault(const std::vector<std::string>& words) {
    if (words.size() < 2 || is_placeholder(words[1])) return "";
    if (words[1] == "--version" || words[1] == "--help") return "";
    static const std::set<std::string> kNested = {"bench", "data", "export", "import", "tokenize"};
    std::vector<std::string> command = {words[1]};
    // `tlt bench decode|forward` names several commands; the first one is checked.
    if (kNested.contains(words[1]) && words.size() > 2 && std::islower(words[2][0]))
      command.push_back(words[2].substr(0, words[2].find_first_of("|\\")));
    const std::string& help = help_of(command);
    if (help.empty()) return "tlt has no command " + words[1];
    for (size_t i = 1; i < words.size(); ++i) {
      const std::string wrong = word_fault(words[i], words[1], help);
      if (!wrong.empty()) return wrong;
    }
    return file_fault(words);
  }

  std::string word_fault(const std::string& word, const std::string& command,
                         const std::string& help) const {
    const std::string name = word.substr(0, word.find('='));
    if (name.starts_with("--"))
      return std::regex_search(help, std::regex(name + "\\b")) ? ""
                                                               : command + " has no flag " + name;
    static const std::set<std::string> kTakesOptions = {"train", "sft",    "dpo",
                                                        "draft", "reward", "eval"};
    static const std::regex kOption("[a-z_]+\\.[a-z_.]+");
    if (!kTakesOptions.contains(command) || name.size() == word.size() ||
        !std::regex_match(name, kOption))
      return "";
    return options_.find("`" + name + "`") != std::string::npos ? "" : "no option " + name;
  }

  // Empty: no such command.
  const std::string& help_of(const std::vector<std::string>& command) {
    const auto known = helps_.find(command);
    if (known != helps_.end()) return known->second;
    std::vector<std::string> words = command;
    words.push_back("--help");
    const Ended ended = run_program(words);
    return helps_[command] = ended.exit_code == 0 ? ended.out : "";
  }

  const std::string options_, makefile_;
  std::map<std::vector<std::string>, std::string> helps_;
  int checked_ = 0;
};

TEST(ReadmeTest, CommandsInDocsExist) {
  Checker checker;
  int commands = 0;
  for (const std::string& page : pages())
    for (const CommandLine& line : code_of(page)) {
      EXPECT_EQ(checker.fault(line.text), "") << line.place << ": " << line.text;
      ++commands;
    }
  EXPECT_GT(checker.checked(), 40) << "of " << commands << " pieces of code";
}

TEST(ReadmeTest, StaleCommandsAreDetected) {
  Checker checker;
  for (const char* right :
       {"build/tlt train recipes/demo.toml --workers 2 rollout.n=4  # a comment",
        "tlt bench decode --model DIR --batch 1,4", "make demo", "tlt data inspect FILE"})
    EXPECT_EQ(checker.fault(right), "") << right;
  const std::pair<const char*, const char*> wrong[] = {
      {"tlt fly", "no command fly"},
      {"tlt generate --prmpts p.jsonl", "no flag --prmpts"},
      {"tlt train recipes/none.toml", "recipes/none.toml does not exist"},
      {"tlt train recipes/demo.toml 'rollout.m=4'", "no option rollout.m"},
      {"tlt bench nothing", "no command"},
      {"make nothing", "no target nothing"},
      {"python3 tools/none.py", "tools/none.py does not exist"}};
  for (const auto& [text, fault] : wrong) EXPECT_THAT(checker.fault(text), HasSubstr(fault));
}

// "| `option` | `default` | …" of `tlt options --markdown`.
std::map<std::string, std::string> option_defaults() {
  static const std::regex kRow("\\| `([^`]+)` \\| `([^`]*)` \\|");
  const std::string table = run_program({"options", "--markdown"}).out;
  std::map<std::string, std::string> defaults;
  for (std::sregex_iterator row(table.begin(), table.end(), kRow), end; row != end; ++row)
    defaults[(*row)[1]] = (*row)[2];
  return defaults;
}

TEST(ReadmeTest, StatedDefaultsAreTrue) {  // B21: one page stated two values
  const std::map<std::string, std::string> defaults = option_defaults();
  static const std::regex kSaid("`([a-z_.]+)=([^`]+)`,? (?:is )?the default");
  int said = 0;
  for (const std::string& page : pages()) {
    const std::string text = read_source(page);
    for (std::sregex_iterator match(text.begin(), text.end(), kSaid), end; match != end; ++match) {
      const std::string name = (*match)[1], value = (*match)[2];
      EXPECT_TRUE(std::ranges::any_of(defaults,
                                      [&](const auto& option) {
                                        return ("." + option.first).ends_with("." + name) &&
                                               option.second == value;
                                      }))
          << page << ": " << match->str();
      ++said;
    }
  }
  EXPECT_GT(said, 0);
  EXPECT_THAT(read_source("docs/spot_training.md"), Not(HasSubstr("off by default")));
  // The table of docs/coming_from_verl.md: "| `option` | verl's | tlt's, …".
  const std::string page = read_source("docs/coming_from_verl.md"),
                    table = page.substr(page.find("## Defaults that differ"));
  static const std::regex kRow("\n\\| `([a-z_.]+)` \\| [^|]+ \\| `?([^ :;,|`]+)");
  int rows = 0;
  for (std::sregex_iterator row(table.begin(), table.end(), kRow), end; row != end; ++row) {
    const auto option = defaults.find((*row)[1]);
    if (option == defaults.end() || !std::isalnum(static_cast<unsigned char>(option->second[0])))
      continue;  // lists and strings are described in words
    EXPECT_EQ(option->second, (*row)[2]) << (*row)[1];
    ++rows;
  }
  EXPECT_GT(rows, 5);
}

TEST(ReadmeTest, LinksPointToFiles) {
  // [text](target#part), and reference definitions "[text]: target".
  static const std::regex kLink("\\]\\(([^)#]+)(#[^)]*)?\\)|\n\\[[^\\]\n]+\\]: ([^\\s#]+)");
  for (const std::string& page : pages()) {
    const std::string text = read_source(page);
    const fs::path folder = fs::path(std::string(TLT_SOURCE_DIR) + "/" + page).parent_path();
    for (std::sregex_iterator link(text.begin(), text.end(), kLink), end; link != end; ++link) {
      const std::string target = (*link)[1].matched ? (*link)[1] : (*link)[3];
      if (target.find("://") != std::string::npos) continue;
      EXPECT_TRUE(fs::exists(folder / target)) << page << ": " << target;
    }
  }
}

TEST(ReadmeTest, IndexNamesEveryPage) {
  const std::string index = read_source("docs/README.md");
  for (const std::string& page : pages()) {
    const std::string name = fs::path(page).filename();
    if (page == "README.md" || name == "README.md") continue;
    EXPECT_THAT(index, HasSubstr("(" + name + ")"));
  }
}

}  // namespace
}  // namespace tlt::first_use
