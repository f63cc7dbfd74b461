#include "exec/data.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/rng.hpp"

namespace stretto::exec {
namespace {

// llm.c's token shards: 256 int32 of header, then uint16 tokens; the llama-3 variant holds uint32 tokens.
constexpr std::int32_t kShardMagic = 20240520;
constexpr std::int32_t kWideShardMagic = 20240801;
constexpr std::int32_t kShardVersion = 1;
constexpr std::size_t kShardHeaderBytes = 1024;

std::int32_t int32_at(const std::byte* bytes, std::size_t index) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | std::to_integer<std::uint32_t>(bytes[4 * index + i]);
  return static_cast<std::int32_t>(value);
}

std::string cause(int error) { return std::generic_category().message(error); }

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

TokenSource TokenSource::open(const std::string& path) {
  // Non-blocking, so that a FIFO given by mistake is an error below and not a hang here.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) throw input_error(fmt::format("{}: cannot open the training data: {}", path, cause(errno)));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) throw input_error(fmt::format("{}: {}", path, cause(errno)));
  if (S_ISDIR(info.st_mode)) throw input_error(path + ": expected a file of training data, got a directory");
  if (!S_ISREG(info.st_mode)) throw input_error(path + ": expected a regular file of training data");
  if (info.st_size == 0) throw input_error(path + ": the file of training data is empty");

  TokenSource source;
  source.name_ = path;
  const auto bytes = static_cast<std::size_t>(info.st_size);
  void* mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapped == MAP_FAILED) throw input_error(fmt::format("{}: cannot map the file: {}", path, cause(errno)));
  source.mapped_ = mapped;
  source.mapped_bytes_ = bytes;
  source.file_ = static_cast<const std::byte*>(mapped);
  source.read_layout(bytes);
  return source;
}

TokenSource TokenSource::parse(std::vector<std::byte> bytes, const std::string& name) {
  if (bytes.empty()) throw input_error(name + ": the file of training data is empty");
  TokenSource source;
  source.name_ = name;
  source.owned_ = std::move(bytes);
  source.file_ = source.owned_.data();
  source.read_layout(source.owned_.size());
  return source;
}

TokenSource::TokenSource(TokenSource&& other) noexcept { *this = std::move(other); }

TokenSource& TokenSource::operator=(TokenSource&& other) noexcept {
  // Moving a vector keeps its bytes where they are, so file_ stays valid.
  std::swap(name_, other.name_);
  std::swap(owned_, other.owned_);
  std::swap(mapped_, other.mapped_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(file_, other.file_);
  std::swap(first_byte_, other.first_byte_);
  std::swap(size_, other.size_);
  std::swap(bytes_per_token_, other.bytes_per_token_);
  return *this;
}

TokenSource::~TokenSource() {
  if (mapped_) ::munmap(mapped_, mapped_bytes_);
}

void TokenSource::read_layout(std::size_t file_bytes) {
  const std::int32_t magic = file_bytes >= 4 ? int32_at(file_, 0) : 0;
  if (magic == kWideShardMagic)
    throw input_error(name_ + ": an llm.c shard of 32-bit tokens; expected one of 16-bit tokens (magic 20240520)");
  if (magic == kShardMagic) {
    if (file_bytes < kShardHeaderBytes)
      throw input_error(fmt::format("{}: truncated llm.c shard: the header takes {} bytes, the file has {}", name_,
                                    kShardHeaderBytes, file_bytes));
    if (const std::int32_t version = int32_at(file_, 1); version != kShardVersion)
      throw input_error(
          fmt::format("{}: llm.c shard of version {}; expected version {}", name_, version, kShardVersion));
    const std::int64_t count = int32_at(file_, 2);
    const std::size_t held_bytes = file_bytes - kShardHeaderBytes;
    if (count <= 0 || static_cast<std::size_t>(count) * 2 != held_bytes)
      throw input_error(fmt::format("{}: the header says {} tokens ({} bytes), but {} bytes follow it", name_, count,
                                    count * 2, held_bytes));
    bytes_per_token_ = 2;
    first_byte_ = kShardHeaderBytes;
    size_ = count;
  } else if (name_.ends_with(".bin")) {
    if (file_bytes % 2 != 0)
      throw input_error(fmt::format("{}: expected 16-bit tokens, got an odd number of bytes ({})", name_, file_bytes));
    bytes_per_token_ = 2;
    size_ = static_cast<std::int64_t>(file_bytes / 2);
  } else {
    size_ = static_cast<std::int64_t>(file_bytes);
  }
}

std::int32_t TokenSource::token(std::int64_t position) const {
  assert(position >= 0 && position < size_);
  const std::byte* at = file_ + first_byte_ + static_cast<std::size_t>(position) * bytes_per_token_;
  if (bytes_per_token_ == 1) return std::to_integer<std::int32_t>(*at);
  return std::to_integer<std::int32_t>(at[0]) | std::to_integer<std::int32_t>(at[1]) << 8;
}

std::int64_t window_begin(const TokenSource& source, const Sampling& sampling, std::int64_t step, std::int64_t sample) {
  assert(sampling.seq > 0 && step >= 0 && sample >= 0 && sample < sampling.global_batch);
  const std::int64_t window = sampling.seq + 1;
  const std::int64_t windows = source.size() / window;
  if (windows == 0)
    throw input_error(fmt::format("{}: holds {} tokens; a sequence of {} needs at least {}", source.name(),
                                  source.size(), sampling.seq, window));
  const auto number = static_cast<std::uint64_t>(step * sampling.global_batch + sample);
  const auto count = static_cast<std::uint64_t>(windows);
  const std::uint64_t epoch = number / count;
  const std::uint64_t order = random_bits(sampling.seed, stream_of("data.shuffle"), epoch);
  return static_cast<std::int64_t>(permuted(number % count, count, sampling.seed, order)) * window;
}

void fill_batch(const TokenSource& source, const Sampling& sampling, std::int64_t step, std::int64_t first_sample,
                std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
  const auto seq = static_cast<std::size_t>(sampling.seq);
  assert(tokens.size() == targets.size() && tokens.size() % seq == 0);
  for (std::size_t row = 0; row < tokens.size() / seq; ++row) {
    const std::int64_t begin = window_begin(source, sampling, step, first_sample + static_cast<std::int64_t>(row));
    for (std::size_t i = 0; i <= seq; ++i) {
      const std::int64_t position = begin + static_cast<std::int64_t>(i);
      const std::int32_t token = source.token(position);
      if (token >= sampling.vocab_size)
        throw input_error(fmt::format("{}: token {} is {}, but the model's vocabulary has {} entries", source.name(),
                                      position, token, sampling.vocab_size));
      if (i < seq) tokens[row * seq + i] = token;
      if (i > 0) targets[row * seq + i - 1] = token;
    }
  }
}

}  // namespace stretto::exec
