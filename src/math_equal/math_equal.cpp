// SPDX-License-Identifier: Apache-2.0
#include "math_equal/math_equal.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "math_equal/latex_parser.h"

namespace tlt::math_equal {

namespace {

constexpr int64_t kPairSteps = 20;
constexpr int kPoints = 16;  // of formulas: sqrt(x y) and sqrt x sqrt y agree at three of four

// An answer and its values, which are computed on first use.
class Answer {
 public:
  Answer(MathTree tree, Steps& steps) : tree_(std::move(tree)), steps_(steps) {}

  const MathNode& node(int at) const { return tree_.nodes[at]; }
  int root() const { return tree_.root; }
  bool has_symbols() const { return tree_.has_symbols; }

  const MathValue& value(int node, int point, int plus_minus) {
    const bool is_minus = plus_minus < 0;
    auto& values = values_[point][is_minus ? 1 : 0];
    if (values.empty()) values = evaluate(tree_, point, is_minus ? -1 : 1, steps_);
    return values[node];
  }

 private:
  const MathTree tree_;
  Steps& steps_;
  std::array<std::array<std::vector<MathValue>, 2>, kPoints> values_;
};

constexpr int kBoth = 0;

// A part of an answer, with its +- read both ways, or as 1 or -1.
struct Item {
  Answer* answer = nullptr;
  int at = 0;
  int plus_minus = kBoth;

