#include "interchange/shell_run.hpp"

#include <algorithm>
#include <cctype>
#include <deque>
#include <filesystem>
#include <optional>

#include "base/error.hpp"
#include "base/toml.hpp"
#include "interchange/shell_arithmetic.hpp"
#include "interchange/shell_condition.hpp"
#include "interchange/shell_filters.hpp"
#include "interchange/shell_syntax.hpp"

namespace stretto::shell {
namespace {

constexpr int kMaxSteps = 200'000;
constexpr int kMaxCommandDepth = 60;
constexpr int kMaxNotes = 20;

using Words = std::vector<std::string>;

// Returns what copying the words costs.
std::size_t cost_of(const Words& words) {
  std::size_t characters = 0;
  for (const std::string& word : words) characters += word.size() + sizeof(word);
  return characters;
}

bool is_in(const std::string& word, std::initializer_list<const char*> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

class Runner {
 public:
  Runner(const std::string& name, const Outside& outside) : name_(name), outside_(outside) {
    BudgetLimits limits;
    limits.advice =
        "a launch script usually needs a thousandth of that; import the command that it starts, with --flags";
    state_.budget = Budget(name, limits);
    state_.arguments = outside.arguments;
    state_.script = outside.script;
    state_.folder = std::filesystem::path(outside.script).parent_path().string();
    if (state_.folder.empty()) state_.folder = ".";
    for (const auto& [key, value] : outside.environment) state_.set(key, {value});
    state_.set("PIPESTATUS", {"0"}, true);
    state_.substitute = [this](const std::string& commands) { return output_of(commands); };
  }

  Run take(std::string_view text) {
    std::string clean;
    for (const char c : text)
      if (static_cast<unsigned char>(c) >= ' ' || c == '\n' || c == '\t' || c == '\r') clean += c;
    read_batch(clean);
    set_slurm_variables();
    list(parsed(clean, name_, 1));
    result_.variables = state_.variables;
    // A program is started with what its own script has exported.
    for (auto& [key, variable] : of_programs_)
      if (result_.exports.contains(key)) result_.variables[key] = std::move(variable);
    result_.choices = state_.choices;
    return std::move(result_);
  }

 private:
  // How a list of commands ended.
  enum class End : std::uint8_t { through, stop, leave_loop, next_round, leave_function };

  void note(const std::string& message) {
    const std::string line = "line " + std::to_string(state_.line) + ": " + readable(message);
    if (std::ssize(result_.notes) < kMaxNotes &&
        std::find(result_.notes.begin(), result_.notes.end(), line) == result_.notes.end())
      result_.notes.push_back(line);
  }

  // Parses commands, which live as long as the run: functions point to them.
  const Nodes& parsed(std::string_view text, const std::string& name, int first_line) {
    return trees_.emplace_back(parse(text, name, state_.budget, first_line));
  }

  void read_batch(const std::string& text) {
    state_.budget.look(text.size());
    for (std::size_t at = 0; (at = text.find("#SBATCH", at)) != std::string::npos; at += 7) {
      if (at > 0 && text[at - 1] != '\n') continue;
      const std::size_t end = std::min(text.find('\n', at), text.size());
      std::string line = text.substr(at + 7, end - at - 7);
      line = line.substr(0, line.find('#'));
      for (std::size_t begin = 0; (begin = line.find_first_not_of(" \t\r", begin)) != std::string::npos;) {
        const std::size_t stop = std::min(line.find_first_of(" \t\r", begin), line.size());
        result_.batch.push_back(line.substr(begin, stop - begin));
        begin = stop;
      }
    }
  }

  // Sets the variables that Slurm gives a job by its options (sbatch(1), output environment variables).
  void set_slurm_variables() {
    std::map<std::string, std::string> given;
    for (std::size_t i = 0; i < result_.batch.size(); ++i) {
      const std::string& word = result_.batch[i];
      const std::size_t equal = word.find('=');
      if (word.size() < 2 || word[0] != '-') continue;
      given[word.substr(0, equal)] = equal != std::string::npos     ? word.substr(equal + 1)
                                     : i + 1 < result_.batch.size() ? result_.batch[i + 1]
                                                                    : "";
    }
    const auto value = [&](std::initializer_list<const char*> names) -> std::string {
      for (const char* name : names)
        if (const auto found = given.find(name); found != given.end()) {
          const std::string number = found->second.substr(found->second.rfind(':') + 1);
          if (!number.empty() && number.size() < 8 && number.find_first_not_of("0123456789") == std::string::npos)
            return number;
        }
      return "";
    };
    const auto set = [&](const char* name, const std::string& number) {
      if (!number.empty() && !state_.variables.contains(name)) state_.set(name, {number});
    };
    const std::string nodes = value({"--nodes", "-N"}), of_node = value({"--ntasks-per-node"});
    std::string tasks = value({"--ntasks", "-n"});
    if (tasks.empty() && !nodes.empty() && !of_node.empty())
      tasks = std::to_string(std::stoll(nodes) * std::stoll(of_node));
    for (const char* name : {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}) set(name, nodes);
    for (const char* name : {"SLURM_NTASKS", "SLURM_NPROCS"}) set(name, tasks);
    for (const char* name : {"SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) set(name, of_node);
    set("SLURM_GPUS_PER_NODE", value({"--gpus-per-node"}));
    set("SLURM_GPUS_ON_NODE", value({"--gpus-per-node", "--gres"}));
    set("SLURM_GPUS_PER_TASK", value({"--gpus-per-task"}));
    set("SLURM_GPUS", value({"--gpus", "-G"}));
    set("SLURM_CPUS_PER_TASK", value({"--cpus-per-task", "-c"}));
  }

  Error too_many_commands() const {
    return input_error(name_ + ":" + std::to_string(state_.line) +
                       ": expected a script that runs at most 200,000 commands, got more");
  }

  // ---- lists ----

  End list(const Nodes& nodes) {
    if (++depth_ > kMaxCommandDepth)
      throw input_error(name_ + ": expected commands inside each other at most 60 times, got more");
    End end = End::through;
    for (std::size_t i = 0; i < nodes.size() && end == End::through; ++i) {
      const Node& node = nodes[i];
      if (node.join == Node::Join::if_true && status_ != 0) continue;
      if (node.join == Node::Join::if_false && status_ == 0) continue;
      end = one(node);
      if (node.negates) status_ = status_ == 0 ? 1 : 0;
    }
    --depth_;
    return end;
  }

  End one(const Node& node) {
    if (++steps_ > kMaxSteps) throw too_many_commands();
    state_.line = line_of(node);
    state_.budget.at_line(state_.line);
    state_.budget.look(node.words.size() + 1);
    switch (node.kind) {
      case Node::Kind::simple:
        return simple(node);
      case Node::Kind::test: {
        Words words;
        for (const std::string& word : node.words) words.push_back(text_of(word, state_));
        status_ = holds(words, state_) ? 0 : 1;
        return End::through;
      }
      case Node::Kind::arithmetic:
        return calculate(node.words[0]);
      case Node::Kind::branch:
        for (const Arm& arm : node.arms) {
          if (!arm.condition.empty()) {
            if (const End end = list(arm.condition); end != End::through) return end;
            if (status_ != 0) continue;
          }
          return list(arm.body);
        }
        status_ = 0;
        return End::through;
      case Node::Kind::choice:
        return choice(node);
      case Node::Kind::each:
        return each(node);
      case Node::Kind::repeat:
        return repeat(node);
      case Node::Kind::function:
        functions_[node.words[0]] = &node.arms[0].body;
        return End::through;
      case Node::Kind::group:
        return list(node.arms[0].body);
    }
    return End::through;
  }
  int line_of(const Node& node) const { return fixed_line_ > 0 ? fixed_line_ : node.line; }

  // Evaluates (( i += 1 )), (( i++ )), (( i = 2 )), (( i > 3 )).
  End calculate(const std::string& raw) {
    std::string text = text_of(raw, state_);
    std::erase_if(text, [](char c) { return c == ' ' || c == '\t'; });
    const std::size_t equal = text.find('=');
    std::size_t end = 0;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_')) ++end;
    const std::string name = text.substr(0, end);
    if (is_name(name) && (text.substr(end) == "++" || text.substr(end) == "--")) {
      state_.set(name, {arithmetic(name + text[end] + "1", state_)});
    } else if (is_name(name) && equal != std::string::npos && equal + 1 < text.size() && text[equal + 1] != '=' &&
               (equal == end || (equal == end + 1 && std::string("+-*/%").find(text[end]) != std::string::npos))) {
      const std::string right = "(" + text.substr(equal + 1) + ")";
      state_.set(name, {arithmetic(equal == end ? right : name + text[end] + right, state_)});
    }
    const std::string value = arithmetic(text, state_);
    status_ = without_unknown(value).empty() || value == "0" ? 1 : 0;
    return End::through;
  }

  End choice(const Node& node) {
    const std::string given = text_of(node.words[0], state_), text = without_unknown(given);
    status_ = 0;
    for (const Arm& arm : node.arms)
      for (const std::string& pattern : arm.patterns) {
        const std::string word = text_of(pattern, state_);
        state_.compare(given, word);
        if (fits(text, word, state_.budget)) return list(arm.body);
      }
    return End::through;
  }

  End each(const Node& node) {
    if (!is_name(node.words[0])) {
      note("a loop of C's kind is passed over");
      return End::through;
    }
    Words values;
    for (std::size_t i = 1; i < node.words.size(); ++i)
      for (std::string& one : fields_of(node.words[i], state_)) values.push_back(std::move(one));
    for (const std::string& value : values) {
      state_.set(node.words[0], {value});
      const End end = list(node.arms[0].body);
      if (end == End::leave_loop) break;
      if (end == End::stop || end == End::leave_function) return end;
    }
    return End::through;
  }

  End repeat(const Node& node) {
    for (;;) {
      if (++steps_ > kMaxSteps) throw too_many_commands();
      const int line = line_of(node);
      if (const End end = list(node.arms[0].condition); end != End::through) return end;
      if ((status_ == 0) == node.is_until) break;
      const End end = list(node.arms[0].body);
      if (end == End::leave_loop) break;
      if (end == End::stop || end == End::leave_function) return end;
      // A loop that waits for an outside event would not end.
      if (++rounds_ > 10'000) {
        state_.line = line;
        note("a loop that does not end is left");
        break;
      }
    }
    status_ = 0;
    return End::through;
  }

  // ---- commands ----

  void assign(const Assignment& made) {
    const std::size_t bracket = made.name.find('[');
    const std::string name = made.name.substr(0, bracket);
    Words values;
    if (made.is_array) {
      for (const std::string& word : made.words)
        for (std::string& one : fields_of(word, state_)) values.push_back(std::move(one));
    } else {
      values = {text_of(made.words[0], state_)};
    }
    state_.references.erase(name);
    const auto found = state_.variables.find(name);
    if (found != state_.variables.end()) state_.budget.look(cost_of(found->second.elements));
    if (bracket != std::string::npos) {
      const std::string key = text_of(made.name.substr(bracket + 1, made.name.size() - bracket - 2), state_);
      return assign_element(name, key, values.empty() ? "" : values.front());
    }
    if (made.is_array && take_pairs(name, values, made.appends)) return;
    if (made.appends && found != state_.variables.end()) {
      Words now = found->second.elements;
      if (made.is_array) {
        now.insert(now.end(), values.begin(), values.end());
      } else {
        if (now.empty()) now.emplace_back();
        now.front() += values.front();
      }
      values = std::move(now);
    }
    const bool is_array = made.is_array || (made.appends && found != state_.variables.end() && found->second.is_array);
    state_.set(name, std::move(values), is_array);
  }

  // NAME[key]=value: a word is a key of an associative array, and any number is the next element of another.
  void assign_element(const std::string& name, const std::string& key, const std::string& value) {
    const auto found = state_.variables.find(name);
    Variable now = found == state_.variables.end() ? Variable{} : found->second;
    const bool is_number = key.find_first_not_of("0123456789") == std::string::npos;
    if (now.keys.empty() && (is_number || !now.elements.empty())) {
      now.elements.push_back(value);
      return state_.set(name, now.elements, true);
    }
    add_pair(now, key, value);
    state_.set(name, now.elements, true);
    state_.variables[name].keys = now.keys;
  }
  void add_pair(Variable& into, const std::string& key, const std::string& value) {
    state_.budget.look(into.keys.size() + 1);
    const auto at = std::find(into.keys.begin(), into.keys.end(), key);
    if (at != into.keys.end()) {
      into.elements[static_cast<std::size_t>(at - into.keys.begin())] = value;
    } else {
      into.keys.push_back(key);
      into.elements.push_back(value);
    }
  }
  // NAME=([key]=value …). Returns false where the words are no such pairs.
  bool take_pairs(const std::string& name, const Words& words, bool appends) {
    if (words.empty() || !std::all_of(words.begin(), words.end(), [](const std::string& word) {
          return word.starts_with('[') && word.find("]=") != std::string::npos;
        }))
      return false;
    Variable made;
    if (const auto found = state_.variables.find(name); appends && found != state_.variables.end())
      made = found->second;
    made.keys.resize(made.elements.size());
    for (const std::string& word : words) {
      const std::size_t end = word.find("]=");
      add_pair(made, word.substr(1, end - 1), word.substr(end + 2));
    }
    state_.set(name, made.elements, true);
    state_.variables[name].keys = made.keys;
    return true;
  }

  End simple(const Node& node) {
    const int line = line_of(node);
    Words words;
    for (const std::string& word : node.words)
      for (std::string& one : fields_of(word, state_)) words.push_back(std::move(one));
    words.erase(words.begin(), std::find_if(words.begin(), words.end(),
                                            [](const std::string& word) { return !without_unknown(word).empty(); }));
    const bool exports = !words.empty() && is_in(words[0], {"export", "declare", "typeset", "readonly", "local"});
    status_ = 0;
    // Assignments before a program hold for that program alone.
    std::vector<std::pair<std::string, std::optional<Variable>>> before;
    if (!words.empty() && !exports)
      for (const Assignment& made : node.assignments) {
        const auto found = state_.variables.find(made.name);
        before.emplace_back(made.name,
                            found == state_.variables.end() ? std::nullopt : std::optional<Variable>(found->second));
      }
    const bool refers = exports && words[0] != "export" && std::find(words.begin(), words.end(), "-n") != words.end();
    for (const Assignment& made : node.assignments) {
      assign(made);
      if (refers && !made.is_array && is_name(made.name))
        if (const std::string other = without_unknown(state_.variables[made.name].elements.front()); other != made.name)
          state_.references[made.name] = other;
      // Assignments before a program belong to the program's environment.
      if (exports ? words[0] == "export" || std::find(words.begin(), words.end(), "-x") != words.end()
                  : !words.empty() && words[0] != "read")
        result_.exports[made.name] = line;
    }
    if (exports) {
      for (std::size_t i = 1; i < words.size(); ++i) {
        const std::size_t equal = words[i].find('=');
        if (!is_name(words[i].substr(0, equal))) continue;
        if (equal != std::string::npos) state_.set(words[i].substr(0, equal), {words[i].substr(equal + 1)});
        state_.budget.keep(words[i].size() + sizeof(Variable));
        if (words[0] == "export") result_.exports[words[i].substr(0, equal)] = line;
      }
      return End::through;
    }
    if (words.empty()) return End::through;
    const std::string document = node.is_literal ? node.document : expanded(node.document);
    if (words[0] == "read" && !node.here_string.empty()) return read_words(words, text_of(node.here_string, state_));
    if (words[0] == "read" && !document.empty()) return read_words(words, document);
    input_ = node.input.empty() ? "" : without_unknown(text_of(node.input, state_));
    if (!node.output.empty() && is_in(words[0], {"echo", "printf", "cat", "envsubst"}))
      return write(node, words, document);
    const End end = command(words, line, document);
    for (const auto& [key, variable] : before) {
      if (const auto now = state_.variables.find(key); now != state_.variables.end()) of_programs_[key] = now->second;
      if (variable)
        state_.variables[key] = *variable;
      else
        state_.variables.erase(key);
    }
    return end;
  }

  // Returns a here-document with its variables and commands expanded, as between double quotes; a double quote has no
  // meaning there.
  std::string expanded(const std::string& document) {
    if (document.empty()) return document;
    std::string word = "\"";
    for (std::size_t i = 0; i < document.size(); ++i) {
      const char c = document[i], next = i + 1 < document.size() ? document[i + 1] : '\0';
      if (c == '\\' && (next == '$' || next == '`' || next == '\\' || next == '\n')) {
        word += c;
        word += next;
        ++i;
      } else if (c == '"' || c == '\\') {
        word += '\\';
        word += c;
      } else {
        word += c;
      }
    }
    return text_of(word + "\"", state_);
  }

  // Keeps what a command writes into a file that the script may start later. No file is written.
  End write(const Node& node, const Words& words, const std::string& document) {
    const std::string path = without_unknown(text_of(node.output, state_));
    const bool was_capturing = capturing_;
    std::string before;
    std::swap(before, output_);
    capturing_ = true;
    prints(words, document);
    capturing_ = was_capturing;
    std::swap(before, output_);
    state_.budget.keep(before.size() + path.size());
    if (!path.empty() && path != "/dev/null") files_[std::filesystem::path(path).filename().string()] = before;
    return End::through;
  }

  // Runs `IFS=',' read -r A B <<< "1,2"`: the last name takes the rest.
  End read_words(const Words& words, const std::string& text) {
    const auto found = state_.variables.find("IFS");
    std::string between = " \t\n";
    if (found != state_.variables.end() && !found->second.elements.empty() && !found->second.elements[0].empty())
      between = found->second.elements[0];
    Words names;
    bool is_array = false;
    const auto limit = std::find(words.begin(), words.end(), "-d");
    if (limit != words.end() && (limit + 1 == words.end() || (limit + 1)->size() != 1)) between.clear();  // to the end
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (is_name(words[i])) names.push_back(words[i]);
      is_array = is_array || (words[i].starts_with('-') && words[i].ends_with('a'));
    }
    Words parts;
    std::string_view rest = text;
    state_.budget.look(text.size() * (between.size() + 1));
    while (is_array || parts.size() + 1 < names.size()) {
      const std::size_t end = between.empty() ? std::string::npos : rest.find_first_of(between);
      state_.budget.keep(sizeof(std::string));
      parts.emplace_back(rest.substr(0, end));
      rest = end == std::string::npos ? "" : rest.substr(end + 1);
      if (end == std::string::npos) break;
    }
    if (is_array && !names.empty()) {
      state_.set(names[0], parts, true);
    } else {
      parts.resize(names.size());
      if (!names.empty() && !rest.empty()) parts.back() = rest;
      for (std::size_t i = 0; i < names.size(); ++i) state_.set(names[i], {parts[i]});
    }
    return End::through;
  }

  End command(Words words, int line, const std::string& document = "") {
    auto first = words.begin();
    while (words.end() - first > 1 && is_in(*first, {"exec", "command", "nohup", "sudo", "builtin", "time", "nice"})) {
      // `command -v program` tests whether a program exists.
      if (*++first == "-v") return End::through;
    }
    words.erase(words.begin(), first);
    const std::string& name = words[0];
    if (const auto found = functions_.find(name); found != functions_.end()) {
      const Nodes& body = *found->second;
      Words before(words.begin() + 1, words.end());
      std::swap(before, state_.arguments);
      const End end = list(body);
      std::swap(before, state_.arguments);
      return end == End::leave_function ? End::through : end;
    }
    if (name == "exit" || name == "return") return leave(words);
    if (name == "break") return End::leave_loop;
    if (name == "continue") return End::next_round;
    if (name == "false") status_ = 1;
    if (name == "true" || name == "false" || name == ":") return End::through;
    if (name == "[" || name == "test") {
      if (words.back() == "]") words.pop_back();
      words.erase(words.begin());
      status_ = holds(std::move(words), state_) ? 0 : 1;
      return End::through;
    }
    if (name == "unset") {
      for (const std::string& one : words) {
        state_.variables.erase(one);
        result_.exports.erase(one);
      }
      return End::through;
    }
    if (name == "shift") {
      const std::size_t count =
          words.size() > 1 && words[1].size() == 1 ? static_cast<std::size_t>(words[1][0] - '0') : 1;
      state_.budget.look(state_.arguments.size());
      state_.arguments.erase(state_.arguments.begin(),
                             state_.arguments.begin() + std::min(count, state_.arguments.size()));
      return End::through;
    }
    if (name == "let") return words.size() > 1 ? calculate(words[1]) : End::through;
    if (name == "set") {
      // `set -- words` replaces the arguments.
      if (words.size() > 1 && words[1] == "--") state_.arguments.assign(words.begin() + 2, words.end());
      return End::through;
    }
    if (name == "read" || name == "mapfile" || name == "readarray") {
      for (std::size_t i = 1; i < words.size(); ++i)
        if (is_name(words[i])) state_.set(words[i], {unknown(words[i])});
      status_ = 1;  // there is no input, so a loop over it ends
      return End::through;
    }
    if (name == "eval") {
      std::string text;
      for (std::size_t i = 1; i < words.size(); ++i) text += words[i] + " ";
      return inner(text, line);
    }
    if (name == "source" || name == ".") return words.size() > 1 ? take_in(words[1], {}, line, true) : End::through;
    if (prints(words, document)) return End::through;
    if (is_in(name, {"cd",     "pushd", "popd", "mkdir", "trap", "wait",   "sleep",  "ulimit", "umask",
                     "alias",  "shopt", "rm",   "cp",    "mv",   "ln",     "touch",  "chmod",  "tee",
                     "module", "conda", "pip",  "kill",  "hash", "enable", "logger", "git",    "apt-get"}))
      return End::through;
    return program(words, line, document);
  }

  End leave(const Words& words) {
    if (words[0] == "return") return End::leave_function;
    const std::string code = words.size() > 1 ? words[1] : "0";
    if (code == "0" || code == "$?") return capturing_ ? End::through : End::stop;
    // A script that misses an argument or a file ends here, but the reader wants to know what it would start, so
    // reading goes on.
    note("the script would end with code " + code + (said_.empty() ? "" : " (" + said_ + ")") + "; reading goes on");
    return End::through;
  }

  std::map<std::string, Variable> copied_variables() {
    for (const auto& [key, variable] : state_.variables) state_.budget.keep(key.size() + cost_of(variable.elements));
    return state_.variables;
  }

  // Returns the text of a file: one that the script has written, or one that is there.
  std::optional<std::string> file_text(const std::string& path) const {
    const std::string plain = without_unknown(path);
    if (const auto written = files_.find(std::filesystem::path(plain).filename().string()); written != files_.end())
      return written->second;
    return outside_.read && !plain.empty() ? outside_.read(plain) : std::nullopt;
  }

  // Reads another script, if it can be found.
  End take_in(const std::string& path, const Words& arguments, int line, bool is_source) {
    const std::string plain = without_unknown(path);
    std::optional<std::string> text;
    const auto written = files_.find(std::filesystem::path(plain).filename().string());
    if (written != files_.end())
      text = written->second;
    else if (outside_.read && !plain.empty())
      text = outside_.read(plain);
    if (!text || ++taken_in_ > 16) {
      state_.line = line;
      note(in_quotes(plain) + " is not read" + (text ? "" : ": there is no such file here"));
      return End::through;
    }
    // A file that the script itself has written has marks of unknown values.
    std::string clean = written != files_.end() ? *text : "";
    if (written == files_.end())
      for (const char c : *text)
        if (static_cast<unsigned char>(c) >= ' ' || c == '\n' || c == '\t' || c == '\r') clean += c;
    read_batch(clean);
    Words before = arguments;
    std::string script = plain;
    if (!is_source) std::swap(before, state_.arguments);
    if (!is_source) std::swap(script, state_.script);
    state_.budget.keep(clean.size());
    const std::map<std::string, Variable> outer = is_source ? std::map<std::string, Variable>() : copied_variables();
    const End end = list(parsed(clean, plain, 1));
    if (!is_source) {
      std::swap(before, state_.arguments);
      std::swap(script, state_.script);
      // Variables of a script that was started are not those of the one that started it.
      for (const auto& [key, at] : result_.exports)
        if (const auto found = state_.variables.find(key); found != state_.variables.end())
          of_programs_[key] = found->second;
      state_.variables = outer;
    }
    // `exit` in a script that was started ends only that script.
    return is_source && end == End::stop ? End::stop : End::through;
  }

  End inner(const std::string& text, int line) {
    const int before = fixed_line_;
    fixed_line_ = line;
    const End end = list(parsed(text, name_, line));
    fixed_line_ = before;
    return end;
  }

  // Handles a program; a script that a shell, sbatch or srun starts is read too.
  End program(const Words& words, int line, const std::string& document) {
    // A blank after the backslash of the line before ends that command, which nobody wants.
    if (!result_.calls.empty() && words[0].starts_with('-') && result_.calls.back().words.back() == " ") {
      Words& before = result_.calls.back().words;
      before.pop_back();
      before.insert(before.end(), words.begin(), words.end());
      state_.line = line;
      note(in_quotes(words[0]) +
           " begins a command, since a blank follows the backslash before it: it is taken as an option");
      return End::through;
    }
    const std::string base = std::filesystem::path(words[0]).filename().string();
    for (std::size_t i = 0; i + 2 < words.size(); ++i) {
      if (!is_in(std::filesystem::path(words[i]).filename().string(), {"bash", "sh", "zsh"})) continue;
      std::size_t option = i + 1;
      while (option + 1 < words.size() && words[option].starts_with('-') &&
             (words[option].starts_with("--") || !words[option].ends_with('c')))
        ++option;
      if (option + 1 >= words.size() || !words[option].starts_with('-')) continue;
      result_.batch.insert(result_.batch.end(), words.begin(), words.begin() + static_cast<std::ptrdiff_t>(i));
      return inner(words[option + 1], line);
    }
    // A launcher starts a script that this one has written: torchrun … --no-python bash worker_command.sh.
    for (std::size_t i = 0; i < words.size(); ++i)
      if (files_.contains(std::filesystem::path(without_unknown(words[i])).filename().string())) {
        const bool has_shell = i > 0 && is_in(std::filesystem::path(words[i - 1]).filename().string(), {"bash", "sh"});
        result_.batch.insert(result_.batch.end(), words.begin(),
                             words.begin() + static_cast<std::ptrdiff_t>(i - (has_shell ? 1 : 0)));
        return take_in(words[i], Words(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end()), line, false);
      }
    const bool is_batch = base == "sbatch" || base == "qsub", is_shell = is_in(base, {"bash", "sh", "zsh"});
    if (is_batch || is_shell) {
      for (std::size_t i = 1; i < words.size(); ++i) {
        if (words[i].starts_with('-')) {
          if (is_batch) result_.batch.push_back(words[i]);
          continue;
        }
        // Megatron-Bridge's launcher, whose arguments say all.
        if (words[i].ends_with("training/train.sh") && !(outside_.read && outside_.read(words[i]))) {
          result_.calls.push_back({Words(words.begin() + i, words.end()), line});
          return End::through;
        }
        if (words[i].ends_with(".sh") || words[i].ends_with(".slurm") || words[i].ends_with(".sbatch"))
          return take_in(words[i], Words(words.begin() + i + 1, words.end()), line, false);
        if (is_batch) result_.batch.push_back(words[i]);
      }
      if (!document.empty()) {
        read_batch(document);
        return inner(document, line);
      }
    }
    result_.calls.push_back({words, line});
    // The program is the user's own script, which passes flags on.
    if (!base.empty() && base.ends_with(".sh") && outside_.read && outside_.read(words[0])) {
      result_.calls.pop_back();
      return take_in(words[0], Words(words.begin() + 1, words.end()), line, false);
    }
    return End::through;
  }

  // ---- $(…) ----

  bool prints(const Words& words, const std::string& document = "") {
    const std::string& name = words[0];
    std::string text;
    if (name == "echo") {
      for (std::size_t i = 1; i < words.size(); ++i)
        if (!is_in(words[i], {"-n", "-e", "-ne", "-en"}) || i > 1) text += (text.empty() ? "" : " ") + words[i];
    } else if (name == "printf") {
      text = words.size() > 1 ? formatted(words) : "";
    } else if (name == "pwd") {
      text = state_.folder;
    } else if (is_in(name, {"dirname", "basename", "readlink", "realpath"}) && words.size() > 1) {
      std::string path = words.back();
      if (name == "basename" && words.size() == 3 && words[1].ends_with(words[2]))
        path = words[1].substr(0, words[1].size() - words[2].size());
      const std::filesystem::path file(path);
      text = name == "dirname" ? file.parent_path().string() : name == "basename" ? file.filename().string() : path;
      if (name == "dirname" && text.empty()) text = ".";
    } else if (name == "expr") {
      std::string sum;
      for (std::size_t i = 1; i < words.size(); ++i) sum += words[i] + " ";
      text = arithmetic(sum, state_);
    } else if (name == "seq") {
      text = sequence(words);
    } else if (name == "date") {
      text = "date";
    } else if (name == "cat" && capturing_ && !document.empty()) {
      text = document.substr(0, document.size() - 1);  // without its last end of a line
    } else if (name == "envsubst" && capturing_) {
      const auto found = file_text(input_);
      if (!found) return false;
      text = substituted_variables(*found, state_);
    } else if (name == "yq" && capturing_) {
      const auto found = yq_output(
          words, [this](const std::string& path) { return file_text(path); }, state_.budget);
      if (!found) return false;
      text = *found;
    } else if (name == "cat" && capturing_) {
      text = unknown("(cat)");
    } else if (name != "cat") {
      return false;
    }
    state_.budget.keep(text.size());
    if (capturing_)
      output_ += text + "\n";
    else if (name == "echo" || name == "printf")
      said_ = shortened(text);
    return true;
  }
  static std::string shortened(std::string_view whole) {
    std::string text = without_unknown(whole.substr(0, 1024));
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c == '\n' || c == '\t' || c == '\r'; }, ' ');
    // Colour codes are removed.
    for (std::size_t at = 0; (at = text.find("\\033[", at)) != std::string::npos;)
      text.erase(at, std::min(text.find('m', at), text.size() - 1) - at + 1);
    return text.size() > 80 ? text.substr(0, 77) + "..." : text;
  }
  static std::string formatted(const Words& words) {
    std::string text;
    std::size_t next = 2;
    const std::string& format = words[1];
    for (std::size_t i = 0; i < format.size(); ++i) {
      if (format[i] == '%' && i + 1 < format.size()) {
        while (i + 1 < format.size() && (std::isdigit(static_cast<unsigned char>(format[i + 1])) != 0 ||
                                         format[i + 1] == '.' || format[i + 1] == '-'))
          ++i;
        if (++i >= format.size()) break;
        if (format[i] == '%')
          text += '%';
        else if (next < words.size())
          text += words[next++];
      } else if (format[i] == '\\' && i + 1 < format.size() && format[i + 1] == 'n') {
        text += '\n';
        ++i;
      } else {
        text += format[i];
      }
    }
    return text;
  }
  std::string sequence(const Words& words) {
    std::vector<std::int64_t> numbers;
    for (std::size_t i = 1; i < words.size(); ++i)
      numbers.push_back(sum_of(
                            without_unknown(words[i]),
                            [](const std::string&) { return std::optional<std::string>("0"); }, state_.budget)
                            .value);
    if (numbers.empty() || numbers.size() > 3) return "";
    const std::int64_t begin = numbers.size() > 1 ? numbers[0] : 1, step = numbers.size() > 2 ? numbers[1] : 1,
                       last = numbers.back();
    std::string text;
    constexpr int kMostNumbers = 1000;
    if (step == 0 || (step > 0 ? begin > last : begin < last)) return text;
    std::int64_t i = begin;
    for (int count = 0;; ++count) {
      if (count == kMostNumbers) {
        note("of the numbers of seq the first 1,000 are taken");
        return text;
      }
      text += std::to_string(i) + "\n";
      // The next number must not pass the last one, which may be the largest that there is.
      std::int64_t next = 0;
      if (__builtin_add_overflow(i, step, &next) || (step > 0 ? next > last : next < last)) return text;
      i = next;
    }
  }

  // Runs "one | tr … | …" where each command after the first is known; its text is the output. Returns false otherwise.
  bool pass_filters(const Nodes& nodes) {
    for (std::size_t i = 0; i < nodes.size(); ++i)
      if (nodes[i].kind != Node::Kind::simple || nodes[i].is_piped != (i + 1 < nodes.size())) return false;
    if (one(nodes[0]) != End::through) return false;
    for (std::size_t i = 1; i < nodes.size(); ++i) {
      Words words;
      for (const std::string& word : nodes[i].words)
        for (std::string& field : fields_of(word, state_)) words.push_back(std::move(field));
      const auto text = filtered_text(words, output_, state_.budget);
      if (!text) return false;
      output_ = *text;
    }
    return true;
  }

  std::string output_of(const std::string& commands) {
    const Nodes& nodes = parsed(commands, name_, state_.line);
    const bool was_capturing = capturing_;
    const int line = state_.line, before_line = fixed_line_;
    std::string before;
    std::swap(before, output_);
    const std::size_t calls = result_.calls.size();
    capturing_ = true;
    fixed_line_ = line;
    bool is_piped = false;
    for (const Node& node : nodes) is_piped = is_piped || node.is_piped;
    bool is_filtered = false;
    if (!is_piped)
      list(nodes);
    else
      is_filtered = pass_filters(nodes);
    capturing_ = was_capturing;
    fixed_line_ = before_line;
    state_.line = line;
    std::swap(before, output_);
    // The output of a program is unknown.
    const bool is_known = (!is_piped || is_filtered) && result_.calls.size() == calls;
    result_.calls.resize(calls);
    // A blank in a mark would be taken for the end of a word.
    std::string named = shortened(commands).substr(0, 40);
    named.erase(0, std::min(named.find_first_not_of(' '), named.size()));
    if (const std::size_t blank = named.find(' '); blank != std::string::npos) named = named.substr(0, blank) + "...";
    std::erase_if(named, [](char c) { return c == '"' || c == '\'' || c == '`' || c == '\\'; });
    return is_known ? before : unknown("(" + named + ")");
  }

  const std::string& name_;
  const Outside& outside_;
  State state_;
  Run result_;
  std::deque<Nodes> trees_;  // a deque: elements stay where they are
  std::map<std::string, const Nodes*> functions_;
  std::map<std::string, Variable> of_programs_;  // [exported name]: its value when a program was started
  std::map<std::string, std::string> files_;     // [name without its folder]: text of files that the script writes
  std::string output_, said_, input_;
  bool capturing_ = false;
  int status_ = 0, steps_ = 0, depth_ = 0, rounds_ = 0, taken_in_ = 0, fixed_line_ = 0;
};

}  // namespace

Run run(std::string_view text, const std::string& name, const Outside& outside) {
  return Runner(name, outside).take(text);
}

}  // namespace stretto::shell
