"""Checks save every result as soon as it is known, and stop programs that exceed their time limits."""
import ctypes
import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time
from array import array

from gpu_check.clocks import Clocks

ROOT = pathlib.Path(__file__).resolve().parents[2]
GRACE_S = 5  # time for a program to write its results, once it is asked to stop


@dataclasses.dataclass
class Step:
    run: object  # function of a Check
    limit_s: float
    headlines: tuple = ()  # figures that must be known after the step

    @property
    def name(self):
        return self.run.__name__


class NoProgram(Exception):
    pass


@dataclasses.dataclass
class Done:
    """The exit code, output and duration of a program that has ended."""
    code: int
    out: str
    err: str
    seconds: float
    stopped: bool = False

    def why(self):
        said = (self.err.strip() or self.out.strip())[-400:]
        return f"stopped after {self.seconds:.0f} s: {said}" if self.stopped else f"code {self.code}: {said}"


_libc = ctypes.CDLL(None)


def _in_a_group_that_dies_with_us():
    os.setpgrp()
    _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


class Check:
    """One run of some parts. The program writes gpu-check.json (every check and headline), details.json (JSON of the
    programs), gpu-check.log (their output), clocks.csv, and the platform of the calibration (gpu.toml, or
    gpu.toml.partial) to FOLDER."""

    def __init__(self, folder, tiny):
        self.folder, self.tiny = folder, tiny
        self.results = {"machine": {}, "headlines": {}, "checks": [], "parts": {}, "clocks": {}}
        self.details = {}
        for name, kept in (("gpu-check.json", self.results), ("details.json", self.details)):
            if (folder / name).exists():  # of other parts that were run before
                try:
                    kept.update(json.loads((folder / name).read_text()))
                except ValueError:
                    print(f"{name} of an earlier run cannot be read, and is kept as {name}.bad", flush=True)
                    os.replace(folder / name, folder / (name + ".bad"))
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="gpu-check-"))
        random.seed(1)
        tokens = random.choices(range(250 if tiny else 50_000), k=1 << (16 if tiny else 20))
        (self.work / "tokens.bin").write_bytes(array("H", tokens).tobytes())
        (self.work / "text.txt").write_text("\n".join(p.read_text() for p in sorted((ROOT / "docs").glob("*.md"))))
        self.stretto = self.program("stretto")
        self.step = self.unfinished = self.python = None  # python: the command of a Python with PyTorch
        self.part_deadline = self.deadline = time.time()
        self.running = set()
        self.clocks = None
        self.no_gpu = None  # reason why nothing can be measured
        self.cannot_write = set()

    # ---- results ----

    def _write(self, name, value):
        new = self.folder / (name + ".new")
        try:
            new.write_text(json.dumps(value, indent=1) + "\n")
            os.replace(new, self.folder / name)
        except OSError as error:
            self.lost(error)

    def lost(self, error):
        """Reports a file that cannot be written. A full disk does not stop the measurements, because all figures are
        printed too."""
        if str(error) not in self.cannot_write:
            print(f"CANNOT WRITE: {error}; figures are in what is printed here", flush=True)
        self.cannot_write.add(str(error))

    def save(self):
        if self.clocks:
            self.results["clocks"].update(self.clocks.of_steps())
        self._write("gpu-check.json", self.results)

    def note(self, name, ok, **values):
        """Records a check. `ok` is None if the check was left out because this machine lacks a tool."""
        # Steps made of calls are slower, and differ from the prediction.
        if any("not as CUDA graphs" in note for note in values.get("notes", [])):
            ok = False
        entry = {"name": name, "step": self.step, "ok": ok, **values}
        others = [c for c in self.results["checks"] if c["name"] != name or c is self.unfinished]
        self.results["checks"] = [*others, entry]
        state = {True: "ok      ", False: "FAILED  ", None: "left out"}[ok]
        print(state, name, *(f"{k}={v}" for k, v in values.items() if k != "notes"), flush=True)
        self.save()
        return ok

    def left_out(self, name, why):
        return self.note(name, None, why=why)

    def headline(self, name, value):
        if value is not None:
            self.results["headlines"][name] = value
            print("        ", name, value, flush=True)
            self.save()

    def expect(self, *names):
        """Declares headlines that the step must have recorded when it ends."""
        self.expected += names
        self.results["headlines"].update(dict.fromkeys(names))

    def detail(self, kind, name, value):
        self.details.setdefault(kind, {})[name] = value
        self.details["about"] = {key: self.results.get(key) for key in ("device", "version", "date")}
        self._write("details.json", self.details)

    def log(self, title, text):
        try:
            with open(self.folder / "gpu-check.log", "a") as log:
                log.write(f"==== {title}\n{text}\n")
        except OSError as error:
            self.lost(error)

    def failed(self):
        return [c for c in self.results["checks"] if c["ok"] is False]

    # ---- steps ----

    def run_part(self, name, steps, limit_s):
        begin = time.time()
        self.part_deadline = begin + limit_s
        self.results["parts"][name] = {"steps": [step.name for step in steps], "limit_s": limit_s, "complete": False}
        for step in steps:
            self.run_step(step)
            if self.no_gpu:
                return self.save()
        self.results["parts"][name].update(complete=True, seconds=round(time.time() - begin, 1))
        self.save()

    def run_step(self, step):
        self.step = step.name
        self.deadline = min(time.time() + step.limit_s, self.part_deadline)
        self.results["checks"] = [c for c in self.results["checks"] if c.get("step") != step.name]
        self.expected = []
        self.expect(*step.headlines)
        # If this program is killed in the middle, the file says that the step failed.
        self.unfinished = {"name": step.name, "step": step.name, "ok": False, "why": "did not end"}
        self.results["checks"].append(self.unfinished)
        self.save()
        begin = time.time()
        failure = None
        try:
            if self.left_s() <= 0:
                raise TimeoutError("no time was left")
            print(f"---- {step.name}, at most {self.left_s():.0f} s", flush=True)
            step.run(self)
        except Exception as error:  # an error of one step must not stop the others
            failure = str(error) if isinstance(error, TimeoutError) else repr(error)
        self.results["checks"] = [c for c in self.results["checks"] if c is not self.unfinished]
        if self.clocks:
            self.clocks.steps[step.name] = (begin, time.time())
        if failure:
            self.note(step.name, False, why=failure)
        missing = [headline for headline in self.expected if self.results["headlines"][headline] is None]
        if missing:
            self.note(f"headlines of {step.name}", False, missing=missing)
        self.step = None
        self.save()

    def left_s(self):
        return self.deadline - time.time()

    # ---- programs ----

    def program(self, name):
        """Returns the path of a program of this project. All programs are taken from PATH if stretto is on PATH,
        otherwise from build/release."""
        path = None if shutil.which("stretto") else f"{ROOT}/build/release:{ROOT}/build/release/tests"
        found = shutil.which(name, path=path)
        if not found:
            raise NoProgram(f"{name}: not {'in build/release' if path else 'on PATH'}")
        return found

    def start(self, command, env=None, **pipes):
        process = subprocess.Popen([str(word) for word in command], cwd=self.work, env=env, stdin=subprocess.DEVNULL,
                                   preexec_fn=_in_a_group_that_dies_with_us, **pipes)
        self.running.add(process)
        return process

    def run(self, *command, limit_s=600, env=None):
        """Runs a program until it ends or until its limit or the step's limit is reached. At the limit the program is
        asked to stop, and after a grace period it is killed with all processes that it started."""
        left_s = min(limit_s, self.left_s())
        if left_s <= 0:
            return Done(124, "", "no time was left", 0, True)
        grace_s = min(GRACE_S, left_s / 4)
        begin = time.time()
        # Output goes to files, because a process that keeps the end of a pipe would block its reader.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = self.start(command, env, stdout=out, stderr=err)
            stopped = False
            try:
                process.wait(left_s - grace_s)
            except subprocess.TimeoutExpired:
                stopped = True
                process.terminate()
                try:
                    process.wait(grace_s)
                except subprocess.TimeoutExpired:
                    pass
            finally:
                kill_group(process)
                self.running.discard(process)
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        return Done(124 if stopped else process.returncode, *texts, time.time() - begin, stopped)

    def json_of(self, *command, limit_s=600, env=None):
        """Runs a command of stretto. Returns the JSON that the command wrote, or None, and a Done."""
        path = pathlib.Path(tempfile.mkdtemp(dir=self.work)) / "result.json"
        done = self.run(self.stretto, *command, "--json", path, limit_s=limit_s, env=env)
        self.log(" ".join(str(word) for word in command), done.out + done.err)
        if not path.exists():
            return None, done
        return json.loads(path.read_text()), done

    def close(self):
        for process in list(self.running):
            kill_group(process)
        if self.clocks:
            self.clocks.stop()
        shutil.rmtree(self.work, ignore_errors=True)
        self.save()


def open_clocks(check):
    try:
        check.clocks = Clocks(check.folder / "clocks.csv", check.start)
    except OSError as error:
        check.lost(error)
