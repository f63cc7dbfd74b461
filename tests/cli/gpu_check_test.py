"""Tests scripts/gpu-check on the emulated device, with stand-ins for NVIDIA's programs and PyTorch: a program that is missing,
hangs, is killed or gives no figure counts as a failure, and does not stop the other measurements."""
import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import time
import unittest

import program
from program import ROOT, ProgramTest, main, slow

EMULATED = os.path.join(os.path.dirname(program.STRETTO), "tests/fake_gpu/stretto")
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
from gpu_check import experts, gpt2_speed, gpu_model, low_precision, modes_and_kernels, processes  # noqa: E402

HALF_AN_HOUR = (gpt2_speed, modes_and_kernels, gpu_model, processes)
PARTS = (*HALF_AN_HOUR, experts, low_precision)
SHELL, PYTHON = "#!/bin/sh\n", f"#!{sys.executable}\n"
STAND_INS = {
    "gpu_tests": SHELL + 'echo "All tests passed (7 assertions in 3 test cases)"\n',
    "nvidia-smi": SHELL + """case "$*" in
*loop*) while :; do echo "$(date '+%Y/%m/%d %H:%M:%S.%N' | cut -c1-23), 1755, 2619, 640.5, 61, 99, 0x0000000000000004"; sleep 0.1; done;;
*) echo "Emulated GPU, 1.0, 100 MiB, 700.00 W, 1980 MHz";;
esac
""",
    "python3": PYTHON + """import gzip, json, sys
if "--trace" in sys.argv:
    kernels = [{"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 100 * at, "dur": 40, "args": {"stream": 7, "device": 0}}
               for at, name in enumerate(["gemm", "flash_fwd", "flash_bwd", "multi_tensor_apply_kernel adam"])]
    with gzip.open(sys.argv[sys.argv.index("--trace") + 1], "wt") as trace:
        json.dump({"traceEvents": kernels}, trace)
if "-c" in sys.argv:
    print(json.dumps({"torch": "2.0", "torch's GPU": True}))
elif any("torch_gpt2" in word for word in sys.argv):
    print(json.dumps({"step_ms": 10.0, "tokens_per_s": 1000.0}))
elif "--gemms" in sys.argv:
    print(json.dumps({"gemms": {shape: 10.0 for shape in sys.argv[-1].split(",")}}))
elif "--attention" in sys.argv:
    print(json.dumps({"attention": [{"kernel": "cudnn", "forward_us": 10.0, "dgrad_us": 25.0}]}))
elif "--fp8-seconds" in sys.argv:
    print(json.dumps({"fp8_gemm_TFLOPs": 1400.0, "fp8_sustained_TFLOPs": 1200.0, "cast_to_e4m3_GBps": 3000.0}))
elif any("torch_ceilings" in word for word in sys.argv):
    print(json.dumps({"gemm_TFLOPs": 700.0, "copy_GBps": 3000.0, "launch_us": 2.0, "event_us": 1.0}))
""",
    "train_gpt2cu": SHELL + 'for i in 1 2 3 4 5 6; do echo "step $i/20 | loss 10.9 (+nanz)| norm 1 (+nanz)| lr 3e-04 | 150.0$i ms | 45.0% bf16 MFU | 430000 tok/s"; done\n',
    "compute-sanitizer": SHELL + """echo "NVIDIA (R) Compute Sanitizer Version 2025.3.1"
[ "$1" = --version ] && exit
shift 4  # its own
"$@" || exit
echo "========= ERROR SUMMARY: 0 errors"
""",
    "ncu": PYTHON + f"""import csv, subprocess, sys
if "--version" in sys.argv:
    print("Version 2025.3.1.0")
    sys.exit()
metrics = sys.argv[sys.argv.index("--metrics") + 1].split(",")
subprocess.run(sys.argv[sys.argv.index("--launch-count") + 2:], check=True)
rows = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL)
print("==PROF== Connected to process 1")
rows.writerow(["ID", "Kernel Name", "Grid Size", "Block Size", *metrics])
rows.writerow(["", "", "", "", *("nsecond" if "time" in metric else "Kbyte" for metric in metrics)])
for i, kernel in enumerate({modes_and_kernels.KERNELS}):
    rows.writerow([i, f"void stretto::cuda::{{kernel}}<float, 4>(long, long)", "(1, 1, 1)", "(128, 1, 1)", *("1,500" for _ in metrics)])
""",
}


