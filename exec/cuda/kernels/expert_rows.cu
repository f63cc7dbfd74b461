// Rows of experts: where the copies of tokens go, and moving them there and back. All sums are in a fixed order.
#include <cmath>

#include "exec/cuda/kernels/block_scan.hpp"
#include "exec/cuda/kernels/families.hpp"
#include "exec/cuda/kernels/map.hpp"
#include "exec/cuda/kernels/report.hpp"

namespace stretto::cuda {
namespace {

// A tensor of indices as one list. Its elements are fewer than 2^31.
struct Copies {
  Rows<const std::int32_t> indices;
  unsigned topk, count;
  std::int64_t first, here, experts;  // experts from `first` on are here
  // Returns which of the experts here a copy goes through; outside [0, here): none of them.
  __device__ std::int64_t expert(unsigned i) const { return at(i) - first; }
  __device__ std::int32_t at(unsigned i) const { return indices.row(i / topk)[i % topk]; }
};

// Each block counts the copies for one expert.
__global__ void count_copies_kernel(Copies copies, std::int32_t* counts) {
  double own = 0;
  for (unsigned i = threadIdx.x; i < copies.count; i += blockDim.x) own += copies.expert(i) == blockIdx.x;
  const double all = block_sum(own);
  if (threadIdx.x == 0) counts[blockIdx.x] = static_cast<std::int32_t>(all);
}

// One block: offsets[0, here] from counts[0, here). No offset exceeds the capacity, where there is one.
__global__ void offsets_kernel(std::int64_t here, std::int64_t capacity, const std::int32_t* counts,
                               std::int32_t* offsets, Report report) {
  const auto within = [&](std::int64_t offset) {
    return static_cast<std::int32_t>(capacity > 0 && offset > capacity ? capacity : offset);
  };
  const std::int64_t all = scan(
      here, [&](std::int64_t e) { return counts[e]; },
      [&](std::int64_t e, int, std::int64_t before) { offsets[e] = within(before); });
  if (threadIdx.x != 0) return;
  offsets[here] = within(all);
  if (capacity > 0 && all > capacity) report(Fault::Kind::rows_of_rank, all);
}

// Each block gives the copies for one expert their rows, in their order. The first also gives -1 to copies that go
// nowhere.
__global__ void positions_kernel(Copies copies, std::int64_t each, const std::int32_t* offsets,
                                 Rows<std::int32_t> positions, Report report) {
  const std::int64_t mine = blockIdx.x;
  const std::int64_t begin = each > 0 ? mine * each : offsets[mine], end = each > 0 ? begin + each : offsets[mine + 1];
  std::int64_t rows = 0;
  for (unsigned first = 0; first < copies.count; first += blockDim.x) {
    const unsigned i = first + threadIdx.x;
    const bool is_copy = i < copies.count;
    const std::int64_t expert = is_copy ? copies.expert(i) : -1;
    int total = 0;
    const std::int64_t at = begin + rows + sum_before(is_copy && expert == mine, total);
    rows += total;
    if (!is_copy) continue;
    std::int32_t& to = positions.row(i / copies.topk)[i % copies.topk];
    if (expert == mine) {
      to = at < end ? static_cast<std::int32_t>(at) : -1;
    } else if (mine == 0 && (expert < 0 || expert >= copies.here)) {
      to = -1;
      if (const std::int32_t index = copies.at(i); index < 0 || index >= copies.experts)
        report(Fault::Kind::index, index);
    }
  }
  if (each > 0 && rows > each && threadIdx.x == 0) report(Fault::Kind::rows_of_expert, rows, copies.first + mine);
}

// The part of Permute's work that is on the device.
struct Way {
  std::int64_t tokens, copies, cols, rows;
  bool apart, may_be_nowhere;
  explicit Way(const Permute& work)
      : tokens(work.tokens),
        copies(work.copies),
        cols(work.cols),
        rows(work.matrix_rows()),
        apart(work.apart),
        may_be_nowhere(work.rows > 0) {}
  // Returns whether a copy has a row.
  __device__ bool has(std::int32_t position, const Report& report) const {
    if (position >= 0 && position < rows) return true;
    if (position != -1 || !may_be_nowhere) report(Fault::Kind::position, position);
    return false;
  }
};

template <int N, class T>
__global__ void zero_rows_kernel(std::int64_t rows, std::int64_t packs, Rows<T> to) {
  const std::int64_t pack = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  const float zero[N] = {};
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < rows;
       row += std::int64_t{gridDim.y} * blockDim.y)
    store(to.row(row) + pack * N, zero);
}

template <int N, class T>
__global__ void to_rows_kernel(Way way, std::int64_t packs, Rows<const std::int32_t> positions, Rows<const T> x,
                               Rows<T> rows, Report report) {
  const std::int64_t pack = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  for (std::int64_t token = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; token < way.tokens;
       token += std::int64_t{gridDim.y} * blockDim.y) {
    const T* from = x.row(token) + pack * N;
    float v[N];
    if (!way.apart) load(v, from);
    for (std::int64_t j = 0; j < way.copies; ++j) {
      const std::int32_t at = positions.row(token)[j];
      if (!way.has(at, report)) continue;
      if (way.apart) load(v, from + j * way.cols);
      store(rows.row(at) + pack * N, v);
    }
  }
}

// Adds the copies of a token up in the order of its experts, in f32.
template <int N, class T>
__global__ void to_tokens_kernel(Way way, std::int64_t packs, bool accumulates, Rows<const std::int32_t> positions,
                                 Rows<const T> rows, Rows<T> x, Report report) {
  const std::int64_t pack = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  for (std::int64_t token = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; token < way.tokens;
       token += std::int64_t{gridDim.y} * blockDim.y) {
    T* const to = x.row(token) + pack * N;
    float sum[N] = {}, v[N];
    if (accumulates && !way.apart) load(sum, to);
    for (std::int64_t j = 0; j < way.copies; ++j) {
      const std::int32_t at = positions.row(token)[j];
      const bool has_row = way.has(at, report);
      if (has_row) load(v, rows.row(at) + pack * N);
      if (way.apart) {
#pragma unroll
        for (int n = 0; n < N; ++n) sum[n] = 0.0f;
        if (accumulates) load(sum, to + j * way.cols);
      }
#pragma unroll
      for (int n = 0; n < N; ++n)
        if (has_row) sum[n] += v[n];
      if (way.apart) store(to + j * way.cols, sum);
    }
    if (!way.apart) store(to, sum);
  }
}

// Runs as one block. Writes the offsets of this rank's experts after the rows of all ranks are sorted by expert.
__global__ void count_rows_kernel(std::int64_t ranks, std::int64_t experts, std::int64_t local, std::int64_t first,
                                  std::int64_t capacity, const std::int32_t* all, std::int32_t* offsets,
                                  Report report) {
  const auto within = [&](std::int64_t offset) {
    return static_cast<std::int32_t>(offset < capacity ? offset : capacity);
  };
  const std::int64_t rows = scan(
      local,
      [&](std::int64_t e) {
        std::int64_t sum = 0;
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
          const std::int32_t* of_rank = all + rank * (experts + 1) + first + e;
          const std::int64_t more = std::int64_t{of_rank[1]} - of_rank[0];
          if (of_rank[0] < 0 || more < 0) report(Fault::Kind::offset, of_rank[0]);
          if (more > 0) sum += more;
        }
        return static_cast<int>(sum < capacity + 1 ? sum : capacity + 1);
      },
      [&](std::int64_t e, int, std::int64_t before) { offsets[e] = within(before); });
  if (threadIdx.x != 0) return;
  offsets[local] = within(rows);
  if (rows > capacity) report(Fault::Kind::rows_of_rank, rows);
}

