#pragma once
#include "model/lower/block_writer.hpp"

namespace stretto {

// Input and output of every chunk of the model. Inside a chunk the output of a layer is the input of the next. The
// output that a chunk sends lies in buffers of its own, which are free again after the send. Where the next chunk is on
// the same stage, the output is that chunk's input.
struct ChunkEnds {
  TensorId input = 0;       // [chunk][slot]
  TensorId output = 0;      // [chunk][slot · output_buffers + buffer]
  TensorId next_input = 0;  // [layer][slot · output_buffers + buffer]: the output of a layer
};

// Adds these families; `x` is the family of layers' inputs.
ChunkEnds add_chunk_ends(Schedule& schedule, BlockWriter& w, const BlockShape& shape, TensorId x);

}  // namespace stretto
