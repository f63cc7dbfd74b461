#include "exec/host/time_slice.hpp"

#include <linux/sched.h>
#include <linux/sched/types.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace stretto::host {

void ask_for_short_time_slices() {
  sched_attr attributes{};
  if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.sched_policy != SCHED_NORMAL) return;  // another scheduling class was set by the user
  attributes.sched_runtime = 100'000;                   // ns, the shortest value allowed
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace stretto::host
