"""`stretto export`: Hugging Face's programs can load the exported folders, and a folder that is imported again has the
same loss."""
import array
import json
import re
import struct
import tomllib

from program import TINY, ProgramTest, main

LLAMA = ["--set", "model.normalization=RMSNorm", "--set", "model.swiglu=true", "--set", "model.position_embedding_type=rope", "--set",
         "model.add_bias_linear=false", "--set", "model.untie_embeddings_and_output_weights=true", "--set", "model.num_attention_heads=2",
         "--set", "model.num_query_groups=1", "--set", "model.rotary_base=5000", "--set", "model.use_rope_scaling=true", "--set", "model.rope_scaling_original_max_position_embeddings=64"]


def gpt2_layout(config):
    """Returns the state dict of transformers' GPT2LMHeadModel without the tied head, from its config."""
    h, f = config["n_embd"], config["n_inner"]
    shapes = {"transformer.wte.weight": [config["vocab_size"], h], "transformer.wpe.weight": [config["n_positions"], h]}
    for layer in range(config["n_layer"]):
        for name, shape in {"ln_1.weight": [h], "ln_1.bias": [h], "attn.c_attn.weight": [h, 3 * h], "attn.c_attn.bias": [3 * h],
                            "attn.c_proj.weight": [h, h], "attn.c_proj.bias": [h], "ln_2.weight": [h], "ln_2.bias": [h],
                            "mlp.c_fc.weight": [h, f], "mlp.c_fc.bias": [f], "mlp.c_proj.weight": [f, h], "mlp.c_proj.bias": [h]}.items():
            shapes[f"transformer.h.{layer}.{name}"] = shape
    return {**shapes, "transformer.ln_f.weight": [h], "transformer.ln_f.bias": [h]}


def llama_layout(config):
    """Returns the state dict of transformers' LlamaForCausalLM, from its config."""
    h, f = config["hidden_size"], config["intermediate_size"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], h], "model.norm.weight": [h], "lm_head.weight": [config["vocab_size"], h]}
    for layer in range(config["num_hidden_layers"]):
        for name, shape in {"input_layernorm": [h], "self_attn.q_proj": [h, h], "self_attn.k_proj": [kv, h], "self_attn.v_proj": [kv, h],
                            "self_attn.o_proj": [h, h], "post_attention_layernorm": [h], "mlp.gate_proj": [f, h], "mlp.up_proj": [f, h],
                            "mlp.down_proj": [h, f]}.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    return shapes


