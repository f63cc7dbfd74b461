#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <streambuf>
#include <string>
#include <vector>

#include "base/budget.hpp"
#include "base/read_file.hpp"
#include "trace/inflater.hpp"

namespace stretto::trace {

// Bytes of a file as a stream, uncompressed when the file is gzip (RFC 1952, also of several members). Not movable. A
// read throws Error(input) with the file where gzip is damaged or ends early, where it unpacks to far more than traces
// do, and where megabytes hold no whole value; so the memory of who reads values one by one is bounded.
class InputBuffer : public std::streambuf {
 public:
  explicit InputBuffer(ReadFile file);
  InputBuffer(const InputBuffer&) = delete;
  InputBuffer& operator=(const InputBuffer&) = delete;

  // Its limits are in proportion to the file's size, and of gzip to four times that.
  Budget& budget() { return budget_; }
  const std::string& name() const { return file_.name(); }
  // The reader says that it has taken a value: a string, a number or a bracket.
  void saw_value() { bytes_without_value_ = 0; }

 protected:
  int_type underflow() override;

 private:
  std::size_t read_file();  // fills packed_; 0 at the end

  ReadFile file_;
  Budget budget_;
  std::size_t bytes_without_value_ = 0;  // at most, up to the end of the piece that has been read
  std::size_t at_ = 0;                   // offset of the next bytes of the file
  std::vector<char> packed_, plain_;
  std::unique_ptr<Inflater> inflater_;  // null: the file is not compressed
};

bool is_gzip(const ReadFile& file);
bool is_sqlite(const ReadFile& file);

}  // namespace stretto::trace
