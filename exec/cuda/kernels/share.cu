#include "exec/cuda/kernels/map.hpp"
#include "exec/cuda/kernels/share.hpp"
#include "model/schedule/parcel.hpp"

namespace stretto::cuda {
namespace {

constexpr unsigned kShareThreads = 512;
// Loads in flight for each thread: with one at a time the latency of memory would limit a block's rate.
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

// Keeps the block, and with it an SM's slot, until the link would have moved its share.
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

// Copies slices of a whole: slice i comes from from[i] + offset[i] and goes to `to` + i · `each`.
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
    const auto* from = pack_at<const Unit>(slices.from[i]);
    auto* to = pack_at<Unit>(slices.to[i]);
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

// Reduces in the order of members, in f32 for bf16, in f64 for f64, N elements at a time.
template <class T, class Sum, int N, Reduction kReduction>
__global__ void reduce_kernel(std::int64_t elements, Addends<T> in, T* out, std::int64_t least_ns) {
  const auto combine = [](Sum a, Sum b) { return kReduction == Reduction::sum ? a + b : a < b ? b : a; };
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
        for (int n = 0; n < N; ++n) sum[j][n] = m == 0 ? x[j][n] : combine(sum[j][n], x[j][n]);
    }
#pragma unroll
    for (int j = 0; j < kInFlight; ++j)
      if (i + j * step < elements) store(out + i + j * step, sum[j]);
  }
  stay(begin_ns, least_ns);
}

// Starts as many blocks as channels, but no more than the device holds: a second wave would stay for the link's time
// again.
template <class... Parameters, class... Arguments>
void start(void (*kernel)(Parameters...), const Pace& pace, const Stream& stream, const Arguments&... arguments) {
  const std::int64_t blocks = std::min(std::int64_t{pace.ctas}, resident_blocks(stream, kernel, kShareThreads));
  launch(stream, {static_cast<unsigned>(blocks), 1, 1}, {kShareThreads, 1, 1}, kernel, arguments...);
}

void copy(const Slices& slices, const Pace& pace, const Stream& stream) {
  std::uintptr_t all = 0;
  for (int i = 0; i < slices.count; ++i)
    all |= reinterpret_cast<std::uintptr_t>(slices.from[i]) | reinterpret_cast<std::uintptr_t>(slices.to[i]) |
           static_cast<std::uintptr_t>(slices.bytes[i]);
  if (all % 16 == 0)
    start(copy_kernel<Pack<std::uint32_t, 4>>, pace, stream, slices, pace.least_ns);
  else if (all % 2 == 0)
    start(copy_kernel<std::uint16_t>, pace, stream, slices, pace.least_ns);
  else
    start(copy_kernel<std::uint8_t>, pace, stream, slices, pace.least_ns);
}

// Reduces all slices of one member into one place.
template <class T, class Sum, Reduction kReduction>
void reduce(const Slices& slices, const Pace& pace, const Stream& stream) {
  Addends<T> in;
  for (int i = 0; i < slices.count; ++i) in.at[in.count++] = reinterpret_cast<const T*>(slices.from[i]);
  T* out = reinterpret_cast<T*>(slices.to[0]);
  constexpr int widest = 16 / static_cast<int>(sizeof(T));
  const std::int64_t count = slices.bytes[0] / static_cast<std::int64_t>(sizeof(T));
  bool packs = count % widest == 0 && reinterpret_cast<std::uintptr_t>(out) % 16 == 0;
  for (int m = 0; m < in.count; ++m) packs = packs && reinterpret_cast<std::uintptr_t>(in.at[m]) % 16 == 0;
  if (packs)
    start(reduce_kernel<T, Sum, widest, kReduction>, pace, stream, count, in, out, pace.least_ns);
  else
    start(reduce_kernel<T, Sum, 1, kReduction>, pace, stream, count, in, out, pace.least_ns);
}

template <Reduction kReduction>
void reduce(Dtype dtype, const Slices& slices, const Pace& pace, const Stream& stream) {
  if (dtype == Dtype::f64) return reduce<double, double, kReduction>(slices, pace, stream);
  with_device_type(dtype, [&](auto type) { reduce<decltype(type), float, kReduction>(slices, pace, stream); });
}

}  // namespace

void run_share(const Collective& collective, Dtype dtype, int member, std::span<const local::Buffers> buffers,
               int phase, const Pace& pace, const Stream& stream) {
  assert(buffers.size() <= kMostMembers);
  const int members = static_cast<int>(buffers.size());
  const std::int64_t width = bytes_of(dtype);
  const CollectiveRule rule = rule_of(collective.kind);
  const CollectivePhase& moves = rule.phase[static_cast<std::size_t>(phase)];
  auto* out = static_cast<std::byte*>(buffers[static_cast<std::size_t>(member)].out);
  Slices slices;
  const std::int32_t* offsets = buffers[static_cast<std::size_t>(member)].offsets;
  if (collective.by_rows()) local::require_fit(collective, offsets, members);
  for (int m = 0; m < members; ++m) {
    const Parcel parcel = collective.by_rows() ? parcel_of_rows(collective, offsets, members, m, member)
                                               : parcel_of(rule, phase, collective.elements, members, m, member);
    const local::Buffers& theirs = buffers[static_cast<std::size_t>(m)];
    const auto* from =
        static_cast<const std::byte*>(moves.from_result ? theirs.out : theirs.in) + parcel.source * width;
    std::byte* to = out + parcel.target * width;
    if (!moves.reduces && (from == to || parcel.elements == 0)) continue;
    slices.from[slices.count] = from;
    slices.to[slices.count] = to;
    slices.bytes[slices.count++] = parcel.elements * width;
  }
  if (!moves.reduces) return copy(slices, pace, stream);
  if (collective.reduction != Reduction::max) return reduce<Reduction::sum>(dtype, slices, pace, stream);
  reduce<Reduction::max>(dtype, slices, pace, stream);
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
