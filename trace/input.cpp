#include "trace/input.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace stretto::trace {
namespace {

constexpr std::size_t kPieceBytes = 1 << 18, kLongestValueBytes = 16 << 20;

// JSON of traces becomes 10 to 30 times smaller by gzip, and zeros a thousand times: the budget allows 256 times.
constexpr std::size_t kBudgetOfGzip = 4;
constexpr const char* kTooLarge = "a trace has less of that in its size; record fewer steps, or unpack and look at it";

bool begins_with(const ReadFile& file, std::string_view magic) {
  if (file.size() < magic.size()) return false;
  std::vector<std::byte> scratch;
  const auto view = file.view(0, magic.size(), scratch);
  return std::memcmp(view.data(), magic.data(), magic.size()) == 0;
}

}  // namespace

struct InputBuffer::Inflater {
  z_stream stream{};
  bool is_between_members = true;  // no byte of a member has been read
  Inflater() {
    constexpr int kGzipOnly = 15 + 16;
    if (inflateInit2(&stream, kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

bool is_gzip(const ReadFile& file) { return begins_with(file, "\x1f\x8b"); }
bool is_sqlite(const ReadFile& file) { return begins_with(file, std::string_view("SQLite format 3\0", 16)); }

InputBuffer::InputBuffer(ReadFile file)
    : file_(std::move(file)),
      budget_(file_.name(), BudgetLimits::in_proportion((is_gzip(file_) ? kBudgetOfGzip : 1) * file_.size(), kTooLarge)) {
  if (is_gzip(file_)) inflater_ = std::make_unique<Inflater>();
  plain_.resize(kPieceBytes);
}

InputBuffer::~InputBuffer() = default;

std::size_t InputBuffer::read_file() {
  const std::size_t bytes = std::min(kPieceBytes, file_.size() - at_);
  packed_.resize(bytes);
  file_.read(at_, bytes, reinterpret_cast<std::byte*>(packed_.data()));
  at_ += bytes;
  return bytes;
}

std::size_t InputBuffer::inflate_to(std::vector<char>& plain) {
  z_stream& stream = inflater_->stream;
  stream.next_out = reinterpret_cast<Bytef*>(plain.data());
  stream.avail_out = static_cast<uInt>(plain.size());
  while (stream.avail_out == plain.size()) {
    if (stream.avail_in == 0) {
      const std::size_t bytes = read_file();
      if (bytes == 0 && inflater_->is_between_members) return 0;
      if (bytes == 0) throw input_error(file_.name() + ": gzip ends in the middle; expected a whole file");
      stream.next_in = reinterpret_cast<Bytef*>(packed_.data());
      stream.avail_in = static_cast<uInt>(bytes);
    }
    inflater_->is_between_members = false;
    const int result = ::inflate(&stream, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      inflateReset(&stream);
      inflater_->is_between_members = true;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      throw input_error(file_.name() + ": gzip is damaged (" + (stream.msg ? stream.msg : "no reason given") + ")");
    }
  }
  return plain.size() - stream.avail_out;
}

InputBuffer::int_type InputBuffer::underflow() {
  std::size_t bytes = 0;
  if (inflater_) {
    bytes = inflate_to(plain_);
  } else {
    bytes = read_file();
    plain_.swap(packed_);
  }
  if (bytes == 0) return traits_type::eof();
  budget_.look(bytes);
  bytes_without_value_ += bytes;
  if (bytes_without_value_ > kLongestValueBytes)
    throw input_error(file_.name() + ": expected values of at most 16 MiB, got a longer one or as many blanks");
  setg(plain_.data(), plain_.data(), plain_.data() + bytes);
  return traits_type::to_int_type(*gptr());
}

}  // namespace stretto::trace
