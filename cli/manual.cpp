#include "cli/manual.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "base/data_folder.hpp"
#include "cli/version.hpp"

namespace stretto::cli {
namespace {

// Escapes a backslash, and a point or an apostrophe at the beginning of a line, which troff takes for commands.
std::string troff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    if (c == '\n') out += "\\&";
  }
  return out.empty() || (out[0] != '.' && out[0] != '\'') ? out : "\\&" + out;
}

bool is_shown(const CLI::Option& option) { return !option.get_group().empty(); }
std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  std::vector<const CLI::App*> commands;
  for (const CLI::App* command : app.get_subcommands({}))
    if (!command->get_group().empty()) commands.push_back(command);
  return commands;
}
bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

void options_of(const CLI::App& command, std::string& page) {
  for (const CLI::Option* option : command.get_options()) {
    if (!is_shown(*option)) continue;
    page += fmt::format(".TP\n.B {}\n", troff(option->get_name(false, true)));
    page += troff(option->get_description()) + "\n";
  }
}

// Returns the words of a closed list, as CLI::IsMember describes it: "{host,cuda}".
std::string choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return "";
  std::string words = type.substr(begin + 1, end - begin - 1);
  std::replace(words.begin(), words.end(), ',', ' ');
  return words;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace

std::string man_page(const CLI::App& app) {
  std::string page = fmt::format(".TH STRETTO 1 \"\" \"Stretto {}\" \"User Commands\"\n.SH NAME\nstretto \\- {}\n",
                                 kVersion, troff(app.get_description()));
  page += ".SH SYNOPSIS\n.B stretto\n.I COMMAND\n[options]\n";
  page += ".SH COMMANDS\n";
  for (const CLI::App* command : commands_of(app)) {
    page += fmt::format(".SS stretto {}\n{}\n", troff(command->get_name()), troff(command->get_description()));
    options_of(*command, page);
    if (!command->get_footer().empty()) page += ".PP\n.nf\n" + troff(command->get_footer()) + "\n.fi\n";
  }
  page += ".SH OPTIONS\n";
  options_of(app, page);
  page +=
      ".SH EXIT STATUS\n0: done. 1: it failed while it ran, or was interrupted. 2: the input was wrong.\n"
      ".SH FILES\n.I share/stretto\n(or $STRETTO_DATA) has the platforms, profiles and scenarios that are found by "
      "name.\n";
  return page;
}

std::string bash_completion(const CLI::App& app) {
  std::vector<std::string> names;
  std::string cases, values;
  for (const CLI::App* command : commands_of(app)) {
    names.push_back(command->get_name());
    std::vector<std::string> options;
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames()) {
        if (!is_shown(*option)) continue;
        options.push_back("--" + name);
        const std::string choices = choices_of(*option);
        if (takes_value(*option) && !choices.empty())
          values += fmt::format("    {}:--{}) COMPREPLY=($(compgen -W '{}' -- \"$word\")); return ;;\n", names.back(),
                                name, choices);
      }
    cases += fmt::format("    {}) options='{}' ;;\n", names.back(), joined(options));
  }
  std::vector<std::string> scenarios = data_names("models");
  for (const std::string& name : data_names("modes")) scenarios.push_back(name);
  return fmt::format(R"(# Completion of stretto for bash; made by `stretto --print-completion`.
_stretto() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command=${{COMP_WORDS[1]}} options=''
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '{} --version --help' -- "$word"))
    return
  fi
  case $command:$before in
    *:--platform) COMPREPLY=($(compgen -W '{}' -- "$word") $(compgen -f -- "$word")); return ;;
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
                     joined(names), joined(data_names("platforms")), values, cases, joined(scenarios));
}

}  // namespace stretto::cli
