#include "interchange/command_line.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <map>

#include "interchange/benchmark_command.hpp"
#include "interchange/shell_run.hpp"

namespace stretto {
namespace {

using Words = std::vector<std::string>;

// Makes "--nproc-per-node" and "--nproc_per_node" one spelling.
std::string with_underscores(std::string text) {
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

bool is_flag(const std::string& word) {
  return word.size() > 2 && word.starts_with("--") && std::isalpha(static_cast<unsigned char>(word[2])) != 0;
}

// Returns the first number in a word such as "8", "4:8" or "gpu:8"; nothing where it is unknown.
std::optional<std::int64_t> number_in(const std::string& word, bool is_last = false) {
  if (!shell::unknown_names(word).empty()) return std::nullopt;
  const std::size_t colon = is_last ? word.rfind(':') : std::string::npos;
  const char* begin = word.data() + (colon == std::string::npos ? 0 : colon + 1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(begin, word.data() + word.size(), value);
  if (error != std::errc{} || value < 1 || value > (1 << 24)) return std::nullopt;
  return value;
}

// Reads the numbers of nodes and processes that launchers are given: torchrun, srun and sbatch, mpirun, DeepSpeed.
class Launcher {
 public:
  explicit Launcher(CommandLine& line) : line_(line) {}
  void take(const Words& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::size_t equal = words[i].find('=');
      std::string name = with_underscores(words[i].substr(0, equal));
      const auto is = [&](std::initializer_list<const char*> names) {
        return std::find(names.begin(), names.end(), name) != names.end();
      };
      const bool asks =
          is({"__nproc_per_node", "__nnodes", "__nodes", "_N", "__ntasks_per_node", "__gpus_per_node",
              "__gpus_per_task", "__gres", "__num_nodes", "__num_gpus", "_np", "_n", "__ntasks", "_c10d"});
      if (!asks) continue;
      const std::string value = equal != std::string::npos ? words[i].substr(equal + 1)
                                : i + 1 < words.size()     ? words[i + 1]
                                                           : "";
      const std::optional<std::int64_t> number = number_in(value, name == "__gres" || name == "__gpus_per_node");
      if (!number) continue;
      if (is({"__nproc_per_node", "__num_gpus"}))
        line_.processes = number;
      else if (is({"__gpus_per_node", "__gres", "__ntasks_per_node"}))
        gpus_of_node_ = std::max(gpus_of_node_.value_or(1), *number);
      else if (is({"__nnodes", "__num_nodes", "__nodes", "_N"}))
        line_.nodes = number;
      else if (is({"_np", "_n", "__ntasks"}))
        tasks_ = number;
    }
  }
  void finish() {
    if (!line_.processes) line_.processes = gpus_of_node_;
    if (!line_.processes && !line_.gpus) line_.gpus = tasks_;
  }

 private:
  CommandLine& line_;
  std::optional<std::int64_t> gpus_of_node_, tasks_;
};

// Returns whether the word is a Hydra override "key.of.it=value": "+key" adds, "++key" adds or changes, "~key" removes.
bool is_override(const std::string& word) {
  const std::size_t begin = word.find_first_not_of("+~");
  if (begin == std::string::npos || (std::isalpha(static_cast<unsigned char>(word[begin])) == 0 && word[begin] != '_'))
    return false;
  if (word[0] == '~') return true;
  const std::size_t equal = word.find('=');
  return equal != std::string::npos && std::all_of(word.begin() + static_cast<std::ptrdiff_t>(begin),
                                                   word.begin() + static_cast<std::ptrdiff_t>(equal), [](char c) {
                                                     return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                                                            c == '_' || c == '.' || c == '@' || c == '/';
                                                   });
}

void add_overrides(const Words& words, std::size_t begin, std::vector<std::string>& overrides) {
  for (std::size_t i = begin; i < words.size(); ++i)
    if (!is_flag(words[i]) && is_override(words[i]) && shell::unknown_names(words[i]).empty())
      overrides.push_back(words[i]);
}

// Returns where the program's own flags begin: after "x.py" or "-m module", except torchrun's module.
std::size_t program_in(const Words& words, std::string& program) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool is_module = (words[i] == "-m" || words[i] == "--module") && i + 1 < words.size();
    const std::string word = shell::without_unknown(is_module ? words[i + 1] : words[i]);
    if (is_module ? word == "torch.distributed.run" || word == "torch.distributed.launch" ||
                        word == "accelerate.commands.launch"
                  : !word.ends_with(".py") && !word.ends_with("training/train.sh"))
      continue;
    program = word;
    return i + (is_module ? 2 : 1);
  }
  return std::string::npos;
}

void add_flags(const Words& words, std::size_t begin, int line, std::vector<Flag>& flags) {
  // An element of an array may hold a flag together with its value.
  Words plain;
  for (std::size_t i = begin; i < words.size(); ++i) {
    if (is_flag(words[i]) && words[i].find_first_of(" \t\n") != std::string::npos) {
      const std::string& text = words[i];
      for (std::size_t at = 0; (at = text.find_first_not_of(" \t\n", at)) != std::string::npos;) {
        const std::size_t end = std::min(text.find_first_of(" \t\n", at), text.size());
        plain.push_back(text.substr(at, end - at));
        at = end;
      }
    } else {
      plain.push_back(words[i]);
    }
  }
  bool takes = false;
  for (const std::string& word : plain) {
    if (is_flag(word)) {
      const std::size_t equal = word.find('=');
      flags.push_back({word.substr(0, equal), {}, line, {}});
      if (equal != std::string::npos) flags.back().values.push_back(word.substr(equal + 1));
      takes = equal == std::string::npos;
    } else if (takes) {
      flags.back().values.push_back(word);
    }
  }
  for (Flag& flag : flags)
    for (std::string& value : flag.values) {
      const auto names = shell::unknown_names(value);
      flag.unknown.insert(names.begin(), names.end());
      value = shell::without_unknown(value);
    }
}

// Finds the lines of flags by their names in the script: a call has one line, but its flags may stand on others.
void find_lines(std::string_view text, std::vector<Flag>& flags) {
  std::map<std::string_view, int, std::less<>> lines;  // of the first place of each word that begins with --
  int line = 1;
  for (std::size_t at = 0; at < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view whole = text.substr(at, end - at), row = whole.substr(0, whole.find('#'));
    at = end + 1;
    for (std::size_t begin = 0; (begin = row.find("--", begin)) != std::string_view::npos;) {
      std::size_t end_of_word = begin;
      while (end_of_word < row.size() && (std::isalnum(static_cast<unsigned char>(row[end_of_word])) != 0 ||
                                          std::string_view("-_.").find(row[end_of_word]) != std::string_view::npos))
        ++end_of_word;
      lines.try_emplace(row.substr(begin, end_of_word - begin), line);
      begin = end_of_word;
    }
  }
  for (Flag& flag : flags) {
    const auto found = lines.find(flag.name);
    flag.line = found == lines.end() ? 0 : found->second;
  }
}

bool has_flags(const Words& words, std::size_t begin) {
  for (std::size_t i = begin; i < words.size(); ++i)
    if (is_flag(words[i])) return true;
  return false;
}

bool has_settings(const Words& words, std::size_t begin) {
  for (std::size_t i = begin; i < words.size(); ++i)
    if (is_flag(words[i]) || is_override(words[i])) return true;
  return false;
}

// Returns the words of variables that hold flags, in the order of their assignment.
Words words_of_variables(const shell::Run& run) {
  std::vector<const shell::Variable*> holders;
  for (const auto& [name, variable] : run.variables)
    if (std::any_of(variable.elements.begin(), variable.elements.end(),
                    [](const std::string& one) { return one.find("--") != std::string::npos; }))
      holders.push_back(&variable);
  std::sort(holders.begin(), holders.end(), [](auto* a, auto* b) { return a->order < b->order; });
  Words words;
  for (const shell::Variable* holder : holders)
    for (const std::string& element : holder->elements)
      for (std::size_t at = 0; (at = element.find_first_not_of(" \t\n\r", at)) != std::string::npos;) {
        const std::size_t end = std::min(element.find_first_of(" \t\n\r", at), element.size());
        words.push_back(element.substr(at, end - at));
        at = end;
      }
  return words;
}

// Takes the flags of a text that starts no program: flags alone, one command with flags, or variables that hold flags.
void take_pieces(const shell::Run& run, Launcher& launcher, CommandLine& line) {
  Words words;
  for (const shell::Call& call : run.calls)
    if (is_flag(call.words[0])) words.insert(words.end(), call.words.begin(), call.words.end());
  if (words.empty() && run.calls.size() == 1) words = run.calls[0].words;
  // A recipe of NeMo 2, whose program's name nothing sets: torchrun … ${NEMO_LAUNCH_SCRIPT} --factory "recipe()".
  for (const shell::Call& call : run.calls)
    if (words.empty() && std::find(call.words.begin(), call.words.end(), "--factory") != call.words.end())
      words = call.words;
  if (!has_flags(words, 0)) words = words_of_variables(run);
  launcher.take(words);
  program_in(words, line.program);
  add_flags(words, 0, 1, line.flags);
}

}  // namespace

