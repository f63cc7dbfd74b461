#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "page/drawn_step.hpp"
#include "report/memory.hpp"

namespace stretto::page {

// Returns the GPUs of a job in the order of their ranks, which is that of the framework (model/schedule/mesh.hpp), and
// one of them with its groups.
//   gpus, gpus_a_node    `gpus_a_node`: GPUs with NVLink between all of them
//   gpus_a_cell          1, or `gpus_a_node` where the job has more than 4,096 GPUs
//   sizes      {axis: size}: tp, cp, ep, dp, pp; those of the job that are above 1
//   places     {axis: [for the first GPU of each cell]}: its coordinate on these axes
//   gpu        {`rank`, `node`, `role`, `at` {axis: coordinate}, `groups`}
//     groups   [{`axis`, `gpus`, `link`, `link_GBps`}]: for each axis the GPU's group along it, the GPU included
// Throws Error(input) for a GPU that the job does not have.
nlohmann::json cluster_json(const DrawnStep& drawn, std::int64_t gpu);

// Returns the memory of each stage's GPUs, as nvidia-smi shows it at the peak of a step: [{`stage`, `bytes`, `parts`}],
// where `parts`, [{`part`, `bytes`}], add up to `bytes`.
nlohmann::json stages_memory_json(const DeviceMemory& memory);

}  // namespace stretto::page
