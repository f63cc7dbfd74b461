#include "model/framework_host.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace stretto {
namespace {

constexpr Limits<double> kTime{.min = 0, .max = 1e9};

// Keys from before there were kinds; each is a kind now.
struct OlderKey {
  const char* key;
  HostKind kind;
};
constexpr std::array kOlderKeys = {OlderKey{"micro_batch_us", HostKind::micro_batch},
                                   OlderKey{"step_us", HostKind::step}, OlderKey{"part_us", HostKind::node},
                                   OlderKey{"recompute_us", HostKind::recompute}};

// A launch in C++ where a profile with a host does not say.
Quantity usual_cpp_us() {
  return {6,
          {"assumed",
           "a call of cuBLASLt in C++, launch included: an empty kernel's launch is 6.4 us in ahrefs/ocannl#488"},
          4,
          10,
          {}};
}

bool is_issued(HostKind kind) { return has_passes(kind) && kind != HostKind::layer; }
bool communicates(HostKind kind) {
  return kind == HostKind::collective || kind == HostKind::exchange || kind == HostKind::flex_exchange ||
         kind == HostKind::message;
}

void read_kinds(TomlTable kinds, FrameworkHost& host) {
  for (int i = 0; i < kHostKinds; ++i) {
    const auto kind = static_cast<HostKind>(i);
    if (kind == HostKind::cpp) continue;
    const std::string forward = name_of(kind), backward = forward + "_backward";
    HostTime& time = host.us[static_cast<std::size_t>(i)];
    // A file that states a kind states both passes of it.
    if (kinds.has(forward)) time = {read_quantity(kinds.section(forward), kTime), {}};
    if (has_passes(kind) && kinds.has(backward)) {
      if (!time.forward) throw kinds.error(backward, "`" + forward + "` as well");
      time.backward = read_quantity(kinds.section(backward), kTime);
    }
  }
  kinds.finish();
}

}  // namespace

bool FrameworkHost::is_modelled() const {
  return issue_us.value > 0 || collective_issue_us.value > 0 ||
         std::any_of(us.begin(), us.end(), [](const HostTime& t) {
           return (t.forward && t.forward->value > 0) || (t.backward && t.backward->value > 0);
         });
}

double FrameworkHost::us_of(HostKind kind, bool is_backward) const {
  if (kind == HostKind::cpp) return is_modelled() ? cpp_us.value : 0;
  const HostTime& own = us[static_cast<std::size_t>(kind)];
  if (is_backward && own.backward) return own.backward->value * python.value;
  if (own.forward) return own.forward->value * python.value;
  // A graph's launch takes as long as two operations, copies of its inputs and the launch (assumed).
  // Where kinds are equal, an expert's launch of codes takes as long as any launch of C++.
  if (kind == HostKind::codes) return is_modelled() ? cpp_us.value : 0;
  const double times = kind == HostKind::graph ? 2 : is_issued(kind) ? 1 : 0;
  return (times * issue_us.value + (communicates(kind) ? collective_issue_us.value : 0)) * python.value;
}

void read_framework_host(TomlTable table, FrameworkHost& host) {
  if (!table.present()) return;
  const auto number = [&](const char* key, Quantity& quantity, Limits<double> limits = kTime) {
    if (table.has(key)) quantity = read_quantity(table.section(key), limits);
  };
  if (table.has("issue_us"))  // all kinds that are issued are equal, whatever the base says
    for (int i = 0; i < kHostKinds; ++i)
      if (is_issued(static_cast<HostKind>(i))) host.us[static_cast<std::size_t>(i)] = {};
  number("issue_us", host.issue_us);
  number("collective_issue_us", host.collective_issue_us);
  if (table.has("python")) {
    TomlTable python = table.section("python");
    host.python_since = value_or<std::string>(python, "since", "");
    host.python = read_quantity(python, {.min = 0, .max = 100, .above_min = true});
  }
  number("cpp_us", host.cpp_us);
  number("reductions_serialise", host.reductions_serialise, {.min = 0, .max = 1});
  host.checks_gradients = value_or<bool>(table, "checks_gradients", host.checks_gradients);
  host.waits_for_messages = value_or<bool>(table, "waits_for_messages", host.waits_for_messages);
  TomlTable kinds = table.section("us");
  for (const OlderKey& older : kOlderKeys) {
    if (!table.has(older.key)) continue;
    if (kinds.has(name_of(older.kind)))
      throw table.error(older.key, std::string("[host.us] ") + name_of(older.kind) + " alone");
    host.us[static_cast<std::size_t>(older.kind)] = {read_quantity(table.section(older.key), kTime), {}};
  }
  table.finish();
  read_kinds(std::move(kinds), host);
  if (host.is_modelled() && host.cpp_us.source.origin.empty()) host.cpp_us = usual_cpp_us();
}

}  // namespace stretto
