#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/import/host_times.hpp"
#include "sim/accelerator/collective_table.hpp"
#include "sim/accelerator/gemm_table.hpp"

namespace stretto::calibrate {

// A file to import, with the data that a user gives where the file itself does not have it.
struct ImportFile {
  std::string path;
  std::string op;          // "all_gather"; "": the file says it
  std::int64_t gpus = 0;   // 0: the file says it
  std::int64_t nodes = 0;  // 0: the file says it, else 1
};

// Reads "[OP][@GPUS[/NODES]]=FILE" or "FILE". Throws Error(input) with the text and what was expected.
ImportFile parse_import(const std::string& text);

// Time of kernels that are concurrent with communication over their time alone, and of communication; of kernels of a
// step.
struct MeasuredInterference {
  std::optional<double> gemm, attention, memory_bound, communication;
};

// The usable contents of a file.
struct Measurements {
  std::string file;                              // file name without folders
  std::vector<sim::CollectiveTime> collectives;  // a node is a host
  std::vector<sim::GemmTime> gemms;
  std::string device;              // the GPU's name; "" when the file does not say
  std::vector<std::string> notes;  // data of the file that is not used
  MeasuredInterference interference = {};
  std::optional<HostTimes> host = {};  // of a trace: of its first rank
  bool in_steps = false;               // times of GEMMs are those in training steps: they are sustained
};

// Reads a file of any supported form: output of nccl-tests as text or JSON, a table of collectives or of GEMMs as CSV,
// a profiler's trace (docs/platform.md, "Your own measurements"). Throws Error(input) with file, line and what was
// expected.
Measurements read_measurements(const ImportFile& file);

// ---- the forms; `name` stands for the file in messages ----

Measurements read_nccl_text(std::string_view text, const std::string& name, const ImportFile& said);
Measurements read_nccl_json(std::string_view text, const std::string& name, const ImportFile& said);
Measurements read_collective_csv(std::string_view text, const std::string& name, const ImportFile& said);
Measurements read_gemm_csv(std::string_view text, const std::string& name);
// A trace of PyTorch's profiler or Nsight Systems (calibrate/import/trace.cpp).
Measurements read_kernel_times(const ImportFile& file);

}  // namespace stretto::calibrate
