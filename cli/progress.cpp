#include "cli/progress.hpp"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>

#include "model/step_size.hpp"

namespace stretto::cli {

Patience::Patience(const Scenario& scenario) {
  const double operations = step_size_of(scenario).operations;
  const std::string what = "building and verifying the schedule of a step" +
                           (operations < 1e6 ? "" : fmt::format(", about {:.0f} million operations", operations / 1e6));
  const auto wait = [what](const std::stop_token& over) {
    const std::chrono::seconds patience(isatty(STDERR_FILENO) != 0 ? 2 : 10);
    std::mutex mutex;
    std::unique_lock lock(mutex);
    if (!std::condition_variable_any().wait_for(lock, over, patience, [&] { return over.stop_requested(); }))
      std::cerr << what << " …\n" << std::flush;
  };
  try {
    thread_ = std::jthread(wait);
  } catch (const std::system_error&) {  // without a thread the program goes on and prints nothing
  }
}

}  // namespace stretto::cli
