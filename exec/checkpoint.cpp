#include "exec/checkpoint.hpp"

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

#include "base/error.hpp"
#include "base/new_file.hpp"
#include "exec/directory_lock.hpp"

namespace stretto::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-", kSuffix = ".safetensors", kTemporarySuffix = ".safetensors.tmp";

std::string cause(int error) { return std::generic_category().message(error); }

std::optional<std::int64_t> step_in(std::string_view file_name, std::string_view suffix) {
  if (!file_name.starts_with(kPrefix) || !file_name.ends_with(suffix)) return std::nullopt;
  if (file_name.size() < kPrefix.size() + suffix.size() + 8) return std::nullopt;
  const std::string_view digits = file_name.substr(kPrefix.size(), file_name.size() - kPrefix.size() - suffix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc{} || end != digits.data() + digits.size() || step < 0) return std::nullopt;
  return step;
}

struct Listed {
  std::int64_t step = 0;
  fs::path path;
};

// Highest step first.
std::vector<Listed> list(const std::string& dir, std::string_view suffix, std::error_code& error) {
  std::vector<Listed> found;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error))
    if (const auto step = step_in(it->path().filename().string(), suffix)) found.push_back({*step, it->path()});
  std::sort(found.begin(), found.end(), [](const Listed& a, const Listed& b) { return a.step > b.step; });
  return found;
}

// Failing to delete is not a failure to save; the next save tries again.
void delete_superseded(const std::string& dir, std::int64_t step, std::int64_t before) {
  std::error_code ignored;
  std::vector<Listed> superseded;
  if (before >= 0) superseded = list(dir, kSuffix, ignored);
  std::erase_if(superseded, [&](const Listed& file) { return file.step >= step || file.step == before; });
  // Left by runs that were killed while they wrote.
  for (Listed& file : list(dir, kTemporarySuffix, ignored)) superseded.push_back(std::move(file));
  for (const Listed& file : superseded) fs::remove(file.path, ignored);
}

std::int64_t parse_step(const CheckpointMetadata& metadata, const std::string& name) {
  const auto entry = metadata.find("step");
  if (entry == metadata.end()) return -1;
  const std::string& digits = entry->second;
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc{} || end != digits.data() + digits.size() || step < 0)
    throw input_error(fmt::format("{}: __metadata__: step: expected a non-negative integer, got \"{}\"", name, digits));
  return step;
}

// Creates it, to last.
void make_directory(const std::string& dir, std::error_code& error) {
  if (!fs::create_directories(dir, error) || error) return;
  const std::string parent = fs::path(dir).parent_path().string();
  sync_directory(parent.empty() ? "." : parent);
}

// A checkpoint to resume from; "" or how it is damaged. Throws Error for what the system cannot read.
std::string load_to_resume(const Listed& file, std::optional<Checkpoint>& loaded) {
  const std::string path = file.path.string();
  try {
    std::vector<std::byte> bytes = ReadFile::open(path).take();
    try {
      loaded = Checkpoint::parse(std::move(bytes), path);
    } catch (const Error& damage) {
      return damage.what();
    }
  } catch (const std::bad_alloc&) {
    throw runtime_failure(path + ": not enough memory to load the checkpoint");
  }
  if (!loaded->has_checksum()) return path + ": states no checksum";
  if (loaded->step() != file.step) return fmt::format("{}: holds step {}", path, loaded->step());
  return "";
}

}  // namespace

void require_checkpoint_dir(const std::string& dir) {
  std::error_code error;
  make_directory(dir, error);
  if (error) throw input_error(fmt::format("{}: cannot create the checkpoint directory: {}", dir, error.message()));
  if (access(dir.c_str(), W_OK | X_OK) != 0)
    throw input_error(fmt::format("{}: cannot write to the checkpoint directory: {}", dir, cause(errno)));
}

void write_safetensors(const std::string& path, const CheckpointMetadata& metadata,
                       std::span<const NamedTensor> tensors) {
  assert(!metadata.contains("checksum"));
  std::string header = make_header(metadata, tensors);
  Checksum checksum;
  checksum.add(header);
  for (const NamedTensor& tensor : tensors) checksum.add(tensor.data.data(), tensor.data.size());
  header.replace(checksum_position(header), kNoChecksum.size(), checksum.digits());
  NewFile file(path);
  file.write(header);
  for (const NamedTensor& tensor : tensors) file.write(tensor.data.data(), tensor.data.size());
  file.finish();
}

std::string write_checkpoint(const std::string& dir, std::int64_t step, std::int64_t before,
                             const CheckpointMetadata& metadata, std::span<const NamedTensor> tensors) {
  assert(step >= 0 && before < step && !metadata.contains("step") && !metadata.contains("checksum") &&
         !metadata.contains("format"));
  std::error_code error;
  make_directory(dir, error);
  if (error) throw runtime_failure(fmt::format("{}: cannot create the checkpoint directory: {}", dir, error.message()));

  CheckpointMetadata full = metadata;
  full["step"] = std::to_string(step);
  full["format"] = "stretto-1";
  const std::string path = fmt::format("{}/{}{:08d}{}", dir, kPrefix, step, kSuffix);
  write_safetensors(path, full, tensors);
  delete_superseded(dir, step, before);
  return path;
}

bool is_of_checkpoints(const std::string& file_name) {
  return step_in(file_name, kSuffix) || step_in(file_name, kTemporarySuffix) || file_name == kLockName;
}

Checkpoint Checkpoint::load(const std::string& path) try {
  return parse(ReadFile::open(path).take(), path);
} catch (const std::bad_alloc&) {
  throw runtime_failure(path + ": not enough memory to load the checkpoint");
}

Checkpoint Checkpoint::parse(std::vector<std::byte> bytes, const std::string& name) {
  Checkpoint checkpoint(ReadFile::of(std::move(bytes), name));
  StoredFile parsed = parse_safetensors(checkpoint.file_);
  checkpoint.metadata_ = std::move(parsed.metadata);
  checkpoint.has_checksum_ = parsed.has_checksum;
  checkpoint.step_ = parse_step(checkpoint.metadata_, name);
  checkpoint.tensors_.reserve(parsed.tensors.size());
  std::vector<std::byte> unused;  // it is in memory
  for (StoredTensor& tensor : parsed.tensors) {
    const auto dtype = dtype_named(tensor.dtype);
    if (!dtype)
      throw input_error(
          fmt::format("{}: tensor {}: dtype {}; expected F32, F64, BF16 or I32", name, tensor.name, tensor.dtype));
    checkpoint.tensors_.push_back(
        {std::move(tensor.name), *dtype, std::move(tensor.shape),
         checkpoint.file_.view(parsed.data_begin + tensor.begin, tensor.end - tensor.begin, unused)});
  }
  return checkpoint;
}

const NamedTensor* Checkpoint::find(const std::string& name) const {
  const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const NamedTensor& tensor, const std::string& key) { return tensor.name < key; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

LatestCheckpoint find_latest(const std::string& dir) {
  LatestCheckpoint latest;
  std::error_code error;
  if (!fs::exists(dir, error) && !error) return latest;
  const std::vector<Listed> files = list(dir, kSuffix, error);
  if (error) throw system_error(dir, "cannot list the checkpoint directory", error.value());
  for (const Listed& file : files) {
    const std::string damage = load_to_resume(file, latest.checkpoint);
    if (damage.empty()) return latest;
    latest.checkpoint.reset();
    latest.warnings.push_back("checkpoint skipped: " + damage);
  }
  // To begin anew without being asked to would bury what was trained.
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
