"""The README and the walk-throughs of docs/: their commands run as printed there, and their figures equal those of the
JSON next to them."""
import importlib.machinery
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import time
import unittest

from program import IS_FAST, PLATFORM, ROOT, STRETTO, ProgramTest, main, slow

WALKS = sorted((ROOT / "docs").glob("walk-*.md"))
# Commands that take a minute or more have tests of their own; here they are as short as possible.
SHORTER = {"compare": ["--set", "compare.repeats=1"], "profile": ["--set", "compare.repeats=1"], "train": [], "evaluate": [], "sample": []}
SMALLER = ["--set", "model.num_layers=2", "--set", "model.hidden_size=64"]


def as_tested(words):
    is_quickstart = any("quickstart" in word for word in words)
    return words + SHORTER.get(words[0], []) + (SMALLER if is_quickstart and words[0] in SHORTER else [])


def commands_of(page):
    """Returns the commands in indented blocks, [["simulate", "llama3-70b"], …], with lines that end in a backslash
    joined."""
    text = page.read_text().replace("\\\n", " ")
    lines = re.findall(r"^    (?:build/release/)?stretto (.*)$", text, re.M)
    # The list of commands has a description after each.
    return [line.split() for line in lines if not re.search(r"\S  +\S", re.sub(r" +--", " --", line))]


