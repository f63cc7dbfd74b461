#pragma once
#include <string>
#include <vector>

namespace stretto::launch {

// Runs this program once more, `ranks` times at once on this machine, with these arguments, as world_from_environment
// knows it; returns when all have ended. SIGINT and SIGTERM are passed on to them. When one has failed the others are
// given 5 s to end by themselves, which they do because their group tells them; then they are killed. They end with
// this process, too.
//
// Throws Error when not all have succeeded: of kind input when one of them said so (exit code 2). The message
// names those that died without a word; it is empty when they have said themselves what was wrong.
void spawn_ranks(int ranks, const std::vector<std::string>& arguments);

}  // namespace stretto::launch
