#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "report/memory.hpp"

namespace stretto::sweep {

// The outcome of one point of a sweep. Every point has one, with the reason.
enum class Status : std::uint8_t {
  open,          // not decided yet; no file has it
  refused,       // the scenario's reader, a gate or the builder refuses the combination
  does_not_fit,  // it needs more memory than a device has
  slower,        // a bound of its step is above the steps of enough others, so it was not simulated
  predicted,
};
const char* name_of(Status status);  // "refused", "does not fit", "slower", "predicted"

// One combination of a sweep with all that is known of it. A value type. Times are of one step in its steady period,
// bytes are of one device. A number that is not known is 0, in JSON null.
struct Point {
  std::string key;               // 16 hexadecimal digits that stand for scenario, platform and settings
  std::vector<std::string> set;  // as --set takes them
  std::string platform;          // "" unless the sweep varies it
  Status status = Status::open;
  std::string reason;  // "" for a predicted point
  std::int64_t gpus = 0;
  double step_ms = 0;   // 0 unless predicted
  double bound_ms = 0;  // no step of these settings takes less; 0: not computed
  double tokens_per_s_per_gpu = 0;
  std::optional<double> mfu;      // share of the peak
  std::int64_t memory_bytes = 0;  // predicted peak of a device, or a lower bound of it; 0: unknown
  std::int64_t device_bytes = 0;  // 0: unknown
  // How the interval of the memory lies to the device's; tight points are ranked after those that fit.
  Fit fit = Fit::fits;
  std::int64_t micro_batches = 0;            // of a rank; 0: refused before they were known
  std::int64_t simulated_micro_batches = 0;  // equal to micro_batches: the whole step was simulated
};

// A point as one line of a sweep's file (docs/sweep.md), and back. Throws Error(input) for text that is no such line.
std::string line_of(const Point& point);
Point point_of(const std::string& line, const std::string& place);
nlohmann::json json_of(const Point& point);

}  // namespace stretto::sweep
