#include "trace/kineto.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <set>
#include <unordered_map>

#include "base/error.hpp"
#include "trace/own_trace.hpp"

namespace stretto::trace {
namespace {

std::int64_t number_of(const std::string& text, std::int64_t otherwise = 0) {
  std::int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc() ? value : otherwise;
}

// Bytes of an element of PyTorch's types, as kernels and operators name them; 0 for unknown ones.
int bytes_of_type(std::string_view type) {
  constexpr std::pair<std::string_view, int> kTypes[] = {
      {"BFloat16", 2}, {"Half", 2}, {"Float8_e4m3fn", 1}, {"Float8_e5m2", 1}, {"Float", 4}, {"Double", 8},
      {"Long", 8},     {"Int", 4},  {"Byte", 1},          {"Char", 1},        {"Bool", 1}};
  for (const auto& [name, bytes] : kTypes)
    if (type == name) return bytes;
  return 0;
}

// Operators of the host whose operands say the shape of a kernel.
bool has_shape_of_kernel(const std::string& name) {
  if (name.starts_with("aten::_scaled_dot_product_") || name == "flash_attn::_flash_attn_forward" ||
      name == "aten::embedding")
    return true;
  return name == "aten::mm" || name == "aten::addmm" || name == "aten::bmm" || name == "aten::baddbmm" ||
         name == "aten::linear" || name == "aten::_scaled_mm" || name == "aten::_grouped_mm";
}

bool is_kernel(const std::string& category) {
  return category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset" || category == "Kernel" ||
         category == "Memcpy" || category == "Memset";
}
bool is_launch(const std::string& category) {
  return category == "cuda_runtime" || category == "cuda_driver" || category == "Runtime" || category == "hip_runtime";
}

// A launching call of the host.
struct Launch {
  Picoseconds at = 0;
  std::int32_t thread = 0;
};
struct CallOfThread {
  Picoseconds begin = 0, end = 0;
  std::int32_t call = 0;
};

}  // namespace

std::optional<std::int64_t> rank_in_name(const std::string& file) {
  const std::string name = std::filesystem::path(file).filename().string();
  for (std::size_t at = name.find("rank"); at != std::string::npos; at = name.find("rank", at + 1)) {
    std::size_t digits = at + 4;
    if (digits < name.size() && (name[digits] == '-' || name[digits] == '_')) ++digits;
    std::int64_t rank = 0;
    const auto [end, problem] = std::from_chars(name.data() + digits, name.data() + name.size(), rank);
    if (problem == std::errc() && rank >= 0) return rank;
  }
  return std::nullopt;
}

bool waits_for_device(std::string_view call) {
  for (const std::string_view library : {"cuda", "hip"})
    for (const std::string_view of : {"StreamSynchronize", "DeviceSynchronize", "EventSynchronize"})
      if (call.starts_with(library) && call.substr(library.size()).starts_with(of)) return true;
  return false;
}

bool marks_step(std::string_view name) {
  const auto is_alpha = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  const std::size_t digit = name.find_first_of("0123456789");
  if (digit == std::string_view::npos || digit == 0) return false;
  if (name.find_first_not_of("0123456789", digit) != std::string_view::npos) return false;
  std::string word;
  for (const char c : name.substr(0, digit))
    if (is_alpha(c)) word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word == "profilerstep" || word == "step" || word == "iteration" || word == "iter" || word == "trainstep";
}

namespace {

// Returns what an event takes in memory at most: a kernel, or an entry of a map, and its texts and shapes.
std::size_t kept_bytes_of(const ChromeEvent& event) {
  constexpr std::size_t kEntry = 64;
  std::size_t bytes = sizeof(Kernel) + kEntry + event.name.size() + event.tid.size() + event.pid.size();
  for (const std::string& argument : event.arguments) bytes += argument.size();
  for (const auto& shape : event.shapes) bytes += sizeof(shape) + shape.size() * sizeof(shape[0]);
  return bytes;
}

}  // namespace

struct ChromeTrace::State {
  State(const std::string& file, Budget& of_file) : name(file), budget(of_file) {}

  std::string name;
  Budget& budget;
  RankTrace trace;
  std::unordered_map<std::string, std::uint32_t> name_of, stream_of;
  std::unordered_map<std::string, std::int32_t> thread_of;
  std::unordered_map<std::int64_t, Launch> launches;                // [correlation]
  std::vector<std::int64_t> correlations;                           // [kernel]; 0: none
  std::unordered_map<std::int64_t, std::int32_t> call_of_operator;  // [external id]
  std::vector<std::int64_t> operators;                              // [kernel] external id; 0: none
  std::map<std::int32_t, std::vector<CallOfThread>> calls;
  std::set<std::int32_t> begin_flows, end_flows, of_autograd;  // threads
  std::set<std::int64_t> devices;
  OwnTrace own;
  TraceClock clock;