@unittest.skipUnless(os.path.exists(EMULATED), "not built: no CUDA Toolkit, or a sanitizer's build")
class GpuCheck(ProgramTest):
    def setUp(self):
        super().setUp()
        self.bin, self.out = self.folder / "bin", self.folder / "out"
        self.bin.mkdir()
        (self.bin / "stretto").symlink_to(EMULATED)
        for name, text in STAND_INS.items():
            self.stand_in(name, text)

    def stand_in(self, name, text):
        path = self.bin / name
        path.unlink(missing_ok=True)  # and not follow a link
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def begin(self, *words):
        return subprocess.Popen([sys.executable, ROOT / "scripts/gpu-check", "--tiny", self.out, *words], cwd=self.folder, text=True,
                                env={"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.folder), "STRETTO_FAKE_GPU_GIB": "16"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def check(self, code, *words):
        process = self.begin(*words)
        said, _ = process.communicate(timeout=300)
        self.assertEqual(process.returncode, code, said)
        return self.results(), said

    def results(self):
        return json.loads((self.out / "gpu-check.json").read_text())

    def of(self, results, name):
        return next(check for check in results["checks"] if check["name"] == name)

    def test_gpt2_speed(self):
        results, said = self.check(0, "gpt2_speed")
        for step in gpt2_speed.STEPS:
            for headline in step.headlines:
                self.assertIsNotNone(results["headlines"][headline], headline)
        self.assertTrue(results["parts"]["gpt2_speed"]["complete"])
        self.assertEqual(results["machine"]["found"]["torch"], "2.0")
        self.assertIn("libstretto_cuda.so", " ".join(results["machine"]["found"]))
        self.assertEqual(results["clocks"]["gpt2_124m"]["reasons"], "0x4")
        self.assertEqual(results["clocks"]["gpt2_124m"]["sm_MHz"], 1755)
        self.assertLessEqual(len(list(self.out.iterdir())), 8)
        for file in self.out.iterdir():
            self.assertRegex(file.name, r"^[\w.-]+$")

    @slow
    def test_experts_and_low_precision(self):
        results, said = self.check(0, "experts", "low_precision")
        for part in (experts, low_precision):
            for step in part.STEPS:
                for headline in step.headlines:
                    self.assertIsNotNone(results["headlines"][headline], headline)
        self.assertTrue(results["parts"]["experts"]["complete"])
        self.assertTrue(results["parts"]["low_precision"]["complete"])

    def test_what_goes_wrong(self):
        """No failure of one step prevents the measurements of the next step."""
        (self.bin / "gpu_tests").unlink()
        self.stand_in("python3", PYTHON + "import json, sys\nprint(json.dumps({'step_ms': 1.0}))\n")
        results, said = self.check(1, "gpu_tests", "torch_eager", "llmc")
        self.assertIn("gpu_tests: not on PATH", self.of(results, "gpu_tests")["why"])
        self.assertEqual(self.of(results, "headlines of gpu_tests")["missing"], ["gpu_tests"])
        self.assertEqual(self.of(results, "headlines of torch_eager")["missing"], ["PyTorch eager tokens_per_s"])
        self.assertEqual(results["headlines"]["llm.c -ge 2 tokens_per_s"], round(64 * 1024 / 0.15005))
        # A check that is left out is not ok, and a missing tool fails nothing.
        (self.bin / "train_gpt2cu").unlink()
        results, said = self.check(1, "llmc")
        self.assertIsNone(self.of(results, "llm.c")["ok"])
        self.assertIn("left out llm.c", said)
        # A step that is run again replaces only its own results.
        self.stand_in("gpu_tests", STAND_INS["gpu_tests"])
        self.stand_in("python3", STAND_INS["python3"])
        results, said = self.check(0, "gpu_tests", "torch_eager")
        self.assertTrue(all(check["ok"] is not False for check in results["checks"]), results["checks"])

    def test_what_hangs_is_stopped_with_all_that_it_started(self):
        self.stand_in("gpu_tests", SHELL + f"echo some tests passed\ntrap '' TERM\nsleep 1000 & echo $! > {self.folder}/pid\nwait\nsleep 1000\n")
        begin = time.time()
        results, said = self.check(1, "--limit-s", "3", "gpu_tests", "ceilings")
        self.assertLess(time.time() - begin, 60)
        why = self.of(results, "gpu_tests")["why"]
        self.assertIn("stopped after 3 s", why)
        self.assertIn("some tests passed", why)
        self.assertEqual(results["headlines"]["copy_GBps"], 3000)
        self.assert_gone(int((self.folder / "pid").read_text()))

    def test_what_is_known_survives_a_kill(self):
        self.killed_by(signal.SIGKILL)

    def test_what_is_known_survives_being_told_to_stop(self):
        self.killed_by(signal.SIGTERM)

    def killed_by(self, number):
        self.stand_in("gpu_tests", SHELL + f"echo $$ > {self.folder}/pid\nexec sleep 1000\n")
        process = self.begin("ceilings", "gpu_tests")
        for _ in range(600):
            if (self.folder / "pid").exists() and (self.folder / "pid").read_text():
                break
            time.sleep(0.05)
        process.send_signal(number)
        process.communicate()
        self.assertNotEqual(process.returncode, 0)
        results = self.results()
        self.assertEqual(results["headlines"]["gemm_TFLOPs"], 700)
        self.assertEqual(self.of(results, "gpu_tests")["why"], "did not end")
        self.assertIsNone(results["headlines"]["gpu_tests"])
        self.assertFalse(results["parts"]["gpt2_speed"]["complete"])
        self.assert_gone(int((self.folder / "pid").read_text()))

    def assert_gone(self, pid):
        for _ in range(100):
            try:
                if pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                    return
            except OSError:
                return
            time.sleep(0.05)
        self.fail(f"process {pid} runs on")

    def test_figures_of_tools(self):
        results, said = self.check(0, "nsight_compute", "sanitizer")
        details = json.loads((self.out / "details.json").read_text())
        kernel = details["kernels"]["Nsight Compute, all fused"][0]
        self.assertEqual((kernel["us"], kernel["read_bytes"], kernel["block"]), (1.5, 1.5e6, "(128, 1, 1)"))
        self.assertTrue(self.of(results, "Nsight Compute met every kernel")["ok"])

    def test_without_a_gpu_it_says_so_and_stops(self):
        (self.bin / "nvidia-smi").unlink()
        begin = time.time()
        results, said = self.check(1, "gpt2_speed", "modes_and_kernels")
        self.assertLess(time.time() - begin, 60)
        self.assertIn("NO GPU", said)
        self.assertEqual([check["name"] for check in results["checks"]], ["machine"])
        self.assertFalse(results["parts"]["gpt2_speed"]["complete"])

    def test_a_failure_leaves_no_figure(self):
        self.stand_in("stretto", SHELL + "echo no >&2\nexit 1\n")
        results, said = self.check(1, "loss_bf16")
        self.assertIsNone(results["headlines"]["loss_bf16"])
        self.assertEqual(self.of(results, "headlines of loss_bf16")["missing"], ["loss_bf16"])

    def test_what_was_printed_before_a_failure_counts(self):
        self.stand_in("python3", STAND_INS["python3"] + "if any('ceilings' in word for word in sys.argv): sys.exit('a fault')\n")
        results, said = self.check(1, "ceilings")
        self.assertEqual(results["headlines"]["event_us"], 1)
        self.assertIn("a fault", self.of(results, "ceilings")["why"])

    def test_folders_that_are_of_no_use(self):
        self.out.mkdir()
        (self.out / "gpu-check.json").write_text("{")
        results, said = self.check(0, "gpu_tests")
        self.assertIn("is kept as gpu-check.json.bad", said)
        self.out = self.bin / "stretto/no folder"
        process = self.begin("gpu_tests")
        self.assertIn("expected a folder that can be written to", process.communicate()[0])
        self.assertEqual(process.returncode, 1)

    def test_parts(self):
        """Ten minutes suffice for each part, and the kernels that are measured exist."""
        names = [step.name for part in PARTS for step in part.STEPS]
        names += [part.__name__.rpartition(".")[2] for part in PARTS]
        self.assertEqual(len(names), len(set(names)))
        for part in PARTS:
            self.assertLessEqual(part.LIMIT_S, 540)
            self.assertTrue(all(step.limit_s <= part.LIMIT_S for step in part.STEPS))
        # Half an hour must suffice for these, with minutes to start a machine and to copy files there and back.
        self.assertLessEqual(sum(part.LIMIT_S for part in HALF_AN_HOUR), 1600)
        sources = "".join(path.read_text() for path in (ROOT / "exec/cuda/kernels").glob("*.[ch]*"))
        for kernel in modes_and_kernels.KERNELS:
            self.assertTrue(re.search(rf"\b{kernel}\(", sources), kernel)
        process = self.begin("no_such_part")
        self.assertIn("expected one of gpt2_speed, modes_and_kernels", process.communicate()[0])
        self.assertNotEqual(process.returncode, 0)


main()
