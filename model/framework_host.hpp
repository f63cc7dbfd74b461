#pragma once
#include <array>
#include <optional>
#include <string>

#include "base/quantity.hpp"
#include "base/toml.hpp"
#include "model/host_kind.hpp"

namespace stretto {

// The time of one kind, in microseconds. Without `backward` both passes take as long.
struct HostTime {
  std::optional<Quantity> forward, backward;
};

// The process of a framework takes so long to issue operations on an x86 CPU; the platform has the factors of another
// CPU. Without any time the host is not modelled: a prediction says so, and nothing waits for it.
struct FrameworkHost {
  std::array<HostTime, kHostKinds> us;  // [HostKind]; kinds without a time have that of `issue_us`
  // Factor of all times that Python takes: one for a release, as all of its modules run the same interpreter, and the
  // schedule has an operation for each module where the framework launches several kernels.
  Quantity python = {1, {}};
  std::string python_since;                // the first release that has the factor; "": not known
  Quantity issue_us, collective_issue_us;  // of an operation where kinds are equal, and more of a communication
  Quantity cpp_us;                         // of HostKind::cpp, which Python does not scale
  // 1: with one hardware queue a reduction of gradients is serialised with the compute issued after it; 0: it is not.
  Quantity reductions_serialise;
  bool checks_gradients = false;    // check_for_nan_in_grad: two synchronisations before a bucket's reduction
  bool waits_for_messages = false;  // it waits for pipeline messages before it issues anything else

  bool has(HostKind kind) const { return us[static_cast<std::size_t>(kind)].forward.has_value(); }
  bool is_modelled() const;
  // Returns what the kind takes, scaled by `python` where Python runs it.
  double us_of(HostKind kind, bool is_backward = false) const;
};

// Reads [host] with [host.us] over what the base's file said. Throws Error(input) as read_scenario does.
void read_framework_host(TomlTable table, FrameworkHost& host);

}  // namespace stretto
