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

// Returns the bytes of an element of a GEMM's operands, by the operator that launched it, else by the words of its name
// that NVIDIA's libraries use for types; 0: not known.
int operand_bytes_of(const RankTrace& trace, const Kernel& gemm);

}  // namespace stretto::trace
