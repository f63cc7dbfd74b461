#pragma once
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/read_file.hpp"
#include "exec/state/checkpoint_header.hpp"
#include "exec/state/tensor_parts.hpp"

namespace stretto::exec {

constexpr std::string_view kTensorFileSuffix = ".safetensors";

// A safetensors file. Tensors, or parts of them, are read from it one by one. It may have shards: then it is a manifest
// (docs/checkpoint.md) without tensors of its own, which lists them, and the tensors are read from the files of shards
// in its folder. A shard is opened only when something of it is wanted. Move-only; safe to read from several threads.
class TensorFile {
 public:
  enum class Check : bool { headers, all };  // whether checksums are verified
  // Opens a file. Throws Error(input): missing, truncated, malformed, a checksum does not match, a shard instead of a
  // manifest; Error(runtime) when the system cannot read it or has no memory for its header.
  static TensorFile open(const std::string& path, Check check = Check::all);
  explicit TensorFile(ReadFile file, Check check = Check::all);

  const std::string& name() const { return file_.name(); }
  const CheckpointMetadata& metadata() const { return parsed_.metadata; }
  // Return whole tensors, sorted by name. Their begin and end are valid only without shards.
  const std::vector<StoredTensor>& tensors() const { return parsed_.tensors; }
  const StoredTensor* find(std::string_view name) const;  // nullptr when absent
  bool has_checksum() const { return !parsed_.checksum().empty(); }

  // The files that it consists of: itself, and its shards.
  std::size_t files() const { return 1 + shards_.size(); }
  std::string file_name(std::size_t file) const;
  // Reads all of one file. Throws Error(input) when it is missing, malformed or corrupt, or a shard of something else;
  // Error(runtime) when the system cannot read it.
  void check(std::size_t file) const;

  // Returns a tensor's data, row-major and little-endian, not aligned; they are in `scratch` where they had to be read.
  // Throws Error as read() does.
  std::span<const std::byte> data(const StoredTensor& tensor, std::vector<std::byte>& scratch) const;
  // Reads the elements `wanted` of a tensor, which are joined stretches, one after the other. Throws Error(input) when
  // a shard is missing or malformed or lacks data that the manifest lists, Error(runtime) as ReadFile::read() does.
  void read(const StoredTensor& tensor, std::span<const Stretch> wanted, std::byte* to) const;

 private:
  // A shard that has been opened.
  struct Shard {
    std::size_t bytes = 0;  // size of the file
    StoredFile parsed;
  };
  struct Source;
  void read_manifest();
  std::string checksum_of_shard(std::size_t number) const;  // the checksum in the manifest
  ReadFile open_shard(std::size_t number) const;
  StoredFile parse_shard(const ReadFile& file, std::size_t number) const;
  const Shard& shard(std::size_t number) const;
  std::vector<std::size_t> shards_of(const StoredTensor& tensor) const;
  void add_sources(const StoredTensor& tensor, std::size_t number, std::span<const Stretch> wanted,
                   std::vector<Source>& sources) const;
  std::vector<Source> find_sources(const StoredTensor& tensor, std::span<const Stretch> wanted) const;
  void read_sources(std::span<const Source> sources, std::int64_t width, std::byte* to) const;

  ReadFile file_;
  StoredFile parsed_;
  mutable std::vector<std::unique_ptr<const Shard>> shards_;
  std::unique_ptr<std::mutex> opening_ = std::make_unique<std::mutex>();  // guards the contents of shards_
};

// Keys of the metadata of a manifest and of a shard.
constexpr const char *kShardsKey = "shards", *kShardChecksumsKey = "shard_checksums", *kShardKey = "shard";
// Return the key that describes a tensor in shards, and its value: "F32 36 12: 0 2" is 36 × 12 elements in the shards 0
// and 2.
std::string key_in_manifest(const std::string& tensor);
std::string place_in_manifest(const TensorEntry& tensor, std::span<const std::size_t> shards);

// Returns "ck/step-00000006-rank-00002-of-00004.safetensors" for "ck/step-00000006.safetensors".
std::string shard_name(const std::string& manifest, std::size_t rank, std::size_t ranks);

}  // namespace stretto::exec
