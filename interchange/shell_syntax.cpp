#include "interchange/shell_syntax.hpp"

#include <algorithm>
#include <cctype>

#include "base/error.hpp"
#include "base/toml.hpp"

namespace stretto::shell {
namespace {

constexpr int kMaxSyntaxDepth = 40;  // commands and quotes inside each other

std::size_t end_of(std::string_view text, std::size_t at, int depth);

// Returns the index after the bracket that closes the one before `at`.
std::size_t end_of_bracket(std::string_view text, std::size_t at, char open, char close, int depth) {
  for (int inside = 1; at < text.size();) {
    const char c = text[at];
    if (c == close && --inside == 0) return at + 1;
    if (c == open) ++inside;
    at = c == open || c == close ? at + 1 : end_of(text, at, depth + 1);
    if (at == std::string_view::npos) return at;
  }
  return std::string_view::npos;
}

std::size_t end_of(std::string_view text, std::size_t at, int depth) {
  constexpr std::size_t kNone = std::string_view::npos;
  if (depth > kMaxSyntaxDepth) return kNone;
  const char c = text[at];
  if (c == '\\') return std::min(at + 2, text.size());
  if (c == '\'') {
    const std::size_t end = text.find('\'', at + 1);
    return end == kNone ? kNone : end + 1;
  }
  if (c == '`') {
    for (++at; at < text.size() && text[at] != '`'; ++at)
      if (text[at] == '\\') ++at;
    return at < text.size() ? at + 1 : kNone;
  }
  if (c == '"') {
    for (++at; at < text.size() && text[at] != '"';) {
      // A single quote is an ordinary character inside double quotes.
      at = text[at] == '\'' ? at + 1 : end_of(text, at, depth + 1);
      if (at == kNone) return kNone;
    }
    return at < text.size() ? at + 1 : kNone;
  }
  if (c == '$' && at + 1 < text.size()) {
    if (text[at + 1] == '(') return end_of_bracket(text, at + 2, '(', ')', depth);
    if (text[at + 1] == '{') return end_of_bracket(text, at + 2, '{', '}', depth);
  }
  return at + 1;
}

struct Token {
  enum class Kind : std::uint8_t { word, sign, newline, end };
  Kind kind = Kind::end;
  std::string text;
  int line = 1;
  bool opens_array = false;  // a word that ends in "=(", without the bracket
  bool is(const char* sign) const { return kind == Kind::sign && text == sign; }
  bool is_word(const char* word) const { return kind == Kind::word && text == word; }
};

class Parser {
 public:
  Parser(std::string_view text, const std::string& name, Budget& budget, int line)
      : text_(text), name_(name), budget_(budget), line_(line) {
    budget_.look(text.size());
    advance();
  }

  Nodes whole() {
    Nodes nodes = list({});
    while (token_.kind != Token::Kind::end) {
      // A superfluous bracket, as in parts of scripts, ends a command.
      budget_.look(1);
      advance();
      for (Node& node : list({})) nodes.push_back(std::move(node));
    }
    return nodes;
  }

 private:
  Error wrong(int line, const std::string& message) const {
    return input_error(name_ + ":" + std::to_string(line) + ": " + message);
  }

  Error too_deep(int line) const {
    return wrong(line, "expected commands inside each other at most 40 times, got more");
  }

  // ---- tokens ----

  void skip_blanks() {
    while (at_ < text_.size()) {
      if (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r') {
        ++at_;
      } else if (text_.substr(at_, 2) == "\\\n" || text_.substr(at_, 3) == "\\\r\n") {
        at_ += text_[at_ + 1] == '\n' ? 2 : 3;
        ++line_;
      } else if (text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        return;
      }
    }
  }

  void advance() {
    skip_blanks();
    token_ = {Token::Kind::end, "", line_, false};
    if (at_ >= text_.size()) return;
    if (text_[at_] == '\n') {
      token_.kind = Token::Kind::newline;
      ++at_;
      ++line_;
      if (!documents_.empty()) read_documents();
      return;
    }
    for (const char* sign : {";;&", ";;", "&&", "||", "|&", "<<<", "<<-", "<<", "<(", ">(", ">>", "&>>", "&>",
                             ">&",  "<&", "<>", ">|", ";&", ";",   "&",   "|",  "(",  ")",  "<",  ">"})
      if (text_.substr(at_).starts_with(sign)) {
        token_.kind = Token::Kind::sign;
        token_.text = sign;
        at_ += token_.text.size();
        return;
      }
    word();
  }