class Export(ProgramTest):
    def losses(self, *arguments):
        return [step["loss"] for step in self.json("train", *arguments, "--set", "training.lr=0")["steps"]]

    def header(self, folder):
        data = (self.folder / folder / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8:8 + length])
        self.assertEqual(header.pop("__metadata__")["format"], "pt")
        self.assertEqual({tensor["dtype"] for tensor in header.values()}, {"F32"})
        self.assertEqual(max(tensor["data_offsets"][1] for tensor in header.values()), len(data) - 8 - length)
        return {name: tensor["shape"] for name, tensor in header.items()}

    def values(self, folder):
        """Returns the numbers of each tensor, read at the offsets in the header."""
        data = (self.folder / folder / "model.safetensors").read_bytes()
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:begin])
        del header["__metadata__"]
        return {name: array.array("f", data[begin + tensor["data_offsets"][0]:begin + tensor["data_offsets"][1]])
                for name, tensor in header.items()}

    def test_first_weights_lie_where_the_header_says(self):
        for style, settings in (("gpt2", []), ("llama", LLAMA)):
            self.ok("export", self.tiny, *settings, "-o", style, "--set", "training.init_method_std=0.5")
            for name, values in self.values(style).items():
                if name.endswith(".bias"):
                    self.assertEqual(set(values), {0}, name)
                elif "norm" in name or ".ln_" in name:
                    self.assertEqual(set(values), {1}, name)
                elif len(values) > 500 and not re.search(r"c_proj|o_proj|down_proj", name):  # their weights are
                                                                                             # smaller, depending on the
                                                                                             # depth
                    self.assertAlmostEqual((sum(v * v for v in values) / len(values))**0.5, 0.5, delta=0.08, msg=name)

    def test_round_trip(self):
        for style, layout, settings in (("gpt2", gpt2_layout, []), ("llama", llama_layout, LLAMA)):
            whole = self.losses(self.tiny, *settings, "--set", f"training.checkpoint_dir={style}-ck")
            self.ok("export", f"{style}-ck/step-00000006.safetensors", "-o", f"{style}-trained")
            self.ok("export", self.tiny, *settings, "-o", f"{style}-initial")
            sections = TINY[TINY.index("[cluster]"):]
            for folder in (f"{style}-trained", f"{style}-initial"):
                config = json.loads((self.folder / folder / "config.json").read_text())
                self.assertEqual(config["model_type"], style)
                self.assertEqual(config["architectures"], [{"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM"}[style]])
                self.assertEqual(self.header(folder), layout(config))
                self.write("back.toml", f'[model]\nhf_config = "{folder}/config.json"\n{sections}')
                load = ["--set", f"training.load={folder}", "--set", "training.init_method_std=0.5"]
                self.assertEqual(self.losses("back.toml", *load), whole)
            self.assertNotEqual(self.losses("back.toml", "--set", "training.init_method_std=0.5"), whole)

    # torchtitan/config/job_config.py of release 0.2, as far as keys are written.
    TITAN = {"model": "name flavor converters", "quantize": "linear", "optimizer": "name lr weight_decay", "lr_scheduler": "warmup_steps",
             "training": "local_batch_size global_batch_size seq_len steps mixed_precision_param mixed_precision_reduce",
             "parallelism": "data_parallel_replicate_degree data_parallel_shard_degree fsdp_reshard_after_forward tensor_parallel_degree "
                            "enable_async_tensor_parallel context_parallel_degree context_parallel_rotate_method pipeline_parallel_degree "
                            "pipeline_parallel_schedule pipeline_parallel_microbatch_size pipeline_parallel_first_stage_less_layers "
                            "pipeline_parallel_last_stage_less_layers pipeline_parallel_layers_per_stage",
             "activation_checkpoint": "mode selective_ac_option", "compile": "enable components"}

    def test_a_configuration_of_torchtitan_is_the_same_layout_again(self):
        base = '[model]\npreset = "llama3-8b"\nseq_length = 4096\n[parallel]\ndata_parallel_size = 4\n'
        for more, precision in (("tensor_model_parallel_size = 2\nsequence_parallel = true\n", ""),
                                ("pipeline_model_parallel_size = 4\nvirtual_pipeline_model_parallel_size = 2\n", ""),
                                ("pipeline_model_parallel_size = 4\nvirtual_pipeline_model_parallel_size = 4\n", ""),
                                ("context_parallel_size = 2\n", 'recompute_granularity = "full"\n'),
                                ('pipeline_model_parallel_size = 2\npipeline_schedule = "zb-v"\nreshard_after_forward = false\n', ""),
                                ("", 'fp8_format = "hybrid"\nfp8_recipe = "tensorwise"\n')):
            more += 'data_parallel_sharding_strategy = "optim_grads_params"\n'
            self.write("ours.toml", base + more + '[training]\nprecision = "bf16"\nglobal_batch_size = 32\n' + precision)
            text = self.ok("export", "ours.toml", "--format", "torchtitan").out
            for section, keys in tomllib.loads(text).items():
                for key in keys:
                    self.assertIn(key, self.TITAN[section].split())
            self.write("theirs.toml", text)
            again = tomllib.loads(self.ok("import", "theirs.toml").out)
            for section, values in tomllib.loads((self.folder / "ours.toml").read_text()).items():
                for key, value in values.items():
                    if key not in ("preset", "precision", "fp8_format", "fp8_recipe"):
                        self.assertEqual(again[section].get(key), value, f"{more} {key}")
        self.write("experts.toml", '[model]\npreset = "mixtral-8x7b"\n')
        self.fails(2, "export", "experts.toml", "--format", "torchtitan", says=["num_moe_experts", "dense model"])
        for refused in ([self.tiny], ["ours.toml", "--set", "model.linear_attention_freq=4"]):
            self.fails(2, "export", *refused, "--format", "torchtitan", says=["flavor of llama3 or qwen3"])

    def test_what_cannot_be_exported(self):
        self.fails(2, "export", self.tiny, "--set", "model.swiglu=true", "-o", "out", says=["a mixture"])
        self.fails(2, "export", self.tiny, "-o", "none/deeper", says=["none/deeper", "No such file"])
        self.fails(2, "export", self.tiny, "-o", "text.txt", says=["text.txt", "[training] data"])
        self.fails(2, "export", "absent.safetensors", "--set", "model.num_layers=1", "-o", "out", says=["--set"])
        self.assertFalse((self.folder / "out").exists())
        out = self.ok("export", self.tiny, *LLAMA, "--set", "model.hidden_dropout=0.1", "-o", "out").out
        self.assertIn("note: hidden_dropout = 0.1", out)

    def test_weights_that_are_wrong(self):
        self.ok("export", self.tiny, *LLAMA, "-o", "out")
        self.write("back.toml", '[model]\nhf_config = "out/config.json"\n' + TINY[TINY.index("[cluster]"):])
        load = ["--set", "training.load=out"]
        tied = ["--set", "model.untie_embeddings_and_output_weights=false"]
        self.fails(2, "train", "back.toml", *load, *tied, says=["lm_head.weight", "model.embed_tokens.weight", "another value"])
        path = self.folder / "out/model.safetensors"
        self.fails(2, "train", "back.toml", *load, *tied, says=["another value"])
        # Other programs write no checksum.
        path.write_bytes(path.read_bytes().replace(b'"checksum"', b'"any_note"')[:-4] + struct.pack("<f", float("nan")))
        self.fails(2, "train", "back.toml", *load, says=["model.safetensors: tensor ", "expected a finite number, got nan"])


if __name__ == "__main__":
    main()
