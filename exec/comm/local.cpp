#include "exec/comm/local.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "base/bf16.hpp"

namespace stretto::local {
namespace {

struct Slice {
  std::int64_t begin = 0, end = 0;
};

// Even slices when divisible; otherwise they differ by at most one element, and some are empty when elements < members.
Slice slice_of(std::int64_t elements, std::int64_t members, std::int64_t member) {
  const std::int64_t base = elements / members, longer = elements % members;
  const std::int64_t begin = member * base + std::min(member, longer);
  return {begin, begin + base + (member < longer ? 1 : 0)};
}

// Elements whose running sum stays in L1 while all members' buffers stream past.
constexpr std::int64_t kChunk = 1024;

template <class T>
void sum_slice(Slice slice, int member, std::span<void* const> buffers) {
  constexpr bool is_bf16 = std::is_same_v<T, Bf16>;
  using Sum = std::conditional_t<is_bf16, float, T>;
  const auto widen = [](T value) -> Sum {
    if constexpr (is_bf16) {
      return to_float(value);
    } else {
      return value;
    }
  };
  const auto source = [&](std::size_t from) { return static_cast<const T*>(buffers[from]); };
  T* own = static_cast<T*>(buffers[static_cast<std::size_t>(member)]);
  alignas(64) Sum sum[kChunk];
  for (std::int64_t begin = slice.begin; begin < slice.end; begin += kChunk) {
    const std::int64_t count = std::min(kChunk, slice.end - begin);
    const T* first = source(0) + begin;
    const T* second = source(1) + begin;
    for (std::int64_t i = 0; i < count; ++i) sum[i] = widen(first[i]) + widen(second[i]);
    for (std::size_t from = 2; from < buffers.size(); ++from) {
      const T* next = source(from) + begin;
      for (std::int64_t i = 0; i < count; ++i) sum[i] += widen(next[i]);
    }
    if constexpr (is_bf16) {
      for (std::int64_t i = 0; i < count; ++i) own[begin + i] = to_bf16(sum[i]);
    } else {
      std::memcpy(own + begin, sum, static_cast<std::size_t>(count) * sizeof(T));
    }
  }
}

void reduce(Dtype dtype, Slice slice, int member, std::span<void* const> buffers) {
  switch (dtype) {
    case Dtype::f32:
      return sum_slice<float>(slice, member, buffers);
    case Dtype::f64:
      return sum_slice<double>(slice, member, buffers);
    case Dtype::bf16:
      return sum_slice<Bf16>(slice, member, buffers);
    case Dtype::i32:
      break;
  }
  assert(false && "integers are not reduced");
}

void gather(Dtype dtype, std::int64_t elements, int member, std::span<void* const> buffers) {
  const auto members = static_cast<std::int64_t>(buffers.size());
  const auto bytes = [&](std::int64_t count) { return static_cast<std::size_t>(count * bytes_of(dtype)); };
  auto* own = static_cast<std::byte*>(buffers[static_cast<std::size_t>(member)]);
  // Each member begins at its right neighbour, so that not all read the same buffer at once.
  for (std::int64_t step = 1; step < members; ++step) {
    const std::int64_t from = (member + step) % members;
    const Slice slice = slice_of(elements, members, from);
    const auto* source = static_cast<const std::byte*>(buffers[static_cast<std::size_t>(from)]);
    std::memcpy(own + bytes(slice.begin), source + bytes(slice.begin), bytes(slice.end - slice.begin));
  }
}

}  // namespace

void run_share(CollectiveKind kind, Dtype dtype, std::int64_t elements, int member, std::span<void* const> buffers,
               int phase) {
  const auto members = static_cast<std::int64_t>(buffers.size());
  assert(member >= 0 && member < members && phase >= 0 && phase < phases(kind));
  assert(kind == CollectiveKind::all_reduce || elements % members == 0);
  if (members == 1) return;
  const bool gathers = kind == CollectiveKind::all_gather || phase == 1;
  if (gathers) {
    gather(dtype, elements, member, buffers);
  } else {
    reduce(dtype, slice_of(elements, members, member), member, buffers);
  }
}

// With s the bytes of the longest slice: reducing reads n slices and writes one, gathering reads and writes n − 1.
std::int64_t share_bytes(CollectiveKind kind, Dtype dtype, std::int64_t elements, int members) {
  if (members == 1) return 0;
  const std::int64_t slice = (elements + members - 1) / members * bytes_of(dtype);
  const std::int64_t reduced = (members + 1) * slice, gathered = 2 * (members - 1) * slice;
  switch (kind) {
    case CollectiveKind::all_gather:
      return gathered;
    case CollectiveKind::reduce_scatter:
      return reduced;
    case CollectiveKind::all_reduce:
      return reduced + gathered;
  }
  return 0;
}

}  // namespace stretto::local
