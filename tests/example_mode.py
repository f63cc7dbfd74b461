"""The patches of docs/examples, which docs/adding.md explains, in one copy of this tree: the copy builds. The mode is in
the list of modes and saves the time of the kernels that it uses, and training with it gives the plain schedule's losses
to the last bit. The layer trains on one rank and on two. A config.json of the family is read. scripts/soak runs this
test, because it compiles.

    tests/example_mode.py           builds stretto
    tests/example_mode.py --tests   and the unit tests that the patch changes

The copy is build/example, and stays for the next run."""
import filecmp
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TREE = ROOT / "build/example"
PATCHES = sorted((ROOT / "docs/examples").glob("*.patch"))
STRETTO = TREE / "build/release/stretto"
MODE = "overlap_moe_probs_exchange"
SCENARIO = "scenarios/modes/ep_probs_wins.toml"
UNIT_TESTS = ["[#table_test]", "[#gates_test]", "routing weights are on the way*", "[graphs]", "[hf_config]"]
WITH_TESTS = "--tests" in sys.argv[1:]

# Two experts a rank, so that rows are sorted by expert.
TRAINED = """
[model]
num_layers = 2
hidden_size = 32
num_attention_heads = 4
seq_length = 16
vocab_size = 256
add_bias_linear = false
num_moe_experts = 4
moe_router_topk = 2
moe_ffn_hidden_size = 24
[parallel]
data_parallel_size = 2
expert_model_parallel_size = 2
[training]
global_batch_size = 8
train_iters = 2
data = "text.txt"
"""


# A small model with the layer of docs/examples/layer.patch.
LOW_RANK = """
[model]
num_layers = 2
hidden_size = 32
num_attention_heads = 4
seq_length = 16
vocab_size = 256
mlp_rank = 8
[training]
global_batch_size = 4
train_iters = 2
data = "text.txt"
"""
HELIUM = {
    "model_type": "helium", "hidden_size": 2560, "intermediate_size": 7040, "num_hidden_layers": 24,
    "num_attention_heads": 20, "num_key_value_heads": 20, "head_dim": 128, "vocab_size": 48000,
    "max_position_embeddings": 4096, "tie_word_embeddings": False}


