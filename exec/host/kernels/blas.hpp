#pragma once
#include <cstdint>

namespace stretto::host {

// Row-major C ← alpha · op(A) op(B) + beta · C, on the calling thread; leading dimensions are in elements. beta = 0
// ignores old contents, including NaNs.
template <class T>
using BlasGemm = void (*)(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, T alpha,
                          const T* a, std::int64_t lda, const T* b, std::int64_t ldb, T beta, T* c, std::int64_t ldc);

// OpenBLAS, as libstretto_blas.so (blas_module.cpp) gives it. A module, because a prediction needs no products, and
// OpenBLAS with Fortran's libraries is a third of the time that a program takes to start.
struct Blas {
  BlasGemm<float> gemm_f32 = nullptr;
  BlasGemm<double> gemm_f64 = nullptr;
  void (*set_threads)(int) = nullptr;
  // The buffer that a thread computes with; null in an OpenBLAS that hides these functions.
  void* (*allocate_buffer)(int) = nullptr;
  void (*free_buffer)(void*) = nullptr;
};
constexpr const char *kBlasModule = "libstretto_blas.so", *kBlasSymbol = "stretto_blas";

// Loads the module at the first call. Throws Error(runtime) where it cannot be loaded. Thread-safe.
const Blas& blas();

inline void blas_gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                      const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c,
                      std::int64_t ldc) {
  blas().gemm_f32(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
inline void blas_gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, double alpha,
                      const double* a, std::int64_t lda, const double* b, std::int64_t ldb, double beta, double* c,
                      std::int64_t ldc) {
  blas().gemm_f64(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

}  // namespace stretto::host
