#include "trace/shapes.hpp"

namespace stretto::trace {

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

}  // namespace stretto::trace
