#include "interchange/shell_condition.hpp"

#include <algorithm>

#include "interchange/shell_arithmetic.hpp"

namespace stretto::shell {
namespace {

constexpr int kMaxConditionDepth = 40;

class Condition {
 public:
  Condition(std::vector<std::string> words, State& state) : words_(std::move(words)), state_(state) {}
  bool any() {
    bool value = all();
    while (take("||") || take("-o")) value = all() || value;
    return value;
  }

 private:
  bool is(std::size_t ahead, const char* word) const {
    return at_ + ahead < words_.size() && words_[at_ + ahead] == word;
  }
  bool take(const char* word) {
    if (!is(0, word)) return false;
    ++at_;
    return true;
  }
  std::string next() { return at_ < words_.size() ? words_[at_++] : ""; }

  bool all() {
    bool value = one();
    while (take("&&") || take("-a")) value = one() && value;
    return value;
  }

  static bool compares(const std::string& word) {
    for (const char* sign :
         {"=", "==", "!=", "=~", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"})
      if (word == sign) return true;
    return false;
  }

  bool one() {
    if (++depth_ > kMaxConditionDepth || at_ >= words_.size()) return false;
    const bool value = read();
    --depth_;
    return value;
  }
  bool read() {
    if (at_ + 1 < words_.size() && compares(words_[at_ + 1])) return compared();
    if (take("!")) return !one();
    if (is(0, "(")) {
      ++at_;
      const bool value = any();
      take(")");
      return value;
    }
    const std::string word = next();
    if (word.size() == 2 && word[0] == '-' && at_ < words_.size() && !is(0, "&&") && !is(0, "||") && !is(0, ")")) {
      const std::string operand = next();
      if (word == "-z") return without_unknown(operand).empty();
      if (word == "-n") return !without_unknown(operand).empty();
      if (word == "-v") return is_variable(operand);
      if (word == "-t") return false;  // there is no terminal
      return !without_unknown(operand).empty();
    }
    // A lone "-z" without an operand is true, as in [ -z $UNSET ].
    if (word == "-z") return true;
    if (word == "-n") return false;
    return !without_unknown(word).empty();
  }

  // NAME or NAME[key].
  bool is_variable(const std::string& text) const {
    const std::size_t bracket = text.find('[');
    const Variable* found = state_.find(text.substr(0, bracket));
    if (found == nullptr || bracket == std::string::npos || found->keys.empty()) return found != nullptr;
    const std::string key = text.substr(bracket + 1, text.size() - bracket - 2);
    return std::find(found->keys.begin(), found->keys.end(), key) != found->keys.end();
  }

  std::int64_t number(const std::string& word) {
    return sum_of(
               without_unknown(word),
               [&](const std::string& name) -> std::optional<std::string> {
                 const auto found = state_.variables.find(name);
                 if (found == state_.variables.end() || found->second.elements.empty()) return "0";
                 return without_unknown(found->second.elements.front());
               },
               state_.budget)
        .value;
  }

  bool compared() {
    const std::string given = next(), left = without_unknown(given), sign = next(), right = without_unknown(next());
    if (sign == "=" || sign == "==") state_.compare(given, right);
    if (sign == "=" || sign == "==") return fits(left, right, state_.budget);
    if (sign == "!=") return !fits(left, right, state_.budget);
    // Regular expressions are limited to plain text and anchors.
    if (sign == "=~") return matched(left, right);
    if (sign == "<") return left < right;
    if (sign == ">") return left > right;
    if (sign == "-nt" || sign == "-ot" || sign == "-ef") return false;
    const std::int64_t a = number(left), b = number(right);
    if (sign == "-eq") return a == b;
    if (sign == "-ne") return a != b;
    if (sign == "-lt") return a < b;
    if (sign == "-le") return a <= b;
    if (sign == "-gt") return a > b;
    return a >= b;
  }
  bool matched(const std::string& text, std::string pattern) {
    const bool at_begin = pattern.starts_with('^'), at_end = pattern.ends_with('$');
    if (at_begin) pattern.erase(0, 1);
    if (at_end) pattern.pop_back();
    const bool is_number = pattern == "[0-9]+" || pattern == "[[:digit:]]+";
    if (is_number && at_begin && at_end)
      return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    if (is_number) return text.find_first_of("0123456789") != std::string::npos;
    if (at_begin && at_end) return text == pattern;
    if (at_begin) return text.starts_with(pattern);
    if (at_end) return text.ends_with(pattern);
    return found_in(text, pattern, 0, state_.budget) != std::string::npos;
  }

  std::vector<std::string> words_;
  State& state_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

bool holds(std::vector<std::string> words, State& state) { return Condition(std::move(words), state).any(); }

}  // namespace stretto::shell
