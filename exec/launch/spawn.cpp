#include "exec/launch/spawn.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "exec/launch/greeting.hpp"
#include "exec/launch/socket.hpp"

namespace stretto::launch {
namespace {

constexpr auto kGrace = std::chrono::seconds(5);

// Blocks signals for this process while the object lives, so that sigtimedwait() returns them.
class BlockedSignals {
 public:
  BlockedSignals() {
    std::signal(SIGCHLD, SIG_DFL);  // where it is ignored a parent cannot wait for children
    sigemptyset(&set_);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM}) sigaddset(&set_, signal);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  const sigset_t& before() const { return before_; }
  // Returns 0 when the time has passed.
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
  std::optional<Clock::time_point> stopped;
};

// Collects the children's reasons of failure, a line each: "RANK TEXT".
class Reports {
 public:
  Reports() {
    if (::pipe2(ends_, O_CLOEXEC | O_NONBLOCK) != 0)
      throw runtime_failure(fmt::format("starting ranks: {}", std::strerror(errno)));
  }
  ~Reports() {
    for (const int end : ends_) ::close(end);
  }
  Reports(const Reports&) = delete;
  Reports& operator=(const Reports&) = delete;
  int writing() const { return ends_[1]; }
  void read() {
    char piece[4096];
    for (ssize_t got = 0; (got = ::read(ends_[0], piece, sizeof piece)) > 0;) text_.append(piece, std::size_t(got));
  }
  // Returns the best report. A rank's report about itself is preferred to one about another rank; among equals, the
  // first.
  std::string best() const {
    std::string of_another;
    for (std::size_t at = 0, end = 0; (end = text_.find('\n', at)) != std::string::npos; at = end + 1) {
      const std::size_t blank = text_.find(' ', at);
      const std::string rank = text_.substr(at, blank - at), said = text_.substr(blank + 1, end - blank - 1);
      const std::string subject = said.starts_with("rank ") ? said.substr(5, said.find_first_of(": ", 5) - 5) : rank;
      if (subject == rank) return said;
      if (of_another.empty()) of_another = said;
    }
    return of_another;
  }

 private:
  int ends_[2] = {-1, -1};
  std::string text_;
};

[[noreturn]] void become(int rank, int ranks, const Socket& listening, const Reports& reports, const std::string& token,
                         pid_t parent, std::vector<char*> arguments) {
  // Signals must come only from the parent, not from the terminal as well: a second one would end a rank at once.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);  // the parent has died before
  ::setenv("STRETTO_RANK", std::to_string(rank).c_str(), 1);
  ::setenv("STRETTO_RANKS", std::to_string(ranks).c_str(), 1);
  ::setenv("STRETTO_PORT", std::to_string(port_of(listening)).c_str(), 1);
  ::setenv("STRETTO_TOKEN", token.c_str(), 1);
  ::setenv("STRETTO_REPORTS", std::to_string(reports.writing()).c_str(), 1);
  ::setenv("OPENBLAS_NUM_THREADS", "1", 1);  // OpenBLAS would start more threads, and not use them
  ::fcntl(reports.writing(), F_SETFD, 0);    // the pipe survives exec
  if (rank == 0) {
    ::setenv("STRETTO_LISTENING", std::to_string(listening.descriptor()).c_str(), 1);
    ::fcntl(listening.descriptor(), F_SETFD, 0);
  }
  ::execv("/proc/self/exe", arguments.data());
  std::perror("stretto: starting a rank");
  ::_exit(1);
}

}  // namespace

void say_failure(const std::string& line) {
  if (line.empty()) return;
  const char *reports = std::getenv("STRETTO_REPORTS"), *rank = std::getenv("STRETTO_RANK");
  if (reports != nullptr && rank != nullptr) {
    const std::string report = fmt::format("{} {}", rank, printable(line)).substr(0, PIPE_BUF - 1) + "\n";
    if (::write(std::atoi(reports), report.data(), report.size()) == static_cast<ssize_t>(report.size())) return;
  }
  std::fprintf(stderr, "stretto: %s\n", printable(line).c_str());
}