  void word() {
    token_.kind = Token::Kind::word;
    const std::size_t begin = at_;
    while (at_ < text_.size() && std::string_view(" \t\r\n;&|()<>").find(text_[at_]) == std::string_view::npos) {
      // The mark of what is unknown holds the text of a command, which is no syntax here.
      const std::size_t end = text_[at_] == kUnknownBegin ? std::min(text_.find(kUnknownEnd, at_), text_.size() - 1) + 1
                                                          : end_of_part(text_, at_);
      if (end == std::string_view::npos)
        throw wrong(line_, "expected the end of what " + in_quotes(text_.substr(at_, 20)) + " begins, got none");
      line_ += static_cast<int>(std::count(text_.begin() + at_, text_.begin() + end, '\n'));
      at_ = end;
    }
    token_.text = std::string(text_.substr(begin, at_ - begin));
    budget_.keep(token_.text.size() + sizeof(std::string));
    // "2>" redirects: the digits belong to the sign.
    const bool is_number =
        std::all_of(token_.text.begin(), token_.text.end(), [](unsigned char c) { return std::isdigit(c); });
    if (is_number && at_ < text_.size() && (text_[at_] == '<' || text_[at_] == '>')) return advance();
    if (at_ < text_.size() && text_[at_] == '(' && token_.text.ends_with('=')) {
      token_.opens_array = true;
      ++at_;
    }
  }

  // ---- here-documents ----

  void read_documents() {
    for (auto& [node_text, limit] : documents_) {
      std::string body;
      while (at_ < text_.size()) {
        const std::size_t end = std::min(text_.find('\n', at_), text_.size());
        std::string_view row = text_.substr(at_, end - at_);
        at_ = std::min(end + 1, text_.size());
        ++line_;
        while (row.starts_with('\t')) row.remove_prefix(1);
        if (row == limit) break;
        body += std::string(row) + "\n";
      }
      *node_text = body;
    }
    documents_.clear();
  }

  // ---- commands ----

  bool ends(const std::vector<std::string>& words) const {
    return token_.kind == Token::Kind::word && std::find(words.begin(), words.end(), token_.text) != words.end();
  }

  // Reads commands up to one of `words`, or `)`, or the end.
  Nodes list(const std::vector<std::string>& words) {
    if (++depth_ > kMaxSyntaxDepth) throw too_deep(token_.line);
    Nodes nodes;
    Node::Join join = Node::Join::always;
    for (;;) {
      while (token_.kind == Token::Kind::newline || token_.is(";") || token_.is("&")) {
        if (token_.kind != Token::Kind::newline) join = Node::Join::always;
        advance();
      }
      if (token_.kind == Token::Kind::end || token_.is(")") || token_.is(";;") || token_.is(";&") || token_.is(";;&") ||
          ends(words))
        break;
      Node node = command();
      node.join = join;
      join = token_.is("&&") ? Node::Join::if_true : token_.is("||") ? Node::Join::if_false : Node::Join::always;
      node.is_piped = token_.is("|") || token_.is("|&");
      if (token_.is("&&") || token_.is("||") || node.is_piped) advance();
      budget_.keep(sizeof(Node));
      nodes.push_back(std::move(node));
    }
    --depth_;
    return nodes;
  }

  void expect(const char* word, int line, const char* of) {
    if (!token_.is_word(word) && !token_.is(word))
      throw wrong(line, "expected a \"" + std::string(word) + "\" that belongs to the \"" + of + "\" here, got " +
                            (token_.kind == Token::Kind::end ? "none" : in_quotes(token_.text)));
    advance();
  }
  void skip_newlines() {
    while (token_.kind == Token::Kind::newline || token_.is(";")) advance();
  }

  Node command() {
    Node node;
    while (token_.is_word("!") || token_.is_word("time")) {
      if (token_.text == "!") node.negates = !node.negates;
      advance();
    }
    node.line = token_.line;
    if (token_.is("(")) {
      // "((" is arithmetic where it closes as such.
      const std::size_t before = at_;
      if (before < text_.size() && text_[before] == '(')
        if (const std::size_t end = after_bracket(before + 1);
            end != std::string_view::npos && end < text_.size() && text_[end] == ')') {
          node.kind = Node::Kind::arithmetic;
          node.words = {std::string(text_.substr(before + 1, end - before - 2))};
          line_ += static_cast<int>(std::count(text_.begin() + before, text_.begin() + end, '\n'));
          at_ = end + 1;
          advance();
          return redirected(std::move(node));
        }
      return redirected(body_of(std::move(node), "("));
    }
    if (token_.is_word("{")) return redirected(body_of(std::move(node), "{"));
    if (token_.is_word("if")) return redirected(branch(std::move(node)));
    if (token_.is_word("case")) return redirected(choice(std::move(node)));
    if (token_.is_word("for") || token_.is_word("select")) return redirected(each(std::move(node)));
    if (token_.is_word("while") || token_.is_word("until")) return redirected(repeat(std::move(node)));
    if (token_.is_word("[[")) return redirected(test(std::move(node)));
    if (token_.is_word("function")) {
      advance();
      const std::string name = token_.text;
      advance();
      return function(std::move(node), name);
    }
    return simple(std::move(node));
  }