// The rows of one rank for one expert here, and where they begin by rank and by expert.
struct Chunk {
  std::int64_t rows, received, sorted;
};

// One block: the chunks by expert and then by rank.
__global__ void chunks_kernel(std::int64_t ranks, std::int64_t experts, std::int64_t local, std::int64_t first,
                              std::int64_t capacity, const std::int32_t* all, Chunk* chunks, Report report) {
  const auto size = [&](std::int64_t rank, std::int64_t expert) {
    const std::int32_t* of_rank = all + rank * (experts + 1) + first + expert;
    const std::int64_t rows = std::int64_t{of_rank[1]} - of_rank[0];
    if (rows < 0 || rows > capacity) report(Fault::Kind::offset, of_rank[1]);
    return static_cast<int>(rows < 0 ? 0 : rows > capacity ? 0 : rows);
  };
  scan(
      ranks * local, [&](std::int64_t i) { return size(i % ranks, i / ranks); },
      [&](std::int64_t i, int rows, std::int64_t before) {
        chunks[i].rows = rows;
        chunks[i].sorted = before;
      });
  scan(
      ranks * local, [&](std::int64_t i) { return size(i / local, i % local); },
      [&](std::int64_t i, int, std::int64_t before) { chunks[i % local * ranks + i / local].received = before; });
}

