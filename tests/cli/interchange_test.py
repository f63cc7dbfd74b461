"""Scenarios are converted to Megatron-LM's command line and to Megatron-Bridge's CommOverlapConfig, and back."""
import os
import re

from program import ROOT, ProgramTest, main

MODEL = str(ROOT / "scenarios/models/llama3-70b.toml")


class Interchange(ProgramTest):
    def test_flags_there_and_back(self):
        flags = self.ok("export", MODEL, "--format", "megatron").out
        self.assertIn("--tensor-model-parallel-size 4 \\\n", flags)
        done = self.ok("import", self.write("run.sh", "#!/bin/bash\n" + flags), "-o", "back.toml")
        self.assertIn("--tokenizer-type", done.err)  # listed as left out
        self.assertEqual(self.ok("export", "back.toml", "--format", "megatron").out, flags)
        platform = ["--platform", str(ROOT / "scenarios/platforms/h100-sxm.toml")]
        profile = ["--set", f"profile={ROOT / 'scenarios/profiles/nemo-dgxc.toml'}"]
        # The export writes what Megatron-LM asserts, and the import reads it.
        self.assertIn("\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\ntorchrun ", flags)
        connections = ["--set", "cluster.cuda_device_max_connections=1"]
        there, back = (self.json("simulate", scenario, *platform, *profile, *connections) for scenario in (MODEL, "back.toml"))
        self.assertEqual(there["step_ms"], back["step_ms"])

    def test_overlap_there_and_back(self):
        config = self.ok("export", MODEL, "--format", "bridge").out
        self.assertRegex(config, r"CommOverlapConfig\(\n    overlap_grad_reduce=True,\n")
        overlap = self.ok("import", self.write("overlap.py", config), "--format", "bridge").out
        self.assertEqual(re.findall(r"^(\w+) = (true|false)$", overlap, re.M),
                         [(key, value.lower()) for key, value in re.findall(r"(\w+)=(True|False)", config)])

    def test_a_script_with_a_shell_in_it(self):
        self.write("common.sh", "export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1} NCCL_IB_SL=1\n")
        script = self.write("run.sh", """#!/bin/bash
source $(dirname $0)/common.sh
GPUS=8; NODES=${NODES:-1}; HIDDEN=$((3 * 4))
[ -z "$1" ] && { echo "no data"; exit 1; }
ARGS=(--num-layers 2 --hidden-size $HIDDEN --num-attention-heads 3  # small
  --seq-length 8 --max-position-embeddings 8 --tokenizer-type NullTokenizer --vocab-size 250 --bf16)
if [[ $GPUS -gt 4 ]]; then ARGS+=(--qk-l2-norm); fi
mkdir -p out; touch out/made
torchrun --nproc_per_node $GPUS --nnodes $NODES pretrain_gpt.py "${ARGS[@]}" --data-path $1 --global-batch-size 64 2>&1 | tee log
""")
        done = self.ok("import", script, "--env", "NODES=2", "--set", "training.lr=0.25", "-o", "made.toml")
        text = (self.folder / "made.toml").read_text()
        for line in ("hidden_size = 12", "data_parallel_size = 16", "cuda_device_max_connections = 1", "lr = 0.25", 'profile = "megatron-core-te"'):
            self.assertIn(line + "\n", text)
        for said in ("--qk-l2-norm (line 7)", "NCCL_IB_SL", "no data", "--data-path"):
            self.assertIn(said, done.err)
        # The script is read and not run.
        self.assertFalse((self.folder / "out").exists() or (self.folder / "log").exists())

    def test_what_is_not_known(self):
        flags = "--num-layers 2 --hidden-size 12 --num-attention-heads 3 --seq-length 8 --max-position-embeddings 8 --vocab-size 250"
        self.fails(2, "import", "--flags", flags.replace("layers", "layer"), says=["--num-layer", 'did you mean "--num-layers"?'])
        self.fails(2, "import", "--flags", flags + " --num-experts 8 --moe-latent-size 8", says=["--moe-latent-size 8", "experts of another width than the model's are not modelled yet"])
        self.fails(2, "import", "--flags", flags, "--env", "X", says=["--env", "NAME=VALUE"])
        self.fails(2, "import", "--flags", flags, "--gpus", "-1", says=["--gpus"])
        self.fails(2, "import", self.write("c.yaml", "bucket_size: -3"), says=["bucket_size", "at least 1"])
        self.fails(2, "import", "--flags", flags.replace("12", "13"), says=["--flags", "num_attention_heads"])
        self.fails(2, "import", says=["FILE", "--flags"])
        self.fails(2, "import", self.write("empty.sh", ""), says=["empty.sh", "got none"])
        self.fails(2, "import", self.write("noise.sh", bytes(range(256))), says=["noise.sh", "UTF-8"])
        self.fails(2, "import", "absent.sh", says=["absent.sh"])
        self.fails(2, "import", self.write("o.py", "overlap_grad_reduse=True"), "--format", "bridge", says=['"overlap_grad_reduce"'])
        zero_bubble = ["--set", "parallel.pipeline_model_parallel_size=2", "--set", "parallel.pipeline_schedule=zb-h1"]
        self.fails(2, "export", self.tiny, "--format", "megatron", *zero_bubble, says=["pipeline_schedule", "zb-h1"])
        rope = ["--set", 'model.position_embedding_type="rope"', "--set", "model.rotary_seq_len_interpolation_factor=1.5"]
        self.fails(2, "export", self.tiny, "--format", "megatron", *rope, says=["rotary_seq_len_interpolation_factor", "1.5"])
        self.fails(2, "export", self.tiny, says=["--output"])

    def test_odd_files(self):
        """Whatever a file holds: one line, and code 2."""
        os.makedirs(self.folder / "primus/configs/models/megatron")
        files = {"empty.yaml": "", "empty.sh": "", "empty.toml": "", "empty.json": "", "list.yaml": "- 1\n", "word.yaml": "hello\n", "number.json": "3",
                 "nul.yaml": "model:\n  a: \0\n", "elf.sh": b"\x7fELF" + bytes(range(256)), "large.yaml": "a: 1\n" * 300_000,
                 "deep.yaml": "".join("  " * depth + "a:\n" for depth in range(300)), "deep.json": '{"a":' * 20_000, "flow.yaml": "a: " + "[" * 20_000,
                 "wide.yaml": "train_module: {rank_microbatch_size: 1}\n" + "".join(f"k{i}: {i}\n" for i in range(9000)),
                 "itself.sh": "bash itself.sh\nsource itself.sh\n", "names.sh": "declare -n a=b\ndeclare -n b=a\ngo --num-layers ${a[1]} $a\n",
                 "primus/configs/models/megatron/loop.yaml": "extends: [loop.yaml, loop.yaml]\n",
                 "loop.yaml": "modules:\n  pre_trainer: {framework: megatron, model: loop.yaml}\n",
                 "above.yaml": "modules:\n  pre_trainer: {framework: megatron, model: ../../../../../../etc/hostname}\n",
                 "reference.yaml": "max_seq_len: ${max_seq_len}\nglobal_train_batch_size: ${a.b}\na: {b: ${global_train_batch_size}}\nmodel: {d_model: 64}\n",
                 "sizes.yaml": "model: {model_config: {hidden_size: [1], num_hidden_layers: {a: 1}}}\nparallelism: {dp: 1e9, tp: -3, tp_mode: [1]}\n",
                 "ranks.yaml": "model: {model_config: {hidden_size: 64, num_hidden_layers: 4, num_attention_heads: 4, vocab_size: 256}}\nparallelism: {dp: 1048576, "
                               "tp: 1048576, pp: 1048576, tp_mode: REDUCE_SCATTER}\ntokens: {sequence_length: 8, micro_batch_size: 1048575, "
                               "batch_accumulation_per_replica: 9223372036854775807}\n"}
        for name, content in files.items():
            path = self.write(name, content)
            if name.startswith("primus/"):
                continue
            said = self.fails(2, "import", path).err
            self.assertEqual((len(said.splitlines()), len(said) < 2000), (1, True), f"{name}: {said[:300]}")
        os.mkdir(self.folder / "folder.yaml")
        self.fails(2, "import", "folder.yaml", says=["folder.yaml", "directory"])


if __name__ == "__main__":
    main()
