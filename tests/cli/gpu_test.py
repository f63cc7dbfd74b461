"""--backend cuda on an emulated device: tests how the program and its CUDA module work together. Measured times mean
nothing here."""
import json
import os
import time
import unittest

import program
from program import ProgramTest, main

EMULATED = os.path.join(os.path.dirname(program.STRETTO), "tests/fake_gpu/stretto")


@unittest.skipUnless(os.path.exists(EMULATED), "not built: no CUDA Toolkit, or a sanitizer's build")
class Gpu(ProgramTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(setattr, program, "STRETTO", program.STRETTO)
        program.STRETTO = EMULATED

    def losses(self, *arguments):
        return [step["loss"] for step in self.json("train", self.tiny, *arguments)["steps"]]

    def test_trains_as_the_host(self):
        few = ["--set", "training.train_iters=3", "--set", "training.global_batch_size=2"]
        for layout in ([], ["--set", "parallel.data_parallel_size=1"]):
            host, gpu = self.losses(*few, *layout), self.losses(*few, *layout, "--backend", "cuda")
            self.assertEqual(len(gpu), 3)
            for a, b in zip(host, gpu):
                self.assertAlmostEqual(a, b, delta=1e-4 * a)

    def test_profile(self):
        value = self.json("profile", self.tiny, "--backend", "cuda", "--set", "compare.repeats=1", "--set", "training.global_batch_size=2")
        self.assertEqual((value["device"], value["peak_memory_GBps"]), ("Fake GPU", 16))
        for operation in value["operations"]:
            self.assertEqual(operation["bound"], None if operation["communication"] else "memory", operation)

    @program.slow
    def test_calibration_that_is_killed_goes_on(self):
        kept = self.folder / "gpu.toml.partial"
        process = self.start("calibrate", "--backend", "cuda", "-o", self.folder / "gpu.toml")
        for _ in range(1200):
            parts = json.loads(kept.read_text())["parts"] if kept.exists() else {}
            if len(parts) >= 4 or process.poll() is not None:
                break
            time.sleep(0.02)
        process.kill()
        process.communicate()
        self.assertFalse((self.folder / "gpu.toml").exists())
        self.assertTrue(any(name.startswith("training step: ") for name in parts), parts.keys())
        out = self.ok("calibrate", "--backend", "cuda", "-o", self.folder / "gpu.toml").out
        self.assertRegex(out, rf"goes on from .*partial, which has ([{len(parts)}-9]|\d\d) parts")
        self.assertFalse(kept.exists())
        # Measurements of another GPU are not used.
        kept.write_text(json.dumps({"format": "stretto-calibration-1", "about": {"gpu": ["Other GPU", 2, 1]}, "parts": {}, "saved_s": 0}))
        process = self.start("calibrate", "--backend", "cuda", "-o", self.folder / "gpu.toml")
        self.assertIn("it is of another machine or program", process.stdout.readline())
        process.kill()
        process.communicate()

    def test_refuses_as_the_host_does(self):
        self.fails(2, "train", self.tiny, "--backend", "cuda", "--set", 'training.precision="fp64"', says=["expected bf16 or fp32"])
        self.fails(2, "compare", self.tiny, "--backend", "cuda", "--platform", program.PLATFORM, says=["calibrated on a host"])
        big = ["--set", "model.hidden_size=3000", "--set", "model.num_attention_heads=3"]
        self.fails(1, "train", self.tiny, "--backend", "cuda", *big, says=["out of memory", "GiB", "largest buffers"])


main()
