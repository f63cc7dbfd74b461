#include "model/overlap/mode.hpp"

namespace stretto {

OverlapMode plain_mode() {
  return {.name = "plain",
          .meaning = "nothing overlaps: backward, reduce-scatter, optimizer, all-gather one after the other"};
}

}  // namespace stretto
