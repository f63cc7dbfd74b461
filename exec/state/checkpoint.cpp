#include "exec/state/checkpoint.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "base/checksum.hpp"
#include "base/error.hpp"
#include "exec/state/directory_lock.hpp"

namespace stretto::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
// Formats of a file with whole tensors, and of one with shards. A new format is needed where older programs would
// misread the file.
constexpr const char *kFormat = "stretto-1", *kShardedFormat = "stretto-2";

std::string cause(int error) { return std::generic_category().message(error); }

// The contents of a file's name.
struct Listed {
  std::int64_t step = 0;
  std::int64_t shards = 0;  // number of shards of the set that this one belongs to; 0: a checkpoint's file or manifest
  bool is_temporary = false;
  fs::path path;
};

// Removes a decimal of at least `digits` digits from the beginning of `text` and returns it.
std::optional<std::int64_t> take_number(std::string_view& text, std::ptrdiff_t digits) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end - text.data() < digits || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

std::optional<Listed> listed(const fs::path& path) {
  const std::string name = path.filename().string(), whole = name_under_temporary(name);
  std::string_view text = whole.empty() ? name : whole;
  Listed file{0, 0, !whole.empty(), path};
  if (!take(text, kPrefix)) return std::nullopt;
  const std::optional<std::int64_t> step = take_number(text, 8);
  if (!step) return std::nullopt;
  file.step = *step;
  if (take(text, "-rank-")) {
    const std::optional<std::int64_t> rank = take_number(text, 5);
    if (!rank || !take(text, "-of-")) return std::nullopt;
    const std::optional<std::int64_t> ranks = take_number(text, 5);
    if (!ranks || *ranks <= *rank) return std::nullopt;
    file.shards = *ranks;
  }
  return text == kTensorFileSuffix ? std::optional(file) : std::nullopt;
}

std::vector<Listed> list(const std::string& dir, std::error_code& error) {
  std::vector<Listed> found;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error))
    if (std::optional<Listed> file = listed(it->path())) found.push_back(std::move(*file));
  return found;
}

// A failure to delete is not a failure to save; the next save tries again.
void delete_superseded(const std::string& dir, std::int64_t step, std::int64_t before, std::int64_t shards,
                       std::int64_t retained) {
  std::error_code ignored;
  const std::vector<Listed> files = list(dir, ignored);
  const auto is_superseded = [&](const Listed& file) {
    return before >= 0 && file.step < step && file.step != before && (retained == 0 || file.step % retained != 0);
  };
  bool has_shards = false;
  for (const Listed& file : files) {
    has_shards = has_shards || file.shards > 0;
    if (file.shards == 0 && !file.is_temporary && is_superseded(file)) fs::remove(file.path, ignored);
  }
  // A manifest must not outlive its shards: it would be taken for a damaged checkpoint. So manifests go first, durably.
  if (has_shards) try {
      sync_directory(dir);
    } catch (const Error&) {
      return;
    }
  for (const Listed& file : files) {
    // Files left by runs that were killed while they wrote, or that wrote this step in another layout.
    const bool is_left = file.is_temporary || (file.step == step && file.shards != shards);
    if (is_left || is_superseded(file))
      if (file.is_temporary || file.shards > 0) fs::remove(file.path, ignored);
  }
}

std::int64_t step_of(const TensorFile& file) {
  const auto entry = file.metadata().find("step");
  if (entry == file.metadata().end()) return -1;
  std::string_view digits = entry->second;
  const std::optional<std::int64_t> step = take_number(digits, 1);
  if (!step || !digits.empty())
    throw input_error(
        fmt::format("{}: __metadata__: step: expected a non-negative integer, got \"{}\"", file.name(), entry->second));
  return *step;
}

// Creates a directory durably.
void make_directory(const std::string& dir, std::error_code& error) {
  if (!fs::create_directories(dir, error) || error) return;
  const std::string parent = fs::path(dir).parent_path().string();
  sync_directory(parent.empty() ? "." : parent);
}

// Opens a checkpoint to resume from. This process, one of several, checks its share of the file. Returns "" or the
// damage. Throws Error for files that the system cannot read.
std::string open_to_resume(const Listed& listed, std::size_t process, std::size_t processes,
                           std::optional<TensorFile>& opened) try {
  const std::string path = listed.path.string();
  ReadFile file = ReadFile::open(path);
  try {
    opened.emplace(std::move(file), TensorFile::Check::headers);
    if (!opened->has_checksum()) return path + ": states no checksum";
    if (const std::int64_t step = step_of(*opened); step != listed.step)
      return fmt::format("{}: holds step {}", path, step);
    for (std::size_t number = process; number < opened->files(); number += processes) opened->check(number);
  } catch (const Error& damage) {
    if (damage.kind() == ErrorKind::runtime) throw;
    return damage.what();
  }
  return "";
} catch (const std::bad_alloc&) {
  throw runtime_failure(listed.path.string() + ": not enough memory to load the checkpoint");
}

