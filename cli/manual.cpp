#include "cli/manual.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

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

void options_of(const CLI::App& command, std::string& page) {
  for (const CLI::Option* option : command.get_options()) {
    if (!is_shown(*option)) continue;
    page += fmt::format(".TP\n.B {}\n", troff(option->get_name(false, true)));
    page += troff(option->get_description()) + "\n";
  }
}

}  // namespace

bool is_shown(const CLI::Option& option) { return !option.get_group().empty(); }

std::vector<const CLI::App*> shown_commands(const CLI::App& app) {
  std::vector<const CLI::App*> commands;
  for (const CLI::App* command : app.get_subcommands({}))
    if (!command->get_group().empty()) commands.push_back(command);
  return commands;
}

std::string man_page(const CLI::App& app) {
  std::string page = fmt::format(".TH STRETTO 1 \"\" \"Stretto {}\" \"User Commands\"\n.SH NAME\nstretto \\- {}\n",
                                 kVersion, troff(app.get_description()));
  page += ".SH SYNOPSIS\n.B stretto\n.I COMMAND\n[options]\n";
  page += ".SH COMMANDS\n";
  for (const CLI::App* command : shown_commands(app)) {
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

}  // namespace stretto::cli
