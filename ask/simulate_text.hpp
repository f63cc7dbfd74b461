#pragma once
#include <string>

#include "ask/simulate.hpp"
#include "report/html.hpp"

namespace stretto::ask {

// Returns every figure of the step, memory by stage and part, and what was simulated.
std::string details_text(const SimulateAnswer& answer);
// Returns the answers to further questions: of what was assumed, modes, limits, the run, and what makes it fit. Modes
// in short (modes_text()), or `verbose` in full.
std::string further_text(const SimulateAnswer& answer, bool verbose, std::size_t columns);
// Returns every setting that a question in names left open, one "assumed: …" a line; "" for a scenario.
std::string list_of(const SimulateAnswer& answer);
// Returns the page of --html. The answer must have its timeline.
HtmlReport page_of(const Asked& asked, const SimulateAnswer& answer);

}  // namespace stretto::ask
