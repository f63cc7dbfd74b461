#pragma once
#include <vector>

#include "model/schedule/schedule.hpp"
#include "model/schedule/violation.hpp"

namespace stretto {

// Internal to the verifier: whether all operations agree on the order of experts' rows.
//
// Rows of experts lie by expert over the rank, or shard by shard, or slot by slot, each sorted by expert. A tensor of
// such rows has one order in a schedule, and works say which: a grouped product which rows of its operands belong to
// which expert, by its number of groups, or by the offsets that it reads; a sort by expert with equally many rows, of
// both its matrices; an activation that its operands have one order. Two operations that take a row for those of
// different experts are a `wrong_value`, whose message names both. Orders are compared on the first and the last rank.
// Products of codes are left out: codes have zeros between the groups (Quantise), and no mode reorders them.
// The schedule must have passed check_form(). Returns at most `limit` violations.
std::vector<Violation> check_row_orders(const Schedule& schedule, std::size_t limit);

}  // namespace stretto