  std::uint32_t index_of_name(const std::string& text) {
    const auto [found, is_new] = name_of.try_emplace(text, static_cast<std::uint32_t>(trace.names.size()));
    if (is_new) {
      budget.look(kLooksOfPatterns * text.size());
      trace.names.push_back(text);
    }
    return found->second;
  }
  std::uint32_t index_of_stream(const std::string& key, const std::string& text) {
    const auto [found, is_new] = stream_of.try_emplace(key, static_cast<std::uint32_t>(trace.streams.size()));
    if (is_new) trace.streams.push_back({text});
    return found->second;
  }
  std::int32_t thread(const ChromeEvent& event) {
    return thread_of.try_emplace(event.pid + "/" + event.tid, static_cast<std::int32_t>(thread_of.size()))
        .first->second;
  }

  void add_kernel(const ChromeEvent& event) {
    const std::string& stream = event[Argument::stream].empty() ? event.tid : event[Argument::stream];
    const std::string& device = event[Argument::device].empty() ? event.pid : event[Argument::device];
    devices.insert(number_of(device));
    Kernel kernel;
    kernel.name = index_of_name(event.name);
    kernel.stream = index_of_stream(device + "/" + stream, "stream " + stream);
    kernel.start = clock.at(event.begin);
    kernel.end = kernel.start + length_of(event.length);
    kernel.blocks = static_cast<std::uint32_t>(event.blocks);
    kernel.cls = KernelClass::other;  // take() sets it, once for each name
    if (const std::string& collective = event[Argument::collective]; !collective.empty()) {
      Message message;
      message.collective = collective;
      message.in_elements = number_of(event[Argument::in_elements]);
      message.out_elements = number_of(event[Argument::out_elements]);
      message.group_size = number_of(event[Argument::group_size]);
      message.element_bytes = bytes_of_type(event[Argument::dtype]);
      message.group = event[Argument::group];
      kernel.message = static_cast<std::int32_t>(trace.messages.size());
      trace.messages.push_back(std::move(message));
    }
    trace.kernels.push_back(kernel);
    correlations.push_back(number_of(event[Argument::correlation]));
    operators.push_back(number_of(event[Argument::external]));
  }

  void add_host_call(const ChromeEvent& event) {
    if (event.name.starts_with("autograd::engine::")) of_autograd.insert(thread(event));
    if (event.shapes.empty() || !has_shape_of_kernel(event.name)) return;
    budget.keep(kept_bytes_of(event));
    if (const std::int64_t id = number_of(event[Argument::external]); id != 0)
      call_of_operator.try_emplace(id, static_cast<std::int32_t>(trace.calls.size()));
    const Picoseconds begin = clock.at(event.begin);
    calls[thread(event)].push_back(
        {begin, begin + length_of(event.length), static_cast<std::int32_t>(trace.calls.size())});
    trace.calls.push_back({event.name, event.shapes, event.type});
  }

  // Returns the innermost operator that contains the launch.
  std::int32_t call_at(const Launch& launch) const {
    const auto of_thread = calls.find(launch.thread);
    if (of_thread == calls.end()) return -1;
    const auto& sorted = of_thread->second;
    auto after = std::upper_bound(sorted.begin(), sorted.end(), launch.at,
                                  [](Picoseconds t, const CallOfThread& c) { return t < c.begin; });
    constexpr int kNested = 4;
    for (int i = 0; i < kNested && after != sorted.begin(); ++i)
      if ((--after)->end >= launch.at) return after->call;
    return -1;
  }

