#include "trace/inflater.hpp"

#define ZLIB_CONST  // what zlib reads is const
#include <zlib.h>

#include <new>

#include "base/error.hpp"

namespace stretto::trace {

struct Inflater::Stream {
  z_stream state{};
  bool is_between_members = true;  // no byte of a member has been read
};

Inflater::Inflater(std::string name) : name_(std::move(name)), stream_(std::make_unique<Stream>()) {
  constexpr int kGzipOnly = 15 + 16;
  if (inflateInit2(&stream_->state, kGzipOnly) != Z_OK) throw std::bad_alloc();
}

Inflater::~Inflater() { inflateEnd(&stream_->state); }

std::size_t Inflater::inflate_to(std::vector<char>& plain, const std::function<std::span<const char>()>& read) {
  z_stream& state = stream_->state;
  state.next_out = reinterpret_cast<Bytef*>(plain.data());
  state.avail_out = static_cast<uInt>(plain.size());
  while (state.avail_out == plain.size()) {
    if (state.avail_in == 0) {
      const std::span<const char> packed = read();
      if (packed.empty() && stream_->is_between_members) return 0;
      if (packed.empty()) throw input_error(name_ + ": gzip ends in the middle; expected a whole file");
      state.next_in = reinterpret_cast<const Bytef*>(packed.data());
      state.avail_in = static_cast<uInt>(packed.size());
    }
    stream_->is_between_members = false;
    const int result = ::inflate(&state, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      inflateReset(&state);
      stream_->is_between_members = true;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      throw input_error(name_ + ": gzip is damaged (" + (state.msg ? state.msg : "no reason given") + ")");
    }
  }
  return plain.size() - state.avail_out;
}

}  // namespace stretto::trace
