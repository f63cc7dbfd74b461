#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/read_file.hpp"
#include "exec/checkpoint_header.hpp"

namespace stretto::exec {

// Checkpoints are safetensors files of full, unsharded tensors by name, so that any other layout can resume from them;
// docs/checkpoint.md is the specification. Files are named step-00000123.safetensors.

// Writes a safetensors file, atomic: a kill at any moment leaves either the complete file or what was there before
// (NewFile). Adds "checksum" to `metadata`, which may not contain it; tensor names are distinct. Throws Error(runtime)
// with the path and the system's reason; `path`.tmp is then gone.
void write_safetensors(const std::string& path, const CheckpointMetadata& metadata,
                       std::span<const NamedTensor> tensors);

// Creates `dir` if need be, so that a long run does not find out at its end. Throws Error(input) when checkpoints
// cannot be written there.
void require_checkpoint_dir(const std::string& dir);

// Writes `dir`/step-<step>.safetensors and returns its path; creates `dir` if need be. Atomic, as above. Then deletes
// the files of steps earlier than this but that of `before`, the newest of them that is known to be complete: this run
// has written it or resumed from it. Without one (-1) nothing is deleted. Files of later steps are not touched. Adds
// the keys "step", "checksum" and "format" to `metadata`, which may not contain them; tensor names are distinct. Throws
// Error(runtime) with the path and the system's reason; the temporary file is then gone and every earlier checkpoint is
// as it was. One writer a directory at a time: DirectoryLock.
std::string write_checkpoint(const std::string& dir, std::int64_t step, std::int64_t before,
                             const CheckpointMetadata& metadata, std::span<const NamedTensor> tensors);

// Whether a run that keeps checkpoints in `dir` reads or writes a file of this name there.
bool is_of_checkpoints(const std::string& file_name);

// A loaded checkpoint. Move-only; owns its bytes, and the tensors are views of them (aligned to 8 bytes when Stretto
// wrote the file). Safe to read from several threads.
class Checkpoint {
 public:
  // Throws Error(input): missing, truncated, malformed, or the checksum does not match; Error(runtime) when the system
  // cannot read it or has no memory for it. A file without a checksum (another program wrote it) is accepted; see
  // has_checksum().
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
  const std::string& path() const { return file_.name(); }

 private:
  explicit Checkpoint(ReadFile file) : file_(std::move(file)) {}

  ReadFile file_;  // in memory
  std::int64_t step_ = -1;
  bool has_checksum_ = false;
  CheckpointMetadata metadata_;
  std::vector<NamedTensor> tensors_;
};

struct LatestCheckpoint {
  std::optional<Checkpoint> checkpoint;  // nullopt: there is none
  std::vector<std::string> warnings;     // a line for each newer file that is damaged, and how
};

// The checkpoint of the highest step that is complete and whose checksum and step match. Damaged ones are skipped with
// a warning. A directory that is absent, or in which nothing is named as a checkpoint, holds none. Throws Error(input)
// when all are damaged, or `dir` cannot be listed; what the system cannot read, and what is no file, is not damaged,
// and throws Error as ReadFile does.
LatestCheckpoint find_latest(const std::string& dir);

}  // namespace stretto::exec
