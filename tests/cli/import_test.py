"""calibrate --import, validate --components and show --platform: imported measurements, and platforms."""
import json
import os
import pathlib
import re

from program import PLATFORM, ProgramTest, main

RANKS = "# Using devices\n" + "".join(f"#  Rank {r} Group 0 Pid 1 on host-{r // 8} device {r % 8} [0000:19:00] NVIDIA H100\n" for r in range(16))
LOG = "# Collective test starting: all_reduce_perf\n" + RANKS + """#
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1   100.00   10.49   19.66      0    99.00   10.59   19.86      0
  1073741824     268435456     float     sum      -1   10000   107.37  201.33    N/A   10000   107.37  201.33    N/A
"""
SHEET = "--peak_TFLOPs 500 --hbm_GBps 2000 --memory_GiB 80 --nvlink_GBps 200 --network_GBps 25 --domain 8".split()
SCENARIO = """
platform = "mine.toml"
[model]
num_layers = 4
hidden_size = 1024
num_attention_heads = 16
seq_length = 1024
vocab_size = 32000
[parallel]
data_parallel_size = 16
[training]
global_batch_size = 16
precision = "bf16"
"""


class Import(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("log.txt", LOG)
        self.write("scenario.toml", SCENARIO)

    def simulate(self):
        return self.json("simulate", "scenario.toml")["step_ms"]

    def test_over_a_base(self):
        value = self.json("calibrate", "--import", "log.txt", "--base", "h100-sxm", "-o", "mine.toml")
        self.assert_keys(value, "platform parts notes")
        parts = {part["what"]: part["from"] for part in value["parts"]}
        self.assertEqual(parts["all_reduce on 16 GPUs, 2 nodes"], "your files")
        self.assertEqual(parts["GEMMs"], "h100-sxm")
        text = (self.folder / "mine.toml").read_text()
        self.assertIn("# From the files that were imported: all_reduce on 16 GPUs, 2 nodes.", text)
        self.assertIn("NVIDIA H100", text)
        # The predicted step uses the measured time: twice as long makes the step longer.
        before = self.simulate()
        slower = LOG.replace("10000   107.37  201.33    N/A", "20000    53.69  100.66    N/A").replace("100.00   10.49   19.66", "1000.0    1.05    1.97")
        self.write("log.txt", slower)
        self.ok("calibrate", "--import", "log.txt", "--base", "h100-sxm", "-o", "mine.toml")
        self.assertGreater(self.simulate(), before)
        numbers = self.json("show", "--platform", "mine.toml")["numbers"]
        kinds = {number["number"]: number["kind"] for number in numbers}
        self.assertEqual((kinds["collective_table"], kinds["gemm_table"], kinds["peak_TFLOPs"]), ("measured", "published", "published"))

    def test_again_over_itself(self):
        self.ok("calibrate", "--import", "log.txt", "--base", "h100-sxm", "-o", "mine.toml")
        before = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        self.fails(2, "calibrate", "--import", "log.txt", "--base", "./mine.toml", "-o", "mine.toml", says=["--base"])
        self.fails(2, "calibrate", "--import", "log.txt", "--base", "h100-sxm", "-o", "log.txt", says=["--import"])
        os.link(self.folder / "log.txt", self.folder / "other.gemm.csv")
        self.fails(2, "calibrate", "--import", "log.txt", "--base", "h100-sxm", "-o", "other.toml", says=["other.gemm.csv", "--import"])
        os.remove(self.folder / "other.gemm.csv")
        self.assertEqual({path.name: path.read_bytes() for path in self.folder.iterdir()}, before)
        self.ok("calibrate", "--import", "log.txt", "--base", "./mine.toml", "-o", "again.toml")
        self.assertEqual((self.folder / "again.collectives.csv").read_bytes(), before["mine.collectives.csv"])
        self.assertEqual((self.folder / "again.gemm.csv").read_bytes(), before["mine.gemm.csv"])

    def test_of_a_data_sheet(self):
        value = self.json("calibrate", *SHEET, "-o", "mine.toml")
        origins = {part["what"]: part["from"] for part in value["parts"]}
        self.assertEqual((origins["peak_TFLOPs"], origins["hbm_share"], origins["GEMMs"]), ("data sheet", "assumed", "derived"))
        self.assertEqual(sorted(path.name for path in self.folder.glob("mine*")), ["mine.toml"])
        self.assertGreater(self.simulate(), 0)

    def test_another_data_sheet_over_a_base(self):
        self.ok("calibrate", "--base", "h100-sxm", "-o", "mine.toml")
        as_base = self.simulate()
        value = self.json("calibrate", "--base", "h100-sxm", "--peak_TFLOPs", "148", "--nvlink_GBps", "200", "-o", "mine.toml")
        self.assertEqual(len(value["notes"]), 2)
        self.assertEqual({part["from"] for part in value["parts"] if part["what"] in ("GEMMs", "all_gather on 8 GPUs")}, {"derived"})
        self.assertGreater(self.simulate(), 1.2 * as_base)
        text = (self.folder / "mine.toml").read_text()
        self.write("mine.toml", text.replace("peak_TFLOPs = { value = 148", "peak_TFLOPs = { value = 50"))
        self.fails(2, "simulate", "scenario.toml", "--platform", "./mine.toml", says=["mine.toml:", "[accelerator] gemm_table", "peak_TFLOPs, 50"])

    def test_gemms(self):
        rows = "".join(f"{m},{n},{k},{2 * m * n * k / 1e8}\n" for m in (1024, 2048, 4096) for n in (1024, 2048, 4096) for k in (512, 1024, 2048))
        self.write("sweep.csv", "m,n,k,time_us\n" + rows)
        self.ok("calibrate", "--import", "sweep.csv", "--import", "log.txt", *SHEET, "-o", "mine.toml")
        self.assertEqual((self.folder / "mine.gemm.csv").read_text().count("\n"), 28)
        components = self.json("validate", "--components", "--platform", "./mine.toml")["components"]
        self.assert_keys(components[0], "platform left_out range points median_error_pct p95_error_pct")
        self.assertEqual((components[0]["left_out"], components[0]["points"]), ("GEMM", 19))
        self.assertLess(components[0]["p95_error_pct"], 0.1)

    def test_what_is_wrong(self):
        base = ["--base", "h100-sxm", "-o", "mine.toml"]
        self.fails(2, "calibrate", "--import", "log.txt", "--base", "h100-sxm", says=["--output"])
        self.fails(2, "calibrate", "--import", "log.txt", "-o", "mine.toml", says=["--base", "--peak_TFLOPs"])
        self.fails(2, "calibrate", "--import", "log.txt", "--base", "h10-sxm", "-o", "mine.toml", says=["h100-sxm"])
        self.fails(2, "calibrate", "--import", "log.txt", "--base", PLATFORM, "-o", "mine.toml", says=["[accelerator]"])
        self.fails(2, "calibrate", "--import", "none.txt", *base, says=["none.txt"])
        self.fails(2, "calibrate", "--import", "text.txt", *base, says=["text.txt", "nccl-tests"])
        self.fails(2, "calibrate", "--import", "allreduce=log.txt", *base, says=["all_reduce"])
        self.fails(2, "calibrate", "--import", "all_gather=log.txt", *base, says=["log.txt:", "all_reduce_perf"])
        self.fails(2, "calibrate", "--import", "log.txt", *base, "--cores", "2", says=["--cores"])
        self.fails(2, "calibrate", "--import", "log.txt", *base, "--domain", "0", says=["--domain"])
        self.fails(2, "calibrate", "--import", "log.txt", "--base", "h100-sxm", "-o", "mine.csv", says=["--output"])
        self.fails(2, "validate", "--platform", "h100-sxm", says=["--components"])
        self.fails(2, "validate", "--components", "--platform", PLATFORM, says=["[accelerator]"])
        self.fails(2, "show", says=["SCENARIO", "--platform"])
        self.assertEqual(list(self.folder.glob("mine*")), [])

    def test_minimal(self):
        minimal = ["calibrate", "--minimal"]
        base = ["--base", "h100-sxm", "-o", "mine.toml"]
        self.fails(2, *minimal, "-o", "mine.toml", says=["--minimal", "--base", "h100-sxm"])
        self.fails(2, *minimal, "--base", "h100-sxm", says=["--minimal", "--output"])
        self.fails(2, *minimal, *base, "--cores", "2", says=["--minimal", "--cores"])
        self.fails(2, *minimal, *base, "--ranks", "2", says=["--minimal", "--ranks"])
        self.fails(2, *minimal, *base, "--seconds", "0", says=["--seconds"])
        self.fails(2, *minimal, *base, "--import", "none.txt", says=["none.txt"])
        self.fails(2, "calibrate", *base, "--seconds", "5", says=["--seconds", "--minimal"])
        # Without a GPU the message is that of a whole calibration.
        whole = self.run_program("calibrate", "--backend", "cuda", "-o", "whole.toml", environment=dict(self.environment, CUDA_VISIBLE_DEVICES=""))
        little = self.run_program(*minimal, *base, environment=dict(self.environment, CUDA_VISIBLE_DEVICES=""))
        self.assertEqual((whole.returncode, little.returncode), (1, 1), little.err)
        self.assertEqual(whole.err, little.err)
        self.assertEqual(list(self.folder.glob("mine*")), [])

    def test_platforms(self):
        printed = self.ok("show", "--platform", "b200-sxm").out
        self.assertIn("gemm_sustained", printed)
        self.assertIn("fitted", printed)
        # The page says how many of its numbers are of each kind.
        shown = self.json("show", "--platform", "h100-sxm")
        self.assertEqual(sum(shown["kinds"].values()), len(shown["numbers"]))
        walk = (pathlib.Path(__file__).parents[2] / "docs/walk-what-if.md").read_text()
        for kind, count in shown["kinds"].items():
            self.assertRegex(walk, rf"\b{count}( are)? {kind}|{count} {kind}")
        self.assertIn(f"of the {len(shown['numbers'])} of `h100-sxm`", walk)
        self.assertIn("measured", self.ok("show", "--platform", PLATFORM).out)
        components = self.json("validate", "--components")["components"]
        # A table that is assumed has no rows to compare.
        known = re.compile(r"_table = .*kind = \"(?!assumed)")
        platforms = (pathlib.Path(__file__).parents[2] / "scenarios/platforms").glob("*.toml")
        shipped = {path.stem for path in platforms if known.search(path.read_text())}
        self.assertEqual({row["platform"] for row in components}, shipped)
        self.assertTrue(json.dumps(components))


if __name__ == "__main__":
    main()
