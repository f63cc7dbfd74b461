#pragma once
#include <functional>
#include <string>

namespace stretto::sim {

// Runs `work` in a forked child process and returns the bytes that it returned. A stretto::Error of `work` is thrown
// again here with its kind and message; any other end of the child (another exception, a signal) is an Error(runtime).
// The caller sees no change that `work` makes in memory. Call it from a process without other running threads, or let
// `work` use nothing that those threads may hold locked.
std::string run_in_child(const std::function<std::string()>& work);

}  // namespace stretto::sim
