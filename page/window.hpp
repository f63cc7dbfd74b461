#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "page/drawn_step.hpp"

namespace stretto::page {

// A span of the step on one GPU, in picoseconds from the beginning of the step.
struct WindowRequest {
  std::int64_t gpu = 0;
  Picoseconds from = 0, to = 0;
  std::int64_t most = 3000;     // operations
  bool wants_critical = false;  // whether operations of the critical path are marked
};

// Returns the operations of a GPU that run in a span. Times are picoseconds from the beginning of the step.
//   gpu, role, step_ps, from, to
//   lanes        [{`name`, `is_compute`, `axis`}]: `axis` is null for a compute lane
//   kinds        [{`name`, `title`, `piece`, `phase`, `work`, `group`}]: what operations of one template have in
//   common.
//                `title`: its name for readers; `piece`: its number where the work is cut into pieces, else null;
//                `group`: an index into `groups`, null for computation
//   operations   [[kind, lane, start, transfer, end, micro-batch, chunk, bytes, exposed, waiting, is_critical]], by
//                start. Communication moves `bytes` from `transfer` to `end`, and the GPU waits for `exposed` of it;
//                `waiting`: the kinds of up to three operations that wait for it
//   labels       [the full name of each operation]
//   more         how many operations of the span are left out, because they start after the first `most`
//   lost         [[start, end, cause, operation]]: time without computation, with causes as in strip_json();
//                `operation`: the index of the transfer that is waited for, -1: none in the window
//   groups       [{`communicator`, `axis`, `gpus`, `link`, `link_GBps`}]: the groups of this GPU
// Throws Error(input) for a GPU that the job does not have, and for a span of no length.
nlohmann::json window_json(DrawnStep& drawn, const WindowRequest& request);

}  // namespace stretto::page
