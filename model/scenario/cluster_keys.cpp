#include "model/scenario/section_keys.hpp"
#include "model/scenario/sections.hpp"

namespace stretto {
namespace {

using S = Scenario&;

}  // namespace

const char* name_of(Network network) { return name_in({"links", "nccl"}, network); }

std::vector<ScenarioKey> cluster_keys() {
  return {
      {.name = "cores_per_device",
       .field = [](S s) -> Field { return &s.cluster.cores_per_device; },
       .bounds = {.min = 0, .max = 1 << 16},
       .meaning = "cores that the ranks of a device share; 0: all of this machine (simulating: of the platform)",
       .megatron = {},
       .says_how = false,
       .record = Record::none},
      {.name = "bind_cores_to_rank",
       .field = [](S s) -> Field { return &s.cluster.bind_cores_to_rank; },
       .meaning = "where ranks are processes, each runs on cores of its own, unless they were bound when they were "
                  "started ([launch.md](launch.md))",
       .megatron = {},
       .says_how = false,
       .record = Record::none},
      {.name = "ranks_per_device",
       .field = [](S s) -> Field { return &s.cluster.ranks_per_device; },
       .bounds = {.min = 0, .max = double(kMaxRanks)},
       .by_default = "0; 1 with a platform of published GPUs",
       .meaning = "ranks on one device, at most 1024 of them at once; 0: all of them",
       .megatron = {},
       .says_how = false,
       .record = Record::none},
      {.name = "network",
       .field = [](S s) -> Field { return WordField::of(s.cluster.network); },
       .range = "`\"nccl\"` needs `ranks_per_device = 1`",
       .meaning = "what communication costs when simulating: `links`, by the next keys; `nccl`, what it took between "
                  "the GPUs of the platform (`stretto calibrate --backend cuda --ranks N`)",
       .megatron = {},
       .says_how = false,
       .record = Record::none},
      {.name = "link_GBps",
       .field = [](S s) -> Field { return &s.cluster.link_GBps; },
       .bounds = {.min = 1e-6, .max = 1e6},
       .unit = "GB/s (10^9 bytes)",
       .meaning = "bandwidth of each rank, each direction; the host paces its transfers to it",
       .megatron = {},
       .says_how = false,
       .record = Record::none},
      {.name = "cuda_device_max_connections",
       .field = [](S s) -> Field { return &s.cluster.cuda_device_max_connections; },
       .bounds = {.min = 0, .max = 32},
       .by_default =
           "0; what the profile says (`max_connections`, docs/profiles.md) with tensor or context parallelism "
           "on a platform of GPUs before Blackwell, but for ZeRO-2, ZeRO-3 and pairs of passes with experts",
       .meaning =
           "hardware queues that the lanes of a rank share, as CUDA_DEVICE_MAX_CONNECTIONS: an operation starts "
           "only after what was issued before it to its queue has started; lanes take queues in turn; 0: a queue "
           "for each lane. Megatron-LM insists on 1 there, because its order of launches rests on it; here that "
           "order is in the schedule, whatever the queues",
       .megatron = {},
       .says_how = false,
       .record = Record::none},
      {.name = "link_latency_us",
       .field = [](S s) -> Field { return &s.cluster.link_latency_us; },
       .bounds = {.min = 0, .max = 1e9},
       .unit = "µs",
       .meaning = "latency α of one step of a collective, before its bytes flow",
       .megatron = {},
       .says_how = false,
       .record = Record::none},
      {.name = "nccl_communicator_config",
       .field = nullptr,
       .type = "table",
       .by_default = "none",
       .range = "`G.max_ctas` of groups G `dp`, `tp`, `cp`, `pp`, `embd`: 1 to 64 (NCCL's); `G.cta_policy`: "
                "`\"default\"`, `\"zero\"`, which needs `nccl_ub`",
       .meaning =
           "with `max_ctas`, communicators of group G are kernels with this number of channels (CTAs), each of which "
           "holds a core of its device (GPU: an SM) from the start of a communication to its end. Without: they "
           "hold none. A device needs cores for the channels of all lanes of its ranks at once and one more to "
           "compute on. Ring exchange (`tp_comm_overlap`) goes over the copy engine, as TransformerEngine's "
           "does, and holds none. With `\"zero\"` (NCCL's Zero-CTA policy) all-gathers and all-to-alls of group "
           "G are on the copy engines, which take no SM; what adds up stays as it is, on a communicator of its "
           "own (`dp`, `dp.copy`). A note where the group has neither. Between NVLink domains kernels move them "
           "nevertheless, in a prediction as in a run",
       .megatron = {},
       .says_how = false,
       .record = Record::none},
      {.name = "nccl_ub",
       .field = [](S s) -> Field { return &s.cluster.nccl_ub; },
       .range = "acts between GPUs of a rank each",
       .meaning = "a rank's memory is NCCL's (`ncclMemAlloc`) and registered with the communicators of its "
                  "collectives, which then read and write it without copies (Megatron-LM's `--use-nccl-ub`; there the "
                  "buffers of data parallelism alone). NCCL from 2.19 on, with symmetric windows from 2.27 on. A "
                  "prediction is the same with it and without. Megatron-LM refuses it with "
                  "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` before PyTorch 2.11, which is nothing here",
       .megatron = {},
       .says_how = false,
       .record = Record::none},
      {.name = "channel_GBps",
       .field = [](S s) -> Field { return &s.cluster.channel_GBps; },
       .bounds = {.min = 1e-6, .max = 1e6},
       .unit = "GB/s",
       .by_default = "no limit",
       .meaning = "what one channel carries: a communicator with `max_ctas` gets the smaller of `link_GBps` and that "
                  "many times it",
       .megatron = {},
       .says_how = false,
       .record = Record::none},
      {.name = "high_priority_stream_groups",
       .field = nullptr,
       .type = "array of strings",
       .by_default = "none",
       .range = "`dp`, `tp`, `cp`, `pp`",
       .meaning = "lanes of these groups come first where operations wait for a core; nothing that runs is "
                  "interrupted. With `tp_comm_overlap` those of `tp` always do",
       .megatron = {},
       .says_how = false,
       .record = Record::none},
  };
}

std::vector<ScenarioKey> compare_keys() {
  return {
      {.name = "modes",
       .field = nullptr,
       .type = "array of strings",
       .by_default = "every mode, and `scenario` where `[overlap]` is none of them",
       .range = "names that `stretto compare` lists, `scenario`",
       .meaning = "the overlap modes, each alone; `scenario`: the knobs as `[overlap]` has them, together",
       .megatron = {},
       .says_how = false,
       .record = Record::none},
      {.name = "ranks",
       .field = nullptr,
       .type = "array of integers",
       .by_default = "those of the layout",
       .range = "each 1 to 2^24, a multiple of `tensor_model_parallel_size` x `context_parallel_size` x "
                "`pipeline_model_parallel_size`",
       .meaning = "numbers of ranks; `data_parallel_size` becomes what the other axes leave of them; the micro-batches "
                  "of a rank stay, so the global batch grows with the ranks",
       .megatron = {},
       .says_how = false,
       .record = Record::none},
      {.name = "repeats",
       .field = [](S s) -> Field { return &s.compare.repeats; },
       .bounds = {.min = 1, .max = 1 << 20},
       .meaning = "measured steps per mode and number of ranks",
       .megatron = {},
       .says_how = false,
       .record = Record::none},
  };
}

}  // namespace stretto
