#include "exec/comm/local.hpp"

#include <barrier>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/bf16.hpp"

using namespace stretto;

namespace {

template <class T>
struct Type {
  static constexpr Dtype dtype = std::is_same_v<T, float> ? Dtype::f32 : Dtype::f64;
  static T from(double value) { return static_cast<T>(value); }
  static T wide(T value) { return value; }
};
template <>
struct Type<Bf16> {
  static constexpr Dtype dtype = Dtype::bf16;
  static Bf16 from(double value) { return to_bf16(value); }
  static float wide(Bf16 value) { return to_float(value); }
};

template <class T>
using Buffers = std::vector<std::vector<T>>;

template <class T>
Buffers<T> random_buffers(int members, std::int64_t elements) {
  std::mt19937_64 generator(static_cast<std::uint64_t>(members * 1000 + elements));
  Buffers<T> buffers(static_cast<std::size_t>(members));
  for (auto& buffer : buffers) {
    for (std::int64_t i = 0; i < elements; ++i) {
      buffer.push_back(Type<T>::from(static_cast<double>(generator() >> 11) * 0x1p-52 - 1));
    }
  }
  return buffers;
}

// Runs all members at once, each on its own thread, as the executor does.
void run_members(const Collective& collective, Dtype dtype, const std::vector<local::Buffers>& addresses) {
  std::barrier barrier(static_cast<std::ptrdiff_t>(addresses.size()));
  std::vector<std::thread> threads;
  for (int member = 0; member < static_cast<int>(addresses.size()); ++member) {
    threads.emplace_back([&, member] {
      for (int phase = 0; phase < local::phases(collective.kind); ++phase) {
        barrier.arrive_and_wait();
        local::run_share(collective, dtype, member, addresses, phase);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Runs in place: shards are slices of the whole.
template <class T>
void run_collective(CollectiveKind kind, Buffers<T>& buffers, Reduction reduction = Reduction::sum) {
  const auto elements = static_cast<std::int64_t>(buffers[0].size());
  const auto shard = elements / static_cast<std::int64_t>(buffers.size());
  std::vector<local::Buffers> addresses;
  for (auto& buffer : buffers) {
    T* slice = buffer.data() + static_cast<std::int64_t>(addresses.size()) * shard;
    if (kind == CollectiveKind::all_gather) addresses.push_back({slice, buffer.data()});
    if (kind == CollectiveKind::reduce_scatter) addresses.push_back({buffer.data(), slice});
    if (kind == CollectiveKind::all_reduce) addresses.push_back({buffer.data(), buffer.data()});
  }
  run_members({kind, 0, elements, reduction}, Type<T>::dtype, addresses);
}

template <class T>
std::vector<T> rank_order_sum(const Buffers<T>& buffers) {
  std::vector<T> sum;
  for (std::size_t i = 0; i < buffers[0].size(); ++i) {
    auto total = Type<T>::wide(buffers[0][i]);
    for (std::size_t member = 1; member < buffers.size(); ++member) total += Type<T>::wide(buffers[member][i]);
    if constexpr (std::is_same_v<T, Bf16>) {
      sum.push_back(to_bf16(total));
    } else {
      sum.push_back(total);
    }
  }
  return sum;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b, std::size_t begin, std::size_t end) {
  return a.size() == b.size() &&
         (begin == end || std::memcmp(a.data() + begin, b.data() + begin, (end - begin) * sizeof(T)) == 0);
}

template <class T>
void check_all_reduce(int members, std::int64_t elements) {
  CAPTURE(members, elements, name_of(Type<T>::dtype));
  auto buffers = random_buffers<T>(members, elements);
  const auto expected = rank_order_sum(buffers);
  run_collective(CollectiveKind::all_reduce, buffers);
  for (const auto& buffer : buffers) CHECK(same_bits(buffer, expected, 0, expected.size()));
}

template <class T>
void check_sharded(int members, std::int64_t shard) {
  CAPTURE(members, shard, name_of(Type<T>::dtype));
  auto buffers = random_buffers<T>(members, members * shard);
  const auto before = buffers;
  const auto sum = rank_order_sum(buffers);
  const auto length = static_cast<std::size_t>(shard);
  run_collective(CollectiveKind::reduce_scatter, buffers);
  for (std::size_t member = 0; member < buffers.size(); ++member) {
    const std::size_t begin = member * length, end = begin + length;
    CHECK(same_bits(buffers[member], sum, begin, end));
    // The other elements of the buffer are only read.
    CHECK(same_bits(buffers[member], before[member], 0, begin));
    CHECK(same_bits(buffers[member], before[member], end, sum.size()));
  }
  run_collective(CollectiveKind::all_gather, buffers);
  for (const auto& buffer : buffers) CHECK(same_bits(buffer, sum, 0, sum.size()));
}

}  // namespace

TEST_CASE("collectives give the rank-order sum, bit for bit", "[comm]") {
  for (const int members : {1, 2, 3, 4, 7}) {
    for (const std::int64_t elements : {1, 5, 8, 1001, 9000}) {
      check_all_reduce<float>(members, elements);
      check_all_reduce<double>(members, elements);
      check_all_reduce<Bf16>(members, elements);
    }
    for (const std::int64_t shard : {1, 17, 2500}) {
      check_sharded<float>(members, shard);
      check_sharded<double>(members, shard);
      check_sharded<Bf16>(members, shard);
    }
  }
}

TEST_CASE("collectives give the maximum", "[comm]") {
  const auto check = []<class T>(T) {
    for (const int members : {1, 2, 5}) {
      const auto given = random_buffers<T>(members, 1500 * members);
      std::vector<T> largest = given[0];
      for (const auto& buffer : given)
        for (std::size_t i = 0; i < largest.size(); ++i)
          if (Type<T>::wide(largest[i]) < Type<T>::wide(buffer[i])) largest[i] = buffer[i];
      auto reduced = given, scattered = given;
      run_collective(CollectiveKind::all_reduce, reduced, Reduction::max);
      run_collective(CollectiveKind::reduce_scatter, scattered, Reduction::max);
      for (std::size_t member = 0; member < given.size(); ++member) {
        CHECK(same_bits(reduced[member], largest, 0, largest.size()));
        CHECK(same_bits(scattered[member], largest, member * 1500, (member + 1) * 1500));
      }
    }
  };
  check(float{});
  check(double{});
  check(Bf16{});
}

TEST_CASE("bf16 sums are rounded once", "[comm]") {
  // 256 + 1 + 1 = 258 in bf16; rounding after each addition gives 256 (257 is a tie and goes to even).
  Buffers<Bf16> buffers{{to_bf16(256.f)}, {to_bf16(1.f)}, {to_bf16(1.f)}};
  run_collective(CollectiveKind::all_reduce, buffers);
  CHECK(to_float(buffers[1][0]) == 258);
}

TEST_CASE("bf16 sums round a ring are rounded at each member, from the one after the owner on", "[comm]") {
  // Slice 0: (1 + 1) + 256 = 258. Slice 1: (1 + 256) + 1, whose first sum is a tie that goes to 256. Slice 2: likewise.
  Buffers<Bf16> buffers(3, std::vector<Bf16>(3, to_bf16(1.f)));
  std::fill(buffers[0].begin(), buffers[0].end(), to_bf16(256.f));
  auto scattered = buffers;
  run_collective(CollectiveKind::all_reduce, buffers, Reduction::ring_sum);
  run_collective(CollectiveKind::reduce_scatter, scattered, Reduction::ring_sum);
  const float expected[] = {258, 256, 256};
  for (std::size_t slice = 0; slice < 3; ++slice) {
    CHECK(to_float(scattered[slice][slice]) == expected[slice]);
    for (const auto& buffer : buffers) CHECK(to_float(buffer[slice]) == expected[slice]);
  }
}

TEST_CASE("shards of their own, out of place", "[comm]") {
  for (const int members : {1, 2, 3, 5}) {
    const std::int64_t shard = 1500;
    const auto wholes = random_buffers<double>(members, members * shard);
    const auto sum = rank_order_sum(wholes);
    Buffers<double> shards(wholes.size(), std::vector<double>(shard)), gathered = wholes;
    std::vector<local::Buffers> scatter, gather;
    for (std::size_t m = 0; m < wholes.size(); ++m) {
      scatter.push_back({wholes[m].data(), shards[m].data()});
      gather.push_back({shards[m].data(), gathered[m].data()});
    }
    run_members({CollectiveKind::reduce_scatter, 0, members * shard}, Dtype::f64, scatter);
    run_members({CollectiveKind::all_gather, 0, members * shard}, Dtype::f64, gather);
    for (const auto& whole : gathered) CHECK(same_bits(whole, sum, 0, sum.size()));
  }
}