def run(*words):
    done = subprocess.run([str(word) for word in words], cwd=TREE, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def copy_tree():
    """Makes TREE equal the tracked files of ROOT with the patch. Files that are equal keep their time, so that nothing
    is compiled again."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    fresh = ROOT / "build/example.new"
    shutil.rmtree(fresh, ignore_errors=True)
    for name in filter(None, names.split("\0")):
        if not (ROOT / name).is_file():
            continue  # deleted, but not committed
        (fresh / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, fresh / name)
    # Inside a repository git would take the patch's names for names of the repository.
    outside = {**os.environ, "GIT_CEILING_DIRECTORIES": str(fresh.parent)}
    for patch in PATCHES:
        subprocess.run(["git", "apply", patch], cwd=fresh, env=outside, check=True)
    kept = {path.relative_to(fresh) for path in fresh.rglob("*") if path.is_file()}
    for path in [path for path in TREE.rglob("*") if path.is_file()]:
        name = path.relative_to(TREE)
        if name.parts[0] != "build" and name not in kept:
            path.unlink()
    for name in kept:
        target = TREE / name
        if not target.exists() or not filecmp.cmp(fresh / name, target, shallow=False):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(fresh / name, target)
            os.utime(target)
    shutil.rmtree(fresh)


def durations(trace, name):
    """Returns the µs of each time at which the first process of a trace runs the operation."""
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("ph") == "X"]
    first = min(event["pid"] for event in events)
    return [event["dur"] for event in events if event["pid"] == first and f" {name} " in event["name"]]


def trained(name, text, *options):
    """Returns loss and norm of each step of a training."""
    folder = TREE / "build/trained"
    folder.mkdir(exist_ok=True)
    (folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 40)
    (folder / f"{name}.toml").write_text(text)
    run(STRETTO, "train", folder / f"{name}.toml", *options, "--json", folder / f"{name}.json")
    return [(step["loss"], step["gradient_norm"]) for step in json.loads((folder / f"{name}.json").read_text())["steps"]]


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        copy_tree()
        targets = "stretto stretto_tests" if WITH_TESTS else "stretto"
        run("bash", "-c", f"source scripts/lib.sh; build release {targets}")

    def test_it_is_listed_with_its_gates(self):
        gates = run(STRETTO, "show", SCENARIO, "--gates", "--set", f"overlap.{MODE}=true")
        self.assertIn(MODE, gates)
        self.assertIn("verified: no race", run(STRETTO, "show", SCENARIO, "--set", f"overlap.{MODE}=true"))

    def test_predicted_effect(self):
        """The exchange of weights is longer than the kernels concurrent with it, so that it hides them in each layer and
        micro-batch. What both slow each other by makes the exchange longer, and is not saved."""
        result, trace = TREE / "build/modes.json", TREE / "build/plain.trace.json"
        run(STRETTO, "simulate", SCENARIO, "--modes", "--json", result, "--trace", trace)
        modes = {row["mode"]: row for row in json.loads(result.read_text())["modes"]}
        saved_us = 1e3 * (modes["plain"]["step_ms"] - modes[MODE]["step_ms"])
        concurrent = durations(trace, "experts.fc1.fprop") + durations(trace, "experts.permute.dgrad")
        exchanges = durations(trace, "experts.weights.dispatch.fprop") + durations(trace, "experts.weights.combine.dgrad")
        self.assertEqual(len(concurrent), len(exchanges))
        self.assertGreater(len(concurrent), 2)
        self.assertGreater(min(exchanges), max(concurrent))
        print(f"saves {saved_us:.1f} µs of the {sum(concurrent):.1f} µs concurrent with the exchanges")
        overlapped = TREE / "build/mode.trace.json"
        run(STRETTO, "simulate", SCENARIO, "--set", f"overlap.{MODE}=true", "--trace", overlapped)
        slower = [*durations(overlapped, "experts.weights.dispatch.fprop"), *durations(overlapped, "experts.weights.combine.dgrad")]
        self.assertGreater(saved_us, 0.5 * sum(concurrent))
        self.assertAlmostEqual(saved_us, sum(concurrent) - (sum(slower) - sum(exchanges)), delta=0.01 * sum(concurrent))

    def test_training_equals_the_plain_schedule(self):
        steps = {mode: trained(mode, TRAINED, "--mode", mode) for mode in ("plain", MODE)}
        self.assertEqual(len(steps["plain"]), 2)
        self.assertEqual(steps[MODE], steps["plain"])

    def test_layer(self):
        ranks = "parallel.tensor_model_parallel_size=2"
        stages = ["--set", "parallel.pipeline_model_parallel_size=2", "--set", 'parallel.pipeline_schedule="zb-h1"']
        alone, cut = trained("low_rank", LOW_RANK), trained("low_rank_2", LOW_RANK, "--set", ranks)
        self.assertEqual(len(alone), 2)
        for other in (cut, trained("low_rank_stages", LOW_RANK, *stages)):
            for one, two in zip(alone, other):
                self.assertAlmostEqual(one[0], two[0], delta=1e-5)
                self.assertAlmostEqual(one[1], two[1], delta=1e-4)
        self.assertNotEqual(alone, trained("whole_rank", LOW_RANK, "--set", "model.mlp_rank=0"))

    def test_family(self):
        (TREE / "build/config.json").write_text(json.dumps(HELIUM))
        (TREE / "build/helium.toml").write_text('[model]\nhf_config = "config.json"\nseq_length = 2048\n')
        self.assertIn("verified: no race", run(STRETTO, "show", TREE / "build/helium.toml"))

    @unittest.skipUnless(WITH_TESTS, "without --tests")
    def test_unit_tests(self):
        for name in UNIT_TESTS:
            run("build/release/tests/stretto_tests", "--filenames-as-tags", name)


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=[sys.argv[0], *(word for word in sys.argv[1:] if word != "--tests")])