  // Returns the index after the bracket that closes the one before `at`. Brackets inside each other are looked at again
  // for each.
  std::size_t after_bracket(std::size_t at) {
    const std::size_t end = end_of_bracket(text_, at, '(', ')', 0);
    budget_.look(std::min(end, text_.size()) - at);
    return end;
  }

  Node body_of(Node node, const char* open) {
    node.kind = Node::Kind::group;
    const int line = token_.line;
    advance();
    const bool is_round = std::string_view(open) == "(";
    node.arms.push_back({{}, {}, is_round ? list({}) : list({"}"})});
    expect(is_round ? ")" : "}", line, open);
    return node;
  }

  Node branch(Node node) {
    node.kind = Node::Kind::branch;
    const int line = token_.line;
    do {
      advance();
      Arm arm;
      arm.condition = list({"then"});
      expect("then", line, "if");
      arm.body = list({"elif", "else", "fi"});
      node.arms.push_back(std::move(arm));
    } while (token_.is_word("elif"));
    if (token_.is_word("else")) {
      advance();
      node.arms.push_back({{}, {}, list({"fi"})});
    }
    expect("fi", line, "if");
    return node;
  }

  Node choice(Node node) {
    node.kind = Node::Kind::choice;
    const int line = token_.line;
    advance();
    node.words.push_back(token_.text);
    advance();
    skip_newlines();
    expect("in", line, "case");
    skip_newlines();
    while (!token_.is_word("esac")) {
      if (token_.kind == Token::Kind::end)
        throw wrong(line, "expected an \"esac\" that belongs to the \"case\" here, got none");
      Arm arm;
      if (token_.is("(")) advance();
      while (token_.kind == Token::Kind::word) {
        arm.patterns.push_back(token_.text);
        advance();
        if (token_.is("|")) advance();
      }
      expect(")", line, "case");
      arm.body = list({"esac"});
      node.arms.push_back(std::move(arm));
      if (token_.is(";;") || token_.is(";&") || token_.is(";;&")) advance();
      skip_newlines();
    }
    advance();
    return node;
  }

  Node each(Node node) {
    node.kind = Node::Kind::each;
    const int line = token_.line;
    advance();
    node.words.push_back(token_.text);  // the variable; a "((" as in C is not a name, and is reported when it is run
    advance();
    skip_newlines();
    if (token_.is_word("in")) {
      advance();
      while (token_.kind == Token::Kind::word) {
        node.words.push_back(token_.text);
        advance();
      }
    }
    while (token_.kind != Token::Kind::end && !token_.is_word("do")) advance();
    expect("do", line, "for");
    node.arms.push_back({{}, {}, list({"done"})});
    expect("done", line, "for");
    return node;
  }

  Node repeat(Node node) {
    node.kind = Node::Kind::repeat;
    node.is_until = token_.text == "until";
    const int line = token_.line;
    advance();
    Arm arm;
    arm.condition = list({"do"});
    expect("do", line, "while");
    arm.body = list({"done"});
    expect("done", line, "while");
    node.arms.push_back(std::move(arm));
    return node;
  }

  Node test(Node node) {
    node.kind = Node::Kind::test;
    const int line = token_.line;
    for (advance(); !token_.is_word("]]"); advance()) {
      if (token_.kind == Token::Kind::end)
        throw wrong(line, "expected a \"]]\" that belongs to the \"[[\" here, got none");
      if (token_.kind != Token::Kind::newline) node.words.push_back(token_.text);
    }
    advance();
    return node;
  }

  // Reads a function after its name.
  Node function(Node node, const std::string& name) {
    node.kind = Node::Kind::function;
    node.words = {name};
    if (token_.is("(")) advance();
    if (token_.is(")")) advance();
    skip_newlines();
    if (++depth_ > kMaxSyntaxDepth) throw too_deep(node.line);
    node.arms.push_back({{}, {}, {}});
    node.arms[0].body.push_back(command());
    --depth_;
    return node;
  }

