#include "exec/launch/spawn.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/error.hpp"
#include "exec/launch/socket.hpp"

namespace stretto::launch {
namespace {

constexpr auto kGrace = std::chrono::seconds(5);

// Blocked for this process while it lives, so that sigtimedwait() returns them.
class BlockedSignals {
 public:
  BlockedSignals() {
    std::signal(SIGCHLD, SIG_DFL);  // where it is ignored nobody can wait for children
    sigemptyset(&set_);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM}) sigaddset(&set_, signal);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  const sigset_t& before() const { return before_; }
  // 0 when the time has passed.
  int wait(std::chrono::milliseconds most) const {
    const timespec time{most.count() / 1000, most.count() % 1000 * 1000000};
    return std::max(0, ::sigtimedwait(&set_, nullptr, &time));
  }

 private:
  sigset_t set_{}, before_{};
};

struct Child {
  pid_t process = 0;
  std::optional<int> status;
};

[[noreturn]] void become(int rank, int ranks, const Socket& listening, pid_t parent, std::vector<char*> arguments) {
  // Signals come from the parent alone, not from the terminal as well: a second one would end a rank at once.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);  // it has died before
  ::setenv("STRETTO_RANK", std::to_string(rank).c_str(), 1);
  ::setenv("STRETTO_RANKS", std::to_string(ranks).c_str(), 1);
  ::setenv("STRETTO_PORT", std::to_string(port_of(listening)).c_str(), 1);
  if (rank == 0) {
    ::setenv("STRETTO_LISTENING", std::to_string(listening.descriptor()).c_str(), 1);
    ::fcntl(listening.descriptor(), F_SETFD, 0);  // survives exec
  }
  ::execv("/proc/self/exe", arguments.data());
  std::perror("stretto: starting a rank");
  ::_exit(1);
}

}  // namespace

void spawn_ranks(int ranks, const std::vector<std::string>& arguments) {
  const BlockedSignals signals;
  Socket listening = listen_on(0);
  const pid_t parent = ::getpid();
  std::string program = "stretto";
  std::vector<char*> argv = {program.data()};
  std::vector<std::string> copies = arguments;
  for (std::string& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);

  std::vector<Child> children;
  const auto send_all_of_them = [&](int signal) {
    for (const Child& child : children)
      if (!child.status) ::kill(child.process, signal);
  };
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t process = ::fork();
    if (process == 0) {
      pthread_sigmask(SIG_SETMASK, &signals.before(), nullptr);
      become(rank, ranks, listening, parent, argv);
    }
    if (process < 0) {
      const std::string reason = std::strerror(errno);
      send_all_of_them(SIGKILL);
      throw runtime_failure(fmt::format("starting rank {}: {}", rank, reason));
    }
    children.push_back({process, {}});
  }
  listening.close();

  std::optional<Clock::time_point> deadline;  // set when one has failed
  bool is_killing = false;
  std::string died;
  for (std::size_t running = children.size(); running > 0;) {
    const int signal = signals.wait(std::chrono::milliseconds(500));
    if (signal == SIGINT || signal == SIGTERM) send_all_of_them(signal);
    for (std::size_t rank = 0; rank < children.size(); ++rank) {
      Child& child = children[rank];
      int status = 0;
      if (child.status || ::waitpid(child.process, &status, WNOHANG) != child.process) continue;
      child.status = status;
      --running;
      // Those that hang are killed here, below, and are no news; nor is it to who has stopped reading.
      if (WIFSIGNALED(status) && !is_killing && WTERMSIG(status) != SIGPIPE)
        died += fmt::format("{}rank {} was killed by signal {} ({})", died.empty() ? "" : "; ", rank, WTERMSIG(status),
                            ::strsignal(WTERMSIG(status)));
      if (status != 0 && !deadline) deadline = Clock::now() + kGrace;
    }
    is_killing = is_killing || (deadline && Clock::now() > *deadline);
    if (is_killing) send_all_of_them(SIGKILL);
  }
  if (!deadline) return;
  const bool is_input = std::any_of(children.begin(), children.end(), [](const Child& child) {
    return WIFEXITED(*child.status) && WEXITSTATUS(*child.status) == 2;
  });
  throw is_input ? input_error(died) : runtime_failure(died);
}

}  // namespace stretto::launch
