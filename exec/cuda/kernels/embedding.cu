#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"
#include "exec/cuda/kernels/positions.hpp"

namespace stretto::cuda {
namespace {

// A rank's cut of the tables: rows of wte from `first_row` on, columns of wpe from `first_col` on.
struct Part {
  std::int64_t vocab, rows, first_row, cols, first_col, tokens;  // tokens: those of one sequence that are held
  Positions positions;
  explicit Part(const Embedding& work)
      : vocab(work.vocab),
        rows(work.vocab / work.shards),
        first_row(work.shard.value() * rows),
        cols(work.cols / work.shards),
        first_col(work.shard.value() * cols),
        tokens(work.parts.tokens(work.seq)),
        positions(work.parts, work.seq) {}
};

// N divides the columns, and the columns of the part.
template <int N, class T>
__global__ void forward_kernel(std::int64_t rows, std::int64_t cols, Part part, const std::int32_t* tokens,
                               Rows<const T> wte, Rows<const T> wpe, Rows<T> x) {
  const std::int64_t col = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N;
  if (col >= cols) return;
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows;
       row += std::int64_t{gridDim.y} * blockDim.y) {
    const std::int64_t token = tokens[row], own = token - part.first_row;
    float value[N] = {}, position[N] = {};
    if (own >= 0 && own < part.rows) load(value, wte.row(own) + col);
    if (wpe.data != nullptr && col >= part.first_col && col < part.first_col + part.cols)
      load(position, wpe.row(part.positions.of(row)) + (col - part.first_col));
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (token < 0 || token >= part.vocab) value[n] = nanf("");
      value[n] += position[n];
    }
    store(x.row(row) + col, value);
  }
}

// blocks that look for tokens: every block reads all of them, so there are no more than run at once
constexpr int kBlocksOfSm = 4;
constexpr int kTokens = 4;    // tokens that a thread looks at, at a time
constexpr int kFound = 2048;  // occurrences that a block collects before it adds them

// Adds N columns of the found rows to those of their tokens. The sum of a token stays in registers while the next found
// row has the same token; rows are read eight ahead, because a frequent token has thousands.
template <int N, class T>
__device__ void add_rows(int count, const std::int32_t* found, const std::int32_t* tokens, std::int64_t first_row,
                         Rows<const T> dx, Rows<float> dwte, std::int64_t col) {
  constexpr int kAhead = 8;
  float sum[N] = {};
  std::int64_t current = -1;
  for (int begin = 0; begin < count; begin += kAhead) {
    float x[kAhead][N] = {};
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (begin + i < count) load(x[i], dx.row(found[begin + i]) + col);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (begin + i >= count) break;
      const std::int64_t token = tokens[found[begin + i]] - first_row;
      if (token != current) {
        if (current >= 0) store(dwte.row(current) + col, sum);
        load(sum, dwte.row(token) + col);
        current = token;
      }
#pragma unroll
      for (int n = 0; n < N; ++n) sum[n] += x[i][n];
    }
  }
  if (current >= 0) store(dwte.row(current) + col, sum);
}

// Each block adds the gradients of the tokens t with t mod (number of blocks) = its number, and reads all tokens to
// find them. It adds the rows of a token one after the other, so that the sum never depends on timing.
template <int N, class T>
__global__ void __launch_bounds__(kThreads, kBlocksOfSm)
    wte_kernel(std::int64_t rows, std::int64_t cols, Part part, const std::int32_t* tokens, Rows<const T> dx,
               Rows<float> dwte) {
  __shared__ std::int32_t found[kFound];
  __shared__ int of_warp[kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  int count = 0;  // equal in all threads
  const std::int64_t at_once = std::int64_t{blockDim.x} * kTokens;
  for (std::int64_t begin = 0; begin < rows; begin += at_once) {
    const std::int64_t first = begin + std::int64_t{threadIdx.x} * kTokens;
    bool is_mine[kTokens];
    int mine = 0;
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const std::int64_t own = first + i < rows ? tokens[first + i] - part.first_row : -1;
      is_mine[i] = own >= 0 && own < part.rows && static_cast<unsigned>(own) % gridDim.x == blockIdx.x;
      mine += is_mine[i] ? 1 : 0;
    }
    // Its position follows the finds of earlier threads, which keeps their order.
    int before = mine;
    for (int delta = 1; delta < kWarp; delta *= 2) {
      const int other = __shfl_up_sync(0xffffffffu, before, delta);
      if (lane >= delta) before += other;
    }
    if (lane == kWarp - 1) of_warp[warp] = before;
    __syncthreads();
    int total = 0;
    for (int w = 0; w < warps; ++w) {
      if (w < warp) before += of_warp[w];
      total += of_warp[w];
    }
    int at = count + before - mine;
#pragma unroll
    for (int i = 0; i < kTokens; ++i)
      if (is_mine[i]) found[at++] = static_cast<std::int32_t>(first + i);
    count += total;
    __syncthreads();
    const bool is_last = begin + at_once >= rows;
    if (count + static_cast<int>(at_once) > kFound || is_last) {
      for (std::int64_t col = std::int64_t{threadIdx.x} * N; col < cols; col += std::int64_t{blockDim.x} * N)
        add_rows<N>(count, found, tokens, part.first_row, dx, dwte, col);
      count = 0;
      __syncthreads();
    }
  }
}

