#include "exec/checkpoint.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
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
#include "exec/checkpoint_header.hpp"

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

// A file being written. Unless kept, it is deleted when this goes out of scope.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string path)
      : path_(std::move(path)), fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (fd_ < 0) fail(errno);
  }
  ~TemporaryFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!kept_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(fd_, at, bytes);
      if (written < 0 && errno != EINTR) fail(errno);
      if (written > 0) at += written, bytes -= static_cast<std::size_t>(written);
    }
  }
  void rename_to(const std::string& path) {
    if (::fsync(fd_) != 0) fail(errno);
    if (::close(std::exchange(fd_, -1)) != 0) fail(errno);
    if (::rename(path_.c_str(), path.c_str()) != 0) fail(errno);
    kept_ = true;
  }

 private:
  [[noreturn]] void fail(int error) const {
    throw runtime_failure(fmt::format("{}: cannot write the file: {}", path_, cause(error)));
  }

  std::string path_;
  int fd_ = -1;
  bool kept_ = false;
};

void sync_directory(const std::string& dir) {
  const int fd = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int error = fd < 0 || ::fsync(fd) != 0 ? errno : 0;
  if (fd >= 0) ::close(fd);
  // Some network file systems cannot sync a directory; there, rename itself is durable.
  if (error != 0 && error != EINVAL)
    throw runtime_failure(fmt::format("{}: cannot make the checkpoint durable: {}", dir, cause(error)));
}

// Failing to delete is not a failure to save; the next save tries again.
void delete_superseded(const std::string& dir, std::int64_t step) {
  std::error_code ignored;
  std::vector<Listed> superseded = list(dir, kSuffix, ignored);
  std::erase_if(superseded, [&](const Listed& file) { return file.step >= step; });
  if (!superseded.empty()) superseded.erase(superseded.begin());
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

std::vector<std::byte> read_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw input_error(fmt::format("{}: cannot open the checkpoint: {}", path, cause(errno)));
  struct stat info {};
  int error = ::fstat(fd, &info) != 0 ? errno : 0;
  if (error == 0 && !S_ISREG(info.st_mode)) error = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
  std::vector<std::byte> bytes(error == 0 ? static_cast<std::size_t>(info.st_size) : 0);
  std::size_t have = 0;
  while (error == 0 && have < bytes.size()) {
    const ssize_t got = ::read(fd, bytes.data() + have, bytes.size() - have);
    if (got == 0) break;
    if (got < 0 && errno != EINTR) error = errno;
    if (got > 0) have += static_cast<std::size_t>(got);
  }
  ::close(fd);
  if (error != 0) throw input_error(fmt::format("{}: cannot read the checkpoint: {}", path, cause(error)));
  bytes.resize(have);
  return bytes;
}

}  // namespace

void require_checkpoint_dir(const std::string& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) throw input_error(fmt::format("{}: cannot create the checkpoint directory: {}", dir, error.message()));
  if (access(dir.c_str(), W_OK | X_OK) != 0)
    throw input_error(fmt::format("{}: cannot write to the checkpoint directory: {}", dir, cause(errno)));
}

void write_safetensors(const std::string& path, const CheckpointMetadata& metadata,
                       std::span<const NamedTensor> tensors) {
  assert(!metadata.contains("checksum"));
  std::string header = make_header(metadata, tensors);
  const std::string checksum = checksum_of(header, tensors);
  header.replace(checksum_position(header), checksum.size(), checksum);
  {
    TemporaryFile file(path + ".tmp");
    file.write(header.data(), header.size());
    for (const NamedTensor& tensor : tensors) file.write(tensor.data.data(), tensor.data.size());
    file.rename_to(path);
  }
  const std::string dir = fs::path(path).parent_path().string();
  sync_directory(dir.empty() ? "." : dir);
}

std::string write_checkpoint(const std::string& dir, std::int64_t step, const CheckpointMetadata& metadata,
                             std::span<const NamedTensor> tensors) {
  assert(step >= 0 && !metadata.contains("step") && !metadata.contains("checksum") && !metadata.contains("format"));
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) throw runtime_failure(fmt::format("{}: cannot create the checkpoint directory: {}", dir, error.message()));

  CheckpointMetadata full = metadata;
  full["step"] = std::to_string(step);
  full["format"] = "stretto-1";
  const std::string path = fmt::format("{}/{}{:08d}{}", dir, kPrefix, step, kSuffix);
  write_safetensors(path, full, tensors);
  delete_superseded(dir, step);
  return path;
}

Checkpoint Checkpoint::load(const std::string& path) try {
  return parse(read_file(path), path);
} catch (const std::bad_alloc&) {
  throw runtime_failure(path + ": not enough memory to load the checkpoint");
}

Checkpoint Checkpoint::parse(std::vector<std::byte> bytes, const std::string& name) {
  Checkpoint checkpoint;
  checkpoint.path_ = name;
  checkpoint.bytes_ = std::move(bytes);
  StoredFile file = parse_safetensors(checkpoint.bytes_, name);
  checkpoint.metadata_ = std::move(file.metadata);
  checkpoint.has_checksum_ = file.has_checksum;
  checkpoint.step_ = parse_step(checkpoint.metadata_, name);
  for (StoredTensor& tensor : file.tensors) {
    const auto dtype = dtype_named(tensor.dtype);
    if (!dtype)
      throw input_error(
          fmt::format("{}: tensor {}: dtype {}; expected F32, F64, BF16 or I32", name, tensor.name, tensor.dtype));
    checkpoint.tensors_.push_back({std::move(tensor.name), *dtype, std::move(tensor.shape), tensor.data});
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
  if (error) throw input_error(fmt::format("{}: cannot list the checkpoint directory: {}", dir, error.message()));
  for (const Listed& file : files) {
    try {
      Checkpoint checkpoint = Checkpoint::load(file.path.string());
      if (!checkpoint.has_checksum()) throw input_error(file.path.string() + ": states no checksum");
      if (checkpoint.step() != file.step)
        throw input_error(fmt::format("{}: holds step {}", file.path.string(), checkpoint.step()));
      latest.checkpoint = std::move(checkpoint);
      return latest;
    } catch (const Error& failure) {
      latest.warnings.push_back(fmt::format("checkpoint skipped: {}", failure.what()));
    }
  }
  return latest;
}

}  // namespace stretto::exec
