#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json_cost.hpp"
#include "calibrate/import/nccl_run.hpp"

namespace stretto::calibrate {
namespace {

using nlohmann::json;

// Returns the value under a key; null where there is none.
const json& at(const json& object, const char* key) {
  static const json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}
std::string text_of(const json& object, const char* key) {
  const json& value = at(object, key);
  return value.is_string() ? value.get<std::string>() : "";
}
double number_of(const json& object, const char* key) {
  const json& value = at(object, key);
  return value.is_number() ? value.get<double>() : 0;
}
std::int64_t count_of(const json& object, const char* key, std::int64_t fallback) {
  const json& value = at(object, key);
  return value.is_number_integer() && value >= 1 && value <= 1 << 20 ? value.get<std::int64_t>() : fallback;
}

// Reads the output of `-J FILE`, format 1 to 3 (src/util.cu of NVIDIA/nccl-tests).
NcclRun run_of(const json& root) {
  NcclRun run;
  const json& arguments = at(root, "args");
  if (arguments.is_array() && !arguments.empty() && arguments[0].is_string())
    run.op = op_of_program(arguments[0].get<std::string>());
  const json& config = at(root, "config");
  const json& devices = at(config, "devices");
  if (!devices.is_array() || devices.empty()) return run;
  // The list has one device for each process: the first one that the process drives.
  const std::int64_t of_process = count_of(config, "nthreads", 1) * count_of(config, "ngpus", 1);
  for (const json& device : devices) {
    if (at(device, "group") != at(devices[0], "group")) continue;  // a concurrent group
    run.gpus += of_process;  // "rank" counts processes, and no list is cut: last_rank stays unknown
    run.hosts.insert(text_of(device, "hostname"));
  }
  run.device = text_of(devices[0], "device_info");
  return run;
}

}  // namespace

Measurements read_nccl_json(std::string_view text, const std::string& name, const ImportFile& said) {
  Budget budget(name);
  charge_json(text, budget);
  const json root = json::parse(text, nullptr, false);
  const json& results = at(root, "results");
  if (!results.is_array())
    throw input_error(name + ": expected what nccl-tests writes with -J, an object with \"results\", got " +
                      (root.is_discarded() ? "no whole JSON" : "none"));
  NcclPoints points(name, said);
  const NcclRun run = run_of(root);
  for (const json& result : results) {
    const json &out = at(result, "out_of_place"), &in = at(result, "in_place");
    if (at(out, "time").is_null() && at(in, "time").is_null()) {
      if (!at(out, "cpu_time").is_null() || !at(in, "cpu_time").is_null())
        throw input_error(name + ": expected the time of the GPU, got that of the processor (-C 1)");
      continue;
    }
    const json& first = out.is_object() ? out : in;
    constexpr double kStep_GBps = 0.01;  // of the text, and no more is relied on here
    std::string root = text_of(result, "root");
    root.erase(0, root.find_first_not_of(' ') == std::string::npos ? root.size() : root.find_first_not_of(' '));
    NcclRow row;
    row.bytes = number_of(result, "size");
    row.type = text_of(result, "type");
    row.redop = text_of(result, "redop");
    row.root = root;
    row.out_of_place_us = number_of(out, "time");
    row.in_place_us = number_of(in, "time");
    row.algorithm_GBps = {number_of(first, "alg_bw"), kStep_GBps};
    row.bus_GBps = {number_of(first, "bus_bw"), kStep_GBps};
    row.wrong = number_of(out, "nwrong") + number_of(in, "nwrong");
    row.is_checked_out_of_place = at(out, "nwrong").is_number();
    row.is_checked_in_place = at(in, "nwrong").is_number();
    points.add(run, row, 0);
  }
  return points.take();
}

}  // namespace stretto::calibrate
