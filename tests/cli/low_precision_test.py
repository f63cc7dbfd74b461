"""Random scenarios in low precision, of every recipe, with every mode, train two steps on the host, or are refused by a
key with code 2: no combination ends the program in another way.
STRETTO_LOW_PRECISION_RUNS: how many of each."""
import os
import random

import program
from program import ProgramTest, main

RUNS = int(os.environ.get("STRETTO_LOW_PRECISION_RUNS", "4" if program.IS_FAST_SUITE else "12"))
TP_METHODS = ["pipeline", "ring_exchange", "flash", "none"]


def random_scenario(draw):
    """Returns a scenario whose products are whole blocks of every recipe."""
    coin = lambda: draw.random() < 0.5
    tp, cp, pp = draw.choice([1, 2, 2, 2]), draw.choice([1, 1, 2]), draw.choice([1, 1, 2])
    dp, ep, experts = draw.choice([1, 2]), 1, coin()
    model = {"num_layers": 2 * pp, "num_attention_heads": 4, "hidden_size": 256, "ffn_hidden_size": 512, "vocab_size": 256,
             "seq_length": 256 * cp, "swiglu": coin(), "add_bias_linear": not experts and coin(),
             "untie_embeddings_and_output_weights": coin()}
    if coin():
        model |= {"normalization": "RMSNorm", "position_embedding_type": "rope"}
    parallel = {"data_parallel_size": dp, "tensor_model_parallel_size": tp, "sequence_parallel": tp > 1 and (experts or draw.random() < 0.8),
                "context_parallel_size": cp, "pipeline_model_parallel_size": pp}
    if cp > 1:
        parallel["cp_comm_type"] = draw.choice(["p2p", "all_gather", "a2a"])
    if pp > 1:
        parallel["pipeline_schedule"] = draw.choice(["1f1b", "zb-h1", "zb-v", "dualpipev"])
    if experts:
        model |= {"num_moe_experts": 2, "moe_router_topk": draw.choice([1, 2]), "moe_ffn_hidden_size": 256}
        ep = draw.choice([1, 2]) if dp * tp * cp > 1 else 1
        parallel |= {"expert_model_parallel_size": ep, "expert_tensor_parallel_size": 1,
                     "moe_token_dispatcher_type": draw.choice(["alltoall", "allgather", "flex"]) if ep > 1 else "alltoall"}
        if ep > 1 and parallel["moe_token_dispatcher_type"] == "flex":
            parallel["moe_flex_dispatcher_backend"] = draw.choice(["deepep", "hybridep", "ncclep"])
        if coin():
            parallel |= {"moe_expert_capacity_factor": 2.0, "moe_pad_expert_input_to_capacity": True}
    if draw.random() < 0.3:
        parallel["data_parallel_sharding_strategy"] = draw.choice(["no_shard", "optim_grads", "optim_grads_params"])
    overlap = {key: True for key in ("overlap_grad_reduce", "cp_comm_overlap", "cp_flash_overlap", "fsdp_comm_overlap",
                                     "overlap_moe_expert_parallel_comm", "ep_flash_overlap", "moe_shared_expert_overlap",
                                     "async_tensor_model_parallel_allreduce", "overlap_dispatch_backward_with_experts_wgrad",
                                     "fp8_param_gather") if draw.random() < 0.15}
    if tp > 1 and draw.random() < 0.7:
        overlap["tp_comm_overlap"] = True
        overlap |= {key: coin() for key in ("tp_comm_bulk_dgrad", "tp_comm_bulk_wgrad", "tp_comm_overlap_ag", "tp_comm_overlap_rs",
                                            "tp_comm_overlap_rs_dgrad") if draw.random() < 0.3}
        for gemm in ("qkv_fprop", "proj_fprop", "fc1_fprop", "fc2_fprop", "proj_dgrad", "fc2_dgrad", "fc1_dgrad", "qkv_dgrad"):
            if draw.random() < 0.2:
                overlap[f"tp_comm_overlap_cfg.{gemm}.method"] = draw.choice(TP_METHODS)
    if draw.random() < 0.2:
        overlap["grad_reduce_in_fp32"] = False
    training = {"precision": "bf16" if coin() else "fp32", "global_batch_size": dp * (4 if pp > 1 else 1), "train_iters": 2,
                "lr": 1e-3, "data": "text.txt"}
    recipe = draw.choice(["delayed", "tensorwise", "blockwise", "mxfp8", "fp4"])
    if recipe == "fp4":
        training["fp4_format"] = "e2m1"
    else:
        training |= {"fp8_format": draw.choice(["e4m3", "hybrid"]), "fp8_recipe": recipe}
        if recipe != "delayed" and draw.random() < 0.3:
            training |= {"first_last_layers_bf16": True, "num_layers_at_start_in_bf16": 1, "num_layers_at_end_in_bf16": 0}
        if recipe == "mxfp8" and ep > 1 and coin():
            training |= {"moe_dispatch_fwd_dtype": "mxfp8"}
    if draw.random() < 0.3:
        training["recompute_granularity"] = draw.choice(["selective", "full"])
        if training["recompute_granularity"] == "full":
            training["recompute_method"] = "uniform"

    def text(value):
        return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)
    sections = {"model": model, "parallel": parallel, "overlap": overlap, "training": training}
    return "".join(f"[{name}]\n" + "".join(f"{key} = {text(value)}\n" for key, value in keys.items()) for name, keys in sections.items())


class LowPrecision(ProgramTest):
    def trains_or_refuses(self):
        refused = 0
        done = 0
        seed = 0
        while done < RUNS:
            seed += 1
            scenario = self.folder / "low.toml"
            text = random_scenario(random.Random(seed * 2))
            scenario.write_text(text)
            run = self.run_program("train", scenario)
            self.assertIn(run.returncode, (0, 2), f"seed {seed}\n{text}\n{run.err}")
            if run.returncode == 2:
                self.assertRegex(run.err, r"\[[\w.]+\] \w+", f"seed {seed}\n{text}")
                refused += 1
            else:
                done += 1
            self.assertLess(refused, 6 * RUNS + 20)

    def test_on_the_host(self):
        self.trains_or_refuses()


main()
