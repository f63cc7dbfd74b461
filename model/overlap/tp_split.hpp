#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/overlap/block_editor.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// Rewrites that cut a GEMM into pieces, so that its communication moves beside it. Rank r of n; T rows of which each
// rank has R = T/n; every file states its edges and what stays exposed, with Tg the time of a piece of the GEMM and Tc
// that of a piece of the communication. All pieces are free (see BlockEditor): their waits follow from their buffers.
struct SplitContext {
  Schedule& schedule;
  Group tp = {};                     // of n ranks
  std::vector<LaneId> compute = {};  // lanes that the pieces of a GEMM take turns on; the first is the rank's own
  LaneId send = 0, recv = 0;
  std::uint32_t ring_communicator = 0;
  TensorId partials = 0;  // [n, R · hidden]: of a ring exchange
  LaneId add = 0;         // where partial results that came are added
  // Operation with the name of `like` plus a suffix, its phase and the lane.
  Operation message(const Operation& like, const std::string& suffix, bool is_send, const Expr& offset,
                    View view) const;
  // `piece` of the GEMM: rows of A and C, or columns of the result.
  Operation gemm(const Operation& whole, std::size_t piece, Gemm work, View a, View b, View c) const;
};
// `rows` rows from row number `chunk` · rows of a view on.
View rows_of(const View& whole, const Expr& chunk, std::int64_t rows);
// Number of a slice when every rank has so many.
Expr slice_of(const Expr& rank, std::int64_t slices, std::int64_t slice);

// `slices`, in ring exchanges: pieces that each rank's rows are cut into, which divides R.
// tp_ring_gather.cpp. `keeps_whole`: others read the gathered rows as well.
void split_gather(BlockEditor& block, const SplitContext& context, const std::string& gather, const std::string& gemm,
                  bool keeps_whole, std::int64_t slices = 1);
void split_gather_aggregate(BlockEditor& block, const SplitContext& context, const std::string& gather,
                            const std::string& gemm);
// tp_ring_scatter.cpp
void split_scatter(BlockEditor& block, const SplitContext& context, const std::string& gemm, const std::string& scatter,
                   std::int64_t slices = 1);
// tp_flash_scatter.cpp
void flash_scatter(BlockEditor& block, const SplitContext& context, const std::string& gemm, const std::string& scatter,
                   std::int64_t slices);
// tp_pipeline_scatter.cpp
void pipeline_scatter(BlockEditor& block, SplitContext& context, const std::string& gemm, const std::string& scatter,
                      std::int64_t num_splits);

}  // namespace stretto
