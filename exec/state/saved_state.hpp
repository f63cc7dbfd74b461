#pragma once
#include "exec/state/checkpoint.hpp"
#include "exec/state/model_state.hpp"
#include "exec/state/tensor_file.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::exec {

// The state of training, parameters and the optimizer's, as checkpoints hold it: whatever is computed in f64 in F64,
// all else in F32. One array is in memory beside the state at a time, and of it what the ranks of this process have.

// What this process saves: of the ranks that are here. Refers to both arguments.
CheckpointContents saved_state(const Schedule& schedule, const MemoryOf& memory_of);

// Fills the ranks that are here, from a checkpoint of whatever layout. Reads no more of its tensors than they have.
// Throws Error(input) naming the tensor that is missing, or has another shape or type, Error as TensorFile::read()
// does.
void read_saved_state(const Schedule& schedule, const MemoryOf& memory_of, const TensorFile& file);

}  // namespace stretto::exec
