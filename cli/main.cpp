#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <nlohmann/json.hpp>
#include <regex>
#include <stdexcept>
#include <system_error>

#include "base/error.hpp"
#include "base/module.hpp"
#include "base/printable.hpp"
#include "cli/commands.hpp"
#include "cli/completion.hpp"
#include "cli/heap.hpp"
#include "cli/manual.hpp"
#include "cli/terminal.hpp"
#include "cli/version.hpp"
#include "exec/launch/spawn.hpp"

namespace {

std::string did_you_mean(const std::string& given, const std::vector<std::string>& known) {
  const std::string nearest = stretto::nearest_spelling(given, known);
  return nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?";
}

// Returns words that no option has taken. There are some only while the command line is read.
std::vector<std::string> unknown_words(const CLI::App& app) {
  return app.get_subcommands().empty() ? app.remaining() : app.get_subcommands().front()->remaining();
}

// Returns a usage error in one line. `what` is the message of CLI11, which has several lines and no nearest spelling.
std::string usage_message(const CLI::App& app, const std::string& what) {
  const CLI::App& command = app.get_subcommands().empty() ? app : *app.get_subcommands().front();
  std::string message = what;
  std::replace(message.begin(), message.end(), '\n', ' ');
  // An unknown word comes first, because other errors may follow from it.
  if (const std::vector<std::string> extras = unknown_words(app); !extras.empty()) {
    std::vector<std::string> known;
    for (const CLI::App* subcommand : command.get_subcommands({})) known.push_back(subcommand->get_name());
    for (const CLI::Option* option : command.get_options())
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
    message = "\"" + extras.front() + "\" was not expected" + did_you_mean(extras.front(), known);
  } else if (std::smatch parts; std::regex_match(message, parts, std::regex("(.*): (.*) not in \\{(.*)\\}"))) {
    const std::vector<std::string> known = CLI::detail::split(parts[3], ',');
    message = parts[1].str() + ": expected one of " + CLI::detail::join(known, ", ") + ", got \"" + parts[2].str() +
              "\"" + did_you_mean(parts[2], known);
  } else if (std::regex_match(message, parts, std::regex("(.*): Value (.*) not in range (.*)"))) {
    message = parts[1].str() + ": expected " + parts[3].str() + ", got \"" + parts[2].str() + "\"";
  }
  const std::string name = command.get_parent() == nullptr ? "stretto" : "stretto " + command.get_name();
  return message + (message.back() == '?' ? " (" : "; ") + "see `" + name + " --help`" +
         (message.back() == '?' ? ")" : "");
}

// When the caller has closed a standard stream, the next opened file would get its number, and output would go there.
// So closed streams are opened here, in the wrong direction: using them still fails.
void occupy_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0) {
      const int opened = ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
      if (opened != stream && opened >= 0) ::close(opened);
    }
}

// This function must not allocate.
int fail_without_memory() {
  rlimit limit{};
  const bool is_limited = ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  if (is_limited)
    std::fprintf(stderr, "stretto: out of memory: this process may have %llu MiB (ulimit -v)\n",
                 static_cast<unsigned long long>(limit.rlim_cur >> 20));
  else
    std::fputs("stretto: out of memory: more was asked for than this machine has free\n", stderr);
  return 1;
}

// Handles an exception that can propagate no further, as in the destructor or the thread of a library.
[[noreturn]] void end_with_a_line() {
  try {
    if (const std::exception_ptr exception = std::current_exception()) std::rethrow_exception(exception);
  } catch (const std::bad_alloc&) {
    std::_Exit(fail_without_memory());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stretto: a bug: %s\n", stretto::printable(error.what()).c_str());
  } catch (...) {
  }
  std::abort();
}

int run(int argc, char** argv) {
  std::set_terminate(end_with_a_line);
  stretto::cli::keep_heap_in_huge_pages();
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` then fails like one to a full disk
  CLI::App app{"Stretto: build the schedule of a training step once, run it and predict it"};
  app.require_subcommand(0, 1);
  bool version = false, man = false;
  std::string shell;
  stretto::cli::Output version_json;
  stretto::cli::Files files;
  app.add_flag("--version", version, "print the version; with --json FILE as JSON");
  files.add_output(app, "--json", version_json, "", true)->group("");
  app.add_flag("--print-man", man, "")->group("");  // for packagers
  const CLI::Option* completion = app.add_option("--print-completion", shell, "")->expected(0, 1)->group("");
  stretto::cli::add_compare(app);
  stretto::cli::add_simulate(app);
  stretto::cli::add_train(app);
  stretto::cli::add_evaluate(app);
  stretto::cli::add_sample(app);
  stretto::cli::add_profile(app);
  stretto::cli::add_calibrate(app);
  stretto::cli::add_show(app);
  stretto::cli::add_list(app);
  stretto::cli::add_export(app);
  stretto::cli::add_import(app);
  stretto::cli::add_validate(app);
  stretto::cli::add_sweep(app);
  stretto::cli::add_plan(app);
  stretto::cli::add_diagnose(app);
  stretto::cli::add_page(app);
  try {
    app.parse(argc, argv);
    if (version && !version_json.empty()) {
      files.claim_outputs();
      stretto::cli::write_json(version_json, {{"version", stretto::kVersion},
                                              {"git", stretto::kGit},
                                              {"backends", nlohmann::json::parse(stretto::kBackends)},
                                              {"engines", {"fluid", "simgrid"}}});
    } else if (man) {
      std::cout << stretto::cli::man_page(app);
    } else if (completion->count() > 0) {
      std::cout << stretto::cli::completion(app, shell);
    } else if (version) {
      std::cout << "stretto " << stretto::kVersion << " (" << stretto::kGit << ")\n";
    } else if (app.get_subcommands().empty()) {
      std::cout << app.help();
      return 2;
    }
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    stretto::launch::say_failure(usage_message(app, error.what()));
    return 2;
  } catch (const stretto::Error& error) {
    // The value of an unknown option has been taken for something else.
    const bool is_usage = !unknown_words(app).empty();
    stretto::launch::say_failure(is_usage ? usage_message(app, "") : error.what());
    return is_usage ? 2 : error.exit_code();
  } catch (const std::bad_alloc&) {
    return fail_without_memory();
  } catch (const std::length_error&) {  // a container that would be larger than any memory
    return fail_without_memory();
  } catch (const std::system_error& error) {
    const bool is_thread = error.code() == std::errc::resource_unavailable_try_again;
    stretto::launch::say_failure((is_thread ? "no thread can be started (memory, or ulimit -u): " : "") +
                                 std::string(error.what()));
    return 1;
  } catch (const std::exception& error) {
    stretto::launch::say_failure(error.what());
    return 1;
  }
}

}  // namespace

// Exit codes: 0 done, 1 failed, 2 wrong usage or input.
int main(int argc, char** argv) {
  // OpenBLAS would start a thread for each core when it is loaded. None is used, but each spins on its core for some
  // 80 ms, and keeps asking for memory where there is a limit to it.
  ::setenv("OPENBLAS_NUM_THREADS", "1", 1);
  occupy_standard_streams();
  const stretto::cli::ShownText errors(std::cerr), shown(std::cout);
  const int code = run(argc, argv);
  // Output that a full disk or a closed pipe has lost is a failure.
  std::cout.flush();
  if (!std::cout && code == 0) {
    stretto::launch::say_failure("standard output: cannot be written");
    return 1;
  }
  // NCCL aborts communicators in threads of its own, and a thread may hang in a library. The end of a process must not
  // unload libraries from under them.
  if (code != 0) std::_Exit(code);
  return code;
}
