#pragma once
#include "report/table.hpp"
#include "validate/validate.hpp"

namespace stretto::validate {

// A validation as `stretto validate` prints it and as its page shows it. Errors are predicted / measured − 1.

Table table_of_groups(const Validation& validation);
Table table_of_rows(const Validation& validation);
// Returns groups with published peaks of memory, or with rows that are predicted not to fit though they ran; those rows
// are named.
Table table_of_memory(const Validation& validation);
// Returns the rows that have measured communication: how long it is active and hidden, measured and predicted.
Table table_of_communication(const Validation& validation);
Table table_of_pairs(const Validation& validation);
Table table_of_rankings(const Validation& validation);
Table table_of_intervals(const Validation& validation);  // empty unless they were requested
Table table_of_left_out(const Validation& validation);   // empty unless it was requested
// Returns "skipped 8: LoRA", one line for every reason.
std::vector<std::string> skipped_lines(const Validation& validation);
// Returns a line for each assumption of the predicted rows, with their number, most frequent first: "assumed in 12: tp
// 1".
std::vector<std::string> assumed_lines(const Validation& validation);

}  // namespace stretto::validate
