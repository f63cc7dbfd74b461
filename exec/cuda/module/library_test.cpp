#include "exec/cuda/module/library.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"

namespace stretto::cuda {

TEST_CASE("a library is loaded when it is asked for, and one that is missing or too old is said", "[cuda]") {
  const Library maths("libm.so.6", "Mathematics");
  double (*cosine)(double) = nullptr;
  maths.find("cos", cosine);
  CHECK(cosine(0) == 1);
  CHECK_THROWS_WITH(maths.find("ncclCommWindowRegister", cosine),
                    "Mathematics: libm.so.6 is too old, it has no ncclCommWindowRegister");
  maths.find_if_there("sin", cosine);
  CHECK(cosine(0) == 0);
  maths.find_if_there("ncclCommWindowRegister", cosine);
  CHECK(cosine == nullptr);
  CHECK_THROWS_WITH(Library("libnot-there.so.2", "NCCL"),
                    Catch::StartsWith("NCCL is needed and cannot be loaded: libnot-there.so.2"));
}

}  // namespace stretto::cuda
