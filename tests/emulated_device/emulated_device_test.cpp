#include "tests/emulated_device/emulated_device.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "base/error.hpp"
#include "exec/cuda/kernels/launch.hpp"

namespace stretto::cuda {
namespace {

__global__ void reverse_kernel(int* data) {
  __shared__ int copy[96];
  copy[threadIdx.x] = data[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  data[blockIdx.x * blockDim.x + threadIdx.x] = copy[blockDim.x - 1 - threadIdx.x];
}
__global__ void sum_kernel(double* data) {
  const double sum = block_sum(data[threadIdx.x]);
  __syncthreads();
  data[threadIdx.x] = sum;
}
// The second warp ends at once; the others keep the contents of their stacks from shuffle to shuffle.
__global__ void odd_warps_end_kernel(int* data) {
  if (threadIdx.x / 32 == 1) return;
  int own[8];
  for (int i = 0; i < 8; ++i) own[i] = static_cast<int>(threadIdx.x) * 8 + i;
  for (int i = 1; i < 8; ++i) own[0] += __shfl_xor_sync(0xffffffffu, own[i], i);
  data[threadIdx.x] = own[0];
}
__global__ void half_waits_kernel() {
  if (threadIdx.x < 32) __syncthreads();
}
__global__ void half_a_warp_shuffles_kernel() {
  if (threadIdx.x % 32 < 16) warp_sum(1.0f);
}
__global__ void copy_pairs_kernel(const float* from, float* to) {
  float pair[2];
  load(pair, from + 2 * threadIdx.x);
  store(to + 2 * threadIdx.x, pair);
}

}  // namespace

TEST_CASE("emulated threads meet at barriers", "[cuda]") {
  std::vector<int> data(192);
  for (int i = 0; i < 192; ++i) data[static_cast<std::size_t>(i)] = i;
  launch(Stream{}, {2, 1, 1}, {96, 1, 1}, reverse_kernel, data.data());
  for (int i = 0; i < 192; ++i) CHECK(data[static_cast<std::size_t>(i)] == (i < 96 ? 95 - i : 287 - i));
  std::vector<double> values(96, 0.5);
  launch(Stream{}, {1, 1, 1}, {96, 1, 1}, sum_kernel, values.data());
  CHECK(values == std::vector<double>(96, 48));
}

TEST_CASE("emulated warps end when they like, and their threads keep what is theirs", "[cuda]") {
  std::vector<int> data(96, -1);
  launch(Stream{}, {1, 1, 1}, {96, 1, 1}, odd_warps_end_kernel, data.data());
  for (int thread = 0; thread < 96; ++thread) {
    int sum = thread * 8;
    for (int i = 1; i < 8; ++i) sum += (thread ^ i) * 8 + i;
    CHECK(data[static_cast<std::size_t>(thread)] == (thread / 32 == 1 ? -1 : sum));
  }
}

TEST_CASE("barriers that not all threads reach are found", "[cuda]") {
  CHECK_THROWS_AS(launch(Stream{}, {1, 1, 1}, {64, 1, 1}, half_waits_kernel), Error);
  CHECK_THROWS_AS(launch(Stream{}, {1, 1, 1}, {64, 1, 1}, half_a_warp_shuffles_kernel), Error);
  std::vector<double> values(64, 1);  // the next kernel works
  launch(Stream{}, {1, 1, 1}, {64, 1, 1}, sum_kernel, values.data());
  CHECK(values[0] == 64);
}

TEST_CASE("what a device refuses to launch or to read is found", "[cuda]") {
  alignas(8) float from[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8}, to[9] = {};
  launch(Stream{}, {1, 1, 1}, {4, 1, 1}, copy_pairs_kernel, from, to);
  CHECK(to[7] == 7);
  CHECK_THROWS_AS(launch(Stream{}, {1, 1, 1}, {4, 1, 1}, copy_pairs_kernel, from + 1, to), Error);
  CHECK_THROWS_AS(launch(Stream{}, {1, 1, 1}, {4, 1, 1}, copy_pairs_kernel, from, to + 1), Error);
  CHECK_THROWS_AS(launch(Stream{}, {1, 65536, 1}, {4, 1, 1}, copy_pairs_kernel, from, to), Error);
  CHECK_THROWS_AS(launch(Stream{}, {1, 1, 1}, {64, 32, 1}, copy_pairs_kernel, from, to), Error);
  launch(Stream{}, {1, 1, 1}, {4, 1, 1}, copy_pairs_kernel, from, to);  // the next kernel works
}

}  // namespace stretto::cuda
