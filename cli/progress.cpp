#include "cli/progress.hpp"

#include <fmt/format.h>

#include <chrono>
#include <system_error>
#include <utility>

#include "model/step_size.hpp"

namespace stretto::cli {

std::string about_building(const Scenario& scenario) {
  const double operations = step_size_of(scenario).operations;
  return "building and verifying the schedule of a step" +
         (operations < 1e6 ? "" : fmt::format(", about {:.0f} million operations", operations / 1e6));
}

Patience::Patience(std::string what) : what_(std::move(what)) {
  try {
    thread_ = std::thread([this] { wait(); });
  } catch (const std::system_error&) {  // without a thread it goes on without a word
  }
}

Patience::~Patience() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ends_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Patience::wait() {
  const std::chrono::seconds patience(isatty(STDERR_FILENO) != 0 ? 2 : 10);
  std::unique_lock lock(mutex_);
  if (!ends_.wait_for(lock, patience, [this] { return is_over_; })) std::cerr << what_ << " …\n" << std::flush;
}

}  // namespace stretto::cli
