#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "validate/validated_step.hpp"

namespace stretto::validate {

// The prediction of a recipe, written down before anybody has measured its step. A file of them is CSV with the columns
// recipe, platform, gpus, precision, task, layers, hidden, seq_len, gbs, tp, pp, cp, ep, scenario, predicted_s, low_s,
// high_s, peak_GiB, version and date (docs/validate.md).
struct RegisteredStep {
  std::string recipe;  // "deepseek_v3_pretrain_256gpu_gb300_fp8mx"
  std::string platform, precision, task;
  std::int64_t gpus = 0, layers = 0, hidden = 0, seq_len = 0, gbs = 0, tp = 1, pp = 1, cp = 1, ep = 1;
  std::string scenario;                           // FNV-1a 64 of the scenario's text: 16 hexadecimal digits
  double predicted_s = 0, low_s = 0, high_s = 0;  // the step, and its 80 % interval
  double peak_GiB = 0;                            // of a GPU's memory
  std::string version, date;                      // of the program; ISO 8601
};

// Predicts every recipe of Megatron-Bridge that ships, on its GPU and number of GPUs; those that cannot be predicted go
// to `left_out` with the reason. Uses all processors. `progress` gets a line after each, from one thread at a time.
std::vector<RegisteredStep> register_recipes(const std::string& version, const std::string& date,
                                             std::vector<std::string>& left_out,
                                             const std::function<void(const std::string& line)>& progress = nullptr);

// The file, and back. Throws Error(input) with `name`, line and column.
std::string text_of(const std::vector<RegisteredStep>& steps);
std::vector<RegisteredStep> read_registered(std::string_view text, const std::string& name);

// A measured step and the prediction that was registered for it.
struct ScoredStep {
  std::string id;
  RegisteredStep registered;
  double measured_s = 0;
  double error() const { return registered.predicted_s / measured_s - 1; }
  bool is_inside() const { return measured_s >= registered.low_s && measured_s <= registered.high_s; }
};

// Pairs measured steps with predictions of the same platform, GPUs, precision, task, size of the model, batch, length
// of sequences and layout. A step has the first such prediction; steps without one are not in the result.
std::vector<ScoredStep> score(const std::vector<RegisteredStep>& registered, const std::vector<PublishedStep>& steps);

}  // namespace stretto::validate
