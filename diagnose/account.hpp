#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/timeline.hpp"

namespace stretto::diagnose {

// The parts of a rank's step. An instant belongs to the first part of this list that holds on one of its lanes. A
// trace does not say what a stream waits for, so the time of a communication is exposed here whenever nothing computes,
// on the predicted side too, and of several communications that of the one that began last. report/exposure.hpp, which
// knows the waits, counts some of it as bubble. Where the host binds, communication that nothing waits for yet would
// be exposed all the time: the time in which the next computation waits for nothing but to be issued is the host's.
enum class Part : std::uint8_t {
  kernel,       // an operation of the schedule computes
  unscheduled,  // a kernel computes that the schedule does not have
  cores,        // an operation waits for cores
  exposed,      // a communication moves bytes
  peers,        // a communication waits for peers
  host,         // none of these: nothing was issued, or what was issued waits for the host
};
const char* name_of(Part part);  // "kernel", …

constexpr std::uint32_t kNoCommunicator = ~std::uint32_t{0};

struct TimeKey {
  Part part = Part::host;
  std::string name;                              // operation "fc1.fprop", communication "dp reduce_scatter", kernel
  std::uint32_t communicator = kNoCommunicator;  // of a communication of the schedule
  bool operator==(const TimeKey&) const = default;
  // Not <=>, which strings of the page's library do not have.
  bool operator<(const TimeKey& other) const {
    return std::tie(part, name, communicator) < std::tie(other.part, other.name, other.communicator);
  }
};
using Account = std::map<TimeKey, Picoseconds>;

// An operation on a rank. Computation: `transfer` is `start`.
struct Span {
  Picoseconds queued_from = 0, start = 0, transfer = 0, end = 0;
  TimeKey key;  // part kernel, unscheduled or exposed
  // Computation: all that it waits for on the device was over at the first of these, and the host issued it at the
  // second. Not known, or issued before: equal.
  Picoseconds free_from = 0, issued = 0;
};

// Divides the period from `begin` on among the keys; the sum is the period. Spans that reach beyond the period stand
// for those of the steps before and after: they count at the other end of it.
Account account_of(const std::vector<Span>& spans, Picoseconds begin, Picoseconds period);

}  // namespace stretto::diagnose