  const MathNode& node() const { return answer->node(at); }
  NodeKind kind() const { return node().kind; }
  Item child(size_t i) const { return {answer, node().children[i], plus_minus}; }
  Item last() const { return child(node().children.size() - 1); }
  const MathValue& value(int point) const { return answer->value(at, point, plus_minus); }
};
using Items = std::vector<Item>;

Items children_of(const Item& item) {
  Items children;
  for (size_t i = 0; i < item.node().children.size(); ++i) children.push_back(item.child(i));
  return children;
}

bool is_symbol(const Item& item) { return item.kind() == NodeKind::kSymbol; }

// a = b, and a = b = c, which is equivalent to a = c.
bool is_equation(std::string_view operators) {
  return operators.find_first_not_of("= ") == operators.npos;
}

// The left side of =, if the answer is the right side: x, f(x), (x, y).
bool is_name(const Item& item) {
  if (is_symbol(item)) return true;
  if (item.kind() != NodeKind::kProduct && item.kind() != NodeKind::kBracketed) return false;
  return std::ranges::all_of(children_of(item), is_symbol);
}

// ---- regions of the real line

// From low to high; no Item: unbounded.
struct Piece {
  std::optional<Item> low = {}, high = {};
  bool low_is_open = true, high_is_open = true;
  double low_at = -std::numeric_limits<double>::infinity();
  double high_at = std::numeric_limits<double>::infinity();
};
using Pieces = std::optional<std::vector<Piece>>;  // nullopt: not a region of numbers

// 1 or -1: an infinity of that sign.
int infinity_of(const Item& item) {
  if (item.kind() == NodeKind::kNegative) return -infinity_of(item.child(0));
  return is_symbol(item) && item.node().text == "infty" ? 1 : 0;
}

std::optional<double> real_value(const Item& item) {
  const bool varies =
      item.answer->has_symbols() && compare(item.value(0), item.value(1)) == Verdict::kDifferent;
  return varies ? std::nullopt : try_real(item.value(0));
}

std::optional<Piece> try_piece(const Item& low, const Item& high, bool low_is_open,
                               bool high_is_open) {
  Piece piece{.low_is_open = low_is_open, .high_is_open = high_is_open};
  if (infinity_of(low) != -1) {
    const auto at = real_value(low);
    if (!at) return std::nullopt;
    piece.low = low, piece.low_at = *at;
  }
  if (infinity_of(high) != 1) {
    const auto at = real_value(high);
    if (!at) return std::nullopt;
    piece.high = high, piece.high_at = *at;
  }
  if (!piece.low) piece.low_is_open = true;
  if (!piece.high) piece.high_is_open = true;
  return piece;
}

// x > 5, -2 < x \le 7
std::optional<Piece> try_inequality(const Item& item, std::string* variable) {
  const std::string& operators = item.node().text;
  const size_t gap = operators.find(' ');
  std::string first = operators.substr(0, gap), second;
  if (gap != operators.npos) second = operators.substr(gap + 1);
  const bool is_less = first[0] == '<';
  if (!is_less && first[0] != '>') return std::nullopt;
  const bool first_open = first.size() == 1, second_open = second.size() == 1;
  const size_t sides = item.node().children.size();
  const size_t middle = sides == 3 || is_symbol(item.child(1)) ? 1 : 0;
  if (sides > 3 || !is_symbol(item.child(middle))) return std::nullopt;
  *variable = item.child(middle).node().text;
  if (sides == 3) {
    if (second.empty() || second[0] != first[0]) return std::nullopt;
    return is_less ? try_piece(item.child(0), item.child(2), first_open, second_open)
                   : try_piece(item.child(2), item.child(0), second_open, first_open);
  }
  const Item bound = item.child(1 - middle);
  const auto at = real_value(bound);
  if (!at) return std::nullopt;
  Piece piece;
  const bool is_above = is_less == (middle == 1);  // 5 < x
  if (is_above) {
    piece.low = bound, piece.low_at = *at, piece.low_is_open = first_open;
  } else {
    piece.high = bound, piece.high_at = *at, piece.high_is_open = first_open;
  }
  return piece;
}

// The region of an interval, a set of numbers, an inequality, R, and unions of these.
Pieces pieces_of(const Item& item, std::string* variable) {
  const MathNode& node = item.node();
  if (node.has_plus_minus) return std::nullopt;
  std::vector<Piece> pieces;
  if (node.kind == NodeKind::kRelation) {
    const auto piece = try_inequality(item, variable);
    if (!piece) return std::nullopt;
    return std::vector{*piece};
  }
  if (is_symbol(item) && node.text == "mathbb R") return std::vector{Piece{}};
  if (node.kind == NodeKind::kBracketed) {
    if (node.children.size() != 2 || node.text == "<>") return std::nullopt;
    const auto piece =
        try_piece(item.child(0), item.child(1), node.text[0] == '(', node.text[1] == ')');
    if (!piece) return std::nullopt;
    return std::vector{*piece};
  }
  if (node.kind == NodeKind::kSet) {
    for (const Item& point : children_of(item)) {
      const auto piece =
          is_scalar(point.kind()) ? try_piece(point, point, false, false) : std::nullopt;
      if (!piece || !piece->low || !piece->high) return std::nullopt;
      pieces.push_back(*piece);
    }
    return pieces;
  }
  if (node.kind != NodeKind::kRegion || node.text != "cup") return std::nullopt;
  for (const Item& part : children_of(item)) {
    const Pieces found = pieces_of(part, variable);
    if (!found) return std::nullopt;
    pieces.insert(pieces.end(), found->begin(), found->end());
  }
  return pieces;
}

// ---- the judge

class Judge {
 public:
  explicit Judge(Steps& steps) : steps_(steps) {}

  bool same(Item a, Item b) {
    if (!steps_.take(kPairSteps)) return false;
    strip_names(a, b);
    if (is_based(a) || is_based(b)) return same_digits(a, b);
    if (is_collection(a) || is_collection(b)) return same_collection(a, b);
    if (is_scalar(a.kind()) && is_scalar(b.kind())) return same_scalar(a, b);
    if (a.kind() == b.kind() && a.kind() != NodeKind::kRegion && same_kind(a, b)) return true;
    return same_region(a, b);
  }

 private:
  // x \in S is S, and y = 2x is 2x, if the other answer is not a relation.
  static void strip_names(Item& a, Item& b) {
    if (is_membership(a) != is_membership(b)) strip_name(is_membership(a) ? a : b);
    if (a.kind() != NodeKind::kRelation) strip_name(b);
    if (b.kind() != NodeKind::kRelation) strip_name(a);
  }
  static bool is_membership(const Item& item) {
    return item.kind() == NodeKind::kRelation && item.node().text == "in";
  }
  static void strip_name(Item& item) {
    if (item.kind() != NodeKind::kRelation) return;
    const std::string& operators = item.node().text;
    if (operators == "in" && is_symbol(item.child(0))) {
      item = item.child(1);
    } else if (is_equation(operators) && is_name(item.child(0))) {
      item = item.last();
    } else if (operators == "=" && is_symbol(item.child(1))) {
      item = item.child(0);
    }
  }

