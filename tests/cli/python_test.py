"""import stretto, and a C++ program outside the tree on the installed library."""
import json
import os
import pathlib
import shutil
import subprocess
import unittest

from program import PLATFORM, STRETTO, ProgramTest, main

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
        for wall_time in ("simulate_s", "fits_with"):
            value.pop(wall_time, None), same.pop(wall_time, None)
        self.assertEqual(value, same)

    @unittest.skipUnless(EMULATED.exists(), "not built: no CUDA Toolkit")
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
                    value.pop("simulate_s"), same.pop("simulate_s"), same.pop("fits_with")
                self.assertEqual(value, same["gates"] if call == "gates" else same, call)

    def test_simgrid(self):
        self.assertIn("simgrid", self.python("import stretto; print(stretto.simulate('llama3-8b', engine='simgrid')['engine'])"))

    def test_show_and_gates(self):
        operations, layers = self.python("import stretto; s = stretto.show('tiny.toml'); print(len(s['operations']), s['model']['num_layers'])").split()
        self.assertGreater(int(operations), 10)
        self.assertEqual(layers, "2")
        closed = self.python("import stretto; print([g['knob'] for g in stretto.gates('tiny.toml', {'overlap.tp_comm_overlap': True}) if g['asked'] and not g['open']])")
        self.assertIn("tp_comm_overlap", closed)
        self.assertIn("h100-sxm", self.python("import stretto; print(stretto.names('platforms'))"))

    def test_compare(self):
        printed = self.python(f"import stretto; print([r['mode'] for r in stretto.compare('tiny.toml', {{'compare.ranks': [2], 'compare.modes': ['plain']}}, {PLATFORM!r})['rows']])")
        self.assertEqual(printed.strip(), "['plain']")

    def test_errors(self):
        said = self.python("import stretto\ntry: stretto.simulate('llama3-8x')\nexcept stretto.InputError as error: print(error)")
        self.assertIn('did you mean "llama3-8b"?', said)
        said = self.python("import stretto\ntry: stretto.show('tiny.toml', {'training.lrr': 1})\nexcept stretto.InputError as error: print(error)")
        self.assertIn('did you mean "lr"?', said)
        self.assertTrue(self.python("import stretto; print(issubclass(stretto.InputError, stretto.Error), stretto.__version__)").startswith("True"))

    def test_example(self):
        shutil.copy(pathlib.Path(__file__).parents[2] / "python/examples/scaling_curve.py", self.folder)
        printed = subprocess.run([PYTHON, "scaling_curve.py", "llama3-8b", "curve.svg", "--gpus", "16", "32"], cwd=self.folder, text=True,
                                 env={**os.environ, "PYTHONPATH": str(BUILD / "python")}, capture_output=True)
        self.assertEqual(printed.returncode, 0, printed.stderr)
        self.assertIn("<svg", (self.folder / "curve.svg").read_text())
        self.assertEqual(len(printed.stdout.strip().splitlines()), 3)


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
