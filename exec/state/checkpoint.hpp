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
// docs/checkpoint.md is the specification. One process writes one file, step-00000123.safetensors, with whole tensors.
// If there are several processes, each writes a shard, step-00000123-rank-00002-of-00004.safetensors, and
// step-00000123.safetensors is the manifest.

// Emit passes the data of tensors to `sink`, in their order, in pieces of any size. It is called twice and must pass
// equal data.
using Sink = std::function<void(std::span<const std::byte>)>;
using Emit = std::function<void(const Sink& sink)>;

// Writes a safetensors file; `emit` gives prod(shape) elements of each tensor, row-major and little-endian. Adds
// "checksum" to `metadata`, which must not contain it, and returns its digits; tensor names are distinct. Throws
// Error(runtime) as NewFile does, and what `emit` throws.
std::string write_tensors(NewFile& file, const CheckpointMetadata& metadata, std::span<const TensorEntry> tensors,
                          const Emit& emit);

// Creates `dir` if necessary, so that a long run does not fail at its end. Throws Error(input) when checkpoints cannot
// be written there.
void require_checkpoint_dir(const std::string& dir);

struct CheckpointContents {
  std::vector<TensorEntry> tensors;  // whole tensors, of two dimensions; equal in all processes
  // [tensor] the parts that this process has; all processes together have each element once
  std::vector<std::vector<TensorPart>> parts;
  Emit emit;  // passes their data, in this order
};

// Writes the checkpoint of `step` and returns the path of its file, or manifest; creates `dir` if necessary. With
// `processes`, all of them call this. Atomic: a kill of any of them at any moment leaves either the complete checkpoint
// or the earlier ones. Then deletes the checkpoints of earlier steps except that of `before`, the newest of them that
// is known to be complete: this run has written it or resumed from it. With -1 nothing is deleted. Checkpoints of
// multiples of `retained` steps (0: none) and of later steps stay. Adds the keys "step", "checksum" and "format" to
// `metadata`, which must not contain them. Throws Error(runtime) with the path and the system's reason, on all
// processes; temporary files are then removed and every earlier checkpoint is unchanged. Only one run at a time may use
// a directory: DirectoryLock.
std::string write_checkpoint(const std::string& dir, std::int64_t step, std::int64_t before,
                             const CheckpointMetadata& metadata, const CheckpointContents& contents,
                             launch::ProcessGroup* processes = nullptr, std::int64_t retained = 0);

// Returns whether a run that keeps checkpoints in `dir` reads or writes a file of this name there.
bool is_of_checkpoints(const std::string& file_name);

struct LatestCheckpoint {
  std::optional<TensorFile> file;     // nullopt: there is no checkpoint
  std::int64_t step = -1;             // completed steps
  std::vector<std::string> warnings;  // a line for each newer checkpoint that is damaged, with the damage
};

// Returns the checkpoint of the highest step that is complete and whose checksums and step match. Damaged ones, for
// instance with a missing shard, are skipped with a warning. A directory that is absent, or in which no file is named
// as a checkpoint, holds none. With `processes`, all of them call this: each reads some of the files to check them, and
// all get the same result. Throws Error(input) when all are damaged, `dir` cannot be listed, processes do not see the
// same files, or the format is newer than this program. A file that the system cannot read, or a name that is not a
// file, is not damage, and throws Error as ReadFile does.
LatestCheckpoint find_latest(const std::string& dir, launch::ProcessGroup* processes = nullptr);

}  // namespace stretto::exec
