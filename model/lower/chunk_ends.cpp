#include "model/lower/chunk_ends.hpp"

#include <algorithm>

namespace stretto {

ChunkEnds add_chunk_ends(Schedule& schedule, BlockWriter& w, const BlockShape& shape, TensorId x) {
  const std::int64_t slots = shape.most_slots(), buffers = shape.output_buffers;
  const std::int64_t rows = schedule.tensors[x].rows, cols = schedule.tensors[x].cols;
  const TensorId sent = w.workspace("x.sent", rows, cols, buffers);
  const auto input_of = [&](std::int64_t layer, std::int64_t slot) {
    return schedule.tensors[x].places[static_cast<std::size_t>(layer * slots + slot)];
  };
  const auto turns_after = [&](const ModelChunk& chunk) {
    const std::int64_t piece = &chunk - shape.chunks.data();
    return shape.map.turns_after(shape.map.stage_of(piece), shape.map.chunk_of(piece));
  };
  std::vector<TensorPlace> inputs, outputs, next_inputs;
  const auto chunks = static_cast<std::int64_t>(shape.chunks.size());
  for (const ModelChunk& chunk : shape.chunks)
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      inputs.push_back(input_of(chunk.first_layer, slot));
      for (std::int64_t buffer = 0; buffer < buffers; ++buffer)
        if (chunk.layers() == 0 || chunk.has_head)
          outputs.push_back(input_of(chunk.end_layer, slot));
        else if (turns_after(chunk))
          // `buffer` is the next chunk's slot
          outputs.push_back(input_of(chunk.end_layer, std::min(buffer, slots - 1)));
        else
          outputs.push_back(schedule.tensors[sent].places[static_cast<std::size_t>(buffer)]);
    }
  for (std::int64_t c = 0; c < chunks; ++c)
    for (std::int64_t layer = shape.chunks[c].first_layer; layer < shape.chunks[c].end_layer; ++layer)
      for (std::int64_t i = 0; i < slots * buffers; ++i)
        next_inputs.push_back(layer + 1 == shape.chunks[c].end_layer
                                  ? outputs[static_cast<std::size_t>(c * slots * buffers + i)]
                                  : input_of(layer + 1, i / buffers));
  return {w.family("chunk.input", rows, cols, chunks, slots, std::move(inputs)),
          w.family("chunk.output", rows, cols, chunks, slots * buffers, std::move(outputs)),
          w.family("x.next", rows, cols, shape.model.num_layers, slots * buffers, std::move(next_inputs))};
}

}  // namespace stretto
