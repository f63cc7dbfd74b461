"""diagnose: traces of runs on this machine and of PyTorch's profiler against the predicted step; traces that cannot be read."""
import gzip
import json

from program import PLATFORM, ROOT, ProgramTest, main

KINETO = ROOT / "tests/fuzz/corpus/trace/kineto.json"


class Diagnose(ProgramTest):
    def setUp(self):
        super().setUp()
        self.ok("profile", self.tiny, "--trace", "run.json")

    def test_a_run_on_this_machine(self):
        value = self.json("diagnose", "run.json", self.tiny, "--platform", PLATFORM, "--html", "page.html", "--trace", "both.json")
        self.assert_as_documented("diagnose", value)
        self.assertEqual(value["traced_ranks"], 2)
        self.assertTrue(value["whole_step"])
        self.assertGreaterEqual(value["matched"], 0.95)
        self.assertAlmostEqual(sum(gap["gap_ms"] for gap in value["gaps"]), value["gap_ms"], places=6)
        self.assertAlmostEqual(value["measured_ms"] - value["predicted_ms"], value["gap_ms"], places=6)
        page = (self.folder / "page.html").read_text()
        for text in ("predicted", "measured", "What costs most"):
            self.assertIn(text, page)
        events = json.loads((self.folder / "both.json").read_text())["traceEvents"]
        titles = [event["args"]["name"] for event in events if event["name"] == "process_name"]
        self.assertTrue(any(title.startswith("predicted") for title in titles) and any(title.startswith("measured") for title in titles))
        # The written file is a trace, too; its measured part is explained.
        again = self.json("diagnose", "both.json", self.tiny, "--platform", PLATFORM)
        self.assertAlmostEqual(again["measured_ms"], value["measured_ms"], places=3)

    def test_a_simulated_step_has_no_gap(self):
        self.ok("simulate", self.tiny, "--platform", PLATFORM, "--trace", "predicted.json")
        value = self.json("diagnose", "predicted.json", self.tiny, "--platform", PLATFORM)
        self.assertAlmostEqual(value["gap_ms"], 0, places=6)
        for gap in value["gaps"]:
            self.assertAlmostEqual(gap["gap_ms"], 0, places=6)

    def test_kernels_that_are_missing_are_not_faster(self):
        self.ok("simulate", self.tiny, "--platform", PLATFORM, "--trace", "whole.json")
        trace = json.loads((self.folder / "whole.json").read_text())
        kept, dropped = [], set()
        for event in trace["traceEvents"]:
            # The first weight gradient of the MLP on each rank.
            if event["ph"] == "X" and "fc1.wgrad" in event["name"] and event["pid"] not in dropped:
                dropped.add(event["pid"])
            else:
                kept.append(event)
        self.assertEqual(len(dropped), 2)
        self.write("less.json", json.dumps({"traceEvents": kept}))
        value = self.json("diagnose", "less.json", self.tiny, "--platform", PLATFORM)
        missing = next(gap for gap in value["gaps"] if gap["cause"] == "missing kernel")
        self.assertIn("fc1.wgrad", missing["name"])
        self.assertLess(missing["gap_ms"], 0)
        self.assertFalse([gap for gap in value["gaps"] if gap["cause"] == "slower kernel" and abs(gap["gap_ms"]) > 1e-6])

    def test_one_of_several_runs(self):
        self.ok("compare", self.tiny, "--platform", PLATFORM, "--trace", "runs.json", "--set", "compare.ranks=[2]")
        self.fails(2, "diagnose", "runs.json", self.tiny, "--platform", PLATFORM, says=["--section", "measured plain, 2 ranks"])
        value = self.json("diagnose", "runs.json", self.tiny, "--platform", PLATFORM, "--section", "measured plain")
        self.assertEqual(value["section"], "measured plain, 2 ranks")

    def test_bad_traces(self):
        whole = (self.folder / "run.json").read_bytes()
        kineto = KINETO.read_bytes()
        packed = gzip.compress(whole)
        for name, content, says in (("empty.json", b"", "is empty"), ("short.json", whole[:-100], "ends in the middle"),
                                    ("cut.json.gz", packed[:-100], "gzip ends in the middle"),
                                    ("bad.json.gz", packed[:60] + b"\xff" * 40 + packed[100:], "bad.json.gz"),
                                    ("when.json", whole.replace(b'"ts":', b'"tt":'), 'expected a "ts"'),
                                    ("none.json", b'{"traceEvents": []}', "has no kernels"), ("text.json", b"hello", "expected JSON"),
                                    ("other.json", kineto, "is of rank 5"), ("old.sqlite", b"SQLite format 3\0", "SQLite")):
            self.write(name, content)
            self.fails(2, "diagnose", name, self.tiny, "--platform", PLATFORM, says=[name, says])
        self.fails(2, "diagnose", "absent.json", self.tiny, "--platform", PLATFORM, says=["absent.json", "No such file"])
        # A trace of another model: half of its operations are missing.
        self.fails(2, "diagnose", "run.json", self.tiny, "--platform", PLATFORM, "--set", "model.num_layers=8",
                   says=["run.json", "expected a trace of this model"])
        self.ok("diagnose", self.write("run.json.gz", packed), self.tiny, "--platform", PLATFORM)

        # One of another size: its operations have equal names, and other products.
        self.ok("simulate", self.tiny, "--platform", PLATFORM, "--trace", "wide.json", "--set", "model.hidden_size=128", "--set", "model.num_attention_heads=4")
        self.fails(2, "diagnose", "wide.json", self.tiny, "--platform", PLATFORM, says=["wide.json", "products have other shapes", "gemm"])
        self.fails(2, "diagnose", "run.json", self.tiny, "--platform", PLATFORM, "--rank", "1", says=["--rank", "2 ranks"])

    def test_a_trace_without_a_scenario_shows_one(self):
        self.ok("simulate", self.tiny, "--platform", PLATFORM, "--trace", "own.json")
        said = self.ok("diagnose", "own.json").out
        self.assertIn("# Not known:", said)
        self.write("found.toml", said)
        self.ok("simulate", "found.toml", "--platform", PLATFORM)
        self.fails(2, "diagnose", "own.json", "--model", "llama3-8b", says=["own.json", "hidden_size", "4096"])
        self.fails(2, "diagnose", "own.json", "--model", "llama3-8c", says=["--model", "did you mean"])
        self.fails(2, "diagnose", "own.json", self.tiny, "--model", "llama3-8b", says=["--model", "no SCENARIO"])
        self.fails(2, "diagnose", "own.json", "--json", "x.json", says=["SCENARIO"])

    def test_times_of_a_trace_are_measurements(self):
        self.write("trace.json", KINETO.read_bytes().replace(b'"float", "float"', b'"c10::BFloat16", "c10::BFloat16"'))
        said = self.ok("calibrate", "--import", "trace.json", "--base", "h100-sxm", "-o", "mine.toml").out
        self.assertIn("all_gather on 8 GPUs", said)
        self.assertIn("your files", said)
        self.fails(2, "calibrate", "--import", "run.json", "--base", "h100-sxm", "-o", "theirs.toml", says=["run.json", "Stretto's own"])


if __name__ == "__main__":
    main()
