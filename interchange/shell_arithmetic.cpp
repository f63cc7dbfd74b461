#include "interchange/shell_arithmetic.hpp"

#include <cctype>
#include <iterator>
#include <limits>

#include "interchange/shell_expand.hpp"

namespace stretto::shell {
namespace {

using Number = std::int64_t;
constexpr int kMaxArithmeticDepth = 40;

// Operators from weak to strong, those of two characters first.
struct Operator {
  const char* sign;
  int strength;
};
constexpr Operator kOperators[] = {{"||", 1}, {"&&", 2}, {"==", 4}, {"!=", 4}, {"<=", 5}, {">=", 5}, {"<<", 6},
                                   {">>", 6}, {"**", 9}, {"|", 3},  {"^", 3},  {"&", 3},  {"<", 5},  {">", 5},
                                   {"+", 7},  {"-", 7},  {"*", 8},  {"/", 8},  {"%", 8}};

Number wrapped(std::uint64_t value) { return static_cast<Number>(value); }

class Calculator {
 public:
  Calculator(std::string_view text, const Lookup& lookup, int depth, Budget& budget)
      : text_(text), lookup_(lookup), depth_(depth), budget_(budget) {
    budget_.look(text_.size());
  }

  Sum run() {
    sum_.value = choice();
    skip();
    if (at_ < text_.size()) fail();
    return sum_;
  }

 private:
  void fail() {
    if (sum_.trouble.empty()) sum_.trouble = std::string(text_);
    at_ = text_.size();
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  Number choice() {
    if (++inside_ > kMaxArithmeticDepth) {
      fail();
      return 0;
    }
    Number value = binary(1);
    if (take('?')) {
      const Number yes = choice();
      if (!take(':')) fail();
      const Number no = choice();
      value = value != 0 ? yes : no;
    }
    --inside_;
    return value;
  }

  Number binary(int strength) {
    Number left = unary();
    for (;;) {
      skip();
      const Operator* found = nullptr;
      for (const Operator& one : kOperators)
        if (found == nullptr && text_.substr(at_).starts_with(one.sign)) found = &one;
      if (found == nullptr || found->strength < strength) return left;
      at_ += std::string_view(found->sign).size();
      left = joined(found->sign, left, binary(found->strength + 1));
    }
  }

  Number joined(std::string_view sign, Number a, Number b) {
    const auto ua = static_cast<std::uint64_t>(a), ub = static_cast<std::uint64_t>(b);
    if (sign == "+") return wrapped(ua + ub);
    if (sign == "-") return wrapped(ua - ub);
    if (sign == "*") return wrapped(ua * ub);
    if (sign == "**") {
      std::uint64_t power = 1;
      for (Number i = 0; i < b && i < 64; ++i) power *= ua;
      return wrapped(power);
    }
    if (sign == "/" || sign == "%") {
      if (b == 0) {
        fail();
        return 0;
      }
      if (b == -1) return sign == "/" ? wrapped(0 - ua) : 0;
      return sign == "/" ? a / b : a % b;
    }
    if (sign == "<<") return wrapped(ua << (ub & 63));
    if (sign == ">>") return a >> (ub & 63);
    if (sign == "&") return a & b;
    if (sign == "|") return a | b;
    if (sign == "^") return a ^ b;
    if (sign == "&&") return a != 0 && b != 0 ? 1 : 0;
    if (sign == "||") return a != 0 || b != 0 ? 1 : 0;
    const bool is = sign == "=="   ? a == b
                    : sign == "!=" ? a != b
                    : sign == "<"  ? a < b
                    : sign == ">"  ? a > b
                    : sign == "<=" ? a <= b
                                   : a >= b;
    return is ? 1 : 0;
  }

  Number unary() {
    skip();
    if (++inside_ > kMaxArithmeticDepth) {
      fail();
      return 0;
    }
    Number value = 0;
    if (take('-'))
      value = wrapped(0 - static_cast<std::uint64_t>(unary()));
    else if (take('+'))
      value = unary();
    else if (take('!'))
      value = unary() == 0 ? 1 : 0;
    else if (take('~'))
      value = ~unary();
    else
      value = primary();
    --inside_;
    return value;
  }

  Number primary() {
    budget_.look(std::size(kOperators));  // the operator that follows is compared with each
    if (take('(')) {
      const Number value = choice();
      if (!take(')')) fail();
      return value;
    }
    const std::size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    const std::string word(text_.substr(begin, at_ - begin));
    if (word.empty()) {
      fail();
      return 0;
    }
    return std::isdigit(static_cast<unsigned char>(word[0])) != 0 ? number(word) : named(word);
  }

  Number number(const std::string& word) {
    const bool is_hex = word.starts_with("0x") || word.starts_with("0X");
    const int base = is_hex ? 16 : word.size() > 1 && word[0] == '0' ? 8 : 10;
    std::uint64_t value = 0;
    for (const char c : word.substr(is_hex ? 2 : 0)) {
      const int digit = std::isdigit(static_cast<unsigned char>(c)) != 0
                            ? c - '0'
                            : std::tolower(static_cast<unsigned char>(c)) - 'a' + 10;
      if (digit >= base) {
        fail();
        return 0;
      }
      value = value * static_cast<std::uint64_t>(base) + static_cast<std::uint64_t>(digit);
    }
    return wrapped(value);
  }

  Number named(const std::string& name) {
    const auto value = lookup_(name);
    if (!value || !unknown_names(*value).empty()) {
      if (sum_.missing.empty()) sum_.missing = value ? *unknown_names(*value).begin() : name;
      return 0;
    }
    if (value->empty()) return 0;
    if (depth_ > 8) {
      fail();
      return 0;
    }
    const Sum inner = Calculator(*value, lookup_, depth_ + 1, budget_).run();
    if (sum_.missing.empty()) sum_.missing = inner.missing;
    if (sum_.trouble.empty()) sum_.trouble = inner.trouble;
    return inner.value;
  }

  std::string_view text_;
  const Lookup& lookup_;
  int depth_, inside_ = 0;
  Budget& budget_;
  std::size_t at_ = 0;
  Sum sum_;
};

}  // namespace

Sum sum_of(std::string_view expression, const Lookup& lookup, Budget& budget) {
  return Calculator(expression, lookup, 0, budget).run();
}

}  // namespace stretto::shell