def script(name):
    """Returns a script of scripts/ in Python as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


class Adding(unittest.TestCase):
    """docs/adding.md names files that exist, and quotes lines that stand in them."""
    page = (ROOT / "docs/adding.md").read_text()

    patches = sorted((ROOT / "docs/examples").glob("*.patch"))

    def test_files(self):
        named = {name for name in re.findall(r"`([\w-]+/[\w./-]*)", self.page) if "NAME" not in name and not name.startswith("build/")}
        self.assertGreater(len(named), 40)
        made = {name for patch in self.patches
                for name in re.findall(r"^--- /dev/null\n\+\+\+ b/(.*)$", patch.read_text(), re.M)}
        self.assertEqual([name for name in sorted(named - made) if not (ROOT / name).exists()], [])
        tests = set(re.findall(r"`(\w+_test)`", self.page))
        self.assertGreater(len(tests), 4)
        self.assertEqual(tests - {path.stem for path in ROOT.glob("*/**/*_test.cpp")}, set())

    def test_quotes(self):
        """A quote is indented by 8 or more, after a line that ends with its file: `base/error.hpp`:"""
        quoted = re.findall(r"^(.*\n)\n((?: {8}.*\n)+)", self.page, re.M)
        self.assertGreater(len(quoted), 6)
        for before, lines in quoted:
            file = re.search(r"`(\S+)`:\n$", before)
            self.assertTrue(file, before)
            text = (ROOT / file[1]).read_text()
            for line in map(str.strip, lines.splitlines()):
                self.assertIn(line, text, file[1])

    @unittest.skipUnless(shutil.which("git"), "git is not installed")
    def test_example(self):
        """The examples still apply to this tree, and the page names each file that they change; tests/example_mode.py
        builds them."""
        done = subprocess.run(["git", "apply", "--check", *self.patches], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        changed = {name for patch in self.patches for name in re.findall(r"^\+\+\+ b/(.*)$", patch.read_text(), re.M)}
        self.assertGreater(len(changed), 10)
        self.assertEqual([name for name in sorted(changed) if f"`{name}`" not in self.page], [])


class Clone(ProgramTest):
    def setUp(self):
        super().setUp()
        # The folder stands for a clone with a calibrated platform: scenarios, and the targets of links in them.
        shutil.copytree(ROOT / "scenarios", self.folder / "scenarios")
        (self.folder / "build").mkdir()
        for name in ("host.toml", "build/host.toml"):
            shutil.copy(PLATFORM, self.folder / name)


@unittest.skipUnless(IS_FAST and not os.environ.get("STRETTO_WITHOUT_PAGES"), "not the release build, or each page is a test of its own")
class Pages(Clone):
    """The commands of each page, a test a page, so that ctest runs pages at once."""

    def run_commands(self, page):
        commands = commands_of(page)
        self.assertGreater(len(commands), 2, page)
        for words in commands:
            if words[0] == "calibrate":
                self.assertEqual(words, ["calibrate", "-o", "host.toml"])  # scripts/quickstart and calibrate's own tests run it
                continue
            with self.subTest(page=page.name, command=" ".join(words)):
                begin = time.monotonic()
                done = self.run_program(*as_tested(words))
                self.assertEqual(done.returncode, 0, done.err)
                self.assertGreater(len(done.out), 5)
                print(f"{time.monotonic() - begin:.1f} s: stretto {' '.join(words)}")


for page in (ROOT / "README.md", *WALKS):
    setattr(Pages, "test_" + page.stem.replace("-", "_"), slow(lambda self, page=page: self.run_commands(page)))


@unittest.skipUnless(IS_FAST, "not the release build")
class Docs(Clone):
    def test_keys_that_are_not_modelled(self):
        """docs/scenario.md names some: they are refused by name."""
        said = re.search(r"^Keys of what is not modelled.*?(?=Low precision that)", (ROOT / "docs/scenario.md").read_text(), re.M | re.S)[0]
        keys = re.findall(r"`(\w+)`", said)
        self.assertGreater(len(keys), 5)
        for key in keys:
            self.fails(2, "show", "llama3-8b", "--set", f"training.{key}=1", says=[f"training.{key}:", "is not modelled yet"])

    def test_outputs_that_commands_have(self):
        """docs/index.md and docs/json.md name the commands that take --html and --trace."""
        commands = re.findall(r"^  ([a-z]+)  ", self.ok("--help").out, re.M)
        helps = {command: self.ok(command, "--help").out for command in commands}
        index, page = (re.sub(r"\s+", " ", (ROOT / "docs" / name).read_text()) for name in ("index.md", "json.md"))
        for option, texts in (("--html", (r"have results; (.*?) take `--html", index, r"`--html FILE` of (.*?) writes", page)), ("--trace", (r"timelines\); (.*?) take `--trace", index))):
            having = {command for command, text in helps.items() if re.search(rf"{option} OUTPUT", text)}
            for pattern, text in zip(texts[::2], texts[1::2]):
                self.assertEqual(set(re.findall(r"`(\w+)`", re.search(pattern, text)[1])), having, option)

    def test_gallery(self):
        """scripts/gallery makes six pages with their pictures, and what docs/gallery.md says of steps is so."""
        folder = self.folder / "gallery"
        done = subprocess.run([ROOT / "scripts/gallery", "--binary", STRETTO, "--output", folder], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        pages = re.findall(r'href="([^"]*)"', (folder / "index.html").read_text())
        self.assertEqual(len(pages), 6)
        for page in pages:
            pictures = re.findall(r'<iframe src="([^"]*)"', (folder / page).read_text())
            self.assertGreaterEqual(len(pictures), 2, page)
            self.assertEqual(len({(folder / picture).read_bytes() for picture in pictures}), len(pictures), page)
        commands = [shlex.split(line) for line in re.findall(r"^    stretto (.*)$", (ROOT / "docs/gallery.md").read_text(), re.M)]
        steps = [self.json(*words)["step_ms"] for words in commands]
        first, interleaved, h1, zb_v, dualpipe_v = steps[:5]
        self.assertTrue(first > h1 > interleaved > zb_v > dualpipe_v, steps)
        with_64 = [self.json(*words, "--set", "training.global_batch_size=64")["step_ms"] for words in commands[:5]]
        self.assertLess(max(with_64), 1.03 * min(with_64))
        self.assertTrue(steps[5] > steps[6] > steps[7], "none, bulk, cut")
        self.assertGreater(steps[8], steps[9], "ring")
        self.assertGreater(steps[11], steps[10], "sixteen pieces")
        self.assertGreater(steps[13], 1.05 * steps[14], "pairs")
        large = self.json(*commands[15], "--set", "training.micro_batch_size=32", "--set", "training.global_batch_size=256")
        self.assertAlmostEqual(large["step_ms"] / steps[15], 1.5, delta=0.05)

    def test_what_quickstart_suggests_next(self):
        """The commands that quickstart suggests at its end run and print plausible results: a step of seconds, and no
        share above 100 %."""
        commands = re.findall(r"^  build/release/stretto (.*)$", (ROOT / "scripts/quickstart").read_text(), re.M)
        self.assertGreaterEqual(len(commands), 2)
        for words in map(str.split, commands):
            with self.subTest(command=words):
                value = self.json(*words)
                self.assertLess(value["step_ms"], 60_000)
                for share in ("mfu", "hfu", "mfu_full_attention"):
                    self.assertLessEqual(value[share] or 0, 1)

    def test_figures(self):
        """Tables and pictures of README.md and docs/ equal docs/measured/*.json, byte by byte."""
        done = subprocess.run([ROOT / "scripts/figures", "--check"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_times_are_measured(self):
        """`scripts/measure times` measures commands that run, and scripts/figures makes a table of each kind of them."""
        measure, figures = script("measure"), script("figures")
        measure.STRETTO, measure.TIMED_RUNS = STRETTO, 1
        measure.TIMES = {**{name: measure.TIMES[name] for name in ("simulate gpt3-175b-1024", "simulate gpt3-175b-1024, a slow rank")},
                         "plan llama3-8b": ["plan", "llama3-8b", "--gpus", "8", "--global-batch", "8", "--over", "tp=4"],
                         "validate": ["validate", "--help"]}
        rows = measure.times()["times"]
        # A help text takes less than the ten milliseconds that the kernel counts a process's time in.
        self.assertTrue(all(0 <= row["user_s"] < 60 and 0 < row["elapsed_s"] < 120 and row["peak_bytes"] > 1e6 for row in rows.values()), rows)
        self.assertGreater(rows["simulate gpt3-175b-1024, a slow rank"]["user_s"], 0.05)
        plan = rows["plan llama3-8b"]
        self.assertEqual(sum(plan.get(state, 0) for state in ("refused", "does not fit", "slower", "predicted")), plan["points"])
        for table, lines in ((figures.times_simulate, 3), (figures.times_plan, 3), (figures.times_validate, 3)):
            self.assertEqual(len(table(rows).splitlines()), lines)
        for page, name in (("simulation", "times_simulate"), ("sweep", "times_plan"), ("validate", "times_validate")):
            self.assertIn(f"<!-- figures: {name} -->", (ROOT / f"docs/{page}.md").read_text())

    def test_deviation_of_containers(self):
        """The deviation between containers that intervals take is that of the published steps."""
        header = (ROOT / "predict/spread.hpp").read_text()
        taken = float(re.search(r"kBetweenContainers = 1.28 \* ([\d.]+);", header)[1])
        self.assertAlmostEqual(taken, script("figures").container_deviation(), delta=0.0005)

    def test_no_time_of_a_command_by_hand(self):
        """Processor times of commands stand in tables that scripts/figures writes, and in the records of
        docs/measurements.md."""
        for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
            text = re.sub(r"<!-- figures: .*?<!-- end of figures -->", "", page.read_text(), flags=re.S)
            found = re.findall(r".*(?:[\d.]+ m?s|minutes?) of (?:processor|user|CPU) time.*|.*processor time \|", text)
            self.assertEqual(found if page.name != "measurements.md" else [], [], page)

    # Numbers with units that no command prints: how many a page may have outside the tables of scripts/figures and outside
    # examples, and what they are. A page without a row has none. A number goes, or the command that prints it takes its place.
    PROSE = {
        "diagnose.md": (2, "limits, definitions and examples of what a number means"),
        "gallery.md": (2, "limits, definitions and examples of what a number means"),
        "gpu.md": (24, "records of measurements on GPUs, each with its card"),
        "interchange.md": (1, "limits, definitions and examples of what a number means"),
        "json.md": (6, "limits, definitions and examples of what a number means"),
        "launch.md": (22, "time limits; transports measured on two machines"),
        "low-precision.md": (4, "limits, definitions and examples of what a number means"),
        "measurements.md": (293, "records of measurements, each with its date and machine"),
        "mfu.md": (7, "limits, definitions and examples of what a number means"),
        "page.md": (1, "limits, definitions and examples of what a number means"),
        "parallelism.md": (3, "limits, definitions and examples of what a number means"),
        "platform.md": (32, "constants of platforms with their sources; rules of calibrate; the name l40s"),
        "profiles.md": (1, "limits, definitions and examples of what a number means"),
        "runs.md": (45, "published numbers of failures and stragglers, with their sources"),
        "simulation.md": (41, "constants with their sources; records of tests that a link names"),
        "sweep.md": (3, "limits, definitions and examples of what a number means"),
        "validate.md": (200, "what was predicted before anything was changed, which no command can print again; sources"),
        "walk-what-if.md": (2, "limits, definitions and examples of what a number means"),
        "walk-compare.md": (2, "limits, definitions and examples of what a number means"),
        "README.md": (1, "limits, definitions and examples of what a number means"),
    }

    def test_figures_in_prose(self):
        unit = re.compile(r"\d\s?(?:%|ms\b|µs\b|s\b|GiB\b|GB/s\b|TFLOP/s\b)")
        for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
            text = re.sub(r"<!-- figures: .*?<!-- end of figures -->|^```.*?^```|^    .*?$", "", page.read_text(), flags=re.S | re.M)
            most, reason = self.PROSE.get(page.name, (0, "none"))
            self.assertLessEqual(len(unit.findall(text)), most, f"{page.name} ({reason}): more numbers stand by hand than are known")

    def test_readme_is_short(self):
        words = re.sub(r"<!-- figures: .*?<!-- end of figures -->", "", (ROOT / "README.md").read_text(), flags=re.S).split()
        self.assertLessEqual(len(words), 500)

    @unittest.skipUnless(shutil.which("mkdocs"), "mkdocs is not installed")
    def test_site(self):
        """docs/ builds as a site without dead links, and every page is in its menu."""
        done = subprocess.run(["mkdocs", "build", "--strict", "--config-file", ROOT / "mkdocs.yml", "--site-dir", self.folder / "site"],
                              capture_output=True, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)
        pages = {page.name for page in (ROOT / "docs").glob("*.md")}
        self.assertEqual(pages - set(re.findall(r": (\S+\.md)", (ROOT / "mkdocs.yml").read_text())), set())
        self.assertTrue((self.folder / "site/walk-what-if.html").exists())


if __name__ == "__main__":
    main()
