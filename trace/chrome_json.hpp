#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/timeline.hpp"
#include "trace/input.hpp"

namespace stretto::trace {

// A point in time as a trace writes it, in microseconds: exact, which a double is not.
struct WrittenTime {
  std::int64_t us = 0;  // rounded down
  std::int64_t ps = 0;  // the rest: 0 … 999,999
  bool is_there = false;
};

Picoseconds length_of(const WrittenTime& time);  // 0 for absent and negative ones; at most kLongestOperation

// Sets the times of a file to one origin: that of the first one.
class TraceClock {
 public:
  Picoseconds at(const WrittenTime& time);  // within a quarter of the horizon

 private:
  std::optional<std::int64_t> origin_us_;
};

// Arguments of events that are of use; all others are skipped.
enum class Argument : std::uint8_t {
  stream,
  device,
  correlation,
  collective,
  in_elements,
  out_elements,
  group_size,
  dtype,
  group,
  external,  // the operator of the host that a kernel, or the event itself, is of
  name,      // of metadata
  op,        // from here on: of Stretto's own traces
  work,
  queued_us,
  waited_for_peers_us,
  waited_for_joined_us,
  element_bytes,
  count,  // number of arguments
};

// One event of Chrome's trace format, which PyTorch, Stretto and Perfetto use. Strings are those of the file; absent
// ones are empty. Numbers in arguments are kept as their text.
struct ChromeEvent {
  std::string phase, category, name, pid, tid;
  WrittenTime begin, length;
  std::array<std::string, static_cast<std::size_t>(Argument::count)> arguments;
  std::vector<std::vector<std::int64_t>> shapes;  // "Input Dims"
  std::int64_t blocks = 0;                        // product of "grid": blocks of a kernel; 0: not known
  std::string type;                               // first of "Input type"

  const std::string& operator[](Argument argument) const { return arguments[static_cast<std::size_t>(argument)]; }
  void clear();
};

struct ChromeHeader {
  std::string rank;    // distributedInfo.rank
  std::string ranks;   // distributedInfo.world_size
  std::string device;  // deviceProperties[0].name
};

// Reads a document as a stream and calls `use` for each event; the event's object is used again. The document is an
// object with traceEvents, or an array of events. Throws Error(input) with the file and the place for anything else,
// for values inside each other more than 64 times, and for shapes that no tensor has.
ChromeHeader read_chrome_json(InputBuffer& buffer, const std::function<void(const ChromeEvent&)>& use);

// Parses "1740461679479712.655"; absent where the text is no number below 2^62.
WrittenTime written_time(std::string_view text);

}  // namespace stretto::trace
