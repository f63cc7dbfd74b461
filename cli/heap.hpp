#pragma once

namespace stretto::cli {

// Asks the allocator, once and before threads start, to keep freed memory, and the system to back the first 256 MiB of
// the heap with pages of 2 MiB where it may (/sys/kernel/mm/transparent_hugepage/enabled not "never"). Changes only
// speed: a schedule's large arrays come and go while it is planned, verified and simulated, and taking each of their
// pages of 4 KiB from the system cost as much as the work.
void keep_heap_in_huge_pages();

}  // namespace stretto::cli
