#pragma once
#include <optional>

#include "trace/trace.hpp"

namespace stretto::trace {

// C[m,n] = A[m,k] · B[k,n].
struct Product {
  double m = 0, n = 0, k = 0;
  int element_bytes = 0;  // of A; 0: not known
};

// Returns the product that a kernel computes, where the trace says the shapes of the operator that launched it; nullopt
// for other kernels, and for batched products.
std::optional<Product> product_of(const RankTrace& trace, const Kernel& kernel);

}  // namespace stretto::trace
