#include <cstdio>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "cli/commands.hpp"
#include "cli/version.hpp"

// Exit codes: 0 done, 1 failed, 2 wrong usage or input.
int main(int argc, char** argv) {
  CLI::App app{"Stretto: build the schedule of a training step once, run it and predict it"};
  app.require_subcommand(0, 1);
  bool version = false;
  std::string version_json;
  app.add_flag("--version", version, "print the version; with --json FILE as JSON");
  app.add_option("--json", version_json)->group("");
  stretto::cli::add_compare(app);
  stretto::cli::add_simulate(app);
  stretto::cli::add_train(app);
  stretto::cli::add_calibrate(app);
  stretto::cli::add_show(app);
  try {
    app.parse(argc, argv);
    if (version && !version_json.empty()) {
      stretto::cli::write_json(version_json, {{"version", stretto::kVersion}, {"git", stretto::kGit}, {"backends", {"host"}}, {"engines", {"fluid", "simgrid"}}});
    } else if (version) {
      std::cout << "stretto " << stretto::kVersion << " (" << stretto::kGit << ")\n";
    } else if (app.get_subcommands().empty()) {
      std::cout << app.help();
      return 2;
    }
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const stretto::Error& error) {
    std::cerr << "stretto: " << error.what() << "\n";
    return error.exit_code();
  } catch (const std::exception& error) {
    std::cerr << "stretto: " << error.what() << "\n";
    return 1;
  }
}
