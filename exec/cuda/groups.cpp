#include "exec/cuda/groups.hpp"

#include "base/error.hpp"
#include "exec/expert_errors.hpp"

namespace stretto::cuda {

void require_groups(const GroupedGemm& work, const std::int32_t* offsets) {
  const std::int64_t rows = work.matrix_rows();
  for (std::int64_t group = 0; group <= work.groups; ++group) {
    if (offsets[group] < 0 || offsets[group] > rows)
      throw runtime_failure(exec::number_outside("offset", offsets[group], rows + 1));
    if (group > 0 && offsets[group] < offsets[group - 1]) throw runtime_failure(exec::kOffsetsDescend);
  }
}

}  // namespace stretto::cuda
