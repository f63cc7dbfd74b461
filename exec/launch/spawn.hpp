#pragma once
#include <string>
#include <vector>

namespace stretto::launch {

// Runs this program once more, `ranks` times at once on this machine, with these arguments, as world_from_environment
// knows it; returns when all have ended. They share a token that nobody else knows. SIGINT and SIGTERM are passed on to
// them. When one has failed the others are given 5 s to end by themselves, which they do because their group tells
// them; then they are killed, as all are when one has been stopped (SIGSTOP) for `stopped_s`. They end with this
// process, too.
//
// Throws Error when not all have succeeded: of kind input when one of them said so (exit code 2). It says which were
// killed; else what a rank said of itself first, or of another; else which ended without a word. The message is empty
// where nobody reads what rank 0 writes.
void spawn_ranks(int ranks, const std::vector<std::string>& arguments, double stopped_s = 300);

// Says why this process fails, in one line: to the --ranks that has started it, which chooses among what all of them
// say, or else on standard error. Nothing where the line is empty: another says it.
void say_failure(const std::string& line);

}  // namespace stretto::launch
