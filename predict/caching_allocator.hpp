#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace stretto::predict {

// A model of the memory that PyTorch's caching allocator takes from a GPU for a sequence of allocations on one stream
// (c10/cuda/CUDACachingAllocator.cpp of 2.6: round_size, get_allocation_size, get_free_block, should_split). It never
// moves a block and keeps its segments: it takes the smallest free block that is large enough, and the rest of the
// block stays free; where there is none, it takes a new segment. Blocks below 1 MiB have a pool of their own.
class CachingAllocator {
 public:
  // With `expandable` segments (expandable_segments:True of PYTORCH_CUDA_ALLOC_CONF) a pool is one segment, which grows
  // at its end. `limit_bytes`: memory of the GPU, 0 for no limit; where a new segment would exceed it, free segments
  // are returned first.
  CachingAllocator(bool expandable, std::int64_t limit_bytes) : expandable_(expandable), limit_(limit_bytes) {}

  using Handle = std::uint32_t;
  Handle allocate(std::int64_t bytes);  // `bytes` above 0
  void free(Handle handle);

  std::int64_t reserved_bytes() const { return reserved_; }
  std::int64_t peak_reserved_bytes() const { return peak_; }
  bool is_out_of_memory() const { return out_of_memory_; }  // the limit was exceeded with nothing left to return

 private:
  struct Block {
    std::int64_t begin = 0, bytes = 0;  // in the address space of all segments
    std::optional<Handle> before, after;
    bool is_small = false, is_free = false;
  };
  // Blocks sorted by bytes, then by begin. Few sizes are distinct.
  class FreeBlocks {
   public:
    void insert(std::int64_t bytes, std::int64_t begin, Handle handle);
    void erase(std::int64_t bytes, std::int64_t begin, Handle handle);  // it must be there
    // Erases and returns the first of the smallest blocks of at least `bytes`.
    std::optional<Handle> take(std::int64_t bytes);
    // Erases the blocks for which erases(handle) returns true.
    template <class Erases>
    void erase_if(const Erases& erases) {
      for (std::size_t i = sizes_.size(); i-- > 0;) {
        std::erase_if(lists_[list_of_[i]], [&](const auto& block) { return erases(block.second); });
        if (lists_[list_of_[i]].empty()) erase_size(i);
      }
    }

   private:
    using Blocks = std::vector<std::pair<std::int64_t, Handle>>;  // begin and handle
    std::size_t at(std::int64_t bytes) const;
    void erase_size(std::size_t at);
    // A search looks at sizes alone, and a new size moves few bytes: lists stay where they are.
    std::vector<std::int64_t> sizes_;     // ascending
    std::vector<std::uint32_t> list_of_;  // [size] → lists_
    std::vector<Blocks> lists_;           // descending, because the first is taken the most
    std::vector<std::uint32_t> unused_;   // lists without blocks, which keep their memory
  };

  Handle new_block(const Block& block);
  FreeBlocks& pool_of(const Block& block) { return free_[block.is_small ? 1 : 0]; }
  void insert_free(Handle handle);
  void erase_free(Handle handle);
  void split(Handle handle, std::int64_t bytes);
  Handle grow(std::int64_t bytes, bool is_small);
  void give_back();

  const bool expandable_;
  const std::int64_t limit_;
  std::vector<Block> blocks_;
  std::vector<Handle> unused_;
  FreeBlocks free_[2];                // [is small]
  std::optional<Handle> last_of_[2];  // [is small]: the last block of the expandable segment
  std::int64_t next_begin_ = 0, reserved_ = 0, peak_ = 0;
  bool out_of_memory_ = false;
};

}  // namespace stretto::predict