  static bool is_based(const Item& item) { return item.kind() == NodeKind::kBased; }

  // Digits in a base equal the same digits without a base, not their value in another base.
  bool same_digits(const Item& a, const Item& b) {
    if (is_based(a) && is_based(b)) {
      return a.node().text == b.node().text && same(a.child(0), b.child(0));
    }
    const Item& plain = is_based(a) ? b : a;
    return plain.kind() == NodeKind::kNumber && a.node().text == b.node().text;
  }

  // ---- sets and lists

  static bool is_collection(const Item& item) {
    const bool is_split = item.node().has_plus_minus && item.plus_minus == kBoth &&
                          (is_scalar(item.kind()) || item.kind() == NodeKind::kRelation);
    return is_split || item.kind() == NodeKind::kList || item.kind() == NodeKind::kSet;
  }

  // The items, with +- expanded.
  static Items items_of(const Item& item) {
    const bool is_many = item.kind() == NodeKind::kList || item.kind() == NodeKind::kSet;
    Items items;
    for (const Item& part : is_many ? children_of(item) : Items{item}) {
      if (part.node().has_plus_minus && part.plus_minus == kBoth) {
        items.push_back({part.answer, part.at, 1});
        items.push_back({part.answer, part.at, -1});
      } else {
        items.push_back(part);
      }
    }
    return items;
  }

  bool same_collection(const Item& a, const Item& b) {
    const bool a_is_set = a.kind() == NodeKind::kSet, b_is_set = b.kind() == NodeKind::kSet;
    if (!is_collection(a) || !is_collection(b)) {
      return a_is_set || b_is_set ? same_region(a, b) : false;
    }
    const bool only_split = !a_is_set && !b_is_set;
    if (a_is_set != b_is_set && !is_split_scalar(a) && !is_split_scalar(b)) return false;
    const Items xs = items_of(a), ys = items_of(b);
    return only_split ? matches(xs, ys) : covers(xs, ys) && covers(ys, xs);
  }
  static bool is_split_scalar(const Item& item) {
    return item.kind() != NodeKind::kSet && item.kind() != NodeKind::kList;
  }

  bool covers(const Items& xs, const Items& ys) {
    return std::ranges::all_of(ys, [&](const Item& y) {
      return std::ranges::any_of(xs, [&](const Item& x) { return same(x, y); });
    });
  }

  // Whether each item of one matches a distinct item of the other.
  bool matches(const Items& xs, const Items& ys) {
    if (xs.size() != ys.size()) return false;
    std::vector<bool> is_taken(ys.size());
    return std::ranges::all_of(xs, [&](const Item& x) {
      for (size_t k = 0; k < ys.size(); ++k) {
        if (is_taken[k] || !same(x, ys[k])) continue;
        is_taken[k] = true;
        return true;
      }
      return false;
    });
  }

  // ---- element by element

  bool same_kind(const Item& a, const Item& b) {
    if (a.kind() == NodeKind::kRelation) return same_relation(a, b);
    return a.node().text == b.node().text && same_places(a, b);
  }
  bool same_places(const Item& a, const Item& b) {
    const Items xs = children_of(a), ys = children_of(b);
    if (xs.size() != ys.size()) return false;
    for (size_t i = 0; i < xs.size(); ++i) {
      if (!same(xs[i], ys[i])) return false;
    }
    return true;
  }

  // ---- regions

  bool same_region(const Item& a, const Item& b) {
    const bool are_brackets = a.kind() == NodeKind::kBracketed && b.kind() == NodeKind::kBracketed;
    if (are_brackets) return false;  // they differed element by element
    std::string variable_a, variable_b;
    Pieces xs = pieces_of(a, &variable_a), ys = pieces_of(b, &variable_b);
    if (!xs || !ys) return same_parts(a, b);
    if (!variable_a.empty() && !variable_b.empty() && variable_a != variable_b) return false;
    merge(*xs), merge(*ys);
    return std::ranges::equal(*xs, *ys, [&](const Piece& x, const Piece& y) {
      return x.low_is_open == y.low_is_open && x.high_is_open == y.high_is_open &&
             same_end(x.low, y.low) && same_end(x.high, y.high);
    });
  }
  bool same_parts(const Item& a, const Item& b) {
    if (a.kind() != NodeKind::kRegion || b.kind() != NodeKind::kRegion) return false;
    if (a.node().text != b.node().text) return false;
    if (a.node().text == "setminus") return same_places(a, b);
    const Items xs = children_of(a), ys = children_of(b);
    return covers(xs, ys) && covers(ys, xs);
  }
  bool same_end(const std::optional<Item>& a, const std::optional<Item>& b) {
    return a.has_value() == b.has_value() && (!a || same(*a, *b));
  }

