#pragma once
#include <string_view>

#include "base/budget.hpp"

namespace stretto {

// Charges what parsing the text as JSON into a tree costs, before it is parsed. Throws Error(input) for values inside
// each other more than 64 times, which would exhaust the stack of who copies or prints the tree, and as the budget
// does. Text that is not JSON is left to the parser.
void charge_json(std::string_view text, Budget& budget);

}  // namespace stretto
