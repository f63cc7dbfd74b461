#pragma once
#include <nlohmann/json_fwd.hpp>

#include "page/drawn_step.hpp"

namespace stretto::page {

// Returns the whole step as bars; times are whole picoseconds from the beginning of the step.
//   step_ps   the step
//   causes    [{`cause`, `communicator`, `axis`}]: why a GPU computes nothing (report/lost_time.hpp); the last two are
//             of "exposed", and null for others
//   tracks    [{`role`, `rank`, `program`, `bars`, `gaps`}]: compute lanes of the first GPU of every stage;
//             of two tracks with one rank, the first has the gaps of both
//     bars    [kind, micro-batch, chunk, start, end, computes, lost, wgrad]: `computes` is the time in which its
//             operations run, `wgrad` the part of it for weight gradients; `lost`, [cause, time, cause, time, …], the
//             time in between in which the GPU computes nothing
//     gaps    [start, end, lost]: time between bars, in which the GPU computes nothing
//   computing [[phase, time]]: the mean over these GPUs of the time in which they compute, by phase; "recompute" is one
//   path      [[rank, start, end]]: the critical path, as stretches on the drawn GPUs
// The bars' `computes`, their `lost` and that of the gaps are the breakdown of the GPU's step.
nlohmann::json strip_json(DrawnStep& drawn);

}  // namespace stretto::page
