"""No command writes to a file that it reads, or twice to one file, even through links: exit code 2, one line, and no
changed file."""
import errno
import fcntl
import json
import os
import pathlib
import re

from program import FAIL_IO, PLATFORM, ROOT, TINY, ProgramTest, main

COMMANDS = ("compare", "simulate", "train", "profile", "calibrate", "show", "export", "sweep", "diagnose")
# Options that take a word and not a file.
WORDS = {"--set", "--backend", "--engine", "--format", "--precision", "--profile", "--mode", "--over", "--shard", "--section", "--window", "--model", "--tokens", "--color"}


class Files(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("platform.toml", pathlib.Path(PLATFORM).read_bytes())
        self.write("trace.json", (ROOT / "tests/fuzz/corpus/trace/stretto.json").read_bytes())
        self.write("base.toml", (ROOT / "tests/fuzz/corpus/platform/accelerator.toml").read_bytes())
        self.write("scenario.toml", 'platform = "platform.toml"\n' + TINY)
        self.ok("train", "scenario.toml", "--set", "training.checkpoint_dir=ck")
        self.ok("export", "ck/step-00000006.safetensors", "-o", "weights.safetensors")
        os.mkdir(self.folder / "model")
        self.write("model/part.safetensors", (self.folder / "weights.safetensors").read_bytes())
        self.write("model/model.safetensors.index.json", '{"weight_map": {"lm_head.weight": "part.safetensors"}}')

    def declared(self, command):
        """Returns the command's options that take files to read, and those that take files to write. The test knows
        that all other options take no files."""
        inputs, outputs = [], []
        for line in self.ok(command, "--help").out.splitlines():
            found = re.match(r"\s+(?:-\w,)?(--[\w-]+|[A-Z]+) (\w+)", line)
            if not found:
                continue
            name, kind = found.groups()
            if kind == "INPUT":
                inputs.append(name)
            elif kind == "OUTPUT":
                outputs.append(name)
            elif kind == "TEXT":
                self.assertIn(name, WORDS, f"{command} {name}: Files::add_input or add_output, or a word")
        return inputs, outputs

    def snapshot(self):
        return {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}

    def refused(self, *arguments, says=()):
        before = self.snapshot()
        process = self.fails(2, *arguments, says=says)
        self.assertEqual(process.out, "")
        self.assertEqual(self.snapshot(), before)

    def arguments(self, command):
        if command == "export":
            return ["export", "ck/step-00000006.safetensors"]
        if command == "calibrate":
            return ["calibrate"]
        if command == "diagnose":
            return ["diagnose", "trace.json", "scenario.toml", "--set", "training.checkpoint_dir=ck", "--platform", "platform.toml"]
        more = ["--platform", "platform.toml"] if "--platform" in self.declared(command)[0] else []
        return [command, "scenario.toml", "--set", "training.checkpoint_dir=ck", *more]

    def test_no_output_is_an_input(self):
        for command in COMMANDS:
            inputs, outputs = self.declared(command)
            self.assertTrue(outputs, command)
            given = {"SCENARIO": "scenario.toml", "SOURCE": "ck/step-00000006.safetensors", "--platform": "platform.toml",
                     "--base": "base.toml", "TRACE": "trace.json"}
            # Only traces use export's platform, and they are written into a folder, which a file cannot be.
            read = [given[name] for name in inputs if (command, name) != ("export", "--platform")]
            if "SCENARIO" in inputs:
                read += ["text.txt", "ck/step-00000006.safetensors", "ck/stretto.lock"]
            for output in outputs:
                rest = ["-o", "out"] if command in ("export", "calibrate") and output != "--output" else []
                for path in read:
                    base = ["--base", path] if path == given["--base"] else []
                    self.refused(*self.arguments(command), *base, output, path, *rest, says=[output, "is read"])

    def test_whatever_leads_there(self):
        os.link(self.folder / "scenario.toml", self.folder / "hard")
        os.symlink("scenario.toml", self.folder / "soft")
        os.symlink("soft", self.folder / "softer")
        os.symlink(".", self.folder / "folder")
        for path in ("./scenario.toml", "hard", "soft", "softer", "folder/scenario.toml", self.folder / "scenario.toml"):
            self.refused("show", "scenario.toml", "--json", path, says=["--json", "SCENARIO"])
        self.refused("export", "ck/step-00000006.safetensors", "-o", "text.txt", says=["text.txt", "folder"])
        os.mkdir(self.folder / "theirs")
        os.link(self.folder / "ck/step-00000006.safetensors", self.folder / "theirs/config.json")
        self.refused("export", "ck/step-00000006.safetensors", "-o", "theirs", says=["SOURCE"])
        self.refused("export", "ck/step-00000006.safetensors", "-o", "ck/step-00000007.safetensors", says=["taken for a checkpoint"])
        self.refused(*self.arguments("train"), "--json", "ck/step-00000009.safetensors", says=["taken for a checkpoint"])
        for path in ("model/model.safetensors.index.json", "model/part.safetensors"):
            self.refused("show", "scenario.toml", "--set", "training.load=model", "--json", path, says=["[training] load"])
        # The file that `calibrate` wrote is used where no other is named.
        default = self.folder / ".local/share/stretto/host.toml"
        default.parent.mkdir(parents=True)
        default.write_bytes(pathlib.Path(PLATFORM).read_bytes())
        self.refused("simulate", self.tiny, "--json", default, says=["calibrate"])
        self.refused("train", "scenario.toml", "--ranks", "2", "--json", "text.txt", says=["[training] data"])

    def test_no_two_outputs_are_one_file(self):
        os.symlink("absent", self.folder / "soft")
        for command in COMMANDS:
            outputs = self.declared(command)[1]
            for a in outputs:
                for b in outputs:
                    if a != b:
                        rest = ["-o", "out"] if command in ("export", "calibrate") and "--output" not in (a, b) else []
                        self.refused(*self.arguments(command), a, "absent", b, "./soft", *rest, says=["written"])
        self.refused("simulate", "scenario.toml", "--trace", "-", says=["--trace -", "expected a file"])
        # Standard output is an output too.
        with open(self.folder / "out", "w") as out:
            process = self.run_program("show", "scenario.toml", "--json", "out", stdout=out)
            self.assertEqual(process.returncode, 2)
            self.assertIn("standard output", process.err)
        with open(self.folder / "scenario.toml", "a") as out:
            process = self.run_program("show", "scenario.toml", stdout=out)
            self.assertEqual(process.returncode, 2)
        # Several outputs may be one device.
        self.ok("simulate", "scenario.toml", "--json", "/dev/null", "--trace", "/dev/null", "--html", "/dev/null")

    def test_what_is_there_is_replaced_as_a_whole(self):
        self.write("out.json", "before")
        os.symlink("out.json", self.folder / "soft")
        os.chmod(self.folder / "out.json", 0o640)
        if FAIL_IO:
            for call in ("write", "fsync"):
                self.fails(1, "simulate", "scenario.toml", "--json", "soft", says=["soft", "No space"],
                           environment=self.environment_that_fails(call, "out.json", errno.ENOSPC))
                self.assertEqual((self.folder / "out.json").read_text(), "before")
        self.ok("show", "scenario.toml", "--json", "soft")
        self.assertTrue((self.folder / "soft").is_symlink())
        self.assertTrue((self.folder / "out.json").read_text().startswith("{"))
        self.assertEqual(os.stat(self.folder / "out.json").st_mode & 0o777, 0o640)
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".tmp")], [])

    def test_an_empty_name_is_no_file(self):
        for command in COMMANDS:
            inputs, outputs = self.declared(command)
            for option in (name for name in inputs + outputs if name.startswith("-")):
                rest = ["-o", "out"] if command in ("export", "calibrate") and option != "--output" else []
                for given in ([option, ""], [option + "="]):
                    self.refused(*self.arguments(command), *rest, *given, says=[option])

    def test_temporary_files_are_nobodys(self):
        """Names of temporary files are unpredictable: the program follows no foreign link and replaces no foreign
        file."""
        self.write("theirs", "mine alone")
        os.symlink("theirs", self.folder / "x.json.tmp")
        self.write("y.json.tmp", "mine too")
        os.symlink("theirs", self.folder / "x.json.0123456789abcdef.tmp")
        before = self.snapshot()
        self.ok("show", "scenario.toml", "--json", "x.json")
        self.ok("show", "scenario.toml", "--json", "y.json")
        after = self.snapshot()
        self.assertEqual(after.pop(self.folder / "x.json"), after.pop(self.folder / "y.json"))
        self.assertEqual(after, before)
        os.symlink(self.folder / "theirs", self.folder / "ck/step-00000009.safetensors.tmp")
        self.ok("train", "scenario.toml", "--set", "training.checkpoint_dir=ck", "--set", "training.train_iters=9")
        self.assertEqual((self.folder / "theirs").read_text(), "mine alone")
        (self.folder / "ck/stretto.lock").unlink()
        os.symlink(self.folder / "theirs", self.folder / "ck/stretto.lock")
        self.fails(2, "train", "scenario.toml", "--set", "training.checkpoint_dir=ck", says=["ck/stretto.lock", "got a link"])
        self.assertEqual((self.folder / "theirs").read_text(), "mine alone")

    def test_left_overs_of_killed_programs_go(self):
        left, held, others = (f"out.json.{digit * 16}.tmp" for digit in "ab0")
        others = "other" + others
        for name in (left, held, others):
            self.write(name, "half")
        with open(self.folder / held, "w") as writer:
            fcntl.flock(writer, fcntl.LOCK_EX)  # like a writer
            self.ok("show", "scenario.toml", "--json", "out.json")
            self.assertEqual(set(name for name in os.listdir(self.folder) if name.endswith(".tmp")), {held, others})
        self.ok("show", "scenario.toml", "--json", "out.json")
        self.assertEqual(set(name for name in os.listdir(self.folder) if name.endswith(".tmp")), {others})

    def test_runs_with_one_output_do_not_meet(self):
        runs = [self.start("show", "scenario.toml", "--json", "one.json", "--set", f"training.seed={seed}") for seed in range(4)]
        for run in runs:
            _, err = run.communicate(timeout=300)
            self.assertEqual((run.returncode, err), (0, ""))
        json.loads((self.folder / "one.json").read_text())
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".tmp")], [])


if __name__ == "__main__":
    main()
