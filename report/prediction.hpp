#pragma once
#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/layout.hpp"
#include "report/comparison.hpp"
#include "report/memory.hpp"
#include "report/table.hpp"
#include "report/throughput.hpp"

namespace stretto {

// The slowest links that a communicator's groups use.
enum class LinkKind : std::uint8_t {
  unknown,  // the platform does not say which ranks are on one node
  nvlink,   // all members of a group are in one NVLink domain
  network,
};
const char* name_of(LinkKind link);

// Exposed communication (report/exposure.hpp) of one communicator.
struct ExposedPart {
  std::string communicator;
  Coord axis = Coord::dp;  // as axis_of() returns it
  LinkKind link = LinkKind::unknown;
  double ms = 0;
};
// Returns the axis for which a communicator across these axes counts: dp where that is one of them, replicas of experts
// included, else tp, cp, ep or pp.
Coord axis_of(const std::vector<Coord>& axes);
// All that axis_of() returns, in the order in which parts of a step are printed.
inline constexpr std::array kExposedAxes = {Coord::tp, Coord::cp, Coord::ep, Coord::dp, Coord::pp};

// All that `simulate` prints about one step. Plain data.
struct Prediction {
  std::string scenario, platform, schedule, engine;
  std::int64_t ranks = 1, devices = 1;
  Parallel parallel;
  std::int64_t micro_batches = 1;  // of one rank
  std::string device = "device";   // "GPU" where devices are GPUs
  double parameters = 0;
  double step_ms = 0;
  bool steady = true;    // two periods were equal
  bool has_host = true;  // false: the profile of a published GPU has no host, and nothing waits for one
  PeakRate peak;
  Throughput throughput;
  BreakdownMs breakdown;
  std::vector<ExposedPart> exposed;  // [communicator]
  DeviceMemory memory;
  std::vector<std::string> notes;  // notes of the schedule and the platform
  std::int64_t operations = 0;     // simulated operations
  // The step was extrapolated from one with this number (predict/few_micro_batches.hpp), and why not from fewer; ""
  // where from the fewest.
  std::int64_t simulated_micro_batches = 0;
  std::string why_simulated;
  // wall time of the simulation; wall time including building and verifying the schedule
  double simulate_s = 0, whole_s = 0;

  double exposed_ms(Coord axis) const;
  double exposed_ms(LinkKind link) const;
  double host_bound_pct() const { return 100 * breakdown.host / step_ms; }
  bool knows_links() const;
  // Returns the parts of the step's time as shares of it, the largest first. They add up to 1.
  std::vector<std::pair<std::string, double>> limits() const;
};

// Return the lines above and below the tables.
std::string about_text(const Prediction& prediction);
std::string limits_text(const Prediction& prediction);
// Returns the printed table, in units that fit the values.
Table prediction_table(const Prediction& prediction);
// Returns the keys of `simulate` in docs/json.md except `modes` and `fits_with`, in fixed units.
nlohmann::json prediction_json(const Prediction& prediction);

}  // namespace stretto
