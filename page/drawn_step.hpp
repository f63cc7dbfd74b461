#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "ask/request.hpp"
#include "predict/predict_step.hpp"
#include "report/lost_time.hpp"

namespace stretto::page {

// A step with its whole timeline, for the pictures of one question. `asked` has its platform.
class DrawnStep {
 public:
  explicit DrawnStep(const ask::Asked& asked);

  const predict::PredictedStep& step() const { return step_; }
  const sim::Platform& platform() const { return *platform_; }
  // Returns the index of the program that stands for a rank, in SimResult::programs. Throws Error(input) naming the
  // ranks that there are.
  std::size_t program_of(std::int64_t rank) const;
  const BoundProgram& program(std::size_t index) const { return step_.result.programs[index]; }
  struct Rows {
    const TimelineRow *first = nullptr, *past = nullptr;
    const TimelineRow* begin() const { return first; }
    const TimelineRow* end() const { return past; }
  };
  // Returns the rows of a program, in order of op.
  Rows rows_of(std::size_t program) const;
  const std::vector<LostTime>& lost(std::size_t program);

 private:
  std::shared_ptr<const sim::Platform> platform_;
  predict::PredictedStep step_;
  std::map<std::size_t, std::vector<LostTime>> lost_;  // [program]
};

// Returns the step of a question; that of the last question where it is the same one, because a person who zooms asks
// many times. Throws as predict::predict_step() does.
DrawnStep& drawn_step(const ask::Asked& asked);

// Returns the link of a communicator's groups, {`link`, `link_GBps`}: "nvlink" or "network" and the rate of one GPU in
// one direction; null where the platform does not say.
nlohmann::json link_json(const DrawnStep& drawn, const Communicator& communicator);

}  // namespace stretto::page
