// SPDX-License-Identifier: Apache-2.0
#include "math_equal/latex_tokens.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "math_equal/math_units.h"

namespace tlt::math_equal {

namespace {

using Names = std::set<std::string_view>;

const Names kFunctionNames = {"sin",    "cos",    "tan",   "cot",  "sec",  "csc", "arcsin",
                              "arccos", "arctan", "sinh",  "cosh", "tanh", "ln",  "log",
                              "exp",    "abs",    "floor", "ceil", "lg"};

const Names kGreek = {"alpha", "beta",  "gamma", "delta",  "epsilon", "zeta",  "eta",
                      "theta", "iota",  "kappa", "lambda", "mu",      "nu",    "xi",
                      "pi",    "rho",   "sigma", "tau",    "phi",     "chi",   "psi",
                      "omega", "infty", "ell",   "Gamma",  "Delta",   "Theta", "Lambda",
                      "Xi",    "Pi",    "Sigma", "Phi",    "Psi",     "Omega"};

const Names kInk = {"left",     "right",        "middle",    "big",         "Big",       "bigl",
                    "bigr",     "Bigl",         "Bigr",      "bigg",        "Bigg",      "biggl",
                    "biggr",    "Biggl",        "Biggr",     "quad",        "qquad",     "limits",
                    "nolimits", "displaystyle", "textstyle", "scriptstyle", "thinspace", "rm",
                    "bf",       "it",           "nonumber"};

const Names kTextCommands = {"text",   "textbf", "textit", "textrm", "textnormal",
                             "textsf", "mbox",   "hbox",   "mathrm", "operatorname"};

// \mathbf{x} is x; \vec{x} is a separate name.
const Names kPlainFaces = {"mathbf", "boldsymbol", "mathit", "bm", "mathsf"};
const Names kMarkedFaces = {"mathbb", "mathcal",  "vec",   "hat",
                            "bar",    "overline", "tilde", "overrightarrow"};

const std::map<std::string_view, std::string_view> kSignCommands = {{"cdot", "*"},
                                                                    {"times", "*"},
                                                                    {"ast", "*"},
                                                                    {"div", "/"},
                                                                    {"pm", "pm"},
                                                                    {"mp", "mp"},
                                                                    {"le", "<="},
                                                                    {"leq", "<="},
                                                                    {"leqslant", "<="},
                                                                    {"ge", ">="},
                                                                    {"geq", ">="},
                                                                    {"geqslant", ">="},
                                                                    {"lt", "<"},
                                                                    {"gt", ">"},
                                                                    {"ne", "!="},
                                                                    {"neq", "!="},
                                                                    {"in", "in"},
                                                                    {"cup", "cup"},
                                                                    {"cap", "cap"},
                                                                    {"setminus", "setminus"},
                                                                    {"backslash", "setminus"},
                                                                    {"lbrace", "\\{"},
                                                                    {"rbrace", "\\}"},
                                                                    {"langle", "langle"},
                                                                    {"rangle", "rangle"},
                                                                    {"lvert", "|"},
                                                                    {"rvert", "|"},
                                                                    {"vert", "|"},
                                                                    {"lfloor", "lfloor"},
                                                                    {"rfloor", "rfloor"},
                                                                    {"lceil", "lceil"},
                                                                    {"rceil", "rceil"},
                                                                    {"circ", "deg"},
                                                                    {"degree", "deg"},
                                                                    {"lbrack", "["},
                                                                    {"rbrack", "]"},
                                                                    {"colon", ":"},
                                                                    {"%", "%"},
                                                                    {"$", "dollar"},
                                                                    {"{", "\\{"},
                                                                    {"}", "\\}"},
                                                                    {"\\", "\\\\"},
                                                                    {"&", "&"}};

const std::map<std::string_view, std::string_view> kNameCommands = {
    {"frac", "frac"},   {"dfrac", "frac"},  {"tfrac", "frac"},        {"cfrac", "frac"},
    {"sqrt", "sqrt"},   {"binom", "binom"}, {"dbinom", "binom"},      {"tbinom", "binom"},
    {"boxed", "group"}, {"fbox", "group"},  {"emptyset", "emptyset"}, {"varnothing", "emptyset"}};

// Words in plain text that are mathematics.
const std::map<std::string_view, Token> kPlainWords = {
    {"sqrt", {TokenKind::kName, "root"}},   {"asin", {TokenKind::kName, "arcsin"}},
    {"acos", {TokenKind::kName, "arccos"}}, {"atan", {TokenKind::kName, "arctan"}},
    {"pi", {TokenKind::kLetter, "pi"}},     {"infinity", {TokenKind::kLetter, "infty"}},
    {"inf", {TokenKind::kLetter, "infty"}}, {"oo", {TokenKind::kLetter, "infty"}},
    {"union", {TokenKind::kSign, "cup"}},   {"and", {TokenKind::kText, "and"}},
    {"or", {TokenKind::kText, "or"}},       {"yes", {TokenKind::kText, "yes"}},
    {"no", {TokenKind::kText, "no"}},       {"odd", {TokenKind::kText, "odd"}},
    {"all", {TokenKind::kText, "all"}}};

const std::pair<std::string_view, std::string_view> kUnicode[] = {
    {"π", "\\pi "},       {"√", " sqrt "},   {"×", "*"},      {"·", "*"},        {"⋅", "*"},
    {"÷", "/"},           {"−", "-"},        {"–", "-"},      {"°", "^\\circ "}, {"∞", "\\infty "},
    {"∪", "\\cup "},      {"∩", "\\cap "},   {"∈", "\\in "},  {"≤", "\\le "},    {"≥", "\\ge "},
    {"≠", "\\ne "},       {"±", "\\pm "},    {"∓", "\\mp "},  {"²", "^2 "},      {"³", "^3 "},
    {"ℝ", "\\mathbb{R}"}, {"θ", "\\theta "}, {"\u00a0", " "}, {"\u2009", " "},   {"′", "'"},
    {"∅", "\\emptyset "}, {"α", "\\alpha "}, {"β", "\\beta "}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// `text` in ASCII; nullopt: a character without a meaning here.
std::optional<std::string> try_ascii(std::string_view text) {
  std::string ascii;
  while (!text.empty()) {
    if (static_cast<unsigned char>(text[0]) < 0x80) {
      ascii += text[0];
      text.remove_prefix(1);
      continue;
    }
    const auto* known = std::ranges::find_if(
        kUnicode, [&](const auto& entry) { return text.starts_with(entry.first); });
    if (known == std::end(kUnicode)) return std::nullopt;
    ascii += known->second;
    text.remove_prefix(known->first.size());
  }
  return ascii;
}

class Tokenizer {
 public:
  explicit Tokenizer(std::string_view text) : rest_(text) {}

  std::optional<std::vector<Token>> tokenize() {
    while (!rest_.empty()) {
      if (!read_one()) return std::nullopt;
    }
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  bool read_one() {
    const char first = rest_[0];
    if (is_digit(first) || (first == '.' && rest_.size() > 1 && is_digit(rest_[1]))) {
      return read_number(), true;
    }
    if (first == '\\') return read_command();
    if (is_letter(first)) return read_word(), true;
    if (std::string_view(" \t\n\r\f\v$~").find(first) != std::string_view::npos) {
      return take(1), true;
    }
    return read_sign();
  }

  std::string_view take(size_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }

  template <class Is>
  std::string_view take_while(Is is) {
    return take(std::ranges::find_if_not(rest_, is) - rest_.begin());
  }

  void add(TokenKind kind, std::string_view text) { tokens_.push_back({kind, std::string(text)}); }

  // Offset of the three digits of a thousands group after the separator at the front; 0: no group.
  // `1,234` is one number only outside brackets, where `(1,234)` is a pair.
  size_t thousands_group(bool short_so_far) const {
    size_t at = 0;
    if (rest_.starts_with(",\\!")) {
      at = std::min(rest_.find_first_not_of(' ', 3), rest_.size());
    } else if (rest_.starts_with("{,}")) {
      at = 3;
    } else if (rest_.starts_with("\\,") && short_so_far) {
      at = 2;
    } else if (rest_.starts_with(",") && short_so_far && bracket_depth_ == 0) {
      at = 1;
    } else {
      return 0;
    }
    size_t digits = at;
    while (digits < rest_.size() && digits < at + 4 && is_digit(rest_[digits])) ++digits;
    return digits == at + 3 ? at : 0;
  }

  void read_number() {
    Token number{TokenKind::kNumber};
    number.text = take_while(is_digit);
    bool grouped = !number.text.empty() && number.text.size() <= 3 && number.text[0] != '0';
    while (const size_t at = thousands_group(grouped)) {
      take(at);
      number.text += take(3);
    }
    read_decimals(number);
    read_exponent(number);
    tokens_.push_back(std::move(number));
  }

  void read_decimals(Token& number) {
    if (!rest_.starts_with('.')) return;
    const std::string_view fraction = rest_.substr(1);
    const bool bar = fraction.starts_with("\\overline{") || fraction.starts_with("\\bar{");
    if (!bar && (fraction.empty() || !is_digit(fraction[0]))) return;
    number.text += take(1);
    number.text += take_while(is_digit);
    if (!rest_.starts_with("\\overline{") && !rest_.starts_with("\\bar{")) return;
    const size_t open = rest_.find('{'), close = rest_.find_first_not_of("0123456789", open + 1);
    if (close == rest_.npos || rest_[close] != '}' || close == open + 1) return;
    number.repeat = rest_.substr(open + 1, close - open - 1);
    take(close + 1);
  }

  void read_exponent(Token& number) {
    if (rest_.size() < 2 || (rest_[0] != 'e' && rest_[0] != 'E')) return;
    const size_t digits = rest_[1] == '-' || rest_[1] == '+' ? 2 : 1;
    const size_t end = std::min(rest_.find_first_not_of("0123456789", digits), rest_.size());
    if (end == digits || end > digits + 4 || (end < rest_.size() && is_letter(rest_[end]))) return;
    const std::string_view exponent = take(end).substr(1);
    number.text += 'e';
    number.text += exponent.substr(exponent[0] == '+' ? 1 : 0);
  }

  void read_word() {
    const std::string_view word = take_while(is_letter);
    if (const auto known = kPlainWords.find(word); known != kPlainWords.end()) {
      tokens_.push_back(known->second);
    } else if (kFunctionNames.contains(word)) {
      add(TokenKind::kName, word);
    } else if (kGreek.contains(word)) {
      add(TokenKind::kLetter, word);
    } else if (word.size() >= 4 || (word.size() >= 2 && after_number() && is_unit_name(word))) {
      add(TokenKind::kText, word);
    } else {
      for (const char letter : word) add(TokenKind::kLetter, std::string_view(&letter, 1));
      read_primes();
    }
  }

  bool after_number() const {
    return !tokens_.empty() && tokens_.back().kind == TokenKind::kNumber;
  }

  void read_primes() {
    while (rest_.starts_with('\'')) tokens_.back().text += take(1);
  }

  bool read_command() {
    take(1);
    if (rest_.empty()) return true;
    if (!is_letter(rest_[0])) return read_symbol_command();
    const std::string_view name = take_while(is_letter);
    if (kInk.contains(name)) {
      if ((name == "left" || name == "right") && rest_.starts_with('.')) take(1);
    } else if (const auto sign = kSignCommands.find(name); sign != kSignCommands.end()) {
      add_sign(sign->second);
    } else if (const auto known = kNameCommands.find(name); known != kNameCommands.end()) {
      add(TokenKind::kName, known->second);
    } else if (kFunctionNames.contains(name)) {
      add(TokenKind::kName, name);
    } else if (kGreek.contains(name)) {
      add(TokenKind::kLetter, name);
    } else if (name.starts_with("var") && kGreek.contains(name.substr(3))) {
      add(TokenKind::kLetter, name.substr(3));
    } else {
      return read_command_with_text(name);
    }
    return true;
  }

  bool read_symbol_command() {
    const std::string_view name = take(1);
    if (std::string_view(",!;: ()[]\n").find(name[0]) != std::string_view::npos) return true;
    const auto sign = kSignCommands.find(name);
    if (sign == kSignCommands.end()) return false;
    add_sign(sign->second);
    return true;
  }

  bool read_command_with_text(std::string_view name) {
    const bool is_text = kTextCommands.contains(name), is_plain = kPlainFaces.contains(name);
    const bool is_environment = name == "begin" || name == "end";
    if (!is_text && !is_plain && !is_environment && !kMarkedFaces.contains(name)) return false;
    const auto argument = try_take_argument();
    if (!argument) return false;
    const std::string_view content = trimmed(*argument);
    if (is_environment) {
      add(TokenKind::kName, std::string(name) + " " + std::string(content));
    } else if (is_text) {
      add_text(content);
    } else {
      return add_face(is_plain ? "" : std::string(name) + " ", content);
    }
    return true;
  }

  // `{…}` with balanced braces, or one character.
  std::optional<std::string_view> try_take_argument() {
    take_while([](char c) { return c == ' '; });
    if (rest_.empty()) return std::nullopt;
    if (rest_[0] != '{') return take(1);
    int depth = 0;
    for (size_t i = 0; i < rest_.size(); ++i) {
      depth += rest_[i] == '{' ? 1 : rest_[i] == '}' ? -1 : 0;
      if (depth == 0) return take(i + 1).substr(1, i - 1);
    }
    return std::nullopt;
  }

  void add_text(std::string_view content) {
    const auto known = kPlainWords.find(content);
    if (known != kPlainWords.end()) {
      tokens_.push_back(known->second);
    } else if (kFunctionNames.contains(content)) {
      add(TokenKind::kName, content);
    } else if (content == "e" || content == "i") {
      add(TokenKind::kLetter, content);
    } else if (!content.empty()) {
      add(std::ranges::all_of(content, is_digit) ? TokenKind::kNumber : TokenKind::kText, content);
    }
  }

  bool add_face(const std::string& face, std::string_view content) {
    if (content.starts_with('\\')) content.remove_prefix(1);
    constexpr size_t kLongestName = 16;
    if (content.empty() || content.size() > kLongestName) return false;
    if (!std::ranges::all_of(content, is_letter)) return false;
    add(TokenKind::kLetter, face + std::string(content));
    read_primes();
    return true;
  }

  bool read_sign() {
    for (const auto& [two, sign] :
         {std::pair{"<=", "<="}, {">=", ">="}, {"!=", "!="}, {"==", "="}, {"**", "^"}}) {
      if (rest_.starts_with(two)) return take(2), add_sign(sign), true;
    }
    const std::string_view sign = take(1);
    if (std::string_view("+-*/^_!%()[]{},;:=<>|&").find(sign[0]) == std::string_view::npos) {
      return false;
    }
    add_sign(sign);
    return true;
  }

  void add_sign(std::string_view sign) {
    if (sign == "(" || sign == "[" || sign == "\\{") ++bracket_depth_;
    if (sign == ")" || sign == "]" || sign == "\\}") --bracket_depth_;
    add(TokenKind::kSign, sign);
  }

  std::string_view rest_;
  std::vector<Token> tokens_;
  int bracket_depth_ = 0;
};

}  // namespace

std::optional<std::vector<Token>> try_tokenize_latex(std::string_view text) {
  const auto ascii = try_ascii(text);
  if (!ascii) return std::nullopt;
  return Tokenizer(*ascii).tokenize();
}

bool is_function_name(std::string_view name) { return kFunctionNames.contains(name); }

}  // namespace tlt::math_equal
