#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/new_file.hpp"
#include "exec/launch/process_group.hpp"
#include "exec/state/checkpoint_header.hpp"
#include "exec/state/tensor_file.hpp"
#include "exec/state/tensor_parts.hpp"

namespace stretto::exec {

// Checkpoints are safetensors files of tensors by name, so that any other layout can resume from them;
// docs/checkpoint.md is the specification. Of one process it is one file, step-00000123.safetensors, with whole
// tensors. Of several, each writes a shard, step-00000123-rank-00002-of-00004.safetensors, and that file is the
// manifest.

// Gives data of tensors to `sink`, in their order, in pieces of whatever size. Is called twice and gives the same.
using Sink = std::function<void(std::span<const std::byte>)>;
using Emit = std::function<void(const Sink& sink)>;

// Writes a safetensors file; `emit` gives prod(shape) elements of each tensor, row-major and little-endian. Adds
// "checksum" to `metadata`, which may not contain it, and returns its digits; tensor names are distinct. Throws
// Error(runtime) as NewFile does, and what `emit` throws.
std::string write_tensors(NewFile& file, const CheckpointMetadata& metadata, std::span<const TensorEntry> tensors,
                          const Emit& emit);

// Creates `dir` if need be, so that a long run does not find out at its end. Throws Error(input) when checkpoints
// cannot be written there.
void require_checkpoint_dir(const std::string& dir);

struct CheckpointContents {
  std::vector<TensorEntry> tensors;            // whole, of two dimensions; the same in all processes
  std::vector<std::vector<TensorPart>> parts;  // [tensor] what this process has of it; together all of it, once
  Emit emit;                                   // their data, in this order
};

// Writes the checkpoint of `step` and returns the path of its file, or manifest; creates `dir` if need be. With
// `processes`, all of them call this. Atomic: a kill of any of them at any moment leaves either the complete checkpoint
// or those that were there before. Then deletes those of steps earlier than this but that of `before`, the newest of
// them that is known to be complete: this run has written it or resumed from it. Without one (-1) nothing is deleted.
// Those of later steps are not touched. Adds the keys "step", "checksum" and "format" to `metadata`, which may not
// contain them. Throws Error(runtime) with the path and the system's reason, on all processes; temporary files are then
// gone and every earlier checkpoint is as it was. One run a directory at a time: DirectoryLock.
std::string write_checkpoint(const std::string& dir, std::int64_t step, std::int64_t before,
                             const CheckpointMetadata& metadata, const CheckpointContents& contents,
                             launch::ProcessGroup* processes = nullptr);

// Whether a run that keeps checkpoints in `dir` reads or writes a file of this name there.
bool is_of_checkpoints(const std::string& file_name);

struct LatestCheckpoint {
  std::optional<TensorFile> file;     // nullopt: there is none
  std::int64_t step = -1;             // that are done
  std::vector<std::string> warnings;  // a line for each newer one that is damaged, and how
};

// The checkpoint of the highest step that is complete and whose checksums and step match. Damaged ones, such as of
// which a shard is missing, are skipped with a warning. A directory that is absent, or in which nothing is named as a
// checkpoint, holds none. With `processes`, all of them call this: each reads some of the files to check them, and all
// get the same. Throws Error(input) when all are damaged, `dir` cannot be listed, processes do not see the same, or the
// format is newer than this program; what the system cannot read, and what is no file, is not damaged, and throws Error
// as ReadFile does.
LatestCheckpoint find_latest(const std::string& dir, launch::ProcessGroup* processes = nullptr);

}  // namespace stretto::exec
