"""The pictures of the page add up to what the command prints: bars, lost time, operations, groups and memory.

  tests/page/pictures_test.py PAGE STRETTO

PAGE is build/page/page.html of scripts/page, STRETTO the program of the same commit.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from colours_test import TOKENS, themes
from node import NodeTest

PAGE, STRETTO = pathlib.Path(sys.argv[1]), str(pathlib.Path(sys.argv[2]).resolve())
DENSE = {"scenario": "llama3-70b", "platform": "", "set": {}}
EXPERTS = {"scenario": "deepseek-v3-1024", "platform": "",
           "set": {"training.global_batch_size": "4096", "overlap.overlap_moe_expert_parallel_comm": "true"}}


def commanded(state):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "result.json"
        sets = [word for key, value in state["set"].items() for word in ("--set", f"{key}={value}")]
        subprocess.run([STRETTO, "simulate", state["scenario"], *sets, "--json", file], check=True, capture_output=True)
        return json.loads(file.read_text())


def pairs(flat):
    return zip(flat[::2], flat[1::2])


# The studio's names of colours -> those of report/colours.cpp, which reports, the README's pictures and the terminal have.
COLOURS = {"fwd": "phase-forward", "bwd": "phase-dgrad", "wgrad": "phase-wgrad", "tp": "comm-tp", "cp": "comm-cp", "ep": "comm-ep", "dp": "comm-dp",
           "pp": "comm-pp-forward", "stall": "queue-wait", "host": "host-wait", "m-par": "parameters", "m-grad": "gradients",
           "m-opt": "optimizer-state", "m-act": "activations", "m-fw": "outside-tensors"}


class Pictures(NodeTest):
    MODULE = PAGE.with_name("stretto_page.js")

    def ask(self, what, state, **more):
        answer = super().ask(what, state, **more)
        self.assertNotIn("error", answer)
        return answer

    def check_strip(self, state):
        strip, printed = self.ask("strip", state), commanded(state)
        computes, lost, ranks = 0, [0] * len(strip["causes"]), set()
        for track in strip["tracks"]:
            ranks.add(track["rank"])
            for bar in track["bars"]:
                computes += bar[5]
                self.assertLessEqual(bar[3] + bar[5], bar[4])
                self.assertLessEqual(bar[7], bar[5])
            for cause, time in (pair for part in track["bars"] + track["gaps"] for pair in pairs(part[6] if len(part) > 3 else part[2])):
                lost[cause] += time
        for (_, start, end), (_, later, _) in zip(strip["path"], strip["path"][1:]):
            self.assertLessEqual(start, end)
            self.assertLessEqual(start, later)
        self.assertLessEqual({rank for rank, _, _ in strip["path"]}, ranks)
        mean_ms = [time / len(ranks) / 1e9 for time in lost]
        self.assertAlmostEqual(strip["step_ps"] / 1e9, printed["step_ms"], places=6)
        self.assertAlmostEqual(computes / len(ranks) / 1e9, printed["compute_ms"], places=6)
        self.assertAlmostEqual(sum(time for _, time in strip["computing"]) / 1e9, printed["compute_ms"], places=6)
        exposed = {one["communicator"]: one["exposed_ms"] for one in printed["exposed_by_communicator"]}
        of_cause = dict.fromkeys(("core_wait", "queue_wait", "host", "bubble"), 0)
        for cause, ms in zip(strip["causes"], mean_ms):
            if cause["cause"] == "exposed":
                self.assertAlmostEqual(ms, exposed.pop(cause["communicator"]), places=6)
            else:
                of_cause[cause["cause"]] += ms
        self.assertEqual(exposed, {})
        self.assertAlmostEqual(of_cause["queue_wait"], printed["queue_wait_ms"], places=6)
        self.assertAlmostEqual(of_cause["host"] + of_cause["bubble"], printed["bubble_ms"], places=6)

    def test_bars_and_lost_time_are_the_breakdown(self):
        for state in (DENSE, EXPERTS):
            with self.subTest(state["scenario"]):
                self.check_strip(state)

    def test_a_window_has_the_operations_of_a_gpu(self):
        strip = self.ask("strip", DENSE)
        whole, middle = strip["step_ps"], strip["step_ps"] // 2
        window = self.ask("window", DENSE, gpu=17, **{"from": middle, "to": middle + 30 * 10**9})
        self.assertEqual((window["role"], window["more"]), ("stage 1", 0))
        self.assertEqual(len(window["operations"]), len(window["labels"]))
        exposed = {}
        for begin, end, _, operation in self.ask("window", DENSE, gpu=17, **{"from": 0, "to": whole}, most=0)["lost"]:
            self.assertLess(begin, end)
            self.assertEqual(operation, -1)
        for begin, end, _, operation in window["lost"]:
            exposed[operation] = exposed.get(operation, 0) + end - begin
        for i, (kind, lane, start, transfer, end, *_, exposed_ps, waiting, is_critical) in enumerate(window["operations"]):
            self.assertTrue(start <= transfer <= end and start < window["to"] and end > window["from"])
            self.assertEqual(window["kinds"][kind]["group"] is None, window["lanes"][lane]["is_compute"])
            self.assertGreaterEqual(exposed_ps, exposed.get(i, 0))
            self.assertFalse(is_critical)
        for group in window["groups"]:
            self.assertIn(17, group["gpus"])
        few = self.ask("window", DENSE, gpu=17, **{"from": middle, "to": middle + 30 * 10**9}, most=5)
        self.assertEqual((len(few["operations"]), few["more"]), (5, len(window["operations"]) - 5))

    def test_a_gpu_has_the_groups_of_its_layout(self):
        layout = commanded(DENSE)["layout"]
        cluster = self.ask("cluster", DENSE, gpu=5)
        self.assertEqual({axis: size for axis, size in cluster["sizes"].items() if axis != "ep"},
                         {axis: layout[axis] for axis in ("tp", "cp", "dp", "pp") if layout[axis] > 1})
        self.assertEqual([len(cluster["places"][axis]) for axis in cluster["sizes"]], [cluster["gpus"]] * len(cluster["sizes"]))
        for group in cluster["gpu"]["groups"]:
            self.assertIn(5, group["gpus"])
        wrong = json.loads(self.node.ask("cluster", DENSE, more={"gpu": cluster["gpus"]}))
        self.assertEqual(wrong, {"error": f"gpu: expected 0 to {cluster['gpus'] - 1}, got {cluster['gpus']}"})

    def test_parts_of_memory_add_up(self):
        step = self.ask("step", DENSE)
        for stage in step["stages_memory"]:
            self.assertEqual(sum(part["bytes"] for part in stage["parts"]), stage["bytes"])
            self.assertTrue(all(part["bytes"] >= 0 for part in stage["parts"]))
        self.assertEqual(max(stage["bytes"] for stage in step["stages_memory"]), step["simulate"]["predicted_peak_bytes"])

    def test_a_thing_has_one_colour_in_the_studio_and_in_reports(self):
        light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", part)) for part in self.ask("lists", None)["css"].split("@media"))
        found = themes(TOKENS.read_text())
        for name, colour in COLOURS.items():
            self.assertEqual((found["light"][name].lower(), found["dark"][name].lower()), (light[colour], dark[colour]), f"{name} and {colour}")


unittest.main(argv=sys.argv[:1])