// Block (x, y, z) moves a part of chunk y. `chunks` null: every rank has `each` rows for every expert.
template <int N, class T>
__global__ void sort_rows_kernel(std::int64_t ranks, std::int64_t local, std::int64_t each, std::int64_t capacity,
                                 std::int64_t packs, bool is_back, const Chunk* chunks, Rows<T> received,
                                 Rows<T> sorted, Report report) {
  const std::int64_t pack = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x, i = blockIdx.y;
  if (pack >= packs) return;
  const Chunk chunk = chunks != nullptr ? chunks[i] : Chunk{each, (i % ranks * local + i / ranks) * each, i * each};
  if (chunk.received + chunk.rows > capacity || chunk.sorted + chunk.rows > capacity) {
    if (pack == 0) report(Fault::Kind::offset, chunk.sorted + chunk.rows);
    return;
  }
  for (std::int64_t row = std::int64_t{blockIdx.z} * blockDim.y + threadIdx.y; row < chunk.rows;
       row += std::int64_t{gridDim.z} * blockDim.y) {
    T *const there = received.row(chunk.received + row) + pack * N, *const here =
                                                                        sorted.row(chunk.sorted + row) + pack * N;
    float v[N];
    load(v, is_back ? here : there);
    store(is_back ? there : here, v);
  }
}

// Calls fn(std::integral_constant<int, N>, type) with as many elements at once as columns and alignment allow. Codes
// are bytes.
template <class Fn>
void with_packs(std::int64_t cols, const exec::Operand& a, const exec::Operand& b, Fn fn) {
  const auto with_type = [&](auto type) {
    using T = decltype(type);
    constexpr int widest = 16 / static_cast<int>(sizeof(T));
    if (cols % widest == 0 && is_packable(rows_of<const T>(a), widest) && is_packable(rows_of<const T>(b), widest))
      fn(std::integral_constant<int, widest>{}, type);
    else
      fn(std::integral_constant<int, 1>{}, type);
  };
  is_code(a.dtype) ? with_type(static_cast<unsigned char>(0)) : with_device_type(a.dtype, with_type);
}

}  // namespace

void run_kernel(const SortTokens& work, std::span<const exec::Operand> o, const Stream& stream) {
  const std::int64_t here = work.experts_here();
  const Copies copies{rows_of<const std::int32_t>(o[0]),
                      static_cast<unsigned>(work.topk),
                      static_cast<unsigned>(work.rows * work.topk),
                      work.local > 0 ? work.first.value() : 0,
                      here,
                      work.experts};
  const dim3 grid{static_cast<unsigned>(here), 1, 1}, block{kThreads, 1, 1};
  std::int32_t* offsets = nullptr;
  if (work.each == 0) {
    offsets = static_cast<std::int32_t*>(o[1].data);
    auto* counts = static_cast<std::int32_t*>(stream.scratch);
    if (stream.scratch_bytes < static_cast<std::size_t>(here) * sizeof(std::int32_t))
      throw runtime_failure("sorting tokens by expert needs a number of scratch for each expert");
    launch(stream, grid, block, count_copies_kernel, copies, counts);
    launch(stream, {1, 1, 1}, block, offsets_kernel, here, work.local > 0 ? work.capacity : std::int64_t{0}, counts,
           offsets, Report(stream));
  }
  launch(stream, grid, block, positions_kernel, copies, work.each, offsets, rows_of<std::int32_t>(o.back()),
         Report(stream));
}

