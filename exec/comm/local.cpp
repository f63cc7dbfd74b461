#include "exec/comm/local.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/bf16.hpp"

namespace stretto::local {
namespace {

// Elements whose running sum stays in L1 while all members' buffers stream past.
constexpr std::int64_t kChunk = 1024;

template <class T>
void add_as(std::int64_t elements, std::span<const void* const> in, T* out) {
  constexpr bool is_bf16 = std::is_same_v<T, Bf16>;
  using Sum = std::conditional_t<is_bf16, float, T>;
  const auto widen = [](T value) -> Sum {
    if constexpr (is_bf16) {
      return to_float(value);
    } else {
      return value;
    }
  };
  const auto source = [&](std::size_t from) { return static_cast<const T*>(in[from]); };
  alignas(64) Sum sum[kChunk];
  for (std::int64_t begin = 0; begin < elements; begin += kChunk) {
    const std::int64_t count = std::min(kChunk, elements - begin);
    const T* first = source(0) + begin;
    const T* second = source(1) + begin;
    for (std::int64_t i = 0; i < count; ++i) sum[i] = widen(first[i]) + widen(second[i]);
    for (std::size_t from = 2; from < in.size(); ++from) {
      const T* next = source(from) + begin;
      for (std::int64_t i = 0; i < count; ++i) sum[i] += widen(next[i]);
    }
    if constexpr (is_bf16) {
      for (std::int64_t i = 0; i < count; ++i) out[begin + i] = to_bf16(sum[i]);
    } else {
      std::memcpy(out + begin, sum, static_cast<std::size_t>(count) * sizeof(T));
    }
  }
}

}  // namespace

Slice slice_of(std::int64_t elements, std::int64_t members, std::int64_t member) {
  const std::int64_t base = elements / members, longer = elements % members;
  const std::int64_t begin = member * base + std::min(member, longer);
  return {begin, begin + base + (member < longer ? 1 : 0)};
}

void add(Dtype dtype, std::int64_t elements, std::span<const void* const> in, void* out) {
  assert(in.size() >= 2);
  switch (dtype) {
    case Dtype::f32:
      return add_as<float>(elements, in, static_cast<float*>(out));
    case Dtype::f64:
      return add_as<double>(elements, in, static_cast<double*>(out));
    case Dtype::bf16:
      return add_as<Bf16>(elements, in, static_cast<Bf16*>(out));
    case Dtype::i32:
      break;
  }
  assert(false && "integers are not reduced");
}

void run_share(CollectiveKind kind, Dtype dtype, std::int64_t elements, int member, std::span<const Buffers> buffers,
               int phase) {
  const auto members = static_cast<std::int64_t>(buffers.size());
  assert(member >= 0 && member < members && phase >= 0 && phase < phases(kind));
  assert(kind == CollectiveKind::all_reduce || elements % members == 0);
  const std::int64_t bytes = bytes_of(dtype);
  auto* out = static_cast<std::byte*>(buffers[static_cast<std::size_t>(member)].out);
  if (members == 1) {
    const void* in = buffers[0].in;
    if (in != out) std::memmove(out, in, static_cast<std::size_t>(elements * bytes));
    return;
  }
  const auto sum_slice = [&](bool in_place) {
    const Slice slice = slice_of(elements, members, member);
    std::vector<const void*> in;
    for (const Buffers& theirs : buffers) in.push_back(static_cast<const std::byte*>(theirs.in) + slice.begin * bytes);
    add(dtype, slice.end - slice.begin, in, in_place ? out + slice.begin * bytes : out);
  };
  // Each member begins at its right neighbour, so that not all read the same buffer at once. The serial oracle runs
  // schedules that are not correct too, where places overlap in part.
  const auto gather_slices = [&](bool in_place) {
    for (std::int64_t step = 1; step <= members; ++step) {
      const std::int64_t from = (member + step) % members;
      const Slice slice = slice_of(elements, members, from);
      const Buffers& theirs = buffers[static_cast<std::size_t>(from)];
      const std::byte* source = in_place ? static_cast<const std::byte*>(theirs.out) + slice.begin * bytes
                                         : static_cast<const std::byte*>(theirs.in);
      std::byte* to = out + slice.begin * bytes;
      if (source != to) std::memmove(to, source, static_cast<std::size_t>((slice.end - slice.begin) * bytes));
    }
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

}  // namespace stretto::local