  // Takes "NAME=value", "NAME+=value" or "NAME=(…)".
  bool take_assignment(Node& node) {
    const std::string& text = token_.text;
    const std::size_t equal = text.find('=');
    if (equal == std::string::npos || equal == 0) return false;
    Assignment made;
    made.appends = text[equal - 1] == '+';
    made.name = text.substr(0, equal - (made.appends ? 1 : 0));
    const std::size_t bracket = made.name.find('[');
    if (!is_name(std::string_view(made.name).substr(0, bracket))) return false;
    if (bracket != std::string::npos && !made.name.ends_with(']')) return false;
    made.is_array = token_.opens_array;
    if (!made.is_array) {
      made.words = {text.substr(equal + 1)};
    } else {
      const int line = token_.line;
      advance();
      while (!token_.is(")")) {
        if (token_.kind == Token::Kind::end) throw wrong(line, "expected a \")\" that ends the array here, got none");
        if (token_.kind == Token::Kind::word) made.words.push_back(token_.text);
        advance();
      }
    }
    advance();
    node.assignments.push_back(std::move(made));
    return true;
  }

  Node simple(Node node) {
    bool declares = false;
    for (;;) {
      if (take_redirection(node)) continue;
      if (token_.kind != Token::Kind::word) break;
      if ((node.words.empty() || declares) && take_assignment(node)) continue;
      if (node.words.empty())
        declares = token_.text == "export" || token_.text == "declare" || token_.text == "local" ||
                   token_.text == "readonly" || token_.text == "typeset";
      node.words.push_back(token_.text);
      advance();
      if (node.words.size() == 1 && node.assignments.empty() && token_.is("(") && closes_at_once()) {
        const std::string name = node.words[0];
        return function(std::move(node), name);
      }
    }
    if (node.words.empty() && node.assignments.empty() && !has_moved_) {
      has_moved_ = true;
      advance();
    }
    has_moved_ = false;
    return node;
  }
  bool closes_at_once() {
    std::size_t at = at_;
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
    return at < text_.size() && text_[at] == ')';
  }
  // Takes a redirection: here-documents, and the name of the file that is written.
  bool take_redirection(Node& node) {
    if (token_.kind != Token::Kind::sign) return false;
    const std::string sign = token_.text;
    if (sign.find('<') == std::string::npos && sign.find('>') == std::string::npos) return false;
    has_moved_ = true;
    if (sign == "<(" || sign == ">(") {  // a command in place of a file
      const std::size_t end = after_bracket(at_);
      if (end == std::string_view::npos) throw wrong(token_.line, "expected a \")\", got none");
      line_ += static_cast<int>(std::count(text_.begin() + at_, text_.begin() + end, '\n'));
      at_ = end;
      advance();
      return true;
    }
    advance();
    if (token_.kind != Token::Kind::word) return true;
    if (sign == "<<" || sign == "<<-") {
      std::string limit = token_.text;
      node.is_literal = limit.find_first_of("'\"\\") != std::string::npos;
      std::erase_if(limit, [](char c) { return c == '\'' || c == '"' || c == '\\'; });
      document_texts_.push_back(std::make_unique<std::string>());
      documents_.push_back({document_texts_.back().get(), limit});
      const std::size_t mine = document_texts_.size() - 1;
      advance();
      // The rest of the line belongs to the command; the document follows on the next line.
      while (token_.kind != Token::Kind::newline && token_.kind != Token::Kind::end) {
        if (token_.kind == Token::Kind::sign && token_.text.starts_with('>')) {
          advance();
          if (token_.kind == Token::Kind::word) node.output = token_.text;
        } else if (token_.kind == Token::Kind::word) {
          node.words.push_back(token_.text);
        }
        if (token_.kind != Token::Kind::newline && token_.kind != Token::Kind::end) advance();
      }
      node.document = *document_texts_[mine];
      return true;
    }
    // In "--save <PATH TO FOLDER> --fp16" a person is to put in the path; a flag names no file.
    if (sign == ">" && token_.text.starts_with("-")) return true;
    if (sign == "<<<") node.here_string = token_.text;
    if (sign == "<") node.input = token_.text;
    if (sign == ">" || sign == ">>") node.output = token_.text;
    advance();
    return true;
  }

  Node redirected(Node node) {
    while (take_redirection(node)) {
    }
    has_moved_ = false;
    return node;
  }

  std::string_view text_;
  const std::string& name_;
  Budget& budget_;
  std::size_t at_ = 0;
  int line_;
  int depth_ = 0;
  bool has_moved_ = false;  // since the command began
  Token token_;
  struct Document {
    std::string* text;
    std::string limit;
  };
  std::vector<Document> documents_;
  std::vector<std::unique_ptr<std::string>> document_texts_;
};

}  // namespace

std::size_t end_of_part(std::string_view text, std::size_t at) { return end_of(text, at, 0); }

bool is_name(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

Nodes parse(std::string_view text, const std::string& name, Budget& budget, int first_line) {
  return Parser(text, name, budget, first_line).whole();
}

}  // namespace stretto::shell