void spawn_ranks(int ranks, const std::vector<std::string>& arguments, double stopped_s) {
  const BlockedSignals signals;
  Reports reports;
  std::string token;
  for (const std::byte byte : random_nonce()) token += fmt::format("{:02x}", std::to_integer<int>(byte));
  Socket listening = listen_on("127.0.0.1", 0);
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
      become(rank, ranks, listening, reports, token, parent, argv);
    }
    if (process < 0) {
      const std::string reason = std::strerror(errno);
      send_all_of_them(SIGKILL);
      throw runtime_failure(fmt::format("starting rank {}: {}", rank, reason));
    }
    children.push_back({process, {}, {}});
  }
  listening.close();

  std::optional<Clock::time_point> deadline;  // set when a child has failed
  bool is_killing = false, is_unread = false;
  std::string died, stopped, silent;
  const auto add = [](std::string& to, const std::string& what) { to += (to.empty() ? "" : "; ") + what; };
  for (std::size_t running = children.size(); running > 0;) {
    const int signal = signals.wait(std::chrono::milliseconds(500));
    if (signal == SIGINT || signal == SIGTERM) {
      send_all_of_them(signal);
      stopped_s = std::min<double>(stopped_s, kGrace.count());  // a stopped child does not receive the signal
    }
    reports.read();
    const Clock::time_point now = Clock::now();
    for (std::size_t rank = 0; rank < children.size(); ++rank) {
      Child& child = children[rank];
      int status = 0;
      if (child.status || ::waitpid(child.process, &status, WNOHANG | WUNTRACED | WCONTINUED) != child.process)
        continue;
      if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
        child.stopped.reset();
        if (WIFSTOPPED(status)) child.stopped = now;
        continue;
      }
      child.status = status;
      --running;
      // Children that hang are killed below and are not reported. SIGPIPE is not reported either: the reader has
      // stopped.
      if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE)
        is_unread = true;
      else if (WIFSIGNALED(status) && !is_killing)
        add(died,
            fmt::format("rank {} was killed by signal {} ({})", rank, WTERMSIG(status), ::strsignal(WTERMSIG(status))));
      else if (WIFEXITED(status) && status != 0)
        add(silent, fmt::format("rank {} ended with exit code {} and without a word", rank, WEXITSTATUS(status)));
      if (status != 0 && !deadline) deadline = now + kGrace;
    }
    // Running ranks have noticed a stopped one before this; it matters when all are stopped.
    const bool is_late = std::any_of(children.begin(), children.end(), [&](const Child& child) {
      return !child.status && child.stopped && now - *child.stopped > std::chrono::duration<double>(stopped_s);
    });
    if (is_late && !deadline) {
      for (std::size_t rank = 0; rank < children.size(); ++rank)
        if (!children[rank].status && children[rank].stopped)
          stopped += fmt::format("{}{}", stopped.empty() ? "" : ", ", rank);
      stopped = fmt::format("rank{} {} {} been stopped (SIGSTOP) for {:g} s",
                            stopped.find(',') == std::string::npos ? "" : "s", stopped,
                            stopped.find(',') == std::string::npos ? "has" : "have", stopped_s);
      deadline = now;
    }
    is_killing = is_killing || (deadline && now > *deadline);
    if (is_killing) send_all_of_them(SIGKILL);
  }
  reports.read();
  if (!deadline) return;
  const bool is_input = std::any_of(children.begin(), children.end(), [](const Child& child) {
    return WIFEXITED(*child.status) && WEXITSTATUS(*child.status) == 2;
  });
  std::string why;
  for (const std::string& reason :
       {died, is_unread ? std::string() : reports.best(), stopped, is_unread ? std::string() : silent})
    if (why.empty()) why = reason;
  throw is_input ? input_error(why) : runtime_failure(why);
}

}  // namespace stretto::launch
