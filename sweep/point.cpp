#include "sweep/point.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.hpp"
#include "base/json_cost.hpp"
#include "base/values_of.hpp"

namespace stretto::sweep {

const char* name_of(Status status) {
  static constexpr const char* kNames[] = {"open", "refused", "does not fit", "slower", "predicted"};
  return name_in(kNames, status);
}

namespace {

// A number that is 0 where it is unknown, as null there.
template <class Number>
nlohmann::json known(Number number) {
  return number == 0 ? nlohmann::json(nullptr) : nlohmann::json(number);
}

}  // namespace

nlohmann::json json_of(const Point& point) {
  return {{"point", point.key},
          {"set", point.set},
          {"platform", point.platform},
          {"status", name_of(point.status)},
          {"reason", point.reason},
          {"gpus", known(point.gpus)},
          {"step_ms", known(point.step_ms)},
          {"bound_ms", known(point.bound_ms)},
          {"tokens_per_s_per_gpu", known(point.tokens_per_s_per_gpu)},
          {"mfu", point.mfu ? nlohmann::json(*point.mfu) : nlohmann::json(nullptr)},
          {"memory_bytes", known(point.memory_bytes)},
          {"device_bytes", known(point.device_bytes)},
          {"memory_verdict", point.device_bytes == 0 ? nlohmann::json(nullptr) : nlohmann::json(name_of(point.fit))},
          {"micro_batches", known(point.micro_batches)},
          {"simulated_micro_batches", known(point.simulated_micro_batches)}};
}

std::string line_of(const Point& point) {
  return json_of(point).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Point point_of(const std::string& line, const std::string& place) {
  Budget budget(place);
  charge_json(line, budget);
  try {
    const nlohmann::json json = nlohmann::json::parse(line);
    const auto number = [&](const char* name) {
      const nlohmann::json& value = json.at(name);
      return value.is_null() ? 0 : value.get<double>();
    };
    const auto count = [&](const char* name) {
      const nlohmann::json& value = json.at(name);
      if (!value.is_null() && !value.is_number_integer())
        throw input_error(fmt::format("{}: {}: expected a whole number, got {}", place, name, value.dump()));
      return value.is_null() ? 0 : value.get<std::int64_t>();
    };
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
    point.gpus = count("gpus");
    point.step_ms = number("step_ms");
    point.bound_ms = number("bound_ms");
    point.tokens_per_s_per_gpu = number("tokens_per_s_per_gpu");
    if (!json.at("mfu").is_null()) point.mfu = json.at("mfu").get<double>();
    point.memory_bytes = count("memory_bytes");
    point.device_bytes = count("device_bytes");
    // Files of former versions have no verdict.
    if (const nlohmann::json verdict = json.value("memory_verdict", nlohmann::json()); !verdict.is_null()) {
      bool is_verdict = false;
      for (const Fit one : values_of<Fit>())
        if (verdict == name_of(one)) point.fit = one, is_verdict = true;
      if (!is_verdict)
        throw input_error(place + ": memory_verdict: expected fits, tight or does not fit, got " + verdict.dump());
    }
    point.micro_batches = count("micro_batches");
    point.simulated_micro_batches = count("simulated_micro_batches");
    const bool is_predicted = point.status == Status::predicted;
    for (const auto& [name, value, is_above] : {std::tuple("step_ms", point.step_ms, is_predicted),
                                                {"tokens_per_s_per_gpu", point.tokens_per_s_per_gpu, false},
                                                {"bound_ms", point.bound_ms, false},
                                                {"gpus", double(point.gpus), false},
                                                {"micro_batches", double(point.micro_batches), false},
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
