#include "base/parallel.hpp"

#include <catch2/catch.hpp>

namespace stretto {

TEST_CASE("parts of a parallel loop make up all of it") {
  for (const std::int64_t count : {0, 1, 7, 1000, 1003})
    for (const std::int64_t least : {1, 10, 5000}) {
      std::vector<int> times(static_cast<std::size_t>(count), 0);
      parallel_for(count, least, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++times[static_cast<std::size_t>(i)];
      });
      CHECK(std::all_of(times.begin(), times.end(), [](int n) { return n == 1; }));
    }
}

}  // namespace stretto
