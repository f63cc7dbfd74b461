"""--json has the keys that docs/json.md promises, --trace opens as a trace, and both agree with the printed text."""
import decimal
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

from program import IS_FAST, IS_FAST_SUITE, PLATFORM, PUBLISHED, PUBLISHED_HEADER, ROOT, ProgramTest, main, slow

PARTS_OF_MEMORY = "parameter gradient optimizer_state activation workspace input".split()

CLUSTER = """platform = "h100-sxm"
profile = "nemo-dgxc"
[model]
preset = "llama3-8b"
num_layers = 8
make_vocab_size_divisible_by = 128
[parallel]
data_parallel_size = 32
tensor_model_parallel_size = 2
[training]
global_batch_size = 512
"""


class Json(ProgramTest):
    def test_version(self):
        value = json.loads(self.ok("--version", "--json", "-").out)
        self.assert_as_documented("--version", value)
        self.assertIn("host", value["backends"])
        self.assertEqual(value["engines"], ["fluid", "simgrid"])
        self.assertIn(value["version"], self.ok("--version").out)

    def test_simulate(self):
        for engine in ("fluid", "simgrid"):
            value = self.json("simulate", self.tiny, "--platform", PLATFORM, "--engine", engine)
            self.assert_as_documented("simulate", value)
            self.assertEqual((value["scenario"], value["engine"], value["ranks"]), ("tiny", engine, 2))
            self.assertIs(value["fits"], True)
            self.assertGreater(value["step_ms"], 0)
            self.assertAlmostEqual(sum(limit["share"] for limit in value["limits"]), 1, delta=0.02)
            self.assertGreaterEqual(value["hfu"], value["mfu"])
            # Ranks of a host share it: links are not known, and the parts add up.
            self.assertIsNone(value["exposed_by_link_ms"])
            self.assertIsNone(value["fits_with"])
            total = sum(communicator["exposed_ms"] for communicator in value["exposed_by_communicator"])
            self.assertAlmostEqual(total, value["exposed_ms"]["total"], places=6)
            for stage in value["memory"]:
                self.assertEqual(sum(stage[f"{part}_bytes"] for part in PARTS_OF_MEMORY), stage["peak_bytes"])
            self.assertEqual(value["free_bytes"], value["device_bytes"] - value["peak_bytes"])
            self.assertEqual(value["peak_bytes"], value["reserved_bytes"] + 2 * value["memory"][0]["peak_bytes"])

    @unittest.skipUnless(IS_FAST, "minutes under a sanitizer")
    def test_every_scenario_of_the_library(self):
        models = sorted((pathlib.Path(__file__).parents[2] / "scenarios/models").glob("*.toml"))
        self.assertGreater(len(models), 8)
        for model in models:
            with self.subTest(model.stem):
                platform = [] if "platform =" in model.read_text() else ["--platform", PLATFORM]
                value = self.json("simulate", str(model), *platform)
                self.assertGreater(value["step_ms"], 0)
                self.assertEqual(value["fits"], value["free_bytes"] >= 0)
                self.assertIsNone(value["fits_with"])
                self.assert_one_memory(value, model, platform)
                exposed = value["exposed_ms"]
                self.assertAlmostEqual(sum(ms for axis, ms in exposed.items() if axis != "total"), exposed["total"], places=6)

    def assert_one_memory(self, value, model, platform):
        """The parts add up to one number: in JSON, as text, and in the report."""
        total = value["predicted_peak_bytes"]
        self.assertEqual((value["peak_bytes"], value["device_bytes"] - value["free_bytes"]), (total, total))
        self.assertEqual(sum(part["bytes"] for part in value["memory_parts"]), total)
        self.assertTrue(all(part["bytes"] > 0 and part["kind"] and part["source"] for part in value["memory_parts"]))
        for stage in value["memory"]:
            self.assertEqual(sum(stage[f"{part}_bytes"] for part in PARTS_OF_MEMORY) + stage["held_bytes"]
                             + sum(part["bytes"] for part in stage["other_parts"]), stage["peak_bytes"])
        text = self.ok("simulate", str(model), *platform, "--verbose", "--html", "page.html").out
        first = text.split("\n\nscenario ")[0].splitlines()
        self.assertLessEqual(len(first), 24, text)
        self.assertLessEqual(max(map(len, first)), 100, text)
        if value["step_low_ms"] is not None:
            self.assertLess(value["step_low_ms"], value["step_ms"])
            self.assertLess(value["step_ms"], value["step_high_ms"])
        self.assertNotIn("(plan ", text)
        summary = re.search(r"^memory +(\S+) (\S+) of (\S+) (\S+) a ", text, re.M)
        table = re.search(rf"^memory.* {summary[2]} +kind\n-.*\n((?:.+\n)+?)sum +(\S+)", text, re.M)
        parts = [re.search(r" (\d[\d.]*)  ", line)[1] for line in table[1].splitlines()]
        self.assertEqual(table[2], summary[1])
        self.assertEqual(len(parts), len(value["memory_parts"]))
        self.assertEqual(sum(map(decimal.Decimal, parts)), decimal.Decimal(summary[1]))
        page = (self.folder / "page.html").read_text()
        self.assertIn(f"{summary[1]} {summary[2]} of {summary[3]}", page)
        cells = re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", page.split('id="memory-parts"')[1].split("</table>")[0])
        self.assertEqual(cells[cells.index("sum") + 1], summary[1])
        self.assertEqual([cell for cell in cells if cell in parts], parts + [summary[1]] * (summary[1] in parts))

    def test_simulate_on_published_gpus(self):
        self.write("cluster.toml", CLUSTER)
        value = self.json("simulate", "cluster.toml")
        self.assert_as_documented("simulate", value)
        self.assertAlmostEqual(sum(value["exposed_by_link_ms"].values()), value["exposed_ms"]["total"], places=6)
        links = {of["communicator"]: of["link"] for of in value["exposed_by_communicator"]}
        self.assertEqual((links["tp"], links["dp"]), ("nvlink", "network"))
        self.assertAlmostEqual(value["mfu"], value["tflops_per_gpu"] / 989.4)
        self.assertAlmostEqual(value["tokens_per_s"], 64 * value["tokens_per_s_per_gpu"])
        # The step waits for a profile's host that issues kernels one by one.
        self.assertIsNone(value["host_bound_pct"])
        self.assertIsNone(value["host_bound"])
        value = self.json("simulate", "cluster.toml", "--set", "profile=megatron-deepspeed", "--set", "model.seq_length=512")
        self.assertGreater(value["host_bound_pct"], 5)
        shares = {limit["what"]: limit["share"] for limit in value["limits"]}
        self.assertAlmostEqual(100 * shares["waiting for the host"], value["host_bound_pct"])
        self.assertAlmostEqual(sum(shares.values()), 1)

    def test_simulate_says_what_fits(self):
        self.write("cluster.toml", CLUSTER)
        value = self.json("simulate", "cluster.toml", "--set", "training.micro_batch_size=16", "--fit")
        self.assertIs(value["fits"], False)
        self.assertLess(value["free_bytes"], 0)
        self.assertGreater(len(value["fits_with"]), 0)
        self.assert_as_documented("simulate", value)
        # The changed scenario is the described one.
        fit = value["fits_with"][0]
        words = [word for pair in fit["set"] for word in ("--set", pair)]
        changed = self.json("simulate", "cluster.toml", "--set", "training.micro_batch_size=16", *words)
        self.assertIs(changed["fits"], True)
        self.assertAlmostEqual(changed["step_ms"] / fit["step_ms"], 1, delta=0.005)
        self.assertEqual(changed["memory_verdict"], "fits")
        self.assertEqual(changed["predicted_peak_bytes"], fit["predicted_peak_bytes"])
        self.assertIsNone(changed["fits_with"])
        self.assertIsInstance(self.json("simulate", "cluster.toml", "--fit")["fits_with"], list)

    def test_simulate_several_scenarios(self):
        """Side by side: each as alone, and the difference of the second with its interval and its causes."""
        one = self.json("simulate", "llama3-8b")
        value = self.json("simulate", "llama3-8b", "llama3-8b@h200-sxm", "llama3-70b")
        self.assertEqual([step["step_ms"] for step in value["steps"]][0], one["step_ms"])
        self.assertEqual(value["changes"][0]["saved_pct"], 0)
        ratio = value["steps"][1]["tokens_per_s"] / value["steps"][0]["tokens_per_s"]
        self.assertAlmostEqual(value["changes"][1]["saved_pct"], 100 * (1 - 1 / ratio), places=6)
        for change in value["changes"][1:]:
            self.assertLess(change["saved_low_pct"], change["saved_pct"])
            self.assertLess(change["saved_pct"], change["saved_high_pct"])
        self.assertIn({"key": "platform", "values": ["h100-sxm", "h200-sxm", "h100-sxm"]}, value["differ"])
        out = self.ok("simulate", "llama3-8b", "llama3-70b").out
        causes = out.split("where the difference comes from")[1].split("\n\n")[0]
        parts = [float(pct.replace("−", "-")) for pct in re.findall(r"([−+][\d.]+) %", causes)]
        total = float(re.search(r"time a token +([−+][\d.]+) %", out)[1].replace("−", "-"))
        self.assertAlmostEqual(sum(parts), total, delta=0.4)
        self.fails(2, "simulate", "llama3-8b", "llama3-70b", "--modes", says=["--modes: expected one scenario, got 2"])

    def test_simulate_every_mode(self):
        knobs = ["--set", "overlap.overlap_grad_reduce=true", "--set", "overlap.overlap_param_gather=false"]
        value = self.json("simulate", self.tiny, "--platform", PLATFORM, "--modes", *knobs)
        steps = {mode["mode"]: mode["step_ms"] for mode in value["modes"]}
        self.assertEqual(list(steps), ["plain", "overlap_grad_reduce", "overlap_param_gather"])
        self.assertEqual(steps["overlap_grad_reduce"], value["step_ms"])
        # Modes that cannot act here are named, with the gate that is closed.
        left_out = {mode["mode"]: mode["why"] for mode in value["modes_left_out"]}
        self.assertIn("tensor_model_parallel_size", left_out["tp_comm_overlap"])
        self.assertFalse(set(left_out) & set(steps))
        said = self.ok("simulate", self.tiny, "--platform", PLATFORM, "--modes", "--verbose", *knobs).out.split("modes that cannot act here:")[1]
        for mode, why in left_out.items():
            self.assertRegex(said, rf"(?m)^{re.escape(mode)} +{re.escape(why)}$")
        # Settings that no mode changes stay, and alone they give the prediction without --modes.
        layout = ["--set", "parallel.pipeline_model_parallel_size=2", "--set", "overlap.overlap_p2p_comm=true"]
        value = self.json("simulate", self.tiny, "--platform", PLATFORM, "--modes", *knobs, *layout)
        self.assertEqual(value["modes"][-1]["mode"], "scenario")
        self.assertEqual(value["modes"][-1]["step_ms"], value["step_ms"])
        self.assert_as_documented("simulate", value)
        self.assertIsNone(value["modes"][0]["advice"])
        for mode in value["modes"][1:]:
            self.assertIn(mode["advice"]["verdict"], ("use", "avoid", "benchmark first", "off"))
            self.assertEqual(mode["advice"]["basis"], "expected")
        # Each knob alone is switched off: the step is that of the scenario without it.
        self.assertEqual([knob["knob"] for knob in value["without"]], ["overlap_grad_reduce", "overlap_p2p_comm"])
        for knob in value["without"]:
            words = [f"overlap.{knob['knob']}=false" if word.startswith(f"overlap.{knob['knob']}=") else word for word in knobs + layout]
            off = self.json("simulate", self.tiny, "--platform", PLATFORM, *words)
            self.assertEqual(off["step_ms"], knob["step_ms"])
            self.assertAlmostEqual(knob["saved_ms"], knob["step_ms"] - value["step_ms"])
        # The parts of a row add up to its step, with a single hardware queue too.
        value = self.json("simulate", self.tiny, "--platform", PLATFORM, "--modes", *knobs, *layout,
                          "--set", "cluster.cuda_device_max_connections=1")
        for mode in value["modes"]:
            parts = sum(mode[f"{part}_ms"] for part in ("compute", "core_wait", "exposed", "queue_wait", "bubble"))
            self.assertAlmostEqual(parts / mode["step_ms"], 1, places=9)
        self.assertGreater(max(mode["queue_wait_ms"] for mode in value["modes"]), 0)
        plain = self.json("simulate", self.tiny, "--platform", PLATFORM)
        self.assertIsNone(plain["modes"])
        self.assertIsNone(plain["without"])

    def test_trace_of_a_pipeline(self):
        value = self.json("simulate", self.tiny, "--platform", PLATFORM, "--trace", "trace.json",
                          "--set", "parallel.pipeline_model_parallel_size=2", "--set", "parallel.data_parallel_size=1")
        events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
        self.assertEqual(min(event["ts"] for event in events if "ts" in event), 0)
        slices = [event for event in events if event["ph"] == "X"]
        # Twelve micro-batches go there and back, each with an arrow from a send to its receive.
        starts, ends = ({event["id"]: event for event in events if event["ph"] == ph} for ph in "sf")
        self.assertEqual((len(starts), starts.keys()), (24, ends.keys()))
        for arrow, name in [(start, "send") for start in starts.values()] + [(end, "recv") for end in ends.values()]:
            self.assertTrue(any(name in one["name"] and (one["pid"], one["tid"]) == (arrow["pid"], arrow["tid"])
                                and one["ts"] - 1e-6 <= arrow["ts"] <= one["ts"] + one["dur"] + 1e-6 for one in slices))
        self.assertTrue(all(starts[i]["pid"] != ends[i]["pid"] and starts[i]["ts"] <= ends[i]["ts"] + 1e-6 for i in starts))
        # A message has seven tokens of 12 numbers in f32.
        self.assertEqual({one["args"].get("sent_bytes") for one in slices if "pp.send" in one["name"]}, {7 * 12 * 4})
        in_use = [event["args"]["bytes"] for event in events if event["ph"] == "C"]
        self.assertGreater(len(set(in_use)), 10)
        self.assertLess(0, min(in_use))
        self.assertLessEqual(max(in_use), value["peak_bytes"])
        names = {one["name"] for one in slices}
        self.assertTrue(any(name.startswith("h.1 fc1.dgrad") for name in names))
        self.assertTrue(any(name.startswith("adamw") for name in names))

    def test_validate(self):
        rows = [PUBLISHED.format(id=name, layers=4, seconds=0.12) for name in "ab"]
        rows.append(rows[0].replace(",1024,16,16,4096,", ",2048,16,16,8192,"))
        self.write("steps.csv", PUBLISHED_HEADER + "".join(rows) + rows[0].replace("Megatron-DeepSpeed", "nobody's"))
        value = self.json("validate", "steps.csv", "--intervals", "--leave-out")
        errors = "mean_abs_error_pct median_abs_error_pct bias_pct worst_error_pct"
        self.assert_keys(value, "groups rows skipped")
        (group,) = value["groups"]
        self.assert_keys(group, "group rows fitted_constants nothing sourced shipped constant_mfu pairs ranking intervals left_out")
        for key in "nothing sourced shipped constant_mfu left_out".split():
            self.assert_keys(group[key], errors)
        self.assert_keys(group["ranking"], "choices best_picked within_3_pct mean_regret_pct worst_regret_pct random_mean_regret_pct")
        self.assert_keys(group["intervals"], "inside_pct mean_half_width_pct constants")
        self.assertEqual([model["hidden_size"] for model in group["left_out"]["models"]], [1024, 2048])
        self.assertEqual([model["rows"] for model in group["left_out"]["models"]], [2, 1])
        for row in value["rows"]:
            self.assert_keys(row, """id model gpus measured_s measured_mfu_pct predicted_nothing_s predicted_sourced_s predicted_shipped_s
                             constant_mfu_s left_out_s interval limits assumptions""")
            self.assert_keys(row["interval"], "low_s high_s inside constants")
            self.assertLess(row["interval"]["low_s"], row["predicted_shipped_s"])
            self.assertLess(row["predicted_shipped_s"], row["interval"]["high_s"])
        self.assertEqual(value["skipped"], [{"id": "a", "line": 5, "why": "no profile of nobody's"}])
        screen = self.ok("validate", "steps.csv", "--color=always").out.splitlines()
        self.assertLessEqual(len(screen), 24)
        self.assertLessEqual(max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in screen), 100)
        self.assertIn("3 published steps: half within ", screen[0])
        self.assertIn("1 not predicted: --verbose says why", screen)
        self.assertIn("skipped 1: no profile of nobody's", self.ok("validate", "steps.csv", "--verbose").out)
        value = self.json("validate", "steps.csv")
        self.assertEqual((value["groups"][0]["intervals"], value["groups"][0]["left_out"]), (None, None))
        # Without a file the shipped one is used. Progress is reported at once, even without a terminal.
        self.write("published.csv", PUBLISHED_HEADER + rows[0] + rows[1].replace(",fp16,", ",nvfp4,") + rows[1].replace(",1024,4,1,", ",1024,x,1,"))
        shutil.copy(ROOT / "scenarios/published.toml", self.folder)
        done = self.run_program("validate", "--json", "out.json", environment=dict(self.environment, STRETTO_DATA=str(self.folder)))
        self.assertEqual(done.returncode, 0, done.err)
        self.assertTrue(done.err.startswith("predicting 1 steps\n"), done.err)
        value = json.loads((self.folder / "out.json").read_text())
        first, second = [row["why"] for row in value["skipped"]]
        self.assertIn("[training] fp4_format: expected a GPU of compute capability 10.0 or more", first)
        self.assertEqual(second, f'{self.folder}/published.csv:4: gbs: expected a number above 0, got "x"')

    def test_simulate_repeats_exactly(self):
        runs = [self.json("simulate", self.tiny, "--platform", PLATFORM, "--trace", f"{i}.json") for i in range(2)]
        for run in runs:
            del run["simulate_s"]
        self.assertEqual(*runs)
        self.assertEqual((self.folder / "0.json").read_bytes(), (self.folder / "1.json").read_bytes())

    def test_train(self):
        value = self.json("train", self.tiny)
        self.assert_as_documented("train", value)
        self.assertIsNone(value["resumed_from"])
        self.assertEqual([step["step"] for step in value["steps"]], list(range(6)))
        self.assertLess(value["steps"][-1]["loss"], value["steps"][0]["loss"])

    def test_profile(self):
        value = self.json("profile", self.tiny, "--set", "compare.repeats=3", "--trace", "trace.json")
        self.assert_as_documented("profile", value)
        self.assertEqual(len(value["step_ms"]), 3)
        for operation in value["operations"]:
            self.assertEqual(operation["bound"], "arithmetic" if operation["flops"] > 0 else None)
            self.assertLessEqual(operation["floor_us"] or 0, operation["us"])
        # The critical path is part of the step, and at two ranks both have computed it.
        path = value["critical_path"]
        self.assertLess(path["compute_ms"] + path["communication_ms"], 1.5 * max(value["timed_step_ms"]))
        names = [operation["name"] for operation in value["operations"]]
        self.assertEqual(len(names), len(set(names)))
        self.assertTrue(json.loads((self.folder / "trace.json").read_text()))

    def test_standard_output_holds_json_alone(self):
        """If JSON goes to standard output, text for people goes to standard error."""
        platform = ["--platform", PLATFORM]
        for words in (["simulate", self.tiny, *platform], ["simulate", self.tiny, *platform, "--modes"], ["train", self.tiny],
                      ["train", self.tiny, "--ranks", "2"], ["compare", self.tiny, *platform], ["profile", self.tiny],
                      ["show", self.tiny], ["show", "--gates"], ["show", "--platform", PLATFORM]):
            if IS_FAST_SUITE and words[0] in ("compare", "profile"):
                continue
            done = self.ok(*words, "--json", "-")
            self.assertIsInstance(json.loads(done.out), dict, words)
            if words[0] != "show":
                self.assertRegex(done.err, r"(^|scenario )tiny\b")
        with open("/dev/full", "w") as full:
            done = self.start("simulate", self.tiny, *platform, "--json", "-", stdout=full)
            _, err = done.communicate(timeout=60)
        self.assertEqual((done.returncode, err.splitlines()[-1]), (1, "stretto: standard output: cannot be written"))

    def test_show(self):
        printed = self.ok("show", self.tiny)
        self.assertIn("verified", printed.out)
        value = json.loads(self.ok("show", self.tiny, "--json", "-").out)
        self.assertGreater(len(value["operations"]), 10)
        self.assertEqual((value["model"]["num_layers"], value["model"]["rotary_base"]), (2, None))
        config = {"model_type": "llama", "num_hidden_layers": 3, "hidden_size": 16, "intermediate_size": 40, "num_attention_heads": 4,
                  "num_key_value_heads": 2, "vocab_size": 101, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
                  "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                   "original_max_position_embeddings": 16}}
        self.write("config.json", json.dumps(config))
        scenario = self.write("hf.toml", '[model]\nhf_config = "config.json"\nseq_length = 8\n')
        model = json.loads(self.ok("show", scenario, "--json", "-").out)["model"]
        self.assertEqual([model[key] for key in ("num_layers", "hidden_size", "ffn_hidden_size", "num_query_groups", "seq_length",
                                                 "rotary_base", "rope_scaling_factor", "rope_scaling_original_max_position_embeddings")],
                         [3, 16, 40, 2, 8, 5e5, 32, 16])
        said = self.ok("show", scenario).out
        self.assertIn("model: num_layers = 3, hidden_size = 16,", said)
        self.assertIn(f"parameters = {model['parameters']}\n", said)

    def test_gates_page(self):
        """The tables of docs/gates.md equal the tables that the program prints."""
        page = (ROOT / "docs/gates.md").read_text()
        tables = self.ok("show", "--gates").out
        self.assertGreater(tables.count("\n"), 40)
        self.assertIn(tables, page)
        value = json.loads(self.ok("show", "--gates", "--json", "-").out)
        self.assert_as_documented("show --gates", value)
        gates = value["gates"]
        rows = [row.split(" | ") for row in tables.splitlines() if row.startswith("| `") and row.count(" | ") == 4]
        words = {"error": "an error", "off": "off, with a note", "acts": "acts all the same"}
        self.assertEqual([(row[0].strip("|` "), row[1], row[2], row[3], row[4].strip("| ")) for row in rows],
                         [(gate["knob"], gate["needs"], words[gate["when_closed"]], gate["source"], gate["wider"]) for gate in gates])

    def test_keys_page(self):
        """The tables of docs/scenario.md equal the tables that the program prints."""
        page = (ROOT / "docs/scenario.md").read_text()
        tables = [part for part in self.ok("show", "--keys").out.split("\n\n") if part.startswith("|")]
        self.assertEqual(len(tables), 8)
        for table in tables:
            self.assertTrue(table.rstrip("\n") in page, table.split("\n")[2])

    def test_gates(self):
        value = json.loads(self.ok("show", self.tiny, "--gates", "--json", "-", "--set",
                                   "overlap.tp_comm_overlap_rs_dgrad=true").out)
        self.assert_as_documented("show --gates", value)
        closed = {gate["knob"]: gate["why"] for gate in value["gates"] if gate["asked"] and not gate["open"]}
        self.assertEqual(closed["tp_comm_overlap_rs_dgrad"], "it needs tp_comm_overlap = true")
        # A combination on which the frameworks have an assertion is an error.
        self.fails(2, "show", self.tiny, "--gates", "--set", "overlap.tp_comm_overlap=true",
                   says=("overlap.tp_comm_overlap: expected tensor_model_parallel_size above 1 as well, got 1",))

    def test_compare(self):
        value = self.json("compare", self.tiny, "--platform", PLATFORM, "--trace", "trace.json")
        self.assert_as_documented("compare", value)
        self.assertEqual([(row["ranks"], row["mode"]) for row in value["rows"]],
                         [(ranks, mode) for ranks in (1, 2) for mode in ("plain", "overlap_grad_reduce", "overlap_param_gather")])
        for row in value["rows"]:
            if row["mode"] == "plain":
                self.assertIsNone(row["advice"])
            elif row["ranks"] > 1:
                self.assertEqual(row["advice"] and row["advice"]["basis"], None if value["busy"] else "measured")
            self.assertLessEqual(row["measured_min_ms"], row["measured_ms"])
            self.assertLessEqual(row["measured_ms"], row["measured_max_ms"])
            if value["busy"]:
                self.assertIsNone(row["error_pct"])
            else:
                self.assertAlmostEqual(row["error_pct"], 100 * (row["predicted_ms"] / row["measured_ms"] - 1), places=6)
        # Overlap changes when operations run, never the training results.
        for ranks in (1, 2):
            self.assertEqual(len({row["loss"] for row in value["rows"] if row["ranks"] == ranks}), 1)
        # On one rank all modes have one schedule, which is measured once.
        self.assertEqual([row["same_as"] for row in value["rows"]], [None, "plain", "plain", None, None, None])
        self.assertEqual({row["measured_ms"] for row in value["rows"] if row["ranks"] == 1}, {value["rows"][0]["measured_ms"]})
        for row in value["rows"]:
            self.assertEqual(row["turns"], 3)
            if row["mode"] == "plain" or row["same_as"] or value["busy"]:
                self.assertIsNone(row["beyond_noise"])
            else:
                plain = next(other for other in value["rows"] if (other["mode"], other["ranks"]) == ("plain", row["ranks"]))
                self.assertAlmostEqual(row["saved_measured_ms"], plain["measured_ms"] - row["measured_ms"], places=6)
                self.assertIsInstance(row["beyond_noise"], bool)
        self.assertLessEqual(value["noise_low_pct"], value["noise_high_pct"])
        self.assertEqual(value["busy"], value["taken_pct"] > 10)
        self.assertGreaterEqual(value["taken_pct"], max(row["lost_pct"] for row in value["rows"]))
        if value["busy"]:
            self.assertIn("run this again", value["busy_because"])
            self.assertIsNone(value["mean_abs_error_pct"])
        else:
            errors = [abs(row["error_pct"]) for row in value["rows"] if not row["same_as"]]
            self.assertAlmostEqual(value["mean_abs_error_pct"], sum(errors) / len(errors), places=6)
            self.assertAlmostEqual(value["worst_abs_error_pct"], max(errors), places=6)
        trace = json.loads((self.folder / "trace.json").read_text())
        names = {event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"}
        self.assertTrue(any("predicted" in name for name in names) and any("measured" in name for name in names), names)

    def test_compare_while_other_programs_compute_prints_no_errors(self):
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * len(os.sched_getaffinity(0)))]
        try:
            done = self.ok("compare", self.tiny, "--platform", PLATFORM, "--json", "busy.json")
        finally:
            for process in busy:
                process.kill()
                process.wait()
        value = json.loads((self.folder / "busy.json").read_text())
        self.assertTrue(value["busy"], value["taken_pct"])
        self.assertIn("the machine was busy: other programs (", done.out)
        self.assertEqual(re.findall(r"[+-][0-9.]+ ?%|mean error", done.out), [], done.out)
        self.assertIsNone(value["mean_abs_error_pct"])

    def test_compare_interrupted_at_once_knows_nothing(self):
        # The slow links make the warm-up long: nothing is measured, so there are no numbers.
        process = self.start("compare", self.tiny, "--platform", PLATFORM, "--json", "partial.json", "--set", "compare.ranks=[2]",
                             "--set", "cluster.link_GBps=1e-4", "--set", "compare.repeats=100000")
        self.wait_until_it_catches(process, signal.SIGINT)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 1, err)
        self.assertEqual(len(re.findall("^stretto: ", err, re.M)), 1, err)  # progress is reported too, at times
        self.assertIn("interrupted", err)
        value = json.loads((self.folder / "partial.json").read_text())
        self.assert_as_documented("compare", value)
        self.assertEqual(value["rows"], [])
        for key in ("noise_pct", "noise_low_pct", "mean_abs_error_pct", "worst_abs_error_pct", "sgemm_GFLOPs", "step_GFLOPs"):
            self.assertIsNone(value[key], key)

    @slow
    def test_calibrate_interrupted_goes_on(self):
        # A good file stays until all of the new one is known.
        self.write("host.toml", "# good\n")
        calibrate = ("calibrate", "-o", "host.toml", "--cores", "1")
        process = self.start(*calibrate)
        partial = self.folder / "host.toml.partial"
        for _ in range(600):
            if partial.exists():
                break
            time.sleep(0.1)
        time.sleep(random.uniform(0, 3))
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
        self.assertLess(time.monotonic() - begin, 5)  # under a second on a quiet machine
        self.assertEqual(process.returncode, 1, err)
        self.assertEqual(len(re.findall("^stretto: ", err, re.M)), 1, err)
        self.assertRegex(err, "host.toml.partial keeps .* measurements: run again to go on")
        self.assertEqual((self.folder / "host.toml").read_text(), "# good\n")
        kept = json.loads(partial.read_text())["parts"]
        self.assertIn("overheads", kept)
        # The next calibration begins with the kept results; killed without warning it keeps them too.
        process = self.start(*calibrate)
        self.assertIn("goes on from host.toml.partial, which has", process.stdout.readline())
        process.kill()
        process.communicate()
        self.assertEqual({**json.loads(partial.read_text())["parts"], **kept}["overheads"], kept["overheads"])
        # A file of another kind belongs to somebody.
        partial.write_text("{}")
        self.fails(2, *calibrate, says=["host.toml.partial: is no calibration that was interrupted"])
        self.assertEqual(partial.read_text(), "{}")


if __name__ == "__main__":
    main()
