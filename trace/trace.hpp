#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/timeline.hpp"
#include "trace/kernel_class.hpp"

namespace stretto::trace {

// Traces of profilers, in one form. Value types; indices refer to vectors of the same RankTrace. Times count from one
// origin of the file.

constexpr Picoseconds kNoTime = INT64_MIN;

// The facts that a profiler says of a communication kernel, where it does.
struct Message {
  std::string collective;                          // "allreduce", as PyTorch names it
  std::int64_t in_elements = 0, out_elements = 0;  // elements that one rank gives and gets; 0: not known
  std::int64_t group_size = 0;                     // 0: not known
  int element_bytes = 0;                           // 0: not known
  std::string group;                               // name of the process group
};

// The operator of the host that launched a kernel, with the shapes of its operands (record_shapes of PyTorch).
struct HostCall {
  std::string name;                               // "aten::mm"
  std::vector<std::vector<std::int64_t>> shapes;  // of each operand; a scalar has none
  std::string type;                               // type of the first operand: "c10::BFloat16"
};

enum class Side : std::uint8_t { unknown, forward, backward };

// One kernel on a device, or an operation of Stretto's own.
struct Kernel {
  std::uint32_t name = 0, stream = 0;
  KernelClass cls = KernelClass::other;
  std::uint32_t blocks = 0;        // of its grid; 0: not known
  Side side = Side::unknown;       // of the thread that launched it
  std::uint8_t element_bytes = 0;  // of the first operand of an operation of Stretto's; 0: not known
  Picoseconds start = 0, end = 0;
  Picoseconds launched = kNoTime;  // the host's call began; kNoTime: the trace does not say
  std::int32_t message = -1;       // index into messages
  std::int32_t call = -1;          // index into calls
  // Traces of Stretto itself say these: waiting for cores before `start`; waiting for peers after it; waiting for the
  // other messages of a group before `end`.
  Picoseconds queued = 0, waited_for_peers = 0, waited_for_joined = 0;

  Picoseconds length() const { return end - start; }
};

struct Stream {
  std::string name;  // "stream 7"; of Stretto's traces the lane
};

// A step that the program has marked (ProfilerStep#3, an NVTX range), in the host's time.
struct StepMark {
  std::string name;
  Picoseconds begin = 0, end = 0;
};

// The trace of one rank.
struct RankTrace {
  std::int64_t rank = 0;
  bool says_rank = false;  // false: `rank` is a guess
  std::int64_t ranks = 0;  // of the run; 0: not known
  std::string file;        // the file it comes from, for messages
  std::string device;      // "NVIDIA H100 80GB HBM3"; "": not known
  std::vector<std::string> names;
  std::vector<Stream> streams;
  std::vector<Kernel> kernels;  // in order of start
  std::vector<Message> messages;
  std::vector<HostCall> calls;
  std::vector<StepMark> marks;     // in order
  std::vector<Picoseconds> syncs;  // begin of the host's calls that wait for the device, in order
  // Of Stretto's traces: when the step begins.
  std::optional<Picoseconds> step_begin = {};

  const std::string& name_of(const Kernel& kernel) const { return names[kernel.name]; }
};

enum class Origin : std::uint8_t { kineto, nsight, stretto };
const char* name_of(Origin origin);  // "PyTorch profiler", …

// One step or run in a file. Files of profilers have one section without a title, files of `stretto compare` one for
// each mode ("measured plain, 2 ranks") and each prediction.
struct Section {
  std::string title;
  std::vector<RankTrace> ranks;
};

struct TraceFile {
  Origin origin = Origin::kineto;
  std::vector<Section> sections;
};

// Reads a trace: JSON of PyTorch's profiler or of Stretto, maybe compressed by gzip, or a report of Nsight Systems that
// was exported as SQLite. JSON is read as a stream: memory is that of kernels, launches and shapes. Throws Error(input)
// with the file for anything else, for damaged files, and for traces without kernels.
TraceFile read_trace(const std::string& path);
// Reads JSON in memory, maybe compressed by gzip, as read_trace() does; `name` is for messages.
TraceFile parse_trace(std::string_view json, const std::string& name);

// Returns whether a file is one that read_trace() reads, by its first bytes. Throws as ReadFile::open() does.
bool looks_like_trace(const std::string& path);

// Returns the files of a folder that may be traces, or the file itself. Throws Error(input) for an empty folder.
std::vector<std::string> trace_files(const std::string& path);

}  // namespace stretto::trace
