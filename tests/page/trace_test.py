"""View Trace: what the page says of a profile is what `stretto diagnose` says; what it does not understand it refuses by the reason.

  tests/page/trace_test.py PAGE STRETTO

PAGE is build/page/page.html of scripts/page, STRETTO the program of the same commit.
"""
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from node import NodeTest
from studio import Studio

PAGE, STRETTO = pathlib.Path(sys.argv[1]).resolve(), str(pathlib.Path(sys.argv[2]).resolve())
SMALL = {"training.global_batch_size": "64", "parallel.tensor_model_parallel_size": "4"}
STATE = {"scenario": "llama3-8b", "platform": "", "set": SMALL | {"overlap.tp_comm_overlap": "true"}}
ADDRESS = "#scenario=llama3-8b&training.global_batch_size=64&parallel.tensor_model_parallel_size=4&overlap.tp_comm_overlap=true"


def command(*words):
    return subprocess.run([STRETTO, *map(str, words)], check=True, capture_output=True, text=True).stdout


def sets(values):
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


class Trace(NodeTest):
    MODULE = PAGE.with_name("stretto_page.js")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.trace = cls.folder / "off.json"
        command("simulate", "llama3-8b", *sets(SMALL | {"overlap.tp_comm_overlap": "false"}), "--trace", cls.trace)

    def refused(self, text, state=STATE):
        file = self.folder / "wrong.json"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return self.ask("diagnose", state, trace="wrong.json", files={"wrong.json": str(file)})["error"]

    def test_it_says_what_the_command_says(self):
        answer = self.ask("diagnose", STATE, trace="off.json", files={"off.json": str(self.trace)})
        printed = json.loads(command("diagnose", self.trace, "llama3-8b", *sets(STATE["set"]), "--json", "-"))
        for name in ("version", "commit"):
            printed.pop(name, None)
        self.assertEqual(answer["diagnosis"], {key: printed[key] for key in answer["diagnosis"]})
        self.assertIn("tp", answer["axes"])
        for side in ("predicted", "measured"):
            self.assertGreater(len(answer[side]), 100)
            starts = [start for _, start, _ in answer[side]]
            self.assertEqual(starts, sorted(starts))
            self.assertIn(answer["anchor"][side], starts)

    def test_what_is_not_understood_is_refused(self):
        self.assertIn("wrong.json", self.refused("{"))
        self.assertIn("Nsight", self.refused(b"SQLite format 3\0" + bytes(100)))
        self.assertIn("gzip", self.refused(gzip.compress(b"{}")))
        other = self.ask("diagnose", STATE | {"scenario": "llama3-70b", "set": {}}, trace="off.json", files={"off.json": str(self.trace)})
        self.assertIn("error", other)

    def test_a_dropped_profile(self):
        packed = self.folder / "rank-0.json.gz"
        packed.write_bytes(gzip.compress(self.trace.read_bytes(), 1))
        damaged = self.folder / "half.json.gz"
        damaged.write_bytes(packed.read_bytes()[:1000])
        studio = Studio(PAGE.as_uri(), ADDRESS)
        self.addCleanup(studio.close)
        studio.settle()
        self.drop(studio, damaged)
        studio.wait("document.querySelector('.toast')?.textContent.includes('gzip is damaged')", 20)
        self.drop(studio, packed)
        studio.wait("document.getElementById('trace-measured') !== null")
        printed = json.loads(command("diagnose", self.trace, "llama3-8b", *sets(STATE["set"]), "--json", "-"))
        self.assertEqual(float(studio.run("document.getElementById('trace-measured').dataset.ms")), printed["measured_ms"])
        self.assertIn("tensor-parallel communication", studio.run("document.getElementById('trace').textContent"))
        self.assertEqual(studio.violations(), [])
        # Another scenario: the reason stands in its place.
        studio.run("stretto.go('scenario=llama3-70b'); 0")
        studio.wait("document.getElementById('trace-problem') !== null")
        self.assertEqual(studio.violations(), [])

    def drop(self, studio, file):
        if not studio.run("document.getElementById('drop') !== null"):
            raise AssertionError("no field for files")
        document = studio.browser.call("DOM.getDocument")["root"]["nodeId"]
        field = studio.browser.call("DOM.querySelector", nodeId=document, selector="#drop")["nodeId"]
        studio.browser.call("DOM.setFileInputFiles", nodeId=field, files=[str(file)])


unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
