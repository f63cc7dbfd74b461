#include "trace/shapes.hpp"

#include <string_view>
#include <utility>

namespace stretto::trace {
namespace {

// Words for the type of the operands in names of GEMMs, the narrowest first: a kernel of codes names its 16-bit output
// too. Names of cuBLAS and CUTLASS in public traces (trace/kernel_class.cpp has the sources); "nvjet_qq" is cuBLAS's
// prefix for products of two operands of 8 bits, "nvjet_h" and "nvjet_t" those for float16 and bfloat16.
constexpr std::pair<std::string_view, int> kWordsOfTypes[] = {
    {"e4m3", 1},    {"e5m2", 1},    {"nvjet_qq", 1}, {"bf16", 2}, {"fp16", 2},  {"h16816", 2}, {"s16816", 2},
    {"nvjet_h", 2}, {"nvjet_t", 2}, {"hgemm", 2},    {"_f16", 2}, {"sgemm", 4}, {"tf32", 4},   {"f32f32", 4}};

}  // namespace

std::optional<Product> product_of(const RankTrace& trace, const Kernel& kernel) {
  if (kernel.call < 0 || kernel.cls != KernelClass::gemm) return std::nullopt;
  const HostCall& call = trace.calls[static_cast<std::size_t>(kernel.call)];
  const std::size_t first = call.name == "aten::addmm" ? 1 : 0;  // addmm adds to its first operand
  const bool is_linear = call.name == "aten::linear";
  if (!is_linear && call.name != "aten::mm" && call.name != "aten::addmm" && call.name != "aten::_scaled_mm")
    return std::nullopt;
  if (call.shapes.size() < first + 2) return std::nullopt;
  const auto &a = call.shapes[first], &b = call.shapes[first + 1];
  if (a.size() < 2 || b.size() != 2) return std::nullopt;
  Product product;
  product.m = 1;
  for (std::size_t d = 0; d + 1 < a.size(); ++d) product.m *= double(a[d]);
  product.k = double(a.back());
  product.n = double(b[is_linear ? 0 : 1]);
  if (double(b[is_linear ? 1 : 0]) != product.k || product.m < 1 || product.n < 1 || product.k < 1) return std::nullopt;
  const std::string& type = call.type;
  product.element_bytes = type == "c10::BFloat16" || type == "c10::Half" ? 2
                          : type == "float"                              ? 4
                          : type.starts_with("c10::Float8")              ? 1
                                                                         : 0;
  return product;
}

int operand_bytes_of(const RankTrace& trace, const Kernel& gemm) {
  if (const auto product = product_of(trace, gemm); product && product->element_bytes > 0)
    return product->element_bytes;
  const std::string& name = trace.name_of(gemm);
  for (const auto& [word, bytes] : kWordsOfTypes)
    if (name.find(word) != std::string::npos) return bytes;
  return 0;
}

}  // namespace stretto::trace
