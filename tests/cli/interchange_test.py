"""Scenarios are converted to Megatron-LM's command line and to Megatron-Bridge's CommOverlapConfig, and back."""
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


if __name__ == "__main__":
    main()
