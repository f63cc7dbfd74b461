#pragma once

namespace stretto::host {

// For threads that move data. One that wakes on a core that computes waits for up to a time slice (3 ms and more), as
// no network card would: small transfers beside compute were 0.4 ms late in the mean, at the 99th percentile 5 ms. With
// a short slice of its own the calling thread is let in at once. Needs no privilege; Linux 6.12 or later
// (sched_setattr(2), sched_runtime of SCHED_OTHER), before that it does nothing.
void ask_for_short_time_slices();

}  // namespace stretto::host
