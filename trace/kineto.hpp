#pragma once
#include <memory>
#include <string>

#include "trace/chrome_json.hpp"
#include "trace/trace.hpp"

namespace stretto::trace {

// Makes a trace of the events of a Chrome trace: those of PyTorch's profiler (categories kernel, gpu_memcpy,
// gpu_memset, cuda_runtime, cuda_driver, cpu_op, user_annotation, fwdbwd), or operations of `stretto --trace`, which
// have the arguments `op` and `work`.
class ChromeTrace {
 public:
  // `budget` is charged with what is kept, and must outlive the object.
  ChromeTrace(const std::string& name, Budget& budget);
  ~ChromeTrace();
  ChromeTrace(const ChromeTrace&) = delete;
  ChromeTrace& operator=(const ChromeTrace&) = delete;

  void add(const ChromeEvent& event);
  // Returns the trace. Throws Error(input) when there is no kernel.
  TraceFile take(const ChromeHeader& header);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns N of a file named …rank-N… or …rank_N…; nullopt for other names.
std::optional<std::int64_t> rank_in_name(const std::string& file);

// Returns whether a call of CUDA's or HIP's runtime makes the host wait for the device: "cudaStreamSynchronize",
// "cudaDeviceSynchronize_v3020".
bool waits_for_device(std::string_view call);

// Returns whether an annotation marks a step: "ProfilerStep#3", "iteration 12", "step_7".
bool marks_step(std::string_view name);

}  // namespace stretto::trace
