#include "sweep/point.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.hpp"
#include "base/values_of.hpp"

namespace stretto::sweep {

const char* name_of(Status status) {
  static constexpr const char* kNames[] = {"open", "refused", "does not fit", "slower", "predicted"};
  return name_in(kNames, status);
}

nlohmann::json json_of(const Point& point) {
  return {{"point", point.key},
          {"set", point.set},
          {"platform", point.platform},
          {"status", name_of(point.status)},
          {"reason", point.reason},
          {"gpus", point.gpus},
          {"step_ms", point.step_ms},
          {"bound_ms", point.bound_ms},
          {"tokens_per_s_per_gpu", point.tokens_per_s_per_gpu},
          {"mfu", point.mfu ? nlohmann::json(*point.mfu) : nlohmann::json(nullptr)},
          {"memory_bytes", point.memory_bytes},
          {"device_bytes", point.device_bytes},
          {"micro_batches", point.micro_batches},
          {"simulated_micro_batches", point.simulated_micro_batches}};
}

std::string line_of(const Point& point) {
  return json_of(point).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Point point_of(const std::string& line, const std::string& place) {
  try {
    const nlohmann::json json = nlohmann::json::parse(line);
    Point point;
    point.key = json.at("point").get<std::string>();
    point.set = json.at("set").get<std::vector<std::string>>();
    point.platform = json.at("platform").get<std::string>();
    const auto status = json.at("status").get<std::string>();
    bool is_known = false;
    for (const Status one : values_of<Status>())
      if (status == name_of(one)) point.status = one, is_known = true;
    if (!is_known) throw input_error(place + ": expected a status of a sweep, got \"" + status + "\"");
    point.reason = json.at("reason").get<std::string>();
    point.gpus = json.at("gpus").get<std::int64_t>();
    point.step_ms = json.at("step_ms").get<double>();
    point.bound_ms = json.at("bound_ms").get<double>();
    point.tokens_per_s_per_gpu = json.at("tokens_per_s_per_gpu").get<double>();
    if (!json.at("mfu").is_null()) point.mfu = json.at("mfu").get<double>();
    point.memory_bytes = json.at("memory_bytes").get<std::int64_t>();
    point.device_bytes = json.at("device_bytes").get<std::int64_t>();
    point.micro_batches = json.at("micro_batches").get<std::int64_t>();
    point.simulated_micro_batches = json.at("simulated_micro_batches").get<std::int64_t>();
    const bool is_predicted = point.status == Status::predicted;
    for (const auto& [name, value, is_above] : {std::tuple("step_ms", point.step_ms, is_predicted),
                                                {"tokens_per_s_per_gpu", point.tokens_per_s_per_gpu, false},
                                                {"bound_ms", point.bound_ms, false},
                                                {"gpus", double(point.gpus), false},
                                                {"memory_bytes", double(point.memory_bytes), false},
                                                {"device_bytes", double(point.device_bytes), false}})
      if (!(is_above ? value > 0 : value >= 0))
        throw input_error(
            fmt::format("{}: {}: expected a number {} 0, got {}", place, name, is_above ? "above" : "from", value));
    return point;
  } catch (const nlohmann::json::exception&) {
    throw input_error(place + ": expected a line that `stretto sweep` wrote");
  }
}

}  // namespace stretto::sweep
