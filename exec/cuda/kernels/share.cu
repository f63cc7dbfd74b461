#include <algorithm>

#include "exec/cuda/kernels/map.hpp"
#include "exec/cuda/kernels/share.hpp"

namespace stretto::cuda {
namespace {

constexpr unsigned kShareThreads = 512;
// Loads that a thread has under way: with one at a time a block would carry what the latency of memory lets it.
constexpr int kInFlight = 4;

#if defined(__CUDACC__)
__device__ std::int64_t now_ns() {
  std::int64_t time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}
#else
std::int64_t now_ns() { return 0; }
#endif

// Keeps the block, and with it an SM's slot, until the link would be through with its part.
__device__ void stay(std::int64_t begin_ns, std::int64_t least_ns) {
  if (least_ns == 0 || threadIdx.x != 0) return;
#if defined(__CUDACC__)
  while (now_ns() - begin_ns < least_ns) __nanosleep(500);
#else
  static_cast<void>(begin_ns);
#endif
}

__global__ void start_clock_kernel(std::int64_t* begin_ns) { *begin_ns = now_ns(); }
__global__ void await_clock_kernel(const std::int64_t* begin_ns, std::int64_t least_ns) { stay(*begin_ns, least_ns); }

// Copies slices of a whole: part i comes from from[i] + offset[i] and goes to `to` + i · `each`.
struct Slices {
  int count = 0;
  const std::byte* from[kMostMembers];
  std::byte* to[kMostMembers];
  std::int64_t bytes[kMostMembers];
};
template <class Unit>
__global__ void copy_kernel(Slices slices, std::int64_t least_ns) {
  const std::int64_t begin_ns = now_ns();
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (int i = 0; i < slices.count; ++i) {
    const auto* from = reinterpret_cast<const Unit*>(slices.from[i]);
    auto* to = reinterpret_cast<Unit*>(slices.to[i]);
    const std::int64_t units = slices.bytes[i] / static_cast<std::int64_t>(sizeof(Unit));
    for (std::int64_t u = first; u < units; u += kInFlight * step) {
      Unit x[kInFlight];
#pragma unroll
      for (int j = 0; j < kInFlight; ++j)
        if (u + j * step < units) x[j] = from[u + j * step];
#pragma unroll
      for (int j = 0; j < kInFlight; ++j)
        if (u + j * step < units) to[u + j * step] = x[j];
    }
  }
  stay(begin_ns, least_ns);
}

template <class T>
struct Addends {
  int count = 0;
  const T* at[kMostMembers];
};
using cuda::load;
using cuda::store;
template <int N>
__device__ void load(double (&to)[N], const double* from) {
#pragma unroll
  for (int n = 0; n < N; ++n) to[n] = from[n];
}
template <int N>
__device__ void store(double* to, const double (&from)[N]) {
#pragma unroll
  for (int n = 0; n < N; ++n) to[n] = from[n];
}

// Sums in the order of members, f32 for bf16, f64 for f64, of N elements at a time.
template <class T, class Sum, int N>
__global__ void sum_kernel(std::int64_t elements, Addends<T> in, T* out, std::int64_t least_ns) {
  const std::int64_t begin_ns = now_ns();
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x * N;
  for (std::int64_t i = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N; i < elements;
       i += kInFlight * step) {
    Sum sum[kInFlight][N] = {};
    for (int m = 0; m < in.count; ++m) {
      Sum x[kInFlight][N] = {};
#pragma unroll
      for (int j = 0; j < kInFlight; ++j)
        if (i + j * step < elements) load(x[j], in.at[m] + i + j * step);
#pragma unroll
      for (int j = 0; j < kInFlight; ++j)
#pragma unroll
        for (int n = 0; n < N; ++n) sum[j][n] = m == 0 ? x[j][n] : sum[j][n] + x[j][n];
    }
#pragma unroll
    for (int j = 0; j < kInFlight; ++j)
      if (i + j * step < elements) store(out + i + j * step, sum[j]);
  }
  stay(begin_ns, least_ns);
}

void copy(const Slices& slices, const Pace& pace, const Stream& stream) {
  bool packs = true;
  for (int i = 0; i < slices.count; ++i)
    packs = packs && (reinterpret_cast<std::uintptr_t>(slices.from[i]) |
                      reinterpret_cast<std::uintptr_t>(slices.to[i]) | static_cast<std::uintptr_t>(slices.bytes[i])) %
                             16 ==
                         0;
  const dim3 grid{static_cast<unsigned>(pace.ctas), 1, 1}, block{kShareThreads, 1, 1};
  // Elements have at least two bytes.
  if (packs)
    launch(stream, grid, block, copy_kernel<Pack<std::uint32_t, 4>>, slices, pace.least_ns);
  else
    launch(stream, grid, block, copy_kernel<std::uint16_t>, slices, pace.least_ns);
}

// Where slice `member` of a whole begins: even slices, the last ones shorter where they do not divide.
struct Slice {
  std::int64_t begin, end;
};
Slice slice_of(std::int64_t elements, int members, int member) {
  const std::int64_t each = ceil_div(elements, members);
  return {std::min(elements, each * member), std::min(elements, each * (member + 1))};
}

template <class T, class Sum>
void sum(std::int64_t elements, int member, std::span<const local::Buffers> buffers, bool in_place, const Pace& pace,
         const Stream& stream) {
  const Slice own = slice_of(elements, static_cast<int>(buffers.size()), member);
  Addends<T> in;
  for (const local::Buffers& buffer : buffers) in.at[in.count++] = static_cast<const T*>(buffer.in) + own.begin;
  T* out = static_cast<T*>(buffers[static_cast<std::size_t>(member)].out) + (in_place ? own.begin : 0);
  constexpr int widest = 16 / static_cast<int>(sizeof(T));
  const std::int64_t count = own.end - own.begin;
  bool packs = count % widest == 0 && reinterpret_cast<std::uintptr_t>(out) % 16 == 0;
  for (int m = 0; m < in.count; ++m) packs = packs && reinterpret_cast<std::uintptr_t>(in.at[m]) % 16 == 0;
  const dim3 grid{static_cast<unsigned>(pace.ctas), 1, 1}, block{kShareThreads, 1, 1};
  if (packs)
    launch(stream, grid, block, sum_kernel<T, Sum, widest>, count, in, out, pace.least_ns);
  else
    launch(stream, grid, block, sum_kernel<T, Sum, 1>, count, in, out, pace.least_ns);
}

}  // namespace

void run_share(CollectiveKind kind, Dtype dtype, std::int64_t elements, int member,
               std::span<const local::Buffers> buffers, int phase, const Pace& pace, const Stream& stream) {
  assert(buffers.size() <= kMostMembers);
  const int members = static_cast<int>(buffers.size());
  const std::int64_t width = bytes_of(dtype);
  const auto sum_slice = [&](bool in_place) {
    if (dtype == Dtype::f64) return sum<double, double>(elements, member, buffers, in_place, pace, stream);
    with_device_type(dtype,
                     [&](auto type) { sum<decltype(type), float>(elements, member, buffers, in_place, pace, stream); });
  };
  const auto gather_slices = [&](bool in_place) {
    Slices slices;
    auto* to = static_cast<std::byte*>(buffers[static_cast<std::size_t>(member)].out);
    for (int m = 0; m < members; ++m) {
      const Slice theirs = slice_of(elements, members, m);
      const auto* in = static_cast<const std::byte*>(buffers[static_cast<std::size_t>(m)].in);
      const std::byte* from = in + (in_place ? theirs.begin * width : 0);
      if (from == to + theirs.begin * width || theirs.begin == theirs.end) continue;
      slices.from[slices.count] = from;
      slices.to[slices.count] = to + theirs.begin * width;
      slices.bytes[slices.count++] = (theirs.end - theirs.begin) * width;
    }
    copy(slices, pace, stream);
  };
  switch (kind) {
    case CollectiveKind::all_gather:
      return gather_slices(false);
    case CollectiveKind::reduce_scatter:
      return sum_slice(false);
    case CollectiveKind::all_reduce:
      return phase == 0 ? sum_slice(true) : gather_slices(true);
  }
}

void run_message(const void* from, void* to, std::int64_t bytes, const Pace& pace, const Stream& stream) {
  Slices slices;
  slices.count = 1;
  slices.from[0] = static_cast<const std::byte*>(from);
  slices.to[0] = static_cast<std::byte*>(to);
  slices.bytes[0] = bytes;
  copy(slices, pace, stream);
}

void start_clock(const Stream& stream) {
  launch(stream, {1, 1, 1}, {1, 1, 1}, start_clock_kernel, static_cast<std::int64_t*>(stream.scratch));
}
void await_clock(std::int64_t least_ns, const Stream& stream) {
  launch(stream, {1, 1, 1}, {1, 1, 1}, await_clock_kernel, static_cast<const std::int64_t*>(stream.scratch), least_ns);
}

}  // namespace stretto::cuda
