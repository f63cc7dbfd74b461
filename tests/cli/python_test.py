"""import stretto, and a C++ program outside the source tree that uses the installed library."""
import json
import os
import pathlib
import re
import subprocess
import unittest
import xml.etree.ElementTree

from program import PLATFORM, STRETTO, ProgramTest, main, slow

BUILD = pathlib.Path(STRETTO).parent
PYTHON = "/usr/bin/python3"  # the module is built for Debian's
EMULATED = BUILD / "tests/fake_gpu/stretto"
HAS_MODULE = any((BUILD / "python/stretto").glob("_stretto*.so"))


@unittest.skipUnless(HAS_MODULE, "the Python module is not built")
class Python(ProgramTest):
    def python(self, code, code_wanted=0):
        done = subprocess.run([PYTHON, "-c", code], cwd=self.folder, capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(BUILD / "python"), "OPENBLAS_NUM_THREADS": "1"})
        self.assertEqual(done.returncode, code_wanted, done.stderr)
        return done.stdout

    def test_simulate_is_the_program(self):
        printed = self.python("import stretto, json; print(json.dumps(stretto.simulate('llama3-8b', {'training.global_batch_size': 64}, modes=True)))")
        value = json.loads(printed)
        same = self.json("simulate", "llama3-8b", "--set", "training.global_batch_size=64", "--modes")
        value.pop("simulate_s"), same.pop("simulate_s")  # a measured time
        self.assertEqual(value, same)

    def test_settings_and_traces_are_the_programs(self):
        self.ok("simulate", self.tiny, "--platform", PLATFORM, "--trace", "run.json")
        self.write("run.sh", "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
                             "--max-position-embeddings 32 --vocab-size 128 --micro-batch-size 1 --global-batch-size 1\n")
        printed = self.python(f"""import stretto, json
print(json.dumps([stretto.import_("run.sh"), stretto.export({str(self.tiny)!r}, "megatron"), stretto.diagnose("run.json"),
                  stretto.diagnose("run.json", {str(self.tiny)!r}, platform={str(PLATFORM)!r})]))
for wrong in (lambda: stretto.import_(), lambda: stretto.export("llama3-8b", "nemo"), lambda: stretto.diagnose("run.json", rank=1.5),
              lambda: stretto.diagnose("run.json", model="llama3-8c"), lambda: stretto.import_("run.sh", env=["TP"])):
    try:
        wrong()
        raise SystemExit("no error")
    except stretto.InputError:
        pass
""")
        imported, exported, found, explained = json.loads(printed)
        self.assertEqual(imported["text"], self.ok("import", "run.sh").out)
        self.assertEqual(exported["text"], self.ok("export", self.tiny, "--format", "megatron").out)
        self.assertEqual(found["scenario"], self.ok("diagnose", "run.json").out)
        self.assertEqual(explained, self.json("diagnose", "run.json", self.tiny, "--platform", PLATFORM))

    def test_plan_validate_and_list_are_the_programs(self):
        published = pathlib.Path(__file__).parents[2] / "scenarios/published.csv"
        self.write("few.csv", "\n".join(published.read_text().splitlines()[:4]) + "\n")
        os.mkdir(self.folder / "matplotlib")
        self.write("matplotlib/__init__.py", "")
        self.write("matplotlib/pyplot.py", """class Axes:
    def __init__(self): self.called = []
    def __getattr__(self, name): return lambda *given, **named: self.called.append((name, len(given)))
def subplots(): return None, Axes()
""")
        printed = self.python("""import stretto, json, sys
sys.path.insert(0, ".")
planned = stretto.plan("llama3-8b", 8, global_batch=32, set={"training.recompute_granularity": "none"}, over={"tp": [1, 2]}, best=2)
points = planned.table("points")
checked = stretto.validate("few.csv")
models = stretto.list("models")
step = stretto.simulate("llama3-8b", modes=True)
assert isinstance(step, dict) and step.step_ms == step["step_ms"] and step.layout.tp == 1
assert step.table("modes")["exposed_ms"][0] == step["modes"][0]["exposed_ms"] and "advice.verdict" in step.table("modes")
assert all(len(column) == len(planned["points"]) for column in points.values()), points.keys()
drawn = [bool(one.plot().called) for one in (planned, checked, step, stretto.simulate("llama3-8b"))]
try: step.stepms
except AttributeError as error: assert "step_ms" in str(error)
try: step.table("step_ms")
except KeyError as error: assert "modes" in str(error)
for wrong in (lambda: stretto.plan("llama3-8c", 8), lambda: stretto.plan("llama3-8b", 0), lambda: stretto.list("model"), lambda: stretto.validate("absent.csv")):
    try: wrong()
    except stretto.InputError as error: assert "\\n" not in str(error) and not str(error).startswith("stretto"), error
    else: raise SystemExit("no error")
planned.pop("seconds")
print(json.dumps([planned, checked, models, drawn]))
""")
        planned, checked, models, drawn = json.loads(printed)
        same = self.json("plan", "llama3-8b", "--gpus", "8", "--global-batch", "32", "--best", "2", "--set",
                         "training.recompute_granularity=none", "--over", "tp=1,2")
        same.pop("seconds")
        for one in (*planned["best"], *same["best"]):
            one.pop("simulate_s", None)
        self.assertEqual(planned, same)
        self.assertEqual(checked, self.json("validate", "few.csv"))
        self.assertIn("llama3-8b", [row["name"] for row in models["rows"]])
        self.assertEqual(drawn, [True] * 4)

    @unittest.skipUnless(EMULATED.exists(), "not built: no CUDA Toolkit")
    @slow
    def test_fusions_are_chosen_as_the_program_does(self):
        calibrated = subprocess.run([EMULATED, "calibrate", "--backend", "cuda", "-o", "gpu.toml"], cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(calibrated.returncode, 0, calibrated.stderr)
        for given in ({}, {"training.gelu_fusion": True}):
            words = [word for key, value in given.items() for word in ("--set", f"{key}={str(value).lower()}")]
            for call, command in (("simulate", ["simulate"]), ("show", ["show"]), ("gates", ["show", "--gates"])):
                printed = self.python(f"import stretto, json; print(json.dumps(stretto.{call}('tiny.toml', {given}, 'gpu.toml')))")
                value, same = json.loads(printed), self.json(*command, self.tiny, "--platform", "gpu.toml", *words)
                if call == "simulate":
                    noted = " ".join(value["notes"])
                    self.assertEqual(" gelu_fusion o" in noted, not given, noted)
                    self.assertIn("bias_gradient_fusion o", noted)
                    value.pop("simulate_s"), same.pop("simulate_s")
                self.assertEqual(value, same["gates"] if call == "gates" else same, call)

    def test_sweep_is_the_program(self):
        printed = self.python("import stretto, json; print(json.dumps(list(stretto.sweep('llama3-8b', {'tensor_model_parallel_size': [1, 2], 'micro_batch_size': 'legal'}, "
                              "{'model.num_layers': 4, 'training.global_batch_size': 64}, all=True))))")
        value = {point["point"]: point for point in json.loads(printed)}
        same = self.json("sweep", "llama3-8b", "--over", "tensor_model_parallel_size=1,2", "--over", "micro_batch_size=legal", "--set", "model.num_layers=4",
                         "--set", "training.global_batch_size=64", "--all", "--best", "1")
        self.assertEqual(value, {point["point"]: point for point in same["points"]})
        self.assertGreater(len(value), 3)

    def test_simgrid(self):
        self.assertIn("simgrid", self.python("import stretto; print(stretto.simulate('llama3-8b', engine='simgrid')['engine'])"))

    def test_show_and_gates(self):
        operations, layers = self.python("import stretto; s = stretto.show('tiny.toml'); print(len(s['operations']), s['model']['num_layers'])").split()
        self.assertGreater(int(operations), 10)
        self.assertEqual(layers, "2")
        closed = self.python("import stretto; print([g['knob'] for g in stretto.gates('tiny.toml', {'overlap.tp_comm_overlap_rs_dgrad': True}) if g['asked'] and not g['open']])")
        self.assertIn("tp_comm_overlap_rs_dgrad", closed)
        self.assertIn("h100-sxm", self.python("import stretto; print(stretto.names('platforms'))"))

    def test_compare(self):
        printed = self.python(f"import stretto; c = stretto.compare('tiny.toml', {{'compare.ranks': [2], 'compare.modes': ['plain']}}, {PLATFORM!r}); print([r['mode'] for r in c['rows']], c['cpu_affinity'])")
        self.assertEqual(printed.strip(), "['plain'] None")

    TRAIN = """
import json, stretto
keys = {"training.checkpoint_dir": "run", "training.train_iters": 6}
def steps(result):
    return {step["step"]: (step["loss"], step["gradient_norm"]) for step in result["steps"]}
"""

    def test_train_is_the_program(self):
        """Callbacks see every step; one that returns False, or raises, stops with a checkpoint, and the rest of the
        training is as if it had not."""
        same = self.json("train", self.tiny, "--set", "training.train_iters=6")
        printed = self.python(self.TRAIN + """
seen, lines = [], []
first = stretto.train("tiny.toml", keys, on_step=lambda step: seen.append(step) or len(seen) < 2, on_message=lines.append)
class Enough(Exception): pass
def raises(step):
    assert stretto.names("platforms")  # the library can be called
    seen.append(step)
    if step["step"] == 3: raise Enough("after step 3")
try:
    stretto.train("tiny.toml", keys, on_step=raises)
except Enough as error:
    lines.append(str(error))
last = stretto.train("tiny.toml", keys, on_step=seen.append)
print(json.dumps([seen, lines, first, last]))
""")
        seen, lines, first, last = json.loads(printed)
        figures = lambda steps: [(step["step"], step["loss"], step["gradient_norm"], step["lr"]) for step in steps]
        self.assertEqual(figures(seen), figures(same["steps"]))
        self.assertEqual([first["finished"], last["finished"], same["finished"]], [False, True, True])
        self.assertEqual([len(first["steps"]), last["resumed_from"]], [2, 4])
        self.assertEqual(set(last), set(same))
        self.assertIn("after step 3", lines)
        self.assertTrue(any("checkpoint" in line for line in lines), lines)

    def test_training_ends_with_ctrl_c(self):
        said = self.python(self.TRAIN + """
import os, signal
def interrupts(step):
    os.kill(os.getpid(), signal.SIGINT)
try:
    stretto.train("tiny.toml", keys, on_step=interrupts)
except KeyboardInterrupt:
    print("interrupted", stretto.train("tiny.toml", keys)["resumed_from"])
for wrong in (3, "print"):
    try: stretto.train("tiny.toml", on_step=wrong)
    except stretto.InputError as error: print(error)
try: stretto.train("tiny.toml", {"training.data": "absent.txt"})
except stretto.InputError as error: print(error)
""").splitlines()
        self.assertEqual(said[0], "interrupted 1")
        self.assertIn("on_step: expected a function or None, got int", said[1])
        self.assertIn("absent.txt", said[3])

    def test_errors(self):
        said = self.python("import stretto\ntry: stretto.simulate('llama3-8x')\nexcept stretto.InputError as error: print(error)")
        self.assertIn('did you mean "llama3-8b"?', said)
        said = self.python("import stretto\ntry: stretto.show('tiny.toml', {'training.lrr': 1})\nexcept stretto.InputError as error: print(error)")
        self.assertIn('did you mean "lr"?', said)
        # Any invalid argument gives one line of InputError.
        said = self.python("""
import stretto
loop = []
loop.append(loop)
class Odd:
    pass
calls = [lambda value=value, key=key: stretto.show("tiny.toml", {key: value})
         for key in ("training.lr", "overlap.tp_comm_overlap_cfg")
         for value in (None, Odd(), loop, {"a": loop}, {1: 2}, {"a": Odd()}, {3.5}, b"x", 1j, float("nan"), 10 ** 5000, "\\udcff", [[[{}]]])]
calls += [lambda given=given: stretto.show("tiny.toml", given) for given in ([], "training.lr=1", 3, {3: 4}, {None: 1}, {"": 1}, {"x" * 10**6: 1})]
calls += [lambda name=name: stretto.show(name) for name in (None, 3, b"tiny.toml", Odd(), loop, "", "x" * 50_000_000, "\\udcff", "a\\0b")]
calls += [lambda name=name: stretto.show("tiny.toml", None, name) for name in (3, Odd(), "x" * 50_000_000)]
calls += [lambda GBps=GBps: stretto.simulate("llama3-8b", engine="simgrid", backbone_GBps=GBps)
          for GBps in (-1, -1e-300, float("nan"), float("inf"), None, "fast", Odd(), 10 ** 400, True)]
calls += [lambda engine=engine: stretto.simulate("llama3-8b", engine=engine) for engine in (None, 3, "warp", "x" * 50_000_000)]
calls += [lambda kind=kind: stretto.names(kind) for kind in ("nonsense", "platform", "", None, 3, Odd(), "x" * 50_000_000)]
for number, call in enumerate(calls):
    try:
        print(number, "taken:", call())
    except stretto.InputError as error:
        if "\\n" in str(error) or not 10 < len(str(error)) < 1500:
            print(number, "no line:", str(error)[:200])
    except BaseException as error:
        print(number, type(error), str(error)[:200])
""")
        self.assertEqual(said, "")
        said = self.python("import stretto\ntry: stretto.names('platform')\nexcept stretto.InputError as error: print(error)")
        self.assertIn('did you mean "platforms"?', said)

    def test_values_are_those_of_a_file(self):
        """Dicts become tables, and strings inside a value are quoted; a top-level string is passed as --set takes
        it."""
        printed = self.python("""
import pathlib, stretto
class Number(float):
    pass
step = stretto.show(pathlib.Path("tiny.toml"), {"name": 'a "quoted\\\\ \\u00e9\\U0001f3bc\\x7f" name', "overlap.tp_comm_overlap_cfg": {},
                    "compare.modes": ["plain"], "compare.ranks": (1, 2), "training.lr": Number(0.5), "overlap.overlap_grad_reduce": True,
                    "training.data": pathlib.Path("text.txt")})
print(len(step["operations"]) > 10)
print(stretto.show("tiny.toml", {"cluster.nccl_communicator_config": {"dp": {"max_ctas": 1}}})["communicators"] is not None)
""")
        self.assertEqual(printed.split(), ["True", "True"])

    def test_error_types(self):
        self.assertTrue(self.python("import stretto; print(issubclass(stretto.InputError, stretto.Error), stretto.__version__)").startswith("True"))

    EXAMPLE = (pathlib.Path(__file__).parents[2] / "python/examples/scaling_curve.py").read_text()

    def example(self, *words):
        """Runs the example, and returns the rows of its table and the texts of its plot."""
        self.write("scaling_curve.py", self.EXAMPLE)
        printed = subprocess.run([PYTHON, "scaling_curve.py", *words], cwd=self.folder, text=True,
                                 env={**os.environ, "PYTHONPATH": str(BUILD / "python")}, capture_output=True)
        self.assertEqual(printed.returncode, 0, printed.stderr)
        plot = xml.etree.ElementTree.parse(self.folder / "curve.svg").getroot()
        return printed.stdout.strip().splitlines()[1:], [element.text for element in plot.iter("{http://www.w3.org/2000/svg}text")]

    def test_example(self):
        rows, texts = self.example("llama3-8b", "curve.svg", "--gpus", "16", "32")
        self.assertEqual(len(rows), 2)
        for text in ("GPUs", "tokens/s of a GPU", "16", "32", "4000"):
            self.assertIn(text, texts)

    @slow
    def test_curves_of_the_example_cross(self):
        command = re.search(r"python3 scaling_curve.py (llama3-70b.*?)\n\n", self.EXAMPLE, re.S)[1].replace("\\\\", "").split()
        rows, _ = self.example(*command, "--gpus", "64", "1024")
        few, many, few_of_other, many_of_other = (float(row.split()[2]) for row in rows)
        self.assertGreater(few, few_of_other)
        self.assertLess(many, many_of_other)


@unittest.skipUnless((BUILD / "libstretto.so").exists(), "the library is not built")
class Library(ProgramTest):
    def test_program_outside_the_tree(self):
        prefix = self.folder / "usr"
        subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(prefix)], check=True, stdout=subprocess.DEVNULL)
        source = pathlib.Path(__file__).parents[2] / "api/example"
        build = self.folder / "example"
        for command in (["cmake", "-S", str(source), "-B", str(build), f"-DCMAKE_PREFIX_PATH={prefix}"], ["cmake", "--build", str(build)]):
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        done = subprocess.run([str(build / "best_mode"), "llama3-8b"], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("ms", done.stdout)
        done = subprocess.run([str(build / "best_mode"), "llama3-8x"], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual((done.returncode, "did you mean" in done.stderr), (2, True))


if __name__ == "__main__":
    main()
