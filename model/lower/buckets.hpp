#pragma once
#include <cstdint>
#include <vector>

#include "model/transformer.hpp"

namespace stretto {

// The place of one parameter in the contiguous parameter and gradient buffers.
struct BucketEntry {
  std::size_t parameter = 0;  // index into parameters(model)
  std::int64_t offset = 0;    // elements from the start of the bucket, 64-aligned
};

struct Bucket {
  std::vector<BucketEntry> entries;  // in reverse registration order: the order in which gradients become ready
  std::int64_t elements = 0;         // with padding
  // Set by add_parameters:
  std::size_t role = 0;             // program whose ranks have the bucket
  std::size_t parameter_class = 0;  // index into Lowered::classes
};

// Returns Megatron-LM's param_and_grad_buffer: parameters are laid out in reverse registration order, each start
// aligned to 64 elements; a bucket closes when its element count reaches `bucket_size`; its end is padded to a multiple
// of lcm(dp, 128) so that it cuts into dp equal shards, or so that shards are multiples of `unit`. bucket_size 0 gives
// one bucket for everything (bucketing off).
std::vector<Bucket> make_buckets(const std::vector<Parameter>& parameters, std::int64_t bucket_size, std::int64_t dp,
                                 std::int64_t unit = 1);

// Returns Megatron's default when no size is given: max(40,000,000, 1,000,000 · dp) elements.
std::int64_t default_bucket_size(std::int64_t dp);

}  // namespace stretto
