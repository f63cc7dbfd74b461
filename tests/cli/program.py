"""Functions and classes that the tests of the program share: they run the program and have a tiny scenario. They use
only the standard library."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

STRETTO = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "stretto"
ROOT = pathlib.Path(__file__).resolve().parents[2]
# The library that makes system calls fail (tests/fail_io.cpp), or "".
FAIL_IO = os.environ.get("STRETTO_FAIL_IO_LIBRARY", "")
# AddressSanitizer needs terabytes of address space and keeps freed memory, so that limits of memory cannot be tested.
# It also takes ten times as long.
LIMITS_MEMORY = IS_FAST = os.path.exists(STRETTO) and b"__asan_init" not in pathlib.Path(STRETTO).read_bytes()
# `scripts/test --fast` leaves out tests of ten seconds and more, and makes long lists shorter.
IS_FAST_SUITE = "STRETTO_FAST_SUITE" in os.environ
slow = unittest.skipIf(IS_FAST_SUITE, "slow: scripts/test runs it")
PLATFORM = str(ROOT / "tests/golden/host.toml")

# Published steps for `validate`, which are invented.
PUBLISHED_HEADER = """id,source,gpu,gpus,model,layers,hidden,heads,kv_heads,ffn,vocab,seq_len,gbs,mbs,tp,pp,vp_chunks,cp,ep,dp,\
precision,recompute,framework,step_time_s,caveat,task,cluster
"""
PUBLISHED = "{id},x,A100,4,GPT,{layers},1024,16,16,4096,,1024,4,1,2,1,1,1,1,2,fp16,full,Megatron-DeepSpeed,{seconds},,pretrain,{id}\n"

# Sizes are odd on purpose. A step takes a few milliseconds.
TINY = """
[model]
num_layers = 2
hidden_size = 12
num_attention_heads = 3
seq_length = 7
vocab_size = 256
[cluster]
link_GBps = 10
link_latency_us = 0
[parallel]
data_parallel_size = 2
[overlap]
overlap_grad_reduce = true
overlap_param_gather = true
bucket_size = 1000
[training]
global_batch_size = 12
train_iters = 6
lr = 1e-2
lr_warmup_iters = 2
data = "text.txt"
[compare]
ranks = [1, 2]
repeats = 3
"""


def documented_keys(command):
    """Returns the tree of keys in the command's row of docs/json.md. {} is a value whose keys are not listed there."""
    row = next(line for line in (ROOT / "docs/json.md").read_text().splitlines() if line.startswith(f"| `{command}` |"))
    text = re.sub(r"and (`\w+`) \(each (\{[^}]*\})\)", r"\2, \1 \2", row.split("|")[2])
    while (shorter := re.sub(r"\([^()]*\)", "", text)) != text:
        text = shorter
    levels, last = [{}], None
    for name, bracket in re.findall(r"`([^`]+)`|([{}])", re.sub(r"\{as in `(\w+)`\}", "", text)):
        if name:
            last = levels[-1].setdefault(name, {})
        elif bracket == "{":
            levels.append(last)
        else:
            levels.pop()
    return levels[0]


def differing_keys(value, keys, place):
    if isinstance(value, list):
        return [found for item in value for found in differing_keys(item, keys, place)]
    if not isinstance(value, dict) or not keys:
        return []
    found = [f"{place}: {key} is absent" for key in keys if key not in value]
    found += [f"{place}: {key} is not documented" for key in value if key not in keys]
    return found + [more for key in keys if key in value for more in differing_keys(value[key], keys[key], f"{place} {key}")]


class ProgramTest(unittest.TestCase):
    """Each test has its own folder with tiny.toml and text.txt, and no calibrated platform file."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="stretto-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tiny = self.write("tiny.toml", TINY)
        self.write("text.txt", "the quick brown fox jumps over the lazy dog. " * 40)
        self.environment = dict(os.environ, HOME=str(self.folder), XDG_DATA_HOME="")

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    def environment_that_fails(self, call, path, error):
        """Returns an environment in which every `call` on a file whose path contains `path` fails with the errno
        `error`."""
        return dict(self.environment, LD_PRELOAD=FAIL_IO, STRETTO_FAIL_IO=f"{call} {path} {error}")

    def start(self, *arguments, stdout=subprocess.PIPE, environment=None, **options):
        return subprocess.Popen([STRETTO, *map(str, arguments)], cwd=self.folder, env=environment or self.environment, stdin=subprocess.DEVNULL,
                                stdout=stdout, stderr=subprocess.PIPE, text=True, **options)

    def wait_until_it_catches(self, process, number):
        """Waits until the process has a handler for the signal. Without the handler a signal ends the program at once,
        and a busy machine is slow to install the handler."""
        for _ in range(1200):
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            caught = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")]
            if process.poll() is not None or (caught and int(caught[0], 16) >> (number - 1) & 1):
                return
            time.sleep(0.05)

    def run_program(self, *arguments, **options):
        process = self.start(*arguments, **options)
        process.out, process.err = process.communicate(timeout=900)
        return process

    def ok(self, *arguments, **options):
        process = self.run_program(*arguments, **options)
        self.assertEqual(process.returncode, 0, process.err + process.out)
        return process

    def json(self, *arguments):
        path = self.folder / "result.json"
        path.unlink(missing_ok=True)
        self.ok(*arguments, "--json", path)
        return json.loads(path.read_text())

    def fails(self, code, *arguments, says=(), **options):
        """Expects an exit code and one line on standard error that holds every text in `says`."""
        process = self.run_program(*arguments, **options)
        self.assertEqual(process.returncode, code, process.err + process.out)
        lines = process.err.splitlines()
        self.assertEqual(len(lines), 1, process.err)
        for text in says:
            self.assertIn(text, lines[0])
        return process

    def assert_as_documented(self, command, value):
        """Checks that the keys of a command's JSON, at every depth, equal its row of docs/json.md."""
        self.assertEqual(sorted(set(differing_keys(value, documented_keys(command), command))), [])

    def assert_keys(self, value, keys):
        self.assertEqual(set(keys.split()) - set(value), set(), "documented keys that are missing")


def main():
    unittest.main(verbosity=2)