  void connect() {
    for (auto& [thread, sorted] : calls)
      std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    const auto side_of = [&](std::int32_t thread) {
      const bool ends = end_flows.contains(thread), begins = begin_flows.contains(thread);
      if (ends != begins) return ends ? Side::backward : Side::forward;
      if (!of_autograd.empty()) return of_autograd.contains(thread) ? Side::backward : Side::forward;
      return Side::unknown;
    };
    for (std::size_t i = 0; i < trace.kernels.size(); ++i) {
      Kernel& kernel = trace.kernels[i];
      const auto found = correlations[i] == 0 ? launches.end() : launches.find(correlations[i]);
      if (found == launches.end()) {
        // A trace without launches, cut or of another library, may still name the operator.
        const auto of = operators[i] == 0 ? call_of_operator.end() : call_of_operator.find(operators[i]);
        if (of != call_of_operator.end()) kernel.call = of->second;
        continue;
      }
      kernel.launched = found->second.at;
      kernel.side = side_of(found->second.thread);
      kernel.call = call_at(found->second);
    }
    // Where one thread launches everything, its flows say nothing.
    const auto is_on = [&](Side side) {
      return std::any_of(trace.kernels.begin(), trace.kernels.end(),
                         [side](const Kernel& k) { return k.side == side; });
    };
    if (!is_on(Side::forward) || !is_on(Side::backward))
      for (Kernel& kernel : trace.kernels) kernel.side = Side::unknown;
  }

  void classify() {
    std::vector<KernelClass> classes;
    for (const std::string& of : trace.names) classes.push_back(class_of_kernel(of));
    for (Kernel& kernel : trace.kernels) {
      kernel.cls = classes[kernel.name];
      if (kernel.message < 0) continue;
      const KernelClass said = class_of_collective(trace.messages[static_cast<std::size_t>(kernel.message)].collective);
      if (said != KernelClass::other) kernel.cls = said;
    }
  }
};

ChromeTrace::ChromeTrace(const std::string& name, Budget& budget) : state_(std::make_unique<State>(name, budget)) {}
ChromeTrace::~ChromeTrace() = default;

void ChromeTrace::add(const ChromeEvent& event) {
  State& s = *state_;
  const auto keep = [&] { s.budget.keep(kept_bytes_of(event)); };
  if (s.own.add(event, s.clock)) return keep();
  if (!event.begin.is_there) return;
  if (event.category == "fwdbwd") {
    keep();
    if (event.phase == "s") s.begin_flows.insert(s.thread(event));
    if (event.phase == "f") s.end_flows.insert(s.thread(event));
    return;
  }
  if (event.phase != "X") return;
  if (is_kernel(event.category)) {
    keep();
    return s.add_kernel(event);
  }
  if (event.category == "cpu_op" || event.category == "Operator") return s.add_host_call(event);
  if (event.category == "user_annotation" && marks_step(event.name)) {
    keep();
    const Picoseconds begin = s.clock.at(event.begin);
    s.trace.marks.push_back({event.name, begin, begin + length_of(event.length)});
    return;
  }
  if (is_launch(event.category) && waits_for_device(event.name)) {
    keep();
    s.trace.syncs.push_back(s.clock.at(event.begin));
    return;
  }
  if (is_launch(event.category) && !event[Argument::correlation].empty()) {
    keep();
    s.launches[number_of(event[Argument::correlation])] = {s.clock.at(event.begin), s.thread(event)};
  }
}

TraceFile ChromeTrace::take(const ChromeHeader& header) {
  State& s = *state_;
  if (s.trace.kernels.empty() && s.own.empty())
    throw input_error(s.name +
                      ": has no kernels; expected a trace of a GPU (activities=[CPU, CUDA] of torch.profiler), or one "
                      "of `stretto compare`, `profile` or `simulate --trace`");
  if (s.devices.size() > 1)
    throw input_error(s.name + ": has kernels of " + std::to_string(s.devices.size()) +
                      " devices; expected those of one rank, a file for each");
  TraceFile file;
  if (s.trace.kernels.empty()) {
    file = {Origin::stretto, s.own.take(s.name, s.budget)};
  } else {
    s.connect();
    s.classify();
    s.trace.file = s.name;
    s.trace.device = header.device;
    const std::optional<std::int64_t> named = rank_in_name(s.name);
    s.trace.says_rank = !header.rank.empty() || named;
    s.trace.rank = header.rank.empty() ? named.value_or(0) : number_of(header.rank);
    s.trace.ranks = header.ranks.empty() ? 0 : number_of(header.ranks);
    file.sections.push_back({"", {}});
    file.sections.back().ranks.push_back(std::move(s.trace));
  }
  for (Section& section : file.sections)
    for (RankTrace& rank : section.ranks) {
      std::sort(rank.syncs.begin(), rank.syncs.end());
      std::stable_sort(rank.kernels.begin(), rank.kernels.end(),
                       [](const Kernel& a, const Kernel& b) { return a.start < b.start; });
      std::stable_sort(rank.marks.begin(), rank.marks.end(),
                       [](const StepMark& a, const StepMark& b) { return a.begin < b.begin; });
    }
  return file;
}

}  // namespace stretto::trace
