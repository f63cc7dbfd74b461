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

// A safetensors file of which tensors are read one by one, or parts of them. It may have shards: then it is a manifest
// (docs/checkpoint.md) without tensors of its own, says which there are, and they are read from the files of shards
// beside it, each of which is only looked into when something of it is wanted. Move-only; safe to read from several
// threads.
class TensorFile {
 public:
  enum class Check : bool { headers, all };  // whether checksums are to match
  // Throws Error(input): missing, truncated, malformed, a checksum does not match, no manifest but one of the shards;
  // Error(runtime) when the system cannot read it or has no memory for its header.
  static TensorFile open(const std::string& path, Check check = Check::all);
  explicit TensorFile(ReadFile file, Check check = Check::all);

  const std::string& name() const { return file_.name(); }
  const CheckpointMetadata& metadata() const { return parsed_.metadata; }
  // By name; whole ones. Only where there are no shards do begin and end mean something.
  const std::vector<StoredTensor>& tensors() const { return parsed_.tensors; }
  const StoredTensor* find(std::string_view name) const;  // nullptr when absent
  bool has_checksum() const { return !parsed_.checksum().empty(); }

  // The files that it is made of: itself, and its shards.
  std::size_t files() const { return 1 + shards_.size(); }
  std::string file_name(std::size_t file) const;
  // Reads all of one of them. Throws Error(input) when it is missing, malformed or corrupt, or a shard of something
  // else; Error(runtime) when the system cannot read it.
  void check(std::size_t file) const;

  // A tensor's data, row-major and little-endian, not aligned; it lies in `scratch` where it has to be read first.
  // Throws Error as read() does.
  std::span<const std::byte> data(const StoredTensor& tensor, std::vector<std::byte>& scratch) const;
  // Of a tensor's elements those of `wanted`, which are joined, one behind the other. Throws Error(input) when a shard
  // is missing or malformed or does not have what the manifest says, Error(runtime) as ReadFile::read() does.
  void read(const StoredTensor& tensor, std::span<const Stretch> wanted, std::byte* to) const;

 private:
  // A shard that was looked into.
  struct Shard {
    std::size_t bytes = 0;  // of the file
    StoredFile parsed;
  };
  struct Source;
  void read_manifest();
  std::string checksum_of_shard(std::size_t number) const;  // as the manifest states it
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
  std::unique_ptr<std::mutex> opening_ = std::make_unique<std::mutex>();  // guards what shards_ hold
};

// Keys of the metadata of a manifest and of a shard.
constexpr const char *kShardsKey = "shards", *kShardChecksumsKey = "shard_checksums", *kShardKey = "shard";
// The key that says of a tensor in shards what it is and where, and its value: "F32 36 12: 0 2" is of 36 × 12 elements
// in the shards 0 and 2.
std::string key_in_manifest(const std::string& tensor);
std::string place_in_manifest(const TensorEntry& tensor, std::span<const std::size_t> shards);

// "ck/step-00000006.safetensors" → "ck/step-00000006-rank-00002-of-00004.safetensors".
std::string shard_name(const std::string& manifest, std::size_t rank, std::size_t ranks);

}  // namespace stretto::exec
