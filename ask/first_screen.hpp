#pragma once
#include <string>
#include <vector>

#include "ask/simulate.hpp"
#include "report/ink.hpp"

namespace stretto::ask {

// One of the answer's figures: its name, the value, and what there is to say about it.
struct Figure {
  std::string what, value, about;
};
// Returns step, throughput, MFU where the peak is known, memory, and the run where there is one.
std::vector<Figure> figures_of(const SimulateAnswer& answer, const Scenario& scenario);
// Returns "llama3-70b on 64 × NVIDIA H100-SXM5-80GB, nemo-dgxc", and "tp 4 · pp 4 × 5 chunks · cp 2 · dp 2".
std::string title_of(const Asked& asked, const SimulateAnswer& answer);
std::string layout_of(const Parallel& parallel);

// Returns the answer as the first screen of `simulate`: the finding, four figures, one bar of where the time goes, at
// most three levers, notes, and a line that names what else to ask. At most `ink.columns` wide, 60 at the least.
std::string first_screen(const Asked& asked, const SimulateAnswer& answer, const Ink& ink);

}  // namespace stretto::ask
