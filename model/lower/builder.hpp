#pragma once
#include <string>
#include <utility>
#include <vector>

#include "model/schedule/schedule.hpp"

namespace stretto {

// Small helpers with which lowering fills a Schedule.

// Adds a tensor family with one storage per (layer, slot).
TensorId add_tensor(Schedule& schedule, const std::string& name, Dtype dtype, BufferKind kind, std::int64_t rows,
                    std::int64_t cols, std::int64_t layers = 1, std::int64_t slots = 1);
// Adds a tensor family whose instances the caller places in existing storages.
TensorId add_placed_tensor(Schedule& schedule, const std::string& name, std::int64_t rows, std::int64_t cols,
                           std::vector<TensorPlace> places);
// Sets the role of a tensor, and returns the tensor.
TensorId with_role(Schedule& schedule, TensorRole role, TensorId tensor);
StorageId add_storage(Schedule& schedule, const std::string& name, Dtype dtype, BufferKind kind, std::int64_t elements);

// Returns the view of one whole instance; `layer` and `slot` are evaluated where the operation is called.
View whole(const Schedule& schedule, TensorId tensor, const Expr& layer = 0, const Expr& slot = 0);

Access read(View view);
Access write(View view);
Access accumulate(View view);

// Appends the operation to the schedule and to a block.
OpId add_operation(Schedule& schedule, Block& block, Operation operation);
// Adds a block of one operation, for operations that the order places one by one.
BlockId add_single(Schedule& schedule, Operation operation);
BlockId add_block(Schedule& schedule, Block block);
// Returns a call of the whole block.
Call call_block(const Schedule& schedule, BlockId block, std::int64_t layer = 0, std::int64_t micro_batch = 0);

}  // namespace stretto
