#pragma once
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "calibrate/fit/linear_fit.hpp"
#include "calibrate/probes/gpu.hpp"
#include "calibrate/probes/probes.hpp"
#include "sim/platform.hpp"

namespace stretto {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Source, kind, origin, spread_pct)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Quantity, value, source)
}  // namespace stretto
namespace stretto::sim {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Curve, at, value, source)
}  // namespace stretto::sim

namespace stretto::calibrate {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Sample, key, features, cls, us, spread_pct)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Overheads, op_overhead_us, wake_us, timer_overshoot_us)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TransferCurves, beside_moving, beside_waiting, moving_beside, beside_copying,
                                   copying_beside)

// The results of a calibration so far, in a file, so that an interrupted calibration loses only the current probe. Not
// thread-safe.
class Notebook {
 public:
  // Keeps results only in memory.
  Notebook() = default;
  // Continues with the results in the file at `path`, if `about` (the machine, the program, …) is equal to that of the
  // file and the file is younger than a day; `why_not` is then empty, as it is where there is no file. Otherwise the
  // file's results are not used, and why_not() says the reason. Throws Error(input) where the file is not a notebook:
  // it belongs to somebody, and is neither used nor overwritten.
  Notebook(std::string path, nlohmann::json about);

  std::size_t parts() const { return kept_.size(); }
  const std::string& path() const { return path_; }
  const std::string& why_not() const { return why_not_; }

  // Returns the result called `name`: the kept one, otherwise the result of `measure`, which is then kept. The file is
  // replaced as a whole, so that it can be read whenever the program ends. Throws what `measure` throws, and
  // Error(runtime) when the file cannot be written.
  template <class Measure>
  auto part(const std::string& name, Measure measure) -> decltype(measure()) {
    if (const auto found = kept_.find(name); found != kept_.end()) try {
        return found->template get<decltype(measure())>();
      } catch (const nlohmann::json::exception&) {  // written by another program: measured again
      }
    auto measured = measure();
    kept_[name] = measured;
    save();
    return measured;
  }

  // Removes the file, because the calibration is complete.
  void remove();

 private:
  void save() const;

  std::string path_, why_not_;
  nlohmann::json about_, kept_ = nlohmann::json::object();
};

}  // namespace stretto::calibrate
