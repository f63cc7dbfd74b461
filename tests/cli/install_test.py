"""The installed program finds its files by name from any folder, with its modules, manual page and completion."""
import os
import pathlib
import re
import shutil
import subprocess
import unittest

from program import IS_FAST, ROOT, STRETTO, ProgramTest, main, slow

BUILD = pathlib.Path(STRETTO).parent


@unittest.skipUnless(IS_FAST and (BUILD / "cmake_install.cmake").exists(), "not the release build")
class Install(ProgramTest):
    def setUp(self):
        super().setUp()
        self.prefix = self.folder / "usr"
        subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(self.prefix)], check=True, stdout=subprocess.DEVNULL)

    def run_installed(self, *words, code=0):
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("STRETTO_")}
        done = subprocess.run([str(self.prefix / "bin/stretto"), *words], cwd=elsewhere, env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def test_names_and_modules(self):
        # Models name their platform and profile, which lie in the same folder; SimGrid is a module.
        fluid = self.run_installed("simulate", "llama3-8b").stdout
        self.assertIn("H100 SXM 80 GB", fluid)
        self.assertIn("network simgrid", self.run_installed("simulate", "llama3-8b", "--engine", "simgrid").stdout)
        self.assertIn("B200 SXM 180 GB", self.run_installed("simulate", "llama3-8b", "--platform", "b200-sxm").stdout)
        wrong = self.run_installed("simulate", "llama3-8x", code=2).stderr
        self.assertIn('did you mean "llama3-8b"?', wrong)
        for shipped in ("published.csv", "published.toml"):  # read by `validate` without a file
            self.assertTrue((self.prefix / "share/stretto" / shipped).is_file(), shipped)

    @unittest.skipUnless(any((BUILD / "python/stretto").glob("_stretto*.so")), "the Python module is not built")
    def test_python(self):
        packages = self.prefix / "lib/python3/dist-packages"
        code = "import stretto; print(stretto.simulate('llama3-8b')['ranks'], stretto.simulate('llama3-8b', engine='simgrid')['engine'])"
        done = subprocess.run(["/usr/bin/python3", "-c", code], cwd=self.folder, env={**os.environ, "PYTHONPATH": str(packages)},
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "64 simgrid\n"), done.stderr)

    @unittest.skipUnless(any((BUILD / "python/stretto").glob("_stretto*.so")), "the Python module is not built")
    @unittest.skipUnless(pathlib.Path("/usr/lib/python3/dist-packages/pip").exists(), "Debian's pip is not installed")
    @slow
    def test_pip(self):
        """`pip install .` without a network, in a virtual environment: the module and the command, which find their files."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("STRETTO_", "PYTHON", "PIP_"))}
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--system-site-packages", "--without-pip", self.folder / "venv"], check=True)
        done = subprocess.run(["/usr/bin/python3", "-m", "pip", "--python", self.folder / "venv/bin/python", "install", "--no-build-isolation", "--no-index",
                               "--no-deps", ROOT], env={**environment, "STRETTO_BUILD": str(BUILD)}, cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        code = "import stretto; print(stretto.__file__, stretto.simulate('llama3-8b')['ranks'], stretto.simulate('llama3-8b', engine='simgrid')['engine'])"
        printed = subprocess.run([self.folder / "venv/bin/python", "-c", code], cwd=self.folder, env=environment, capture_output=True, text=True)
        self.assertEqual((printed.returncode, printed.stdout.split()[1:]), (0, ["64", "simgrid"]), printed.stderr)
        self.assertIn(str(self.folder / "venv/lib"), printed.stdout)
        program = subprocess.run([self.folder / "venv/bin/stretto", "simulate", "llama3-8b"], cwd=self.folder, env=environment, capture_output=True, text=True)
        self.assertEqual((program.returncode, "H100 SXM 80 GB" in program.stdout), (0, True), program.stderr)

    @unittest.skipUnless(pathlib.Path("/usr/lib/python3/dist-packages/pip").exists(), "Debian's pip is not installed")
    @slow
    def test_wheel(self):
        """A wheel installs by `pip install FILE` into an empty environment: the command and the module, with their own libraries and files."""
        made = subprocess.run(["packaging/archive", self.prefix], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        subprocess.run(["packaging/wheel/build", made.stdout.strip(), self.folder], cwd=ROOT, check=True, capture_output=True)
        (wheel,) = self.folder.glob("*.whl")
        environment = {"PATH": "/usr/bin:/bin"}
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", self.folder / "empty"], check=True, env=environment)
        done = subprocess.run(["/usr/bin/python3", "-m", "pip", "--python", self.folder / "empty/bin/python", "install", "--no-index", wheel],
                              cwd=self.folder, env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        code = """import stretto
