"""Models with experts: losses as on the host, rows exchanged by NCCL between processes, every way of hiding the exchange, and
speed with padded rows, in graphs, against rows whose numbers the host waits for."""
import statistics

from gpu_check.check import Step
from gpu_check.processes import backend_of_processes
from gpu_check.training import small, train, worst_difference

LIMIT_S = 300

MIXTURE = ["model.swiglu=true", 'model.normalization="RMSNorm"', 'model.position_embedding_type="rope"', "model.add_bias_linear=false",
           "model.untie_embeddings_and_output_weights=true", "model.num_moe_experts=8", "model.moe_router_topk=2",
           "model.moe_ffn_hidden_size=128"]
DEEPSEEK = ['model.moe_router_score_function="sigmoid"', "model.moe_router_enable_expert_bias=true", "model.moe_router_num_groups=4",
            "model.moe_router_group_topk=2", "model.moe_shared_expert_intermediate_size=128", "model.multi_latent_attention=true",
            "model.qk_layernorm=true", "model.q_lora_rank=64", "model.kv_lora_rank=32", "model.qk_head_dim=32",
            "model.qk_pos_emb_head_dim=16", "model.v_head_dim=32"]
TINY_DEEPSEEK = ["model.q_lora_rank=8", "model.kv_lora_rank=8", "model.qk_head_dim=8", "model.qk_pos_emb_head_dim=4", "model.v_head_dim=8",
                 "model.moe_shared_expert_intermediate_size=16"]
# Room for all tokens of a rank at each expert.
PADDED = ["parallel.moe_pad_expert_input_to_capacity=true", "parallel.moe_expert_capacity_factor=4"]
SHARED = ["parallel.data_parallel_size=2", "parallel.expert_model_parallel_size=2"]
FOUR = ["parallel.data_parallel_size=4", "parallel.expert_model_parallel_size=4"]
# Modes of the exchange, and the settings that each needs besides.
MODES = {"overlap_moe_expert_parallel_comm": [], "delay_wgrad_compute": [], "ep_overlap_early_attn_memory_release": [],
         "overlap_dispatch_backward_with_experts_wgrad": [], "ep_flash_overlap": PADDED,
         "moe_shared_expert_overlap": ["model.moe_shared_expert_intermediate_size=64"]}


def mixture(check, *more):
    """Returns the file of the two-layer scenario, and the settings that give it experts."""
    scenario, settings = small(check)
    # In bf16 rounding decides now and then which experts a token goes through.
    return scenario, [*settings, 'training.precision="fp32"', *MIXTURE, *(["model.moe_ffn_hidden_size=16"] if check.tiny else []), *more]


def deepseek(check):
    return [*DEEPSEEK, *(TINY_DEEPSEEK if check.tiny else [])]


def run(check, scenario, settings, *words, **more):
    """Trains. Steps of rows whose numbers data says are calls, which here is no fault."""
    result, why = train(check, scenario, settings, *words, **more)
    if result:
        result["notes"] = [note for note in result["notes"] if "data says how many rows" not in note]
    return result, why


def agree(check, name, one, other, why, tolerance):
    if not one or not other:
        return check.note(name, False, why=why)
    difference = worst_difference(one, other)
    return check.note(name, difference < tolerance, loss_difference=difference, notes=other["notes"])


def loss_of_experts(check):
    passed = 0
    runs = [("rows as data says", []), ("padded", PADDED), ("DeepSeek's router and attention", deepseek(check))]
    for name, settings in runs:
        scenario, settings = mixture(check, *settings)
        host, why = run(check, scenario, settings, backend="host")
        gpu, why_gpu = run(check, scenario, settings)
        passed += bool(agree(check, f"experts, loss as on the host, {name}", host, gpu, why or why_gpu, 1e-3))
    if passed == len(runs):
        check.headline("experts", f"{passed} models")


def experts_by_nccl(check):
    passed = 0
    runs = [("rows as data says", 2, SHARED), ("padded", 2, [*SHARED, *PADDED]), ("four ranks", 4, FOUR)]
    for name, ranks, settings in runs:
        scenario, settings = mixture(check, *settings)
        shared, why = run(check, scenario, settings, limit_s=40)
        apart, why_apart = run(check, scenario, [*settings, "training.timeout_s=20"], "--ranks", ranks, backend=backend_of_processes(check),
                               limit_s=60)
        passed += bool(agree(check, f"NCCL, experts, {name}, at {ranks} processes", shared, apart, why or why_apart, 1e-3))
    if passed == len(runs):
        check.headline("experts by NCCL", f"{passed} layouts")


def modes_of_experts(check):
    """Rounds of an exchange on one GPU say nothing of speed between GPUs; the modes must leave the loss alone."""
    scenario, all_settings = mixture(check, *SHARED)
    passed, plain_of = 0, {}
    for mode, more in MODES.items():
        settings = [*all_settings, *more]
        if str(more) not in plain_of:
            plain_of[str(more)] = run(check, scenario, settings, "--mode", "plain", limit_s=40)
        plain, why = plain_of[str(more)]
        hidden, why_hidden = run(check, scenario, settings, "--mode", mode, limit_s=40)
        passed += bool(agree(check, f"experts, {mode}", plain, hidden, why or why_hidden, 1e-3))
    if passed == len(MODES):
        check.headline("modes of experts", passed)


def speed_of_experts(check):
    """A layer as wide as Qwen3-30B-A3B's, with few layers: the host issues every kernel, or a graph does."""
    wide = ["model.hidden_size=2048", "model.num_attention_heads=32", "model.num_moe_experts=32", "model.moe_router_topk=4",
            "model.moe_ffn_hidden_size=768", "model.seq_length=2048", "training.global_batch_size=4"]
    figures = {}
    # An untrained router of this number of experts prefers some: with less room the run ends because rows do not fit.
    roomy = [*PADDED[:1], "parallel.moe_expert_capacity_factor=8"]
    for name, settings in (("rows as data says", []), ("padded", roomy)):  # with padding, eight times as many rows are computed
        scenario, settings = mixture(check, 'training.precision="bf16"', *([] if check.tiny else wide), *settings)
        result, why = run(check, scenario, settings, limit_s=60)
        if not result:
            check.note(f"experts, {name}, speed", False, why=why)
            continue
        figures[name] = round(statistics.median(step["step_ms"] for step in result["steps"][2:]), 2)
        check.note(f"experts, {name}, speed", True, step_ms=figures[name], notes=result["notes"])
    for name, step_ms in figures.items():
        check.headline(f"experts, {name}, step_ms", step_ms)


STEPS = [
    Step(loss_of_experts, 90, ("experts",)),
    Step(experts_by_nccl, 120, ("experts by NCCL",)),
    Step(modes_of_experts, 90, ("modes of experts",)),
    Step(speed_of_experts, 60, ("experts, rows as data says, step_ms", "experts, padded, step_ms")),
]
