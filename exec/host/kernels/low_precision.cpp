#include "base/error.hpp"
#include "exec/host/kernels/families.hpp"

namespace stretto::host {
namespace {

[[noreturn]] void refuse() { throw runtime_failure("low precision is not computed yet"); }

}  // namespace

void run_kernel(const Amax&, std::span<const Operand>) { refuse(); }
void run_kernel(const UpdateScale&, std::span<const Operand>) { refuse(); }
void run_kernel(const Quantise&, std::span<const Operand>) { refuse(); }
void run_kernel(const TransposeCodes&, std::span<const Operand>) { refuse(); }

}  // namespace stretto::host
