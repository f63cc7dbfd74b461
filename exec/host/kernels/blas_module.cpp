// libstretto_blas.so: OpenBLAS for exec/host/kernels/blas.hpp.
#include <cblas.h>
#include <dlfcn.h>

#include "exec/host/kernels/blas.hpp"

namespace {

CBLAS_TRANSPOSE transpose(bool is_transposed) { return is_transposed ? CblasTrans : CblasNoTrans; }

void gemm_f32(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
              std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  cblas_sgemm(CblasRowMajor, transpose(trans_a), transpose(trans_b), static_cast<blasint>(m), static_cast<blasint>(n),
              static_cast<blasint>(k), alpha, a, static_cast<blasint>(lda), b, static_cast<blasint>(ldb), beta, c,
              static_cast<blasint>(ldc));
}

void gemm_f64(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, double alpha, const double* a,
              std::int64_t lda, const double* b, std::int64_t ldb, double beta, double* c, std::int64_t ldc) {
  cblas_dgemm(CblasRowMajor, transpose(trans_a), transpose(trans_b), static_cast<blasint>(m), static_cast<blasint>(n),
              static_cast<blasint>(k), alpha, a, static_cast<blasint>(lda), b, static_cast<blasint>(ldb), beta, c,
              static_cast<blasint>(ldc));
}

// Returns a function of OpenBLAS that its headers do not declare; null where it is hidden.
template <class Function>
Function hidden(const char* name) {
  Dl_info openblas{};
  if (::dladdr(reinterpret_cast<const void*>(&cblas_sgemm), &openblas) == 0) return nullptr;
  return reinterpret_cast<Function>(::dlsym(::dlopen(openblas.dli_fname, RTLD_NOW | RTLD_NOLOAD), name));
}

}  // namespace

extern "C" {
const stretto::host::Blas* stretto_blas() {
  static const stretto::host::Blas functions = {gemm_f32, gemm_f64, openblas_set_num_threads,
                                                hidden<void* (*)(int)>("blas_memory_alloc"),
                                                hidden<void (*)(void*)>("blas_memory_free")};
  return &functions;
}
}
