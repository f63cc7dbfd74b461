#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/overlap/block_editor.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto {

// Rewrites that cut a GEMM into pieces, so that its communication overlaps with it. Rank r of n; T rows, where each
// rank has R = T/n; every file states its edges and its exposed time, with Tg the time of a piece of the GEMM and Tc
// that of a piece of the communication. All pieces are free (see BlockEditor): their waits follow from their buffers.
struct SplitContext {
  Schedule& schedule;
  Group tp = {};                     // the n ranks
  std::vector<LaneId> compute = {};  // lanes on which the pieces of a GEMM alternate; the first is the rank's own
  LaneId send = 0, recv = 0;
  std::uint32_t ring_communicator = 0;
  TensorId partials = 0;  // [n, R · hidden]: partial results of a ring exchange
  LaneId add = 0;         // lane on which received partial results are added
  // Returns a message with the name of `like` plus a suffix, and its phase and lane.
  Operation message(const Operation& like, const std::string& suffix, bool is_send, const Expr& offset,
                    View view) const;
  // Returns piece number `piece` of the GEMM: rows of A and C, or columns of the result.
  Operation gemm(const Operation& whole, std::size_t piece, Gemm work, View a, View b, View c) const;
};
// Returns `rows` rows of a view, from row number `chunk` · rows on.
View rows_of(const View& whole, const Expr& chunk, std::int64_t rows);
// Returns the number of a slice when every rank has `slices` slices.
Expr slice_of(const Expr& rank, std::int64_t slices, std::int64_t slice);

// In ring exchanges each rank's rows are cut into `slices` pieces; `slices` divides R. tp_ring_gather.cpp.
// `keeps_whole`: other operations read the gathered rows as well.
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
