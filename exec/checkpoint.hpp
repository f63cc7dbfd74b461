#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/schedule/dtype.hpp"

namespace stretto::exec {

// Checkpoints are safetensors files of full, unsharded tensors by name, so that any other layout can resume from them;
// docs/checkpoint.md is the specification. Files are named step-00000123.safetensors.

// A tensor to be written, or a view into a loaded Checkpoint. `data` holds prod(shape) elements of `dtype`, row-major,
// little-endian; it is not owned.
struct NamedTensor {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};

using CheckpointMetadata = std::map<std::string, std::string>;

// Writes a safetensors file, atomic: a kill at any moment leaves either the complete file or what was there before
// (`path`.tmp, fsync, rename, fsync of the directory). Adds "checksum" to `metadata`, which may not contain it; tensor
// names are distinct. Throws Error(runtime) with the path and the system's reason; `path`.tmp is then gone.
void write_safetensors(const std::string& path, const CheckpointMetadata& metadata,
                       std::span<const NamedTensor> tensors);

// Creates `dir` if need be, so that a long run does not find out at its end. Throws Error(input) when checkpoints
// cannot be written there.
void require_checkpoint_dir(const std::string& dir);

// Writes `dir`/step-<step>.safetensors and returns its path; creates `dir` if need be. Atomic, as above. Then
// deletes checkpoints of earlier steps except the newest of them, so that two remain; files of later steps are not
// touched. Adds the keys "step", "checksum" and "format" to `metadata`, which may not contain them; tensor names are
// distinct. Throws Error(runtime) with the path and the system's reason; the temporary file is then gone and every
// earlier checkpoint is as it was. One writer a directory at a time.
std::string write_checkpoint(const std::string& dir, std::int64_t step, const CheckpointMetadata& metadata,
                             std::span<const NamedTensor> tensors);

// A loaded checkpoint. Move-only; owns its bytes, and the tensors are views of them (aligned to 8 bytes when Stretto
// wrote the file). Safe to read from several threads.
class Checkpoint {
 public:
  // Throws Error(input): missing, truncated, malformed, or the checksum does not match. A file without a checksum
  // (another program wrote it) is accepted; see has_checksum().
  static Checkpoint load(const std::string& path);
  // The same from memory; `name` stands for the path in messages.
  static Checkpoint parse(std::vector<std::byte> bytes, const std::string& name);

  Checkpoint(Checkpoint&&) = default;
  Checkpoint& operator=(Checkpoint&&) = default;

  std::int64_t step() const { return step_; }  // -1 when the file does not say
  bool has_checksum() const { return has_checksum_; }
  const CheckpointMetadata& metadata() const { return metadata_; }
  const std::vector<NamedTensor>& tensors() const { return tensors_; }  // by name
  const NamedTensor* find(const std::string& name) const;               // nullptr when absent
  const std::string& path() const { return path_; }

 private:
  Checkpoint() = default;

  std::string path_;
  std::vector<std::byte> bytes_;
  std::int64_t step_ = -1;
  bool has_checksum_ = false;
  CheckpointMetadata metadata_;
  std::vector<NamedTensor> tensors_;
};

struct LatestCheckpoint {
  std::optional<Checkpoint> checkpoint;  // nullopt: nothing usable
  std::vector<std::string> warnings;     // a line for each newer file that was skipped, and why
};

// The checkpoint of the highest step that is complete and whose checksum matches. Damaged ones are skipped with a
// warning. An absent directory holds no checkpoint. Throws Error(input) when `dir` exists and cannot be listed.
LatestCheckpoint find_latest(const std::string& dir);

}  // namespace stretto::exec
