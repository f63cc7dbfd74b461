#pragma once
#include <string>
#include <vector>

namespace stretto::launch {

// Runs this program `ranks` times at once on this machine, with these arguments and the environment that
// world_from_environment reads; returns when all have ended. The children share a secret token. SIGINT and SIGTERM are
// passed on to them. When one has failed the others have 5 s to end by themselves, which they do because their group
// informs them; then they are killed, as all are when one has been stopped (SIGSTOP) for `stopped_s`. They also end
// when this process does.
//
// Throws Error when not all have succeeded: of kind input when one of them reported an input error (exit code 2). The
// message says which were killed; else what a rank first reported about itself, or about another; else which ended
// without a report. The message is empty where nobody reads rank 0's output.
void spawn_ranks(int ranks, const std::vector<std::string>& arguments, double stopped_s = 300);

// Reports in one line why this process fails: to the parent that --ranks started it from, which chooses among all
// reports, or else on standard error. Does nothing where the line is empty, because another process reports.
void say_failure(const std::string& line);

}  // namespace stretto::launch