  // Sorts the pieces and joins adjacent ones.
  void merge(std::vector<Piece>& pieces) {
    const auto begins = [](const Piece& piece) {
      return std::pair(piece.low_at, piece.low_is_open);
    };
    std::ranges::sort(pieces, {}, begins);
    std::vector<Piece> merged;
    for (const Piece& piece : pieces) {
      if (merged.empty() || !touches(merged.back(), piece)) {
        merged.push_back(piece);
      } else if (reaches_beyond(piece, merged.back())) {
        merged.back().high = piece.high, merged.back().high_at = piece.high_at;
        merged.back().high_is_open = piece.high_is_open;
      }
    }
    pieces = std::move(merged);
  }
  bool touches(const Piece& left, const Piece& right) {
    if (!left.high || !right.low) return true;
    if (same(*left.high, *right.low)) return !left.high_is_open || !right.low_is_open;
    return right.low_at < left.high_at;
  }
  bool reaches_beyond(const Piece& piece, const Piece& other) {
    if (!other.high) return false;
    if (piece.high && same(*piece.high, *other.high)) return !piece.high_is_open;
    return piece.high_at > other.high_at;
  }

  // ---- relations

  bool same_relation(const Item& a, const Item& b) {
    if (a.node().text == b.node().text && same_places(a, b)) return true;
    const int order_a = order_of(a), order_b = order_of(b);
    const bool has_order = order_a != 0;
    if (order_a == kNoOrder || strictness(a) != strictness(b) || has_order != (order_b != 0)) {
      return false;
    }
    const Items sides = {a.child(0), a.last(), b.child(0), b.last()};
    if (!std::ranges::all_of(sides, [](const Item& side) { return is_scalar(side.kind()); })) {
      return !has_order && same(sides[0], sides[3]) && same(sides[1], sides[2]);
    }
    return are_multiples(sides, order_a * order_b);
  }

  static constexpr int kNoOrder = 2;
  // 1 for < and <=, -1 for > and >=, 0 for = and !=.
  static int order_of(const Item& item) {
    const std::string& sign = item.node().text;
    if (is_equation(sign) || sign == "!=") return 0;
    if (sign == "<" || sign == "<=") return 1;
    return sign == ">" || sign == ">=" ? -1 : kNoOrder;
  }
  static int strictness(const Item& item) {
    const std::string& sign = item.node().text;
    return is_equation(sign) ? 0 : sign == "!=" ? 2 : static_cast<int>(sign.size()) - 1;
  }

  // Whether (left - right) of the first is a constant times that of the second. The constant's sign
  // is `sign`, or any if that is 0.
  bool are_multiples(const Items& sides, int sign) {
    std::optional<MathValue> first;
    int agreed = 0;
    for (int point = 0; point < kPoints && !steps_.is_spent(); ++point) {
      const auto difference = [&](size_t k) {
        return subtract(sides[k].value(point), sides[k + 1].value(point), steps_);
      };
      const MathValue ratio = divide(difference(0), difference(2), steps_);
      if (!first) {
        if (!ratio.is_known()) continue;
        if (!has_sign(ratio, sign)) return false;
        first = ratio;
        continue;
      }
      const Verdict verdict = compare(*first, ratio);
      if (verdict == Verdict::kDifferent) return false;
      if (verdict == Verdict::kEqual && !ratio.has_branches) return true;
      agreed += verdict == Verdict::kEqual ? 1 : 0;
    }
    return agreed >= kPoints / 2;
  }
  static bool has_sign(const MathValue& ratio, int sign) {
    return !may_be_zero(ratio) && (sign == 0 || sign_of(ratio) == sign);
  }

  // ---- scalars

