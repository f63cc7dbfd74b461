#include "exec/comm/local.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "base/bf16.hpp"
#include "base/error.hpp"
#include "exec/expert_errors.hpp"
#include "model/schedule/parcel.hpp"

namespace stretto::local {
namespace {

// Elements whose running sum stays in L1 while all members' buffers stream past.
constexpr std::int64_t kChunk = 1024;

// Combines `in` from the member `begin` on. `rounds`: to T after each.
template <class T, class Combine>
void reduce_as(std::int64_t elements, std::span<const void* const> in, std::size_t begin_at, bool rounds, T* out,
               Combine combine) {
  constexpr bool is_bf16 = std::is_same_v<T, Bf16>;
  using Sum = std::conditional_t<is_bf16, float, T>;
  const auto widen = [](T value) -> Sum {
    if constexpr (is_bf16) {
      return to_float(value);
    } else {
      return value;
    }
  };
  const auto source = [&](std::size_t from) { return static_cast<const T*>(in[(begin_at + from) % in.size()]); };
  const auto combined = [&](Sum a, Sum b) -> Sum {
    const Sum exact = combine(a, b);
    if constexpr (is_bf16) return rounds ? to_float(to_bf16(exact)) : exact;
    return exact;
  };
  alignas(64) Sum sum[kChunk];
  for (std::int64_t begin = 0; begin < elements; begin += kChunk) {
    const std::int64_t count = std::min(kChunk, elements - begin);
    const T* first = source(0) + begin;
    const T* second = source(1) + begin;
    for (std::int64_t i = 0; i < count; ++i) sum[i] = combined(widen(first[i]), widen(second[i]));
    for (std::size_t from = 2; from < in.size(); ++from) {
      const T* next = source(from) + begin;
      for (std::int64_t i = 0; i < count; ++i) sum[i] = combined(sum[i], widen(next[i]));
    }
    if constexpr (is_bf16) {
      for (std::int64_t i = 0; i < count; ++i) out[begin + i] = to_bf16(sum[i]);
    } else {
      std::memcpy(out + begin, sum, static_cast<std::size_t>(count) * sizeof(T));
    }
  }
}

}  // namespace

void reduce(Reduction reduction, Dtype dtype, std::int64_t elements, std::span<const void* const> in, std::size_t own,
            void* out) {
  assert(in.size() >= 2);
  const bool is_ring = reduction == Reduction::ring_sum;
  const auto reduce_typed = [&]<class T>(T* to) {
    if (reduction == Reduction::max)
      reduce_as(elements, in, 0, false, to, [](auto a, auto b) { return std::max(a, b); });
    else
      reduce_as(elements, in, is_ring ? own + 1 : 0, is_ring, to, [](auto a, auto b) { return a + b; });
  };
  switch (dtype) {
    case Dtype::f32:
      return reduce_typed(static_cast<float*>(out));
    case Dtype::f64:
      return reduce_typed(static_cast<double*>(out));
    case Dtype::bf16:
      return reduce_typed(static_cast<Bf16*>(out));
    case Dtype::i32:
    case Dtype::e4m3:
    case Dtype::e5m2:
    case Dtype::e2m1x2:
    case Dtype::f16:
    case Dtype::i16:
      break;
  }
  assert(false && "integers and fp8 are not reduced");
}

namespace {

void run_rows(const Collective& collective, Dtype dtype, int member, std::span<const Buffers> buffers) {
  const auto members = static_cast<std::int64_t>(buffers.size());
  const Buffers& own = buffers[static_cast<std::size_t>(member)];
  require_fit(collective, own.offsets, members);
  const std::int64_t bytes = bytes_of(dtype);
  for (std::int64_t step = 1; step <= members; ++step) {
    const std::int64_t from = (member + step) % members;
    const Parcel parcel = parcel_of_rows(collective, own.offsets, members, from, member);
    const auto* source = static_cast<const std::byte*>(buffers[static_cast<std::size_t>(from)].in);
    std::memmove(static_cast<std::byte*>(own.out) + parcel.target * bytes, source + parcel.source * bytes,
                 static_cast<std::size_t>(parcel.elements * bytes));
  }
}

}  // namespace

void require_fit(const Collective& collective, const std::int32_t* offsets, std::int64_t members) {
  if (fits(collective, offsets, members)) return;
  Collective with_room = collective;
  with_room.capacity = std::numeric_limits<std::int64_t>::max();
  if (!fits(with_room, offsets, members))
    throw runtime_failure(std::string(name_of(collective.kind)) + ": offsets of experts' rows leave a buffer");
  // Only the room does not suffice. All members have these offsets, and give the same reason: the fullest of them.
  const std::int64_t each = collective.experts / members;
  std::int64_t most = 0, fullest = 0;
  for (std::int64_t holder = 0; holder < members; ++holder) {
    std::int64_t rows = 0;
    for (std::int64_t member = 0; member < members; ++member) {
      const std::int32_t* own = offsets + member * (collective.experts + 1);
      rows += own[(holder + 1) * each] - own[holder * each];
    }
    if (rows > most) most = rows, fullest = holder;
  }
  throw runtime_failure(
      exec::no_room_at_rank("rank " + std::to_string(fullest) + " of " + std::to_string(members) + " that share them",
                            most, collective.capacity / collective.cols));
}

void run_share(const Collective& collective, Dtype dtype, int member, std::span<const Buffers> buffers, int phase) {
  const auto members = static_cast<std::int64_t>(buffers.size());
  const std::int64_t elements = collective.elements;
  const CollectiveRule rule = rule_of(collective.kind);
  assert(member >= 0 && member < members && phase >= 0 && phase < rule.phases);
  if (collective.by_rows()) return run_rows(collective, dtype, member, buffers);
  assert(rule.one_buffer || elements % members == 0);
  const CollectivePhase& moves = rule.phase[static_cast<std::size_t>(phase)];
  const std::int64_t bytes = bytes_of(dtype);
  auto* out = static_cast<std::byte*>(buffers[static_cast<std::size_t>(member)].out);
  const auto parcel = [&](std::int64_t from) { return parcel_of(rule, phase, elements, members, from, member); };
  const auto source = [&](std::int64_t from) {
    const Buffers& theirs = buffers[static_cast<std::size_t>(from)];
    return static_cast<const std::byte*>(moves.from_result ? theirs.out : theirs.in) + parcel(from).source * bytes;
  };
  if (moves.reduces && members > 1) {
    std::vector<const void*> in;
    for (std::int64_t from = 0; from < members; ++from) in.push_back(source(from));
    return reduce(collective.reduction, dtype, parcel(member).elements, in, static_cast<std::size_t>(member),
                  out + parcel(member).target * bytes);
  }
  // Each member begins at its right neighbour, so that not all read one buffer at once. The serial oracle also runs
  // incorrect schedules, in which source and target may overlap in part.
  for (std::int64_t step = 1; step <= members; ++step) {
    const std::int64_t from = (member + step) % members;
    std::byte* to = out + parcel(from).target * bytes;
    if (source(from) != to) std::memmove(to, source(from), static_cast<std::size_t>(parcel(from).elements * bytes));
  }
}

}  // namespace stretto::local
