#pragma once
#include "exec/state/checkpoint.hpp"
#include "exec/state/model_state.hpp"
#include "exec/state/tensor_file.hpp"
#include "model/schedule/schedule.hpp"

namespace stretto::exec {

// The state of training, parameters and the optimizer's, as checkpoints hold it: everything that is computed in f64 in
// F64, all else in F32. One array at a time is in memory in addition to the state, and of it only the elements that the
// ranks of this process have.

// Returns the contents that this process saves, for its ranks. Refers to both arguments.
CheckpointContents saved_state(const Schedule& schedule, const MemoryOf& memory_of);

// Fills the ranks of this process from a checkpoint of any layout. Reads only the elements of its tensors that they
// have. Throws Error(input) naming the tensor that is missing, or has another shape or type, Error as
// TensorFile::read() does.
void read_saved_state(const Schedule& schedule, const MemoryOf& memory_of, const TensorFile& file);

}  // namespace stretto::exec
