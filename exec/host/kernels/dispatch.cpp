#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <mutex>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "base/module.hpp"
#include "base/overloaded.hpp"
#include "exec/host/kernels/blas.hpp"
#include "exec/host/kernels/families.hpp"
#include "exec/host/kernels/kernels.hpp"

namespace stretto::host {

void run_work(const Work& work, std::span<const Operand> operands) {
  const bool converts = std::holds_alternative<Cast>(work) || std::holds_alternative<Fill>(work) ||
                        std::holds_alternative<ScaledCast>(work) || std::holds_alternative<LocalReduce>(work) ||
                        is_of_low_precision(work);
  if (!converts && computes_in_bf16(operands)) return run_in_f32(work, operands);
  std::visit(Overloaded{
                 [&](const auto& compute) { run_kernel(compute, operands); },
                 [](const Collective&) { assert(false && "a collective is not compute"); },
                 [](const PointToPoint&) { assert(false && "a message is not compute"); },
             },
             work);
}

const Blas& blas() {
  static const Blas& loaded = []() -> const Blas& {
    const auto functions = reinterpret_cast<const Blas* (*)()>(load_module(kBlasModule, kBlasSymbol));
    functions()->set_threads(1);
    return *functions();
  }();
  return loaded;
}

void prepare_blas(std::size_t threads) {
  const Blas& functions = blas();
  // OpenBLAS allocates a buffer for each thread that computes in it, keeps it, and retries forever where allocation
  // fails.
  constexpr std::size_t buffer_bytes = std::size_t{128} << 20, most = 64;  // address space; figures of 0.3.21 on x86-64
  static std::mutex mutex;
  static std::size_t kept = 0;  // one for the process, like OpenBLAS's buffers
  std::lock_guard lock(mutex);
  const std::size_t wanted = std::min(threads, most);
  if (functions.allocate_buffer == nullptr || functions.free_buffer == nullptr || wanted <= kept) return;
  const auto has_room = [] {
    void* room = ::mmap(nullptr, buffer_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return room != MAP_FAILED && ::munmap(room, buffer_bytes) == 0;
  };
  std::vector<void*> buffers;
  while (buffers.size() < wanted && (buffers.size() < kept || has_room()))
    buffers.push_back(functions.allocate_buffer(0));
  for (void* buffer : buffers) functions.free_buffer(buffer);
  kept = std::max(kept, buffers.size());
  if (kept < wanted)
    throw runtime_failure(
        fmt::format("no memory for matrix products: OpenBLAS needs {} MiB of address space for each of "
                    "{} threads (ulimit -v)",
                    buffer_bytes >> 20, wanted));
}

}  // namespace stretto::host
