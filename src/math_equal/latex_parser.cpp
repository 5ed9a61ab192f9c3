// SPDX-License-Identifier: Apache-2.0
#include "math_equal/latex_parser.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "math_equal/latex_tokens.h"
#include "math_equal/math_tree_maker.h"

namespace tlt::math_equal {

namespace {

bool is_small_integer(const std::string& digits) {
  return digits.size() <= 9 && digits.find_first_not_of("0123456789") == digits.npos;
}

class LatexParser {
 public:
  explicit LatexParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  std::optional<MathTree> parse() {
    const int root = list();
    if (failed_ || root == kNoNode || peek().kind != TokenKind::kEnd) return std::nullopt;
    return maker_.take(root);
  }

 private:
  // Counts the nesting depth; beyond the limit the parse fails.
  class Nested {
   public:
    explicit Nested(LatexParser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxMathDepth) parser_.fail();
    }
    ~Nested() { --parser_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    LatexParser& parser_;
  };

  // ---- tokens

  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  bool sees(std::string_view sign, size_t ahead = 0) const {
    return peek(ahead).kind == TokenKind::kSign && peek(ahead).text == sign;
  }
  bool sees_name(std::string_view name) const {
    return peek().kind == TokenKind::kName && peek().text == name;
  }
  Token take() {
    const Token& token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool accept(std::string_view sign) {
    const bool seen = sees(sign);
    if (seen) take();
    return seen;
  }
  // No token follows any more, so every loop ends.
  int fail() {
    failed_ = true;
    at_ = tokens_.size() - 1;
    return kNoNode;
  }
  int closed_by(std::string_view sign, int node) { return accept(sign) ? node : fail(); }

  // ---- lists and relations

  bool sees_and() const {
    return peek().kind == TokenKind::kText && (peek().text == "and" || peek().text == "or");
  }
  bool accept_separator() {
    if (sees_and()) return take(), true;
    if (!accept(",") && !accept(";")) return false;
    if (sees_and()) take();
    return true;
  }

  // The items up to the closing bracket.
  std::vector<int> items() {
    const Nested nested(*this);
    std::vector<int> found = {relation()};
    while (!failed_ && accept_separator()) found.push_back(relation());
    return found;
  }
  int list() {
    std::vector<int> found = items();
    return found.size() == 1 ? found[0] : maker_.make(NodeKind::kList, "", std::move(found));
  }

  int relation() {
    std::vector<int> sides = {region()};
    std::string operators;
    while (!failed_ && peek().kind == TokenKind::kSign && is_relation(peek().text)) {
      operators += (operators.empty() ? "" : " ") + take().text;
      sides.push_back(region());
    }
    if (sides.size() > 1) return maker_.make(NodeKind::kRelation, operators, std::move(sides));
    return accept(":") ? maker_.quotient(sides[0], sum()) : sides[0];
  }
  static bool is_relation(std::string_view sign) {
    constexpr std::string_view kRelations[] = {"=", "<", ">", "<=", ">=", "!=", "in"};
    return std::ranges::count(kRelations, sign) > 0;
  }

  int region() {
    int left = sum();
    while (sees("cup") || sees("cap") || sees("setminus")) {
      const std::string sign = take().text;
      std::vector<int> parts = {left, sum()};
      while (accept(sign)) parts.push_back(sum());
      left = maker_.make(NodeKind::kRegion, sign, std::move(parts));
    }
    return left;
  }

  // ---- sums and products

  int sum() {
    const Nested nested(*this);
    int left = term();
    while (!failed_) {
      if (accept("+")) {
        left = maker_.make(NodeKind::kSum, "", {left, term()});
      } else if (sees("-") || sees("pm") || sees("mp")) {
        left = maker_.make(NodeKind::kSum, "", {left, term()});
      } else {
        break;
      }
    }
    return left;
  }

  int term() {
    const Nested nested(*this);
    if (accept("+")) return term();
    if (accept("-")) return maker_.negative(term());
    if (sees("pm") || sees("mp")) {
      const std::string sign = take().text;
      return maker_.signed_by(NodeKind::kPlusMinus, sign, term());
    }
    int left = factor();
    while (!failed_) {
      if (accept("*")) {
        left = maker_.product(left, signed_factor());
      } else if (accept("/")) {
        left = maker_.quotient(left, signed_factor());
      } else if (starts_factor()) {
        left = juxtaposed(left);
      } else {
        break;
      }
    }
    return left;
  }

  int signed_factor() {
    const Nested nested(*this);
    if (accept("-")) return maker_.negative(signed_factor());
    return accept("+") ? signed_factor() : factor();
  }

  bool starts_factor() const {
    const Token& next = peek();
    switch (next.kind) {
      case TokenKind::kNumber:
      case TokenKind::kLetter:
        return true;
      case TokenKind::kText:
        return !sees_and();
      case TokenKind::kName:
        return !next.text.starts_with("end ");
      case TokenKind::kSign: {
        constexpr std::string_view kOpening[] = {"(", "[", "{", "\\{", "dollar", "lfloor", "lceil"};
        return std::ranges::count(kOpening, next.text) > 0 || (next.text == "|" && bars_ == 0);
      }
      case TokenKind::kEnd:
        return false;
    }
    return false;
  }

  // A factor that follows `left` without a sign, or the fraction of a mixed number.
  int juxtaposed(int left) {
    if (left == kNoNode) return fail();
    const bool after_number = previous_is_number();
    const bool is_whole = after_number && maker_.at(left).kind == NodeKind::kNumber &&
                          is_small_integer(maker_.at(left).text);
    if (peek().kind == TokenKind::kNumber) {
      if (is_whole && sees("/", 1)) return mixed(left, plain_fraction());
      return after_number ? fail() : maker_.product(left, factor());
    }
    if (!is_whole || !sees_name("frac")) return maker_.product(left, factor());
    return mixed(left, primary());
  }
  bool previous_is_number() const { return at_ > 0 && tokens_[at_ - 1].kind == TokenKind::kNumber; }
  int plain_fraction() {
    const int numerator = primary();
    take();
    return maker_.quotient(numerator, primary());
  }
  // 1\frac{4}{5} is 9/5; 2\frac{3}{2}, whose fraction is not below one, is a product.
  int mixed(int whole, int fraction) {
    if (fraction == kNoNode) return fail();
    const MathNode copy = maker_.at(fraction);
    const auto value = [&](int child) -> int64_t {
      const MathNode& node = maker_.at(copy.children[child]);
      const bool fits = node.kind == NodeKind::kNumber && is_small_integer(node.text);
      return fits ? std::stoll(node.text) : -1;
    };
    const bool is_proper = copy.kind == NodeKind::kQuotient && value(0) >= 0 && value(0) < value(1);
    if (!is_proper) return maker_.product(whole, with_postfixes(fraction));
    return with_postfixes(maker_.make(NodeKind::kSum, "", {whole, fraction}));
  }

  // ---- factors

  int factor() { return with_postfixes(primary()); }

  int with_postfixes(int node) {
    while (!failed_) {
      if (accept("^")) {
        node = accept_degree() ? measured(node, "degree") : maker_.power(node, exponent());
      } else if (accept("deg")) {
        node = measured(node, "degree");
      } else if (accept("%")) {
        node = measured(node, "percent");
      } else if (sees("!") && !sees("!", 1)) {
        take();
        node = maker_.make(NodeKind::kFactorial, "", {node});
      } else {
        break;
      }
    }
    return node;
  }
  bool accept_degree() {
    if (accept("deg")) return true;
    if (!sees("{") || !sees("deg", 1) || !sees("}", 2)) return false;
    return take(), take(), take(), true;
  }
  int measured(int node, const std::string& unit) {
    return maker_.product(node, maker_.make(NodeKind::kUnit, unit));
  }

  int exponent() {
    const Nested nested(*this);
    if (accept("-")) return maker_.negative(exponent());
    if (accept("+")) return exponent();
    const int base = primary();
    return accept("^") ? maker_.power(base, exponent()) : base;
  }

  // An argument as TeX takes it: a group, one digit, or one command with its own arguments.
  int tex_argument() {
    if (peek().kind != TokenKind::kNumber) return primary();
    Token& number = tokens_[at_];
    if (number.text.size() == 1 || !number.repeat.empty()) return primary();
    const std::string digit = number.text.substr(0, 1);
    number.text.erase(0, 1);
    if (number.text[0] == '.' || digit == ".") return fail();
    return maker_.number(digit);
  }

  int primary() {
    const Nested nested(*this);
    switch (peek().kind) {
      case TokenKind::kNumber:
        return number();
      case TokenKind::kLetter:
        return letter();
      case TokenKind::kText:
        return maker_.phrase(take().text);
      case TokenKind::kName:
        return named();
      case TokenKind::kSign:
        return bracketed();
      case TokenKind::kEnd:
        return fail();
    }
    return fail();
  }

  int number() {
    Token token = take();
    if (!accept("_")) return maker_.number(std::move(token.text), std::move(token.repeat));
    const int base = sees("{") ? primary() : whole_number();
    return maker_.make(NodeKind::kBased, token.text, {base});
  }
  int whole_number() {
    return peek().kind == TokenKind::kNumber ? maker_.number(take().text) : fail();
  }

  int letter() {
    std::string name = take().text;
    if (!accept("_")) return maker_.symbol(name);
    name += '_';
    if (!accept("{")) return maker_.symbol(name + take().text);
    while (peek().kind != TokenKind::kEnd && !sees("}") && !sees("{")) name += take().text;
    return closed_by("}", maker_.symbol(name));
  }

  int bracketed() {
    const int outer_bars = std::exchange(bars_, 0);
    const int node = bracketed_by(take().text);
    bars_ = outer_bars;
    return node;
  }
  int bracketed_by(const std::string& open) {
    if (open == "{") return group();
    if (open == "\\{") return set();
    if (open == "(" || open == "[") return tuple(open);
    if (open == "langle") return angles();
    if (open == "|") return absolute();
    if (open == "lfloor") return closed_function("floor", "rfloor");
    if (open == "lceil") return closed_function("ceil", "rceil");
    if (open == "dollar") return measured(factor(), "dollar");
    return fail();
  }

  // Braces that TeX does not print; with commas they are a set in plain text.
  int group() {
    std::vector<int> found = items();
    const int node =
        found.size() == 1 ? found[0] : maker_.make(NodeKind::kSet, "", std::move(found));
    return closed_by("}", node);
  }
  int set() {
    if (accept("\\}")) return maker_.make(NodeKind::kSet, "");
    return closed_by("\\}", maker_.make(NodeKind::kSet, "", items()));
  }
  int tuple(const std::string& open) {
    std::vector<int> found = items();
    if (!sees(")") && !sees("]")) return fail();
    const std::string close = take().text;
    const bool is_pair = (open == "(") == (close == ")");
    if (found.size() == 1) return is_pair ? found[0] : fail();
    return maker_.make(NodeKind::kBracketed, open + close, std::move(found));
  }
  int angles() { return closed_by("rangle", maker_.make(NodeKind::kBracketed, "<>", items())); }
  int absolute() {
    bars_ = 1;
    return closed_by("|", maker_.make(NodeKind::kFunction, "abs", {sum()}));
  }
  int closed_function(const std::string& name, std::string_view close) {
    return closed_by(close, maker_.make(NodeKind::kFunction, name, {sum()}));
  }

  // ---- names with arguments

  int named() {
    const std::string name = take().text;
    if (name == "frac") {
      const int numerator = tex_argument();
      return maker_.quotient(numerator, tex_argument());
    }
    if (name == "sqrt" || name == "root") return root(name == "sqrt");
    if (name == "binom") {
      const int above = tex_argument();
      return maker_.make(NodeKind::kBinomial, "", {above, tex_argument()});
    }
    if (name == "group") return accept("{") ? closed_by("}", list()) : tex_argument();
    if (name == "emptyset") return maker_.make(NodeKind::kSet, "");
    if (name.starts_with("begin ")) return matrix(name.substr(6));
    return is_function_name(name) ? function(name) : fail();
  }

  int root(bool is_tex) {
    int degree = kNoNode;
    if (is_tex && accept("[")) degree = closed_by("]", sum());
    const int radicand = is_tex ? tex_argument() : primary();
    if (degree == kNoNode) degree = maker_.number("2");
    return maker_.make(NodeKind::kRoot, "", {radicand, degree});
  }

  int function(const std::string& name) {
    int base = kNoNode, power = kNoNode;
    if (accept("_")) base = tex_argument();
    if (accept("^")) power = exponent();
    if (base == kNoNode && accept("_")) base = tex_argument();
    const int argument = function_argument();
    if (failed_ || argument == kNoNode) return fail();
    if (base != kNoNode && name != "log") return fail();
    if (power != kNoNode && is_minus_one(power)) {
      return maker_.make(NodeKind::kFunction, "arc" + name, {argument});
    }
    std::vector<int> children = {argument};
    if (base != kNoNode) children.push_back(base);
    const int node = maker_.make(NodeKind::kFunction, name, std::move(children));
    return power == kNoNode ? node : maker_.power(node, power);
  }
  bool is_minus_one(int node) const {
    const MathNode& sign = maker_.at(node);
    return sign.kind == NodeKind::kNegative && maker_.at(sign.children[0]).text == "1";
  }

  // `(…)`, or as many adjacent factors as possible: \sin 2x is sin(2x), \sin x\cos x a product.
  int function_argument() {
    const Nested nested(*this);
    if (sees("(") || sees("{") || sees("[") || sees("|")) return primary();
    if (accept("-")) return maker_.negative(function_argument());
    int argument = factor();
    while (!failed_ && starts_factor() && !sees("(") && !starts_function())
      argument = juxtaposed(argument);
    return argument;
  }
  bool starts_function() const {
    return peek().kind == TokenKind::kName && is_function_name(peek().text);
  }

  int matrix(const std::string& environment) {
    static const std::set<std::string_view> matrices = {"pmatrix", "bmatrix", "matrix",
                                                        "smallmatrix", "array"};
    if (!matrices.contains(environment)) return fail();
    if (environment == "array") skip_group();
    std::vector<int> cells;
    size_t rows = 1, columns = 0, in_row = 0;
    while (!failed_ && !sees_name("end " + environment)) {
      cells.push_back(relation());
      ++in_row;
      if (accept("&")) continue;
      if (columns != 0 && in_row != columns) return fail();
      columns = std::exchange(in_row, 0);
      if (!accept("\\\\")) break;
      if (!sees_name("end " + environment)) ++rows;
    }
    if (failed_ || !sees_name("end " + environment)) return fail();
    take();
    return maker_.make(NodeKind::kMatrix, std::to_string(rows) + "x" + std::to_string(columns),
                       std::move(cells));
  }
  void skip_group() {
    if (!accept("{")) return;
    while (peek().kind != TokenKind::kEnd && !accept("}")) take();
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  MathTreeMaker maker_;
  int depth_ = 0;
  int bars_ = 0;  // 1: a bar closes the open absolute value
  bool failed_ = false;
};

}  // namespace

std::optional<MathTree> try_parse_math(std::string_view text) {
  if (text.size() > kMaxMathBytes) return std::nullopt;
  auto tokens = try_tokenize_latex(text);
  if (!tokens) return std::nullopt;
  return LatexParser(std::move(*tokens)).parse();
}

}  // namespace tlt::math_equal
