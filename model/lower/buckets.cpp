#include "model/lower/buckets.hpp"

#include <algorithm>
#include <numeric>

namespace stretto {
namespace {

constexpr std::int64_t kParameterAlignment = 64;
constexpr std::int64_t kBucketAlignment = 128;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

std::vector<Bucket> make_buckets(const std::vector<Parameter>& parameters, std::int64_t bucket_size, std::int64_t dp,
                                 std::int64_t unit) {
  const std::int64_t padding = std::lcm(dp * unit, kBucketAlignment);
  std::vector<Bucket> buckets;
  Bucket open;
  auto close = [&] {
    open.elements = round_up(open.elements, padding);
    buckets.push_back(std::move(open));
    open = {};
  };
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const std::int64_t offset = round_up(open.elements, kParameterAlignment);
    open.entries.push_back({i, offset});
    open.elements = offset + parameters[i].elements();
    if (bucket_size > 0 && open.elements >= bucket_size) close();
  }
  if (!open.entries.empty()) close();
  return buckets;
}

std::int64_t default_bucket_size(std::int64_t dp) { return std::max<std::int64_t>(40'000'000, 1'000'000 * dp); }

}  // namespace stretto