void run_kernel(const Permute& work, std::span<const exec::Operand> o, const Stream& stream) {
  const bool is_forward = work.pass == Pass::forward;
  const exec::Operand &x = o[is_forward ? 1 : 2], &rows = o[is_forward ? 2 : 1];
  const Rows<const std::int32_t> positions = rows_of<const std::int32_t>(o[0]);
  with_packs(work.cols, x, rows, [&](auto width, auto type) {
    using T = decltype(type);
    constexpr int N = decltype(width)::value;
    const std::int64_t packs = work.cols / N;
    const Tiling t = tile(work.tokens, packs);
    if (!is_forward)
      return launch(stream, t.grid, t.block, to_tokens_kernel<N, T>, Way(work), packs, x.mode == AccessMode::accumulate,
                    positions, rows_of<const T>(rows), rows_of<T>(x), Report(stream));
    if (work.padded) {
      const Tiling all = tile(work.matrix_rows(), packs);
      launch(stream, all.grid, all.block, zero_rows_kernel<N, T>, work.matrix_rows(), packs, rows_of<T>(rows));
    }
    launch(stream, t.grid, t.block, to_rows_kernel<N, T>, Way(work), packs, positions, rows_of<const T>(x),
           rows_of<T>(rows), Report(stream));
  });
}

void run_kernel(const CountRows& work, std::span<const exec::Operand> o, const Stream& stream) {
  launch(stream, {1, 1, 1}, {kThreads, 1, 1}, count_rows_kernel, work.ranks, work.experts, work.local,
         work.first.value(), work.capacity, static_cast<const std::int32_t*>(o[0].data),
         static_cast<std::int32_t*>(o[1].data), Report(stream));
}

void run_kernel(const SortByExpert& work, std::span<const exec::Operand> o, const Stream& stream) {
  const bool is_back = work.pass != Pass::forward;
  const std::size_t at = work.each > 0 ? 0 : 1;
  const exec::Operand &received = o[is_back ? at + 1 : at], &sorted = o[is_back ? at : at + 1];
  Chunk* chunks = nullptr;
  if (work.each == 0) {
    chunks = static_cast<Chunk*>(stream.scratch);
    if (stream.scratch_bytes < static_cast<std::size_t>(work.experts) * sizeof(Chunk))
      throw runtime_failure("sorting rows by expert needs scratch for each expert");
    launch(stream, {1, 1, 1}, {kThreads, 1, 1}, chunks_kernel, work.ranks, work.experts, work.local, work.first.value(),
           work.capacity, static_cast<const std::int32_t*>(o[0].data), chunks, Report(stream));
  }
  with_packs(work.cols, received, sorted, [&](auto width, auto type) {
    using T = decltype(type);
    constexpr int N = decltype(width)::value;
    const std::int64_t packs = work.cols / N, count = work.ranks * work.local;
    const Tiling t = tile(ceil_div(work.rows, count), packs);
    // Few large chunks are cut, so that all SMs have a part.
    const std::int64_t parts = std::clamp<std::int64_t>(ceil_div(std::int64_t{4} * stream.sms, count * t.grid.x), 1,
                                                        std::min<std::int64_t>(t.grid.y, 65535));
    launch(stream, {t.grid.x, static_cast<unsigned>(count), static_cast<unsigned>(parts)}, t.block,
           sort_rows_kernel<N, T>, work.ranks, work.local, work.each, work.capacity, packs, is_back,
           static_cast<const Chunk*>(chunks), rows_of<T>(received), rows_of<T>(sorted), Report(stream));
  });
}

}  // namespace stretto::cuda