// The loop goes token by token of a sequence, over the sequences in order, N columns a thread; rows are read eight
// ahead.
template <int N, class T>
__global__ void wpe_kernel(std::int64_t rows, Part part, Rows<const T> dx, Rows<float> dwpe) {
  constexpr int kAhead = 8;
  const std::int64_t col = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N;
  if (col >= part.cols) return;
  for (std::int64_t token = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; token < part.tokens && token < rows;
       token += std::int64_t{gridDim.y} * blockDim.y) {
    const std::int64_t position = part.positions.of(token);
    float sum[N];
    load(sum, dwpe.row(position) + col);
    for (std::int64_t begin = token; begin < rows; begin += kAhead * part.tokens) {
      float x[kAhead][N] = {};
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        if (begin + i * part.tokens < rows) load(x[i], dx.row(begin + i * part.tokens) + part.first_col + col);
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
#pragma unroll
        for (int n = 0; n < N; ++n) sum[n] += x[i][n];
    }
    store(dwpe.row(position) + col, sum);
  }
}

}  // namespace

void run_kernel(const Embedding& work, std::span<const exec::Operand> operands, const Stream& stream) {
  const Part part(work);
  const auto* tokens = static_cast<const std::int32_t*>(operands[0].data);
  const bool is_forward = work.pass == Pass::forward;
  const exec::Operand& x = is_forward ? operands.back() : operands[1];
  const exec::Operand& wte = operands[is_forward ? 1 : 2];
  const exec::Operand* wpe = work.positions ? &operands[is_forward ? 2 : 3] : nullptr;
  with_device_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    // N must divide the part's width as well, so that a pack that begins in the part ends in it.
    const auto divides = [&](int n) { return work.cols % n == 0 && part.cols % n == 0; };
    if (is_forward) {
      constexpr int widest = 16 / static_cast<int>(sizeof(T));
      const Rows<const T> of_wpe = wpe ? rows_of<const T>(*wpe) : Rows<const T>{};
      const bool packs = divides(widest) && is_packable(rows_of<const T>(wte), widest) && is_packable(of_wpe, widest) &&
                         is_packable(rows_of<const T>(x), widest);
      const Tiling t = tile(work.rows, work.cols / (packs ? widest : 1));
      return launch(stream, t.grid, t.block, packs ? forward_kernel<widest, T> : forward_kernel<1, T>, work.rows,
                    work.cols, part, tokens, rows_of<const T>(wte), of_wpe, rows_of<T>(x));
    }
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(part.rows, kBlocksOfSm * stream.sms));
    const bool packs = work.cols % 4 == 0 && is_packable(rows_of<const T>(x), 4) && is_packable(rows_of<float>(wte), 4);
    launch(stream, {blocks, 1, 1}, {kThreads, 1, 1}, packs ? wte_kernel<4, T> : wte_kernel<1, T>, work.rows, work.cols,
           part, tokens, rows_of<const T>(x), rows_of<float>(wte));
    if (wpe == nullptr) return;
    const bool packs_too = divides(4) && is_packable(rows_of<const T>(x), 4) && is_packable(rows_of<float>(*wpe), 4);
    const Tiling t = tile(std::min(part.tokens, work.rows), part.cols / (packs_too ? 4 : 1));
    launch(stream, t.grid, t.block, packs_too ? wpe_kernel<4, T> : wpe_kernel<1, T>, work.rows, part,
           rows_of<const T>(x), rows_of<float>(*wpe));
  });
}

}  // namespace stretto::cuda
