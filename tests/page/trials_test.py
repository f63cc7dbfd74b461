"""The page's answers about other settings agree with the step of those settings.

  tests/page/trials_test.py PAGE STRETTO

PAGE is build/page/page.html of scripts/page, STRETTO the program of the same commit.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from node import NodeTest

PAGE, STRETTO = pathlib.Path(sys.argv[1]), str(pathlib.Path(sys.argv[2]).resolve())
START = {"scenario": "llama3-8b", "platform": "", "set": {"training.global_batch_size": "32"}}
SCRIPT = ("torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 16 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 "
          "--micro-batch-size 1 --global-batch-size 128 --tensor-model-parallel-size 2 --bf16 --vocab-size 32000 --swiglu\n")


def with_set(words):
    return START | {"set": START["set"] | dict(word.split("=", 1) for word in words)}


class Trials(NodeTest):
    MODULE = PAGE.with_name("stretto_page.js")

    def ask(self, what, state=START, **more):
        return super().ask(what, state, **more)

    def test_a_try_is_the_step_of_the_changed_settings(self):
        now = self.ask("step")["simulate"]["step_ms"]
        changes = self.ask("changes")["changes"]
        self.assertGreater(len([one for one in changes if one["kind"] == "switch"]), 10)
        self.assertEqual({one["kind"] for one in changes}, {"layout", "switch", "precision"})
        tried = 0
        for change in changes[::5]:
            trial, step = self.ask("try", **{"with": change["set"]}), self.ask("step", with_set(change["set"]))
            if "error" in step:
                self.assertEqual(trial, step)
                continue
            self.assertEqual(trial["step_ms"], step["simulate"]["step_ms"], change)
            self.assertEqual(trial["memory_bytes"], step["simulate"]["predicted_peak_bytes"])
            self.assertAlmostEqual(trial["change_pct"], 100 * (step["simulate"]["step_ms"] / now - 1))
            tried += 1
        self.assertGreater(tried, 3)

    def test_the_interval_is_that_of_validate(self):
        interval, step = self.ask("interval"), self.ask("step", with_interval=True)["simulate"]
        self.assertEqual(interval["interval_from"]["published"], step["interval_from"]["published"])
        for key in ("step_low_ms", "step_high_ms"):  # the exponential function of the two C libraries differs in its last bit
            self.assertAlmostEqual(interval[key], step[key], places=8)
        self.assertLess(interval["step_low_ms"], step["step_ms"])
        self.assertGreater(interval["step_high_ms"], step["step_ms"])
        self.assertIn("container", [one["cause"] for one in interval["interval_from"]["causes"]])
        self.assertGreater(interval["interval_from"]["published"]["steps"], 1)

    def test_a_ratio_is_surer_than_a_step(self):
        interval, step = self.ask("interval"), self.ask("step")["simulate"]["step_ms"]
        for other in ({"set": ["training.global_batch_size=32", "overlap.overlap_grad_reduce=false"]}, {"platform": "b200-sxm"}):
            saving = self.ask("ratio", other=other)
            width = saving["saved_high_pct"] - saving["saved_low_pct"]
            self.assertTrue(saving["saved_low_pct"] < saving["saved_pct"] < saving["saved_high_pct"], saving)
            if "set" in other:
                self.assertLess(width, 1.5 * 100 * (interval["step_high_ms"] - interval["step_low_ms"]) / step)

    def test_a_search_finds_what_plan_finds(self):
        found = self.ask("search", gpus=8)
        counted = sum(found[name] for name in ("refused", "does_not_fit", "slower", "predicted"))
        self.assertEqual(counted + found["indivisible"], found["layouts"])
        self.assertEqual(found["decided"], found["layouts"])

    def test_an_imported_script_is_that_of_the_command(self):
        answer = self.ask("import", name="run.sh", text=SCRIPT)
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "run.sh"
            file.write_text(SCRIPT)
            done = subprocess.run([STRETTO, "import", file], capture_output=True, text=True)
        self.assertEqual(answer["toml"], done.stdout, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
