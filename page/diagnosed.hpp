#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ask/request.hpp"

namespace stretto::page {

// Explains a trace of the asked scenario's run. `file` is its path; `asked` has its platform.
//   diagnosis    what `stretto diagnose --json` prints
//   text         what `stretto diagnose` prints
//   axes         the axis of each of the diagnosis's gaps, null where it is no communication's
//   step_ps      {`predicted`, `measured`}: the length of the step of the rank that is explained
//   kinds        [{`name`, `phase`, `axis`}]: what the timelines run. `phase`: of an operation that computes, null for
//                kernels outside the schedule; `axis`: of communication, null for computation
//   predicted, measured   [[kind, start, end]] by start, in picoseconds from the beginning of the step: at most
//                3,000 operations or kernels, around the anchor
//   anchor       {`name`, `predicted`, `measured`}: the start of an operation on both sides, from which on the measured
//                step loses most time; null where no operation that computes was matched
// Throws Error(input) where the file is no trace, or not one of this scenario, or of another GPU.
nlohmann::json diagnosed_json(const ask::Asked& asked, const std::string& file);

}  // namespace stretto::page
