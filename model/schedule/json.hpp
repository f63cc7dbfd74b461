#pragma once
#include <nlohmann/json_fwd.hpp>

#include "model/schedule/schedule.hpp"

namespace stretto {

// The schedule as JSON: everything needed to build it again. Ids are indices into the arrays of the same object.
// Deterministic: equal schedules give equal text. Keys are stable; more may be added.
//
//   format         "stretto-schedule-1"
//   name, compute_dtype, notes [string]
//   mesh           {axes [{coord, size}]}, slowest axis first
//   placement      {ranks_per_device, threads_per_rank}
//   lanes          [{name, kind: compute|communication, priority}]
//   communicators  [{name, axes [coord], engine: sm|copy_engine|nic, channels, size}]
//   storages       [{name, dtype, kind, elements}]
//   tensors        [{name, rows, cols, layers, slots, places [[storage, offset_elements]]}]
//   state          {arrays [{name, rows, cols, mean, deviation, cuts [{begin, rows, cols, ld}]}],
//                   buckets [{program, own_begin, own_elements, windows {part: {storage, begin}}}],
//                   pieces [[array, layer or -1, bucket, offset_elements]]}: the state map (state.hpp)
//   step_data      {tokens, targets, hyper, metrics, and dropout_keys, documents, loss_weight or null: tensors;
//                  first_sample, parts}
//   operations     [{name, work {kind, …the fields of the struct in work.hpp}, lane, phase,
//                    accesses [{mode: read|write|accumulate, tensor, layer, slot, offset, rows, cols, ld}]}]
//   blocks         [{name, ops [operation]}]
//   programs       [{role, order [{block, layer, micro_batch, chunk, first, count,
//                                  waits [{kind: finish_start|start_start, op, layer, micro_batch, chunk,
//                                  steps_ago}]}]}]
//
// layer, slot and offset of an access, and what else is an Expr, are numbers when constant, otherwise expressions as
// text (Expr::text).
// dtype, storage kind, phase and coord are the names of name_of(); work.kind is kind_of().
nlohmann::json write_schedule_json(const Schedule& schedule);

}  // namespace stretto
