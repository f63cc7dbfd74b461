#pragma once
#include <string>
#include <vector>

#include "report/ink.hpp"
#include "report/prediction.hpp"

namespace stretto {

// A part of a step's time, in the field's words.
struct BudgetPart {
  std::string what;    // "computing", "exposed TP", "pipeline bubble"
  std::string colour;  // a name of report/colours.hpp
  char mark = '#';     // in a bar without colours: '#' computing, '=' exposed, '~' stalls, '.' waiting
  double ms = 0;
};

// Returns the parts of a step without those of no time: computing first, then what is lost, the largest first. They add
// up to the step.
std::vector<BudgetPart> budget_of(const Prediction& prediction);

// Returns a bar of `columns` characters in which each part has its share, rounded so that all are used; a part of half
// a character and more is shown.
std::string bar_text(const std::vector<BudgetPart>& parts, int columns, const Ink& ink);

// Returns "# computing 91.1 %   ~ launch-order stalls 5.1 %", in lines of at most `columns`, each after `indent`
// blanks. Parts below 0.5 % are one, "3 more".
std::string legend_text(const std::vector<BudgetPart>& parts, int columns, int indent, const Ink& ink);

}  // namespace stretto
