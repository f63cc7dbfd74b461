#include "base/time_left.hpp"

#include <catch2/catch.hpp>
#include <limits>

namespace stretto {

TEST_CASE("time left is said in its two largest units") {
  CHECK(TimeLeft::text(0.4).empty());
  CHECK(TimeLeft::text(std::numeric_limits<double>::infinity()).empty());
  CHECK(TimeLeft::text(1) == ", 1 s left");
  CHECK(TimeLeft::text(59.6) == ", 1 min 0 s left");
  CHECK(TimeLeft::text(3599.4) == ", 59 min 59 s left");
  CHECK(TimeLeft::text(3600 * 25 + 61) == ", 1 d 1 h left");
  CHECK(TimeLeft::text(7260) == ", 2 h 1 min left");
  const TimeLeft time;
  CHECK(time.after(0, 10).empty());
  CHECK(time.after(10, 10).empty());
}

}  // namespace stretto
