#include "trace/own_trace.hpp"

#include <algorithm>
#include <charconv>

namespace stretto::trace {
namespace {

// Returns the class of an operation, whose work begins with its kind.
KernelClass class_of_work(const std::string& work) {
  const std::string kind = work.substr(0, work.find(' '));
  if (kind == "gemm" || kind == "grouped_gemm") return KernelClass::gemm;
  if (kind == "dispatch") return KernelClass::dispatch;
  if (kind == "combine") return KernelClass::combine;
  if (kind == "send" || kind == "receive") return KernelClass::send_recv;
  for (const KernelClass cls :
       {KernelClass::all_gather, KernelClass::reduce_scatter, KernelClass::all_reduce, KernelClass::all_to_all})
    if (kind == trace::name_of(cls)) return cls;
  return KernelClass::other;
}

std::int64_t number_in(const std::string& text) {
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// "measured plain, 2 ranks, rank 1" → the part before the last comma, and 1.
std::pair<std::string, std::int64_t> section_and_rank(const std::string& title) {
  constexpr std::string_view kRank = ", rank ";
  const std::size_t at = title.rfind(kRank);
  std::int64_t rank = 0;
  if (at == std::string::npos) return {title, rank};
  std::from_chars(title.data() + at + kRank.size(), title.data() + title.size(), rank);
  return {title.substr(0, at), rank};
}

}  // namespace

bool OwnTrace::add(const ChromeEvent& event, TraceClock& clock) {
  if (event.phase == "M") {
    if (event.name == "process_name") processes_[event.pid].title = event[Argument::name];
    if (event.name == "thread_name") processes_[event.pid].lanes[event.tid] = event[Argument::name];
    return true;
  }
  if (event.phase == "i" && event.name == "step begins" && event.begin.is_there) {
    processes_[event.pid].step_begin = clock.at(event.begin);
    return true;
  }
  if (event.phase != "X" || event[Argument::op].empty() || event[Argument::work].empty() || !event.begin.is_there)
    return false;
  add_operation(event, clock);
  return true;
}

void OwnTrace::add_operation(const ChromeEvent& event, TraceClock& clock) {
  const auto index = [](auto& known, const std::string& key) {
    return known.try_emplace(key, static_cast<std::uint32_t>(known.size()));
  };
  Kernel kernel;
  const auto [name, is_new_name] = index(name_of_, event.name + "\n" + event[Argument::work]);
  if (is_new_name) names_.push_back(name->first);
  kernel.name = name->second;
  const auto [stream, is_new_stream] = index(stream_of_, event.pid + "/" + event.tid);
  if (is_new_stream) places_.emplace_back(event.pid, event.tid);
  kernel.stream = stream->second;
  kernel.cls = class_of_work(event[Argument::work]);
  kernel.start = clock.at(event.begin);
  kernel.end = kernel.start + length_of(event.length);
  kernel.queued = length_of(written_time(event[Argument::queued_us]));
  kernel.waited_for_peers = std::min(length_of(written_time(event[Argument::waited_for_peers_us])), kernel.length());
  kernel.waited_for_joined = std::min(length_of(written_time(event[Argument::waited_for_joined_us])),
                                      kernel.length() - kernel.waited_for_peers);
  kernel.element_bytes = static_cast<std::uint8_t>(number_in(event[Argument::element_bytes]));
  if (is_communication(kernel.cls)) {
    const auto [message, is_new] = index(message_of_, event[Argument::group] + "\n" + event[Argument::group_size]);
    if (is_new) messages_.push_back({"", 0, 0, number_in(event[Argument::group_size]), 0, event[Argument::group]});
    kernel.message = static_cast<std::int32_t>(message->second);
  }
  operations_.push_back(kernel);
}

std::vector<Section> OwnTrace::take(const std::string& file, Budget& budget) {
  struct Place {
    std::size_t section = 0, rank = 0;
  };
  std::vector<Section> sections;
  std::map<std::string, Place> place_of;  // [pid]
  std::vector<Place> of_stream;           // [stream]
  std::vector<std::uint32_t> inner;       // [stream]: its index in the rank's trace
  std::size_t bytes_of_names = 0;         // each rank has a copy of them
  for (const std::string& name : names_) bytes_of_names += name.size() + sizeof(name);
  for (const auto& [pid, tid] : places_) {
    const auto [title, rank] = section_and_rank(processes_[pid].title);
    const auto [place, is_new] = place_of.try_emplace(pid);
    if (is_new) {
      budget.look(sections.size() * (title.size() + 1));
      budget.keep(sizeof(RankTrace) + bytes_of_names);
      auto section = std::find_if(sections.begin(), sections.end(),
                                  [&wanted = title](const Section& s) { return s.title == wanted; });
      if (section == sections.end()) section = sections.insert(section, Section{title, {}});
      place->second = {static_cast<std::size_t>(section - sections.begin()), section->ranks.size()};
      RankTrace& made = section->ranks.emplace_back();
      made.rank = rank;
      made.says_rank = true;
      made.file = file;
      made.names = names_;
      made.messages = messages_;
      made.step_begin = processes_[pid].step_begin;
    }
    of_stream.push_back(place->second);
    RankTrace& of = sections[place->second.section].ranks[place->second.rank];
    inner.push_back(static_cast<std::uint32_t>(of.streams.size()));
    const auto lane = processes_[pid].lanes.find(tid);
    of.streams.push_back({lane == processes_[pid].lanes.end() ? "lane " + tid : lane->second});
  }
  for (Kernel kernel : operations_) {
    const Place& place = of_stream[kernel.stream];
    kernel.stream = inner[kernel.stream];
    sections[place.section].ranks[place.rank].kernels.push_back(kernel);
  }
  return sections;
}

}  // namespace stretto::trace