CommandLine command_line_of(std::string_view text, const std::string& name, const ImportOptions& options) {
  shell::Outside outside;
  outside.environment = options.environment;
  outside.script = options.path;
  outside.read = options.read;
  const shell::Run run = shell::run(text, name, outside);
  CommandLine line;
  line.notes = run.notes;
  line.choices = run.choices;
  Launcher launcher(line);
  launcher.take(run.batch);
  // The last program with flags is the one that trains; earlier ones prepare data.
  const shell::Call* best = nullptr;
  int others = 0;  // calls of the same program with other settings
  std::size_t begin = std::string::npos;
  for (const shell::Call& call : run.calls) {
    std::string program;
    const std::size_t at = program_in(call.words, program);
    const bool is_first = best == nullptr;
    // Tools of text and files name programs that they do not start.
    constexpr const char* kTools[] = {"sed",  "grep", "awk",  "find", "ls",   "wget",
                                      "curl", "head", "tail", "diff", "patch"};
    const std::string tool = std::filesystem::path(call.words[0]).filename().string();
    if (std::find(std::begin(kTools), std::end(kTools), tool) != std::end(kTools)) continue;
    const bool is_program = at != std::string::npos && (has_settings(call.words, at) || is_benchmark_program(program));
    const bool trains = program.find("train") != std::string::npos || program.find("gpt") != std::string::npos;
    if (is_program &&
        (is_first || trains || line.program.empty() || program == line.program || is_benchmark_program(program))) {
      if (!is_first && program == line.program && call.words != best->words) ++others;
      best = &call;
      begin = at;
      line.program = program;
    }
  }
  if (others > 0)
    line.notes.push_back("the script starts " + line.program + " " + std::to_string(others + 1) +
                         " times with other settings: the last is meant");
  if (best != nullptr && !line.program.empty()) {
    launcher.take(Words(best->words.begin(), best->words.begin() + static_cast<std::ptrdiff_t>(begin)));
    add_flags(best->words, begin, best->line, line.flags);
    line.words.assign(best->words.begin() + static_cast<std::ptrdiff_t>(begin), best->words.end());
    add_overrides(best->words, begin, line.overrides);
  } else {
    take_pieces(run, launcher, line);
    // A program without flags may have its settings inside.
    if (line.flags.empty())
      for (const shell::Call& call : run.calls)
        if (program_in(call.words, line.program) != std::string::npos) launcher.take(call.words);
  }
  launcher.finish();
  if (!line.gpus && !line.processes)
    if (const auto world = run.variables.find("WORLD_SIZE");
        world != run.variables.end() && !world->second.elements.empty())
      line.gpus = number_in(world->second.elements.front());
  find_lines(text, line.flags);
  for (const auto& [key, at] : run.exports) {
    const auto found = run.variables.find(key);
    if (found == run.variables.end() || found->second.elements.empty()) continue;
    line.exports[key] = shell::without_unknown(found->second.elements.front());
    line.export_lines[key] = at;
  }
  return line;
}

}  // namespace stretto