// Returns the damage that the first process found, equal on all processes.
std::string first_of(launch::ProcessGroup* processes, const std::string& damage) {
  if (processes == nullptr) return damage;
  constexpr std::size_t kMost = 1024;
  const auto bytes = std::as_bytes(std::span(damage));
  for (const launch::Bytes& one : processes->all_gather(bytes.first(std::min(bytes.size(), kMost)), kMost))
    if (!one.empty()) return {reinterpret_cast<const char*>(one.data()), one.size()};
  return "";
}

// Throws unless all processes see the same checkpoints, because otherwise they would go on with different steps.
void require_same_step(launch::ProcessGroup& processes, std::int64_t found, const std::string& dir) {
  const std::vector<std::int64_t> all = processes.all_gather_value(found);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == all.front()) continue;
    const auto said = [](std::int64_t step) {
      return step < 0 ? std::string("none") : "that of step " + std::to_string(step);
    };
    throw input_error("[training] checkpoint_dir: expected one that all processes see; of the checkpoints in " + dir +
                      " rank 0 found " + said(all.front()) + " and rank " + std::to_string(rank) + " " +
                      said(all[rank]));
  }
}

void require_known_format(const TensorFile& file) {
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() || !format->second.starts_with("stretto-")) return;
  if (format->second != kFormat && format->second != kShardedFormat)
    throw input_error(fmt::format("{}: has the format {}, of a newer stretto; this one reads {} and {}", file.name(),
                                  format->second, kFormat, kShardedFormat));
}

// Returns a process's report on its shard to rank 0: the checksum, and for each tensor whether the shard has any of it.
launch::Bytes word_of(const std::string& checksum, const CheckpointContents& contents) {
  launch::Bytes word(checksum.size() + contents.parts.size());
  std::transform(checksum.begin(), checksum.end(), word.begin(), [](char digit) { return std::byte(digit); });
  for (std::size_t i = 0; i < contents.parts.size(); ++i)
    word[checksum.size() + i] = std::byte(!contents.parts[i].empty());
  return word;
}

// Returns the metadata of the manifest, made from the reports of all processes.
CheckpointMetadata manifest_of(const std::vector<launch::Bytes>& words, const CheckpointContents& contents,
                               CheckpointMetadata metadata) {
  const std::size_t digits = kNoChecksum.size(), tensors = contents.tensors.size();
  std::string& checksums = metadata[kShardChecksumsKey];
  for (std::size_t rank = 0; rank < words.size(); ++rank) {
    if (words[rank].size() != digits + tensors)
      throw runtime_failure(fmt::format("rank {} sent something that is not of a shard", rank));
    if (rank > 0) checksums += ' ';
    for (std::size_t i = 0; i < digits; ++i) checksums += std::to_integer<char>(words[rank][i]);
  }
  metadata[kShardsKey] = std::to_string(words.size());
  for (std::size_t tensor = 0; tensor < tensors; ++tensor) {
    std::vector<std::size_t> shards;
    for (std::size_t rank = 0; rank < words.size(); ++rank)
      if (words[rank][digits + tensor] != std::byte(0)) shards.push_back(rank);
    metadata[key_in_manifest(contents.tensors[tensor].name)] = place_in_manifest(contents.tensors[tensor], shards);
  }
  return metadata;
}

std::vector<TensorEntry> entries_of(const CheckpointContents& contents) {
  std::vector<TensorEntry> entries;
  for (std::size_t i = 0; i < contents.tensors.size(); ++i) {
    const TensorEntry& whole = contents.tensors[i];
    for (const TensorPart& part : contents.parts[i])
      entries.push_back(
          {name_of_part(whole.name, part, whole.shape[0], whole.shape[1]), whole.dtype, {part.rows(), part.cols()}});
  }
  return entries;
}

void write_sharded(const std::string& path, CheckpointMetadata metadata, const CheckpointContents& contents,
                   launch::ProcessGroup& processes) {
  metadata["format"] = kShardedFormat;
  const auto rank = static_cast<std::size_t>(processes.rank()), ranks = static_cast<std::size_t>(processes.size());
  NewFile shard(shard_name(path, rank, ranks));
  const std::string checksum = write_tensors(
      shard,
      {{"format", kShardedFormat}, {"step", metadata.at("step")}, {kShardKey, fmt::format("{} of {}", rank, ranks)}},
      entries_of(contents), contents.emit);
  shard.sync();
  // If a process has failed by now, no shard gets its final name.
  const launch::Bytes word = word_of(checksum, contents);
  const std::vector<launch::Bytes> words = processes.gather(word, word.size());
  processes.barrier();
  shard.finish();
  // All names must be durable before there is a manifest.
  processes.barrier();
  if (rank != 0) return;
  for (std::size_t other = 1; other < ranks; ++other)
    if (std::error_code error; !fs::exists(shard_name(path, other, ranks), error))
      throw input_error(
          fmt::format("[training] checkpoint_dir: expected one that all processes see; rank {} has written {}, which "
                      "rank 0 does not see",
                      other, shard_name(path, other, ranks)));
  NewFile manifest(path);
  write_tensors(manifest, manifest_of(words, contents, std::move(metadata)), {}, [](const Sink&) {});
  manifest.finish();
}

}  // namespace

