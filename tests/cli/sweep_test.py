"""plan and sweep: the best layout, what became of every point, and sweeps that are killed, resumed and cut into parts."""
import csv
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
import unittest

from program import PLATFORM, ROOT, STRETTO, ProgramTest, main

KILLS = int(os.environ.get("STRETTO_SWEEP_KILLS", 3))

SMALL = """platform = "h100-sxm"
profile = "nemo-dgxc"
[model]
preset = "llama3-8b"
num_layers = 8
[parallel]
data_parallel_size = 16
[training]
global_batch_size = 128
[sweep]
tensor_model_parallel_size = [1, 2, 4]
pipeline_model_parallel_size = [1, 2, 4]
micro_batch_size = "legal"
recompute_granularity = ["none", "full"]
"""


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Sweep(ProgramTest):
    def setUp(self):
        super().setUp()
        self.small = self.write("small.toml", SMALL)

    def steps(self, path):
        return {line["point"]: line["step_ms"] for line in lines_of(path) if line["status"] == "predicted"}

    def test_the_best_is_what_simulate_says(self):
        value = self.json("sweep", self.small, "--csv", "points.csv", "--html", "page.html", "--best", "2")
        self.assertTrue(value["complete"])
        predicted = [point for point in value["points"] if point["status"] == "predicted"]
        best = min(predicted, key=lambda point: point["step_ms"])
        sets = [word for one in best["set"] for word in ("--set", one)]
        simulated = self.json("simulate", self.small, *sets)
        self.assertEqual(simulated["step_ms"], best["step_ms"])
        self.assertEqual(value["best"][0]["step_ms"], best["step_ms"])
        # The memory of a layout is one number, as is its verdict.
        self.assertEqual({best["memory_bytes"], value["best"][0]["predicted_peak_bytes"], simulated["predicted_peak_bytes"]}, {best["memory_bytes"]})
        self.assertEqual({best["memory_verdict"], value["best"][0]["memory_verdict"], simulated["memory_verdict"]}, {"fits"})
        self.assertEqual(len(value["best"]), 2)
        self.assertLess(best["simulated_micro_batches"], best["micro_batches"] + 1)
        self.assertTrue(all(point["reason"] for point in value["points"] if point["status"] != "predicted"))
        rows = list(csv.DictReader((self.folder / "points.csv").read_text().splitlines()))
        self.assertEqual(len(rows), len(value["points"]))
        self.assertEqual({row["status"] for row in rows}, {point["status"] for point in value["points"]})
        self.check_pareto((self.folder / "page.html").read_text(), value)

    def marks(self, page, section):
        """Returns (x, y) of the marks of a plot."""
        plot = page.split(f'<section id="{section}">')[1].split("</section>")[0]
        return [(float(x), float(y)) for x, y in re.findall(r'data-x="([^"]*)" data-y="([^"]*)"', plot)]

    def check_pareto(self, page, value):
        points = [point for point in value["points"] if point["status"] == "predicted"]
        per_s = 1000 if max([point["step_ms"] for point in points] + [value["own"]["step_ms"]]) >= 1000 else 1
        expected = [(point["memory_bytes"] / 2**30, point["step_ms"] / per_s) for point in points]
        marks = self.marks(page, "pareto-plot")
        for mark in expected:
            self.assertTrue(any(abs(mark[0] - x) < 1e-9 and abs(mark[1] - y) < 1e-9 for x, y in marks), mark)
        self.assertEqual(len(marks), len(expected) + 1)  # and the scenario as it is

    def test_shards_one_behind_the_other_are_the_whole(self):
        parts = [subprocess.Popen([STRETTO, "sweep", self.small, "--all", "--best", "1", "--shard", f"{i}/3", "--out", f"part-{i}.jsonl"],
                                  cwd=self.folder, env=self.environment, stdout=subprocess.DEVNULL) for i in range(3)]
        self.assertEqual([part.wait() for part in parts], [0, 0, 0])
        self.write("all.jsonl", "".join((self.folder / f"part-{i}.jsonl").read_text() for i in range(3)))
        before = (self.folder / "all.jsonl").read_text()
        self.ok("sweep", self.small, "--all", "--best", "1", "--out", "whole.jsonl")
        self.assertEqual(self.steps(self.folder / "all.jsonl"), self.steps(self.folder / "whole.jsonl"))
        done = self.ok("sweep", self.small, "--all", "--best", "1", "--out", "all.jsonl", "--resume")
        self.assertEqual((self.folder / "all.jsonl").read_text(), before)
        self.assertIn("the fastest: stretto simulate", done.out)

    def test_over_gpus_the_most_efficient_and_the_fastest_are_both_named(self):
        options = [word for axis in ("gpus=16,64", "tp=4", "pp=1", "mbs=1", "recompute=none") for word in ("--over", axis)]
        done = self.ok("sweep", self.small, *options, "--json", "gpus.json", "--html", "gpus.html")
        value = json.loads((self.folder / "gpus.json").read_text())
        points = {point["point"]: point for point in value["points"] if point["status"] == "predicted"}
        self.assertEqual({point["gpus"] for point in points.values()}, {16, 64})
        efficient = max(points.values(), key=lambda point: point["tokens_per_s_per_gpu"])
        fastest = max(points.values(), key=lambda point: point["tokens_per_s_per_gpu"] * point["gpus"])
        self.assertEqual((value["ranked_by"], value["fastest"]), ("tokens_per_s_per_gpu", fastest["point"]))
        self.assertEqual(value["best"][0]["step_ms"], efficient["step_ms"])
        self.assertIn(f"on {efficient['gpus']} GPUs, is the most efficient", done.out)
        self.assertIn("the most efficient: stretto simulate", done.out)
        self.assertNotIn("the fastest: ", done.out)
        if fastest is not efficient:
            command = done.out.split(f"the fastest, on {fastest['gpus']} GPUs: stretto ")[1].split("\n")[0]
            self.assertEqual(self.json(*shlex.split(command))["step_ms"], fastest["step_ms"])
        self.assertIn("is the most efficient", (self.folder / "gpus.html").read_text())

    @unittest.skipUnless(shutil.which("mpirun"), "Open MPI is not installed")
    def test_shards_of_mpirun(self):
        part = f"{STRETTO} sweep {self.small} --all --best 1 --shard $OMPI_COMM_WORLD_RANK/3 --out part-$OMPI_COMM_WORLD_RANK.jsonl"
        process = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "3", "sh", "-c", part], cwd=self.folder,
                                 env=self.environment, capture_output=True, text=True, timeout=600)
        self.assertEqual(process.returncode, 0, process.stderr)
        self.write("all.jsonl", "".join((self.folder / f"part-{i}.jsonl").read_text() for i in range(3)))
        self.ok("sweep", self.small, "--all", "--best", "1", "--out", "whole.jsonl")
        self.assertEqual(self.steps(self.folder / "all.jsonl"), self.steps(self.folder / "whole.jsonl"))

    def test_killed_and_resumed(self):
        out = self.folder / "points.jsonl"
        more = ("--over", "virtual_pipeline_model_parallel_size=1,2", "--over", "tensor_model_parallel_size=1,2,4,8") if KILLS > 3 else ()
        arguments = ("sweep", self.small, "--all", "--best", "1", *more)
        killed = 0
        for number in range(KILLS):
            process = self.start(*arguments, "--out", out, "--resume")
            known = out.read_text().count("\n") if out.exists() else 0
            for _ in range(20000):
                if process.poll() is not None or (out.exists() and out.read_text().count("\n") > known):
                    break
                time.sleep(0.002)
            process.send_signal(signal.SIGINT if number % 3 == 1 else signal.SIGKILL)
            process.communicate()
            killed += process.returncode == -signal.SIGKILL
        self.assertGreater(killed, 0)
        self.ok(*arguments, "--out", out, "--resume")
        self.ok(*arguments, "--out", "whole.jsonl")
        self.assertEqual(self.steps(out), self.steps(self.folder / "whole.jsonl"))
        # A line that is cut short, and zeros of a disk that lost power, are removed.
        for cut in (b'{"key": "1', bytes(100)):
            with out.open("ab") as file:
                file.write(cut)
            self.assertIn("cut short", self.ok(*arguments, "--out", out, "--resume").out)
            self.assertEqual(self.steps(out), self.steps(self.folder / "whole.jsonl"))

    def test_a_changed_scenario_has_new_points(self):
        arguments = ("--over", "micro_batch_size=1", "--over", "recompute_granularity=none", "--best", "1", "--out", "points.jsonl")
        self.ok("sweep", self.small, *arguments)
        points = len(lines_of(self.folder / "points.jsonl"))
        self.fails(2, "sweep", self.small, *arguments, says=["points.jsonl", "--resume"])
        self.ok("sweep", self.small, *arguments, "--resume", "--set", "model.num_layers=4")
        lines = (self.folder / "points.jsonl").read_text()
        self.write("crlf.jsonl", lines.replace("\n", "\r\n"))
        self.ok("sweep", self.small, *arguments[:-1], "crlf.jsonl", "--resume")
        self.assertEqual(len(lines_of(self.folder / "crlf.jsonl")), len(lines_of(self.folder / "points.jsonl")))
        self.write("wrong.jsonl", re.sub(r'"step_ms":[0-9.]+', '"step_ms":-1.0', lines, count=1))
        self.fails(2, "sweep", self.small, *arguments[:-1], "wrong.jsonl", "--resume", says=["wrong.jsonl:1: step_ms", "got -1"])
        self.assertEqual(len(lines_of(self.folder / "points.jsonl")), 2 * points)

    def test_changed_files_and_options_decide_again(self):
        platform = (ROOT / "scenarios/platforms/h100-sxm.toml").read_text().replace('file = "', f'file = "{ROOT}/scenarios/platforms/')
        self.write("mine.toml", platform)
        arguments = ("sweep", self.small, "--platform", "mine.toml", "--over", "tp=1,2", "--over", "pp=1,2", "--over", "mbs=1,2,4", "--over", "recompute=none")
        value = self.json(*arguments, "--best", "1", "--out", "points.jsonl")
        self.assertIn("slower", [point["status"] for point in value["points"]])
        # More of the points are asked for than the file has simulated.
        value = self.json(*arguments, "--all", "--best", "1", "--out", "points.jsonl", "--resume")
        self.assertNotIn("slower", [point["status"] for point in value["points"]])
        self.write("mine.toml", platform.replace("name = ", "# another file\nname = ", 1))
        before = len(lines_of(self.folder / "points.jsonl"))
        self.ok(*arguments, "--best", "1", "--out", "points.jsonl", "--resume")
        self.assertGreater(len(lines_of(self.folder / "points.jsonl")), before)

    def test_a_platform_that_the_axis_replaces(self):
        self.write("none.toml", SMALL.replace('platform = "h100-sxm"', 'platform = "nowhere"'))
        one = ("--over", "mbs=1", "--over", "tp=2", "--over", "pp=1", "--over", "recompute=none", "--best", "1")
        self.assertIn("cannot be predicted", self.ok("sweep", "none.toml", *one, "--over", "platform=h100-sxm").out)
        (self.folder / "p").mkdir()
        (self.folder / "p/x.toml").write_text((ROOT / "scenarios/platforms/h100-sxm.toml").read_text().replace('file = "', f'file = "{ROOT}/scenarios/platforms/'))
        self.ok("plan", "gpt2-124m", "--gpus", "2", "--global-batch", "4", "--platform", "p/x.toml", "--over", "tp=1", "--over", "pp=1", "-o", "p/best.toml")
        self.ok("simulate", "p/best.toml")

    def test_sequences_of_one_token(self):
        self.ok("plan", "llama3-8b", "--gpus", "2", "--global-batch", "2", "--seq-length", "1", "--set", "model.num_layers=4", "--over", "pp=1")

    def test_the_memory_is_one_with_and_without_a_trace(self):
        # The whole step has 32 micro-batches a rank; it is extrapolated from few of them.
        layout = ("--set", "parallel.pipeline_model_parallel_size=2", "--set", "training.global_batch_size=512")
        whole = self.json("simulate", self.small, *layout, "--trace", "trace.json")
        few = self.json("simulate", self.small, *layout)
        self.assertLess(few["simulated_micro_batches"], whole["simulated_micro_batches"])
        self.assertEqual(few["memory"], whole["memory"])

    def test_tight_layouts_come_after_those_that_fit(self):
        platform = (ROOT / "scenarios/platforms/h100-sxm.toml").read_text().replace('file = "', f'file = "{ROOT}/scenarios/platforms/')
        one = ("sweep", self.small, "--over", "tp=1,2", "--over", "pp=1", "--over", "mbs=1", "--over", "recompute=none", "--all", "--best", "2")
        free = self.json(*one)
        fastest, other = sorted((point for point in free["points"] if point["status"] == "predicted"), key=lambda point: point["step_ms"])
        # A card whose memory the layout with more memory nearly fills.
        most = max(fastest["memory_bytes"], other["memory_bytes"])
        self.write("card.toml", re.sub(r"memory_bytes = \d+", f"memory_bytes = {most + 1000}", platform))
        value = self.json(*one, "--platform", "card.toml")
        verdicts = {point["memory_bytes"]: point["memory_verdict"] for point in value["points"] if point["status"] == "predicted"}
        self.assertEqual(verdicts, {most: "tight", min(fastest["memory_bytes"], other["memory_bytes"]): "fits"})
        self.assertEqual([best["memory_verdict"] for best in value["best"]], ["fits", "tight"])
        done = self.ok(*one, "--platform", "card.toml", "--verbose")
        self.assertIn("1 of the simulated are tight", done.out)
        self.assertIn("GiB, tight", done.out)

    def test_plan_writes_the_winner(self):
        value = self.json("plan", "llama3-8b", "--gpus", "8", "--global-batch", "32", "--set", "model.num_layers=8", "--over", "tensor_model_parallel_size=1,2",
                          "--over", "pipeline_model_parallel_size=1,2", "--best", "1", "-o", "best.toml")
        self.assertEqual(self.json("simulate", "best.toml")["step_ms"], value["best"][0]["step_ms"])

    def test_more_gpus_and_platforms(self):
        done = self.ok("sweep", self.small, "--over", "gpus=16,32", "--over", "mbs=1", "--over", "recompute=none", "--best", "3", "--html", "page.html", "--json", "value.json")
        points = [point for point in json.loads((self.folder / "value.json").read_text())["points"] if point["status"] == "predicted"]
        best = [(gpus, max(point["tokens_per_s_per_gpu"] for point in points if point["gpus"] == gpus)) for gpus in (16, 32)]
        page = (self.folder / "page.html").read_text()
        self.assertEqual(self.marks(page, "scaling-plot"), best)
        exposed = self.marks(page, "exposed-plot")[:2]  # in all; the axes follow
        table = page.split('<section id="scaling-limits">')[1].split("</section>")[0]
        rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in table.split("<tr>")[2:]]
        self.assertEqual([gpus for gpus, _ in exposed], [float(row[1]) for row in rows])
        for (_, share), row in zip(exposed, rows):
            self.assertAlmostEqual(share, float(row[4].removesuffix(" %")), delta=0.051)
        self.assertIn("by the number of GPUs", done.out)
        self.assertIn("most of it", done.out.split("by the number of GPUs")[1])  # where overlap stops hiding
        self.assertIn("the scenario as it is", done.out)
        done = self.ok("sweep", self.small, "--over", "platform=h100-sxm,h200-sxm", "--over", "micro_batch_size=1", "--over", "recompute_granularity=none", "--best", "3")
        self.assertIn("h200-sxm", done.out)

    def test_on_a_calibrated_host(self):
        done = self.ok("sweep", self.tiny, "--platform", PLATFORM, "--over", "overlap_grad_reduce=legal", "--over", "overlap_param_gather=legal", "--best", "1", "--verbose")
        self.assertIn("refused 1 times", done.out)  # a gate: overlap_param_gather needs overlap_grad_reduce

    def test_sharding_and_overlap(self):
        one = ("--over", "tp=2", "--over", "pp=1", "--over", "mbs=1", "--over", "recompute=none", "--all", "--best", "1")
        value = self.json("sweep", self.small, *one, "--over", "sharding=legal")
        self.assertEqual([point["status"] for point in value["points"]], ["predicted"] * 4)
        memory = [point["memory_bytes"] for point in value["points"]]
        self.assertEqual(memory, sorted(memory, reverse=True))
        for point in value["points"]:
            sets = [word for one_set in point["set"] for word in ("--set", one_set)]
            self.assertEqual(self.json("simulate", self.small, *sets)["step_ms"], point["step_ms"])
        done = self.ok("sweep", self.small, *one, "--over", "overlap=legal", "--json", "value.json")
        self.assertIn("not searched: tp, pp, vp, cp, mbs, recompute, sharding, schedule (--over schedule=legal", done.out)
        points = json.loads((self.folder / "value.json").read_text())["points"]
        self.assertEqual(sorted(point["status"] for point in points), ["predicted"] * 6 + ["refused"] * 2)
        slowest = max((point for point in points if point["status"] == "predicted"), key=lambda point: point["step_ms"])
        self.assertIn("overlap.tp_comm_overlap=false", slowest["set"])

    def test_gpus_decide_beside_replicas(self):
        value = self.json("sweep", self.small, "--over", "tp=2", "--over", "dp=1,2,4", "--over", "gpus=4,8", "--over", "pp=1", "--over", "mbs=1",
                          "--over", "recompute=none", "--best", "1")
        self.assertEqual([point["gpus"] for point in value["points"]], [4, 8])
        self.assertEqual(value["indivisible"], 4)

    def test_no_point(self):
        one = ("--over", "mbs=1", "--over", "recompute=none", "--best", "1")
        self.fails(2, "sweep", self.small, *one, "--over", "gpus=7", says=["no combination has sizes that divide"])
        self.fails(2, "sweep", self.small, *one, "--over", "schedule=1f1c", says=["all are refused", "1f1b"])
        self.fails(1, "plan", "llama3-70b", "--gpus", "1", "--global-batch", "1", *one, "-o", "best.toml", says=["no point fits; the smallest:", "GiB of 79.65", "--set parallel.tensor_model_parallel_size="])
        self.assertFalse((self.folder / "best.toml").exists())

    def test_axes_replace_keys_that_cannot_go_together(self):
        # The scenario's replicas do not divide the batch; those of the points do.
        one = ("--set", "training.global_batch_size=1", "--over", "tp=1,2", "--over", "pp=1", "--over", "recompute=none", "--over", "mbs=1", "--best", "1")
        done = self.ok("sweep", self.small, *one, "--over", "gpus=1,2", "--json", "s.json")
        self.assertIn("the scenario as it is cannot be predicted", done.out)
        points = json.loads((self.folder / "s.json").read_text())["points"]
        self.assertEqual([(point["gpus"], point["status"]) for point in points], [(1, "predicted"), (2, "predicted")])
        self.fails(2, "sweep", self.small, *one, says=["global_batch_size"])

    def test_what_is_not_known_is_null(self):
        value = self.json("sweep", self.small, "--over", "mbs=1", "--over", "tp=2", "--over", "recompute=none", "--over", "schedule=1f1b,1f1c", "--best", "1", "--csv", "s.csv")
        refused = next(point for point in value["points"] if point["status"] == "refused")
        self.assertEqual([refused[key] for key in ("step_ms", "bound_ms", "gpus", "memory_bytes", "simulated_micro_batches")], [None] * 5)
        row = next(line for line in (self.folder / "s.csv").read_text().splitlines() if "refused" in line)
        self.assertIn("refused,,,,,,", row)

    def test_the_command_of_the_fastest_gives_its_step(self):
        one = ("sweep", "llama2-13b", "--gpus", "64", "--over", "tp=2", "--over", "pp=1", "--best", "1", "--json", "names.json")
        words = shlex.split(self.ok(*one).out.split("the fastest: stretto ")[1].split("\n")[0])
        self.assertEqual(words[:4], ["simulate", "llama2-13b", "--gpus", "64"])
        self.assertEqual(self.json(*words)["step_ms"], json.loads((self.folder / "names.json").read_text())["best"][0]["step_ms"])
        done = self.ok("sweep", self.small, "--over", "micro_batch_size=1,2", "--set", "model.num_layers=4", "--platform", "b200-sxm", "--json", "s.json")
        command = done.out.split("the fastest: stretto ")[1].split("\n")[0]
        self.assertEqual(self.json(*command.split())["step_ms"], json.loads((self.folder / "s.json").read_text())["best"][0]["step_ms"])
        self.ok("plan", "llama3-8b", "--gpus", "8", "--global-batch", "8", "--set", "model.num_layers=8", "--over", "platform=h100-sxm,b200-sxm",
                "--over", "tp=2", "--over", "pp=1", "-o", "fastest.toml")
        self.assertIn('platform = "b200-sxm"', (self.folder / "fastest.toml").read_text())

    def test_limits_of_messages_that_start_together(self):
        sizes = {"tensor": 4, "pipeline": 1, "virtual_pipeline": 1, "context": 2}
        layout = [word for size, value in sizes.items() for word in ("--set", f"parallel.{size}_model_parallel_size={value}".replace("context_model", "context"))]
        self.ok("simulate", "mixtral-8x7b", *layout, "--set", "parallel.data_parallel_size=1", "--set", "model.num_layers=1", "--set",
                "training.global_batch_size=1", "--limits")

    def test_errors(self):
        self.fails(2, "sweep", self.small, "--over", "tensor_model_parallel_siz=2", says=['did you mean "'])
        self.fails(2, "sweep", self.small, "--shard", "3/3", says=["--shard", "3/3"])
        self.fails(2, "sweep", self.small, "--resume", says=["--out"])
        self.fails(2, "sweep", self.small, "--over", "platform=h1000", "--over", "micro_batch_size=1", says=["h1000"])
        self.fails(2, "plan", "llama3-8", "--gpus", "8", "--global-batch", "8", says=['did you mean "llama3-8b"'])
        plan = ["plan", "llama3-8b", "--gpus", "8", "--global-batch", "8", "--seq-length", "8192"]
        for wrong, says in (["--over", "gpus=16,32"], ["--over gpus", "--gpus", "8 among"]), \
                           (["--over", "global_batch_size=16"], ["--over global_batch_size", "--global-batch"]), \
                           (["--set", "training.global_batch_size=16"], ["--set training.global_batch_size", "--global-batch"]), \
                           (["--set", "model.seq_length=4096"], ["--set model.seq_length", "--seq-length"]), \
                           (["--set", "model.num_layer=4"], ["--set model.num_layer", "num_layers"]):
            self.fails(2, *plan, *wrong, says=says)
        for wrong, says in (["--set", "platform=b200-sxm"], ["--set platform", "--platform"]), \
                           (["--set", "run.tokens=1"], ["--set run.tokens", "compares steps"]), \
                           (["--set", "parallel.tensor_model_parallel_size=2"], ["the sweep varies", "--over tp=2"]), \
                           (["--set", "parallel.data_parallel_size=2"], ["number of GPUs", "--over dp=2"]), \
                           (["--over", "tp=1,,2"], ["--over tp: ", 'got ""']), \
                           (["--over", "tp=legall"], ["--over tp: ", 'did you mean "legal"']), \
                           (["--platform", "b200-sxm", "--over", "platform=h100-sxm,h200-sxm"], ["--platform", "--over platform", "b200-sxm"]):
            self.fails(2, *plan, *wrong, says=says)
        self.fails(2, "sweep", self.small, "--set", "run.jitter=1", says=["--set run.jitter", 'did you mean "jitter_pct"'])
        self.write("bad.toml", SMALL.replace("micro_batch_size", "micro_batch_sizes"))
        self.fails(2, "sweep", "bad.toml", says=["bad.toml:", "[sweep]", 'did you mean "micro_batch_size"'])
        self.ok("simulate", "small.toml")  # other commands do not read [sweep]


main()
