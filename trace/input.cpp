#include "trace/input.hpp"

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

bool is_gzip(const ReadFile& file) { return begins_with(file, "\x1f\x8b"); }
bool is_sqlite(const ReadFile& file) { return begins_with(file, std::string_view("SQLite format 3\0", 16)); }

InputBuffer::InputBuffer(ReadFile file)
    : file_(std::move(file)),
      budget_(file_.name(),
              BudgetLimits::in_proportion((is_gzip(file_) ? kBudgetOfGzip : 1) * file_.size(), kTooLarge)) {
  if (is_gzip(file_)) inflater_ = std::make_unique<Inflater>(file_.name());
  plain_.resize(kPieceBytes);
}

std::size_t InputBuffer::read_file() {
  const std::size_t bytes = std::min(kPieceBytes, file_.size() - at_);
  packed_.resize(bytes);
  file_.read(at_, bytes, reinterpret_cast<std::byte*>(packed_.data()));
  at_ += bytes;
  return bytes;
}

InputBuffer::int_type InputBuffer::underflow() {
  std::size_t bytes = 0;
  if (inflater_) {
    bytes = inflater_->inflate_to(plain_, [&]() -> std::span<const char> {
      const std::size_t packed = read_file();
      return {packed_.data(), packed};
    });
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