print(stretto.simulate("llama3-8b", {"training.global_batch_size": 512})["ranks"], [point["status"] for point in stretto.sweep("llama3-8b", {"tp": [2]})])
for wrong in (lambda: stretto.simulate("llama3-8x"), lambda: stretto.export("llama3-8b", "nobody's")):
    try:
        wrong()
    except stretto.InputError as error:
        print(error)
print("--num-layers" in stretto.export("llama3-8b", "megatron")["text"], "h100-sxm" in stretto.names("platforms"), len(stretto.gates("llama3-8b")) > 9)"""
        printed = subprocess.run([self.folder / "empty/bin/python", "-c", code], cwd=self.folder, env=environment, capture_output=True, text=True)
        lines = printed.stdout.splitlines()
        self.assertEqual((printed.returncode, lines[0], lines[-1]), (0, "64 ['predicted']", "True True True"), printed.stderr)
        self.assertIn('did you mean "llama3-8b"?', lines[1])
        self.assertIn("--format: expected one of", lines[2])
        program = subprocess.run([self.folder / "empty/bin/stretto", "simulate", "llama3-8b"], cwd=self.folder, env=environment, capture_output=True, text=True)
        self.assertEqual((program.returncode, "H100 SXM 80 GB" in program.stdout), (0, True), program.stderr)

    def test_a_file_goes_before_a_name(self):
        (self.folder / "elsewhere").mkdir()
        shutil.copy(self.tiny, self.folder / "elsewhere/llama3-8b")
        self.assertIn("dp 2", self.run_installed("show", "llama3-8b").stdout)

    def test_manual_names_every_command_and_option(self):
        page = (self.prefix / "share/man/man1/stretto.1").read_text().replace("\\-", "-")
        completion = (self.prefix / "share/bash-completion/completions/stretto").read_text()
        commands = re.findall(r"^  ([a-z]+)  ", self.run_installed("--help").stdout, re.MULTILINE)
        self.assertGreater(len(commands), 7)
        for command in commands:
            self.assertIn("stretto " + command, page)
            for option in set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", self.run_installed(command, "--help").stdout, re.MULTILINE)):
                self.assertIn(option, page)
                self.assertRegex(completion, rf"{command}\) options='[^']*{option}\b")

    def test_completion(self):
        completion = self.prefix / "share/bash-completion/completions/stretto"
        script = f"source {completion}; COMP_WORDS=(stretto $1 $2 $3); COMP_CWORD=$4; _stretto; echo ${{COMPREPLY[@]}}"

        def complete(*words):
            padded = [*words, "", "", ""][:3]
            done = subprocess.run(["bash", "-c", script, "-", *padded, str(len(words))], capture_output=True, text=True, check=True,
                                  cwd=self.folder)
            return done.stdout.split()

        self.assertEqual(complete("sim"), ["simulate"])
        self.assertEqual(complete("simulate", "llama3-8"), ["llama3-8b"])
        self.assertEqual(complete("simulate", "--eng"), ["--engine"])
        self.assertEqual(complete("simulate", "--engine", "f"), ["fluid"])
        self.assertEqual(complete("simulate", "--platform", "h100-s"), ["h100-sxm", "h100-sxm-efa"])
        self.assertEqual(complete("simulate", "--set", "overlap.tp_comm_overlap_d"), ["overlap.tp_comm_overlap_disable_qkv=", "overlap.tp_comm_overlap_disable_fc1="])

    def test_completion_of_other_shells(self):
        bash = (self.prefix / "share/bash-completion/completions/stretto").read_text()
        for shell, path in (("zsh", "share/zsh/site-functions/_stretto"), ("fish", "share/fish/vendor_completions.d/stretto.fish")):
            text = (self.prefix / path).read_text()
            for word in ("simulate", "mi300x", "fluid", "llama3-70b", "overlap.tp_comm_overlap=", "training.global_batch_size="):
                self.assertIn(word, text)
                self.assertIn(word, bash)
            for option in re.findall(r"  simulate\) options='([^']*)'", bash.replace("    simulate", "  simulate"))[0].split():
                self.assertIn(option if shell == "zsh" else f"-l {option[2:]} ", text)
            self.assertEqual(text.count("'") % 2, 0)
            if program := shutil.which(shell):
                done = subprocess.run([program, "-n", self.prefix / path], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    main()
