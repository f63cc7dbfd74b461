#include "predict/caching_allocator.hpp"

#include <algorithm>
#include <cassert>
#include <functional>

namespace stretto::predict {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kMinBlock = 512;          // all sizes are multiples of it
constexpr std::int64_t kSmallSize = kMiB;        // the largest block of the small pool
constexpr std::int64_t kSmallBuffer = 2 * kMiB;  // segments of the small pool
constexpr std::int64_t kLargeBuffer = 20 * kMiB;
constexpr std::int64_t kMinLargeAlloc = 10 * kMiB;  // from here on a segment has one block
constexpr std::int64_t kRoundLarge = 2 * kMiB;

std::int64_t rounded(std::int64_t bytes, std::int64_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

std::size_t CachingAllocator::FreeBlocks::at(std::int64_t bytes) const {
  // There are mostly fewer than ten sizes; all are compared at once; branches would be guessed wrongly.
  constexpr std::size_t kFew = 32;
  if (sizes_.size() > kFew)
    return static_cast<std::size_t>(std::lower_bound(sizes_.begin(), sizes_.end(), bytes) - sizes_.begin());
  std::size_t smaller = 0;
  for (const std::int64_t size : sizes_) smaller += size < bytes;
  return smaller;
}

void CachingAllocator::FreeBlocks::erase_size(std::size_t at) {
  unused_.push_back(list_of_[at]);
  sizes_.erase(sizes_.begin() + static_cast<std::ptrdiff_t>(at));
  list_of_.erase(list_of_.begin() + static_cast<std::ptrdiff_t>(at));
}

void CachingAllocator::FreeBlocks::insert(std::int64_t bytes, std::int64_t begin, Handle handle) {
  const std::size_t size = at(bytes);
  if (size == sizes_.size() || sizes_[size] != bytes) {
    if (unused_.empty()) {
      unused_.push_back(static_cast<std::uint32_t>(lists_.size()));
      lists_.emplace_back();
    }
    sizes_.insert(sizes_.begin() + static_cast<std::ptrdiff_t>(size), bytes);
    list_of_.insert(list_of_.begin() + static_cast<std::ptrdiff_t>(size), unused_.back());
    unused_.pop_back();
  }
  Blocks& blocks = lists_[list_of_[size]];
  const std::pair block(begin, handle);
  blocks.insert(std::lower_bound(blocks.begin(), blocks.end(), block, std::greater<>()), block);
}

void CachingAllocator::FreeBlocks::erase(std::int64_t bytes, std::int64_t begin, Handle handle) {
  const std::size_t size = at(bytes);
  Blocks& blocks = lists_[list_of_[size]];
  const std::pair block(begin, handle);
  const auto found = blocks.back() == block ? std::prev(blocks.end())
                                            : std::lower_bound(blocks.begin(), blocks.end(), block, std::greater<>());
  assert(found != blocks.end() && *found == block);
  blocks.erase(found);
  if (blocks.empty()) erase_size(size);
}

std::optional<CachingAllocator::Handle> CachingAllocator::FreeBlocks::take(std::int64_t bytes) {
  const std::size_t size = at(bytes);
  if (size == sizes_.size()) return std::nullopt;
  Blocks& blocks = lists_[list_of_[size]];
  const Handle handle = blocks.back().second;
  blocks.pop_back();
  if (blocks.empty()) erase_size(size);
  return handle;
}

CachingAllocator::Handle CachingAllocator::new_block(const Block& block) {
  if (unused_.empty()) {
    blocks_.push_back(block);
    return static_cast<Handle>(blocks_.size() - 1);
  }
  const Handle handle = unused_.back();
  unused_.pop_back();
  blocks_[handle] = block;
  return handle;
}

void CachingAllocator::insert_free(Handle handle) {
  Block& block = blocks_[handle];
  block.is_free = true;
  pool_of(block).insert(block.bytes, block.begin, handle);
}
void CachingAllocator::erase_free(Handle handle) {
  Block& block = blocks_[handle];
  block.is_free = false;
  pool_of(block).erase(block.bytes, block.begin, handle);
}

// Leaves `bytes` of a block that is not free; the rest becomes a free block after it.
void CachingAllocator::split(Handle handle, std::int64_t bytes) {
  const Block whole = blocks_[handle];
  const Handle rest = new_block({whole.begin + bytes, whole.bytes - bytes, handle, whole.after, whole.is_small, false});
  blocks_[handle].bytes = bytes;
  blocks_[handle].after = rest;
  if (whole.after) blocks_[*whole.after].before = rest;
  if (std::optional<Handle>& last = last_of_[whole.is_small]; last == handle) last = rest;
  insert_free(rest);
}

// Returns segments without a block in use to the driver; of an expandable segment all free blocks.
void CachingAllocator::give_back() {
  for (FreeBlocks& pool : free_)
    pool.erase_if([&](Handle handle) {
      Block& block = blocks_[handle];
      if (!expandable_ && (block.before || block.after)) return false;
      reserved_ -= block.bytes;
      // The addresses stay reserved, as a hole that no allocation gets.
      block.is_free = false;
      if (!expandable_) unused_.push_back(handle);
      return true;
    });
}

CachingAllocator::Handle CachingAllocator::grow(std::int64_t bytes, bool is_small) {
  std::optional<Handle>& last = last_of_[is_small];
  std::int64_t needed = bytes;
  if (expandable_ && last && blocks_[*last].is_free) needed -= blocks_[*last].bytes;
  const std::int64_t page = is_small ? kSmallBuffer : kLargeBuffer;  // page of an expandable segment
  std::int64_t segment = expandable_              ? rounded(needed, page)
                         : is_small               ? kSmallBuffer
                         : bytes < kMinLargeAlloc ? kLargeBuffer
                                                  : rounded(bytes, kRoundLarge);
  if (limit_ > 0 && reserved_ + segment > limit_) {
    give_back();
    if (expandable_) segment = rounded(bytes, page);
    if (reserved_ + segment > limit_) out_of_memory_ = true;
  }
  reserved_ += segment;
  peak_ = std::max(peak_, reserved_);
  if (expandable_ && last && blocks_[*last].is_free) {
    const Handle handle = *last;
    erase_free(handle);
    blocks_[handle].bytes += segment;
    return handle;
  }
  const Handle handle = new_block({next_begin_, segment, std::nullopt, std::nullopt, is_small, false});
  if (expandable_) {
    if (last) {
      blocks_[*last].after = handle;
      blocks_[handle].before = last;
    }
    last = handle;
  }
  next_begin_ += segment;
  return handle;
}

CachingAllocator::Handle CachingAllocator::allocate(std::int64_t bytes) {
  const std::int64_t size = rounded(std::max(bytes, kMinBlock), kMinBlock);
  const bool is_small = size <= kSmallSize;
  FreeBlocks& pool = free_[is_small ? 1 : 0];
  Handle handle = 0;
  if (const std::optional<Handle> found = pool.take(size)) {
    handle = *found;
    blocks_[handle].is_free = false;
  } else {
    handle = grow(size, is_small);
  }
  const std::int64_t rest = blocks_[handle].bytes - size;
  if (is_small || expandable_ ? rest >= kMinBlock : rest > kSmallSize) split(handle, size);
  return handle;
}

void CachingAllocator::free(Handle handle) {
  const auto merge_following = [&](Handle first) {
    const Handle second = *blocks_[first].after;
    erase_free(second);
    blocks_[first].bytes += blocks_[second].bytes;
    blocks_[first].after = blocks_[second].after;
    if (blocks_[second].after) blocks_[*blocks_[second].after].before = first;
    if (std::optional<Handle>& last = last_of_[blocks_[first].is_small]; last == second) last = first;
    unused_.push_back(second);
  };
  if (const auto after = blocks_[handle].after; after && blocks_[*after].is_free) merge_following(handle);
  if (const auto before = blocks_[handle].before; before && blocks_[*before].is_free) {
    const Handle first = *before;
    erase_free(first);
    blocks_[first].bytes += blocks_[handle].bytes;
    blocks_[first].after = blocks_[handle].after;
    if (blocks_[handle].after) blocks_[*blocks_[handle].after].before = first;
    if (std::optional<Handle>& last = last_of_[blocks_[first].is_small]; last == handle) last = first;
    unused_.push_back(handle);
    insert_free(first);
    return;
  }
  insert_free(handle);
}

}  // namespace stretto::predict