  bool same_scalar(const Item& a, const Item& b) {
    if (same_value(a, b)) return true;
    const bool a_has_unit = a.kind() == NodeKind::kMeasured,
               b_has_unit = b.kind() == NodeKind::kMeasured;
    if (a_has_unit == b_has_unit) return false;
    return a_has_unit ? same_value(a.child(0), b) : same_value(a, b.child(0));
  }

  bool same_value(const Item& a, const Item& b) {
    const bool varies = a.answer->has_symbols() || b.answer->has_symbols();
    const int points = varies ? kPoints : 1;
    int agreed = 0;
    for (int point = 0; point < points && !steps_.is_spent(); ++point) {
      const MathValue &x = a.value(point), &y = b.value(point);
      const Verdict verdict = compare(x, y);
      if (verdict == Verdict::kDifferent) return is_decimal_of(x, y);
      if (verdict == Verdict::kEqual && !x.has_branches && !y.has_branches) return true;
      agreed += verdict == Verdict::kEqual ? 1 : 0;
    }
    return !steps_.is_spent() && 2 * agreed > points;
  }

  Steps& steps_;
};

// ---- text

// The answer without surrounding dollars, blanks and a full stop.
std::string_view bare(std::string_view text) {
  const auto drops_one = [&] {
    text = trimmed(text);
    const size_t size = text.size();
    if (size > 0 && std::string_view(".,;:$").find(text.back()) != std::string_view::npos &&
        !text.substr(0, size - 1).ends_with('\\')) {
      text.remove_suffix(1);
    }
    if (text.starts_with('$')) text.remove_prefix(1);
    return text.size() < size;
  };
  while (drops_one()) {
  }
  return text;
}

bool is_word_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

// Without layout commands. Blanks between letters and digits stay: `1 2` is not 12.
std::string text_of(std::string_view answer) {
  static constexpr std::string_view kInk[] = {"\\left", "\\right", "\\,", "\\!", "\\;", "\\ "};
  std::string text;
  bool after_blank = false;
  while (!answer.empty()) {
    const auto* ink =
        std::ranges::find_if(kInk, [&](auto part) { return answer.starts_with(part); });
    if (ink != std::end(kInk)) {
      answer.remove_prefix(ink->size());
      continue;
    }
    const char c = answer[0];
    answer.remove_prefix(1);
    if (std::isspace(static_cast<unsigned char>(c))) {
      after_blank = true;
      continue;
    }
    const bool parts_words = after_blank && !text.empty() && is_word_character(text.back());
    if (parts_words && is_word_character(c)) text += ' ';
    text += c;
    after_blank = false;
  }
  return text;
}

// The letters and digits of an answer in words, without \text and similar: (C), \text{C} and c are
// equal.
std::string letters_of(std::string_view answer) {
  std::string letters;
  for (size_t i = 0; i < answer.size(); ++i) {
    if (answer[i] == '\\') {
      while (i + 1 < answer.size() && std::isalpha(static_cast<unsigned char>(answer[i + 1]))) ++i;
    } else if (std::isalnum(static_cast<unsigned char>(answer[i]))) {
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(answer[i])));
    }
  }
  return letters;
}

bool is_in_words(const MathTree& tree) { return tree.nodes[tree.root].is_unit; }

}  // namespace

MathJudgement judge_math(std::string_view a, std::string_view b, int64_t max_steps) {
  a = bare(a), b = bare(b);
  if (a.empty() || b.empty()) return {};
  if (text_of(a) == text_of(b)) return {.is_equal = true};
  auto tree_a = try_parse_math(a), tree_b = try_parse_math(b);
  if (!tree_a || !tree_b) return {};
  if (is_in_words(*tree_a) || is_in_words(*tree_b)) {
    return {.is_equal = letters_of(a) == letters_of(b), .is_read = true};
  }
  Steps steps(max_steps);
  const int root_a = tree_a->root, root_b = tree_b->root;
  Answer answer_a(std::move(*tree_a), steps), answer_b(std::move(*tree_b), steps);
  const bool is_equal = Judge(steps).same({&answer_a, root_a}, {&answer_b, root_b});
  return {.is_equal = is_equal, .is_read = true, .steps = steps.taken()};
}

}  // namespace tlt::math_equal
