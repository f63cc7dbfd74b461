#include "cli/completion.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "base/data_folder.hpp"
#include "base/error.hpp"
#include "cli/manual.hpp"
#include "model/scenario/keys.hpp"

namespace stretto::cli {
namespace {

// All that a shell can complete. Words are separated by blanks; none has a character that a shell reads.
struct Completed {
  struct Option {
    std::string name, about;  // "--engine"
    std::string choices;      // "" where any value may follow
    bool takes_value = false;
  };
  struct Command {
    std::string name, about;
    std::vector<Option> options;
  };
  std::vector<Command> commands;
  std::string names, keys, platforms, scenarios;
};

// Returns the words of a closed list, as CLI::IsMember describes it: "{host,cuda}".
std::string choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return "";
  std::string words = type.substr(begin + 1, end - begin - 1);
  std::replace(words.begin(), words.end(), ',', ' ');
  return words;
}

void add_word(std::string& words, const std::string& word) { words += (words.empty() ? "" : " ") + word; }

// Returns the first part of a description, without characters that shells and their lists read.
std::string about_of(std::string text) {
  text.resize(std::min({text.find('\n'), text.find(';'), text.find(". "), text.size()}));
  std::string out;
  for (const char c : text) {
    if (c == '\'')
      out += "’";
    else if (c == ':')
      out += ',';
    else if (c != '\\' && c != '[' && c != ']' && c != '`' && c != '$')
      out += c;
  }
  return out;
}

Completed completed(const CLI::App& app) {
  Completed all;
  for (const CLI::App* command : shown_commands(app)) {
    Completed::Command& one = all.commands.emplace_back();
    one.name = command->get_name();
    one.about = about_of(command->get_description());
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames())
        if (is_shown(*option))
          one.options.push_back({"--" + name, about_of(option->get_description()), choices_of(*option),
                                 option->get_items_expected_max() > 0});
    add_word(all.names, one.name);
  }
  for (const std::string_view section : kSectionsOfKeys)
    for (const ScenarioKey& key : scenario_keys_of(section)) add_word(all.keys, key.full_name() + "=");
  for (const std::string& name : data_names("platforms")) add_word(all.platforms, name);
  for (const char* kind : {"models", "modes"})
    for (const std::string& name : data_names(kind)) add_word(all.scenarios, name);
  return all;
}

std::string options_of(const Completed::Command& command) {
  std::string words;
  for (const Completed::Option& option : command.options) add_word(words, option.name);
  return words;
}

// Calls `write(command, option)` for every option with a closed list.
template <class Write>
void each_choice(const Completed& all, const Write& write) {
  for (const Completed::Command& command : all.commands)
    for (const Completed::Option& option : command.options)
      if (option.takes_value && !option.choices.empty()) write(command, option);
}

std::string in_bash(const Completed& all) {
  std::string cases, values;
  each_choice(all, [&](const Completed::Command& command, const Completed::Option& option) {
    values += fmt::format("    {}:{}) COMPREPLY=($(compgen -W '{}' -- \"$word\")); return ;;\n", command.name,
                          option.name, option.choices);
  });
  for (const Completed::Command& command : all.commands)
    cases += fmt::format("    {}) options='{}' ;;\n", command.name, options_of(command));
  return fmt::format(R"(# Completion of stretto for bash; made by `stretto --print-completion`.
_stretto() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command=${{COMP_WORDS[1]}} options=''
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '{} --version --help' -- "$word"))
    return
  fi
  case $command:$before in
    *:--platform) COMPREPLY=($(compgen -W '{}' -- "$word") $(compgen -f -- "$word")); return ;;
    *:--set) compopt -o nospace 2>/dev/null; COMPREPLY=($(compgen -W '{}' -- "$word")); return ;;
{}  esac
  case $command in
{}  esac
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  else
    COMPREPLY=($(compgen -W '{}' -- "$word") $(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _stretto stretto
)",
                     all.names, all.platforms, all.keys, values, cases, all.scenarios);
}

std::string in_zsh(const Completed& all) {
  std::string commands, cases, values;
  each_choice(all, [&](const Completed::Command& command, const Completed::Option& option) {
    values += fmt::format("    {}:{}) compadd -- {}; return ;;\n", command.name, option.name, option.choices);
  });
  for (const Completed::Command& command : all.commands) {
    commands += fmt::format("    '{}:{}'\n", command.name, command.about);
    cases += fmt::format("    {}) options=({}) ;;\n", command.name, options_of(command));
  }
  return fmt::format(R"(#compdef stretto
# Completion of stretto for zsh; made by `stretto --print-completion=zsh`.
_stretto() {{
  local -a commands options
  commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    compadd -- --version --help
    return
  fi
  case "${{words[2]}}:${{words[CURRENT-1]}}" in
    *:--platform) compadd -- {}; _files; return ;;
    *:--set) compadd -S '' -- {}; return ;;
{}  esac
  case "${{words[2]}}" in
{}  esac
  if [[ $PREFIX == -* ]]; then
    compadd -- $options
  else
    compadd -- {}
    _files
  fi
}}
if [[ "${{funcstack[1]}}" == _stretto ]]; then _stretto "$@"; else compdef _stretto stretto; fi
)",
                     commands, all.platforms, all.keys, values, cases, all.scenarios);
}

std::string in_fish(const Completed& all) {
  std::string text = "# Completion of stretto for fish; made by `stretto --print-completion=fish`.\n";
  const std::string none = "not __fish_seen_subcommand_from " + all.names;
  for (const Completed::Command& command : all.commands)
    text += fmt::format("complete -c stretto -n '{}' -f -a {} -d '{}'\n", none, command.name, command.about);
  text += fmt::format("complete -c stretto -n '__fish_seen_subcommand_from {}' -a '{}'\n", all.names, all.scenarios);
  for (const Completed::Command& command : all.commands)
    for (const Completed::Option& option : command.options) {
      const bool is_key = option.name == "--set", is_platform = option.name == "--platform";
      const std::string& words = is_key ? all.keys : is_platform ? all.platforms : option.choices;
      text += fmt::format("complete -c stretto -n '__fish_seen_subcommand_from {}' -l {} -d '{}'{}\n", command.name,
                          option.name.substr(2), option.about,
                          !option.takes_value ? ""
                          : words.empty()     ? " -r"
                                              : fmt::format(" -{} -a '{}'", is_platform ? "r" : "x", words));
    }
  return text;
}

}  // namespace

std::string completion(const CLI::App& app, const std::string& shell) {
  const Completed all = completed(app);
  if (shell.empty() || shell == "bash") return in_bash(all);
  if (shell == "zsh") return in_zsh(all);
  if (shell == "fish") return in_fish(all);
  throw input_error("--print-completion: expected bash, zsh or fish, got \"" + shell + "\"");
}

}  // namespace stretto::cli