void require_checkpoint_dir(const std::string& dir) {
  std::error_code error;
  make_directory(dir, error);
  if (error) throw input_error(fmt::format("{}: cannot create the checkpoint directory: {}", dir, error.message()));
  if (access(dir.c_str(), W_OK | X_OK) != 0)
    throw input_error(fmt::format("{}: cannot write to the checkpoint directory: {}", dir, cause(errno)));
}

std::string write_tensors(NewFile& file, const CheckpointMetadata& metadata, std::span<const TensorEntry> tensors,
                          const Emit& emit) {
  assert(!metadata.contains("checksum"));
  std::string header = make_header(metadata, tensors);
  [[maybe_unused]] std::size_t expected = 0, emitted = 0;
  for (const TensorEntry& tensor : tensors) expected += static_cast<std::size_t>(tensor.bytes());
  Checksum checksum;
  checksum.add(header);
  emit([&](std::span<const std::byte> data) {
    checksum.add(data.data(), data.size());
    emitted += data.size();
  });
  assert(emitted == expected);
  header.replace(checksum_position(header), kNoChecksum.size(), checksum.digits());
  file.write(header);
  emit([&](std::span<const std::byte> data) { file.write(data.data(), data.size()); });
  return checksum.digits();
}

std::string write_checkpoint(const std::string& dir, std::int64_t step, std::int64_t before,
                             const CheckpointMetadata& metadata, const CheckpointContents& contents,
                             launch::ProcessGroup* processes, std::int64_t retained) {
  assert(step >= 0 && before < step && !metadata.contains("step") && !metadata.contains("checksum") &&
         !metadata.contains("format"));
  std::error_code error;
  make_directory(dir, error);
  if (error) throw runtime_failure(fmt::format("{}: cannot create the checkpoint directory: {}", dir, error.message()));

  CheckpointMetadata full = metadata;
  full["step"] = std::to_string(step);
  const std::string path = fmt::format("{}/{}{:08d}{}", dir, kPrefix, step, kTensorFileSuffix);
  const bool is_sharded = processes != nullptr && processes->size() > 1;
  if (is_sharded) {
    write_sharded(path, std::move(full), contents, *processes);
  } else {
    full["format"] = kFormat;
    NewFile file(path);
    write_tensors(file, full, entries_of(contents), contents.emit);
    file.finish();
  }
  if (processes == nullptr || processes->rank() == 0)
    delete_superseded(dir, step, before, is_sharded ? processes->size() : 0, retained);
  return path;
}

bool is_of_checkpoints(const std::string& file_name) { return listed(file_name) || file_name == kLockName; }

LatestCheckpoint find_latest(const std::string& dir, launch::ProcessGroup* processes) {
  std::vector<Listed> files;
  std::error_code error;
  if (fs::exists(dir, error) || error) files = list(dir, error);
  if (error) throw system_error(dir, "cannot list the checkpoint directory", error.value());
  std::erase_if(files, [](const Listed& file) { return file.shards > 0 || file.is_temporary; });
  std::sort(files.begin(), files.end(), [](const Listed& a, const Listed& b) { return a.step > b.step; });
  const auto process = static_cast<std::size_t>(processes ? processes->rank() : 0),
             count = static_cast<std::size_t>(processes ? processes->size() : 1);
  LatestCheckpoint latest;
  for (auto file = files.begin();; ++file) {
    if (processes) require_same_step(*processes, file == files.end() ? -1 : file->step, dir);
    if (file == files.end()) break;
    const std::string damage = first_of(processes, open_to_resume(*file, process, count, latest.file));
    if (damage.empty()) {
      require_known_format(*latest.file);
      latest.step = file->step;
      return latest;
    }
    latest.file.reset();
    latest.warnings.push_back("checkpoint skipped: " + damage);
  }
  // Starting anew without being asked to would lose the trained state.
  if (!files.empty())
    throw input_error(
        fmt::format("{}: {}; to begin anew, move the checkpoints away or choose another [training] "
                    "checkpoint_dir",
                    files.size() == 1 ? "the only checkpoint is damaged"
                                      : fmt::format("all {} checkpoints are damaged", files.size()),
                    latest.warnings.front().substr(std::string_view("checkpoint skipped: ").size())));
  return latest;
}

}  // namespace stretto::exec
