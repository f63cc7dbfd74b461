"""The page's figures are those of the command, digit for digit.

  tests/page/page_test.py PAGE STRETTO [--states N] [--seed N] [--node]

PAGE is build/page/page.html of scripts/page, STRETTO the program of the same commit. Random states of the page, N
answered ones and those refused between them, are computed in a headless Chromium (--node: in Node.js, which needs a tenth
of the time and shows nothing) and by `stretto simulate`: results are equal as text, and so are the lines of refused states.
"""
import argparse
import json
import math
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import urllib.parse

from browser import Browser
from node import Node
from studio import Studio

# Sizes that states set; all other keys and values come from the page's own lists.
SIZES = {"parallel.tensor_model_parallel_size": [1, 2, 4, 8], "parallel.pipeline_model_parallel_size": [1, 2, 4, 8],
         "parallel.virtual_pipeline_model_parallel_size": [1, 2, 4, 5], "parallel.context_parallel_size": [1, 2, 4],
         "parallel.expert_model_parallel_size": [1, 2, 4, 8], "parallel.data_parallel_size": [1, 2, 4, 16],
         "training.micro_batch_size": [1, 2, 4], "training.global_batch_size": [64, 128, 256, 512],
         "model.seq_length": [2048, 4096, 8192, 16384], "model.num_layers": [8, 16, 40]}


def random_state(draw, lists):
    """Returns a scenario on a platform with one to four keys changed; more would seldom fit together."""
    state = {"scenario": draw.choice(lists["scenarios"]), "platform": draw.choice(lists["platforms"]), "set": {}}
    keys = [key for key in lists["keys"] if key["section"] in ("overlap", "parallel", "training")]
    switches = [key["key"] for key in keys if key["kind"] == "boolean"]
    words = [key for key in keys if key["kind"] == "word"]
    for _ in range(draw.randint(1, 4)):
        kind = draw.random()
        if kind < 0.5:
            key = draw.choice(list(SIZES))
            state["set"][key] = str(draw.choice(SIZES[key]))
        elif kind < 0.85:
            state["set"][draw.choice(switches)] = draw.choice(["true", "false"])
        else:
            key = draw.choice(words)
            state["set"][key["key"]] = draw.choice(key["choices"]) or '""'
    return state


def address_of(state):
    return urllib.parse.urlencode({"scenario": state["scenario"], "platform": state["platform"], **state["set"]})


def figures(text, key=None):
    """Returns results as a dictionary whose numbers are texts, without the time that simulating took."""
    value = json.loads(text, parse_float=lambda number: f"float {number}", parse_int=lambda number: f"integer {number}")
    value = value[key] if key else value
    for key in ("simulate_s", "step_low_ms", "step_high_ms", "interval_from"):  # wall time; the page asks for intervals apart
        value.pop(key, None)
    return value


def commanded(program, state, folder):
    """Returns the results of the command, or its error."""
    file = pathlib.Path(folder) / "result.json"
    sets = [word for key, value in state["set"].items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run([program, "simulate", state["scenario"], "--platform", state["platform"], *sets, "--json", file],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"error": done.stderr.strip().removeprefix("stretto: ")}
    return figures(file.read_text())


def differences(one, other, path=""):
    if type(one) is not type(other):
        return [f"{path}: {one} and {other}"]
    if isinstance(one, dict):
        return [text for key in {**one, **other} for text in differences(one.get(key), other.get(key), f"{path}.{key}")]
    if isinstance(one, list) and len(one) == len(other):
        return [text for i, (a, b) in enumerate(zip(one, other)) for text in differences(a, b, f"{path}[{i}]")]
    return [] if one == other else [f"{path}: {one} and {other}"]


def neutral(error):
    """Returns an error without the folders in which each side has its files."""
    return re.sub(r"\S*/(models|platforms|profiles)/", r"\1/", error)


def rounded(value):
    """Returns a number with three significant digits, as the page writes it (page/ui/src/format.ts)."""
    if value == 0:
        return "0"
    return f"{value:.{min(3, max(0, 2 - math.floor(math.log10(abs(value)))))}f}"


def check_shown(browser, state, expected):
    """The large figures are those of the results, rounded."""
    browser.run(f"stretto.go({json.dumps(address_of(state))})")
    number = lambda key: float(expected[key].split()[1])  # noqa: E731
    step_ms = number("step_ms")
    step = rounded(step_ms / 1000) + "s" if step_ms >= 1000 else rounded(step_ms) + "ms" if step_ms >= 1 else rounded(1000 * step_ms) + "µs"
    cells = browser.run("[...document.querySelectorAll('.answers .v')].map((one) => one.textContent)")
    wanted = {"step": (step, cells[0] if cells else ""), "memory": (rounded(number("predicted_peak_bytes") / 2**30) + "of", cells[3] if len(cells) > 3 else "")}
    if expected["mfu"] is not None:
        wanted["MFU"] = (f"{100 * number('mfu'):.1f}", cells[2] if len(cells) > 2 else "")
    wrong = [f"{name}: expected {text}, shown is {cell}" for name, (text, cell) in wanted.items() if not cell.startswith(text)]
    exact = browser.run("document.getElementById('answer-step').dataset.ms")
    return wrong + ([] if float(exact) == step_ms else [f"{exact} and {step_ms}"])


def check_toml(browser, program, state, expected, folder):
    """The TOML that the page gives is the same scenario."""
    texts = json.loads(browser.run(f"stretto.ask('texts', {json.dumps(address_of(state))})"))
    file = pathlib.Path(folder) / "scenario.toml"
    file.write_text(texts["toml"])
    got = commanded(program, {"scenario": file, "platform": state["platform"], "set": {}}, folder)
    return differences(got, expected, "by its TOML")


def check_access(page):
    """On a phone the page is as wide as the screen; axe finds nothing that keeps people out."""
    studio = Studio(page, width=390, height=844)
    try:
        studio.settle()
        width = studio.run("document.documentElement.scrollWidth")
        return ([f"a screen of 390 pixels shows a page of {width}"] if width > 390 else []) + studio.violations()
    finally:
        studio.close()


class InBrowser:
    """The page in a Chromium, asked as a person's settings ask it."""

    def __init__(self, page):
        self.browser = Browser(page)
        self.browser.wait("window.stretto?.shown !== undefined")

    def ask(self, what, state=None):
        return self.browser.run(f"stretto.ask({json.dumps(what)}, {json.dumps(address_of(state) if state else '')})")

    def shown(self, state, expected, program, folder):
        return check_shown(self.browser, state, expected) + check_toml(self.browser, program, state, expected, folder)

    def close(self):
        self.browser.close()


def compare(predictor, given, shown_every):
    """Returns the differences of random states as (state, lines), and how many were answered, refused and shown."""
    draw = random.Random(given.seed)
    lists = json.loads(predictor.ask("lists"))
    failures, answered, refused, shown = [], 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        while answered < given.states and answered + refused <= 30 * given.states:
            state = random_state(draw, lists)
            expected = commanded(given.stretto, state, folder)
            text = predictor.ask("step", state)
            answer = json.loads(text)
            if "error" in answer or "error" in expected:
                refused += 1
                mine, theirs = neutral(answer.get("error", "")), neutral(expected.get("error", ""))
                if mine != theirs:
                    failures.append((state, [f"page: {mine}", f"command: {theirs}"]))
                continue
            answered += 1
            wrong = differences(figures(text, "simulate"), expected)
            if not wrong and shown_every and answered % shown_every == 0:
                shown += 1
                wrong = predictor.shown(state, expected, given.stretto, folder)
            if wrong:
                failures.append((state, wrong))
    return failures, answered, refused, shown


def check_signs(predictor):
    """An answer of many steps gives signs on its way: the page stops a predictor that is silent for 20 s."""
    answer = json.loads(predictor.ask("limits", {"scenario": "llama3-8b", "platform": "", "set": {}}, seconds=120))
    if "simulate" not in answer:
        return [f"no answer: {answer}"]
    tried = len(answer["simulate"]["machines"]) + len(answer["simulate"]["changes"])
    return [] if tried > 5 and predictor.signs >= tried else [f"{predictor.signs} signs of an answer with {tried} other steps"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("stretto", type=pathlib.Path)
    parser.add_argument("--states", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--node", action="store_true")
    given = parser.parse_args()
    url = given.page.resolve().as_uri()
    predictor = Node(given.page.with_name("stretto_page.js")) if given.node else InBrowser(url)
    try:
        failures, answered, refused, shown = compare(predictor, given, 0 if given.node else min(10, given.states))
        if given.node and (wrong := check_signs(predictor)):
            failures.append(({}, wrong))
    finally:
        predictor.close()
    if not given.node and (wrong := check_access(url)):
        failures.append(({}, wrong))
    for state, wrong in failures[:10]:
        print(json.dumps(state), *wrong[:8], sep="\n  ")
    print(f"{answered} states with equal answers, {refused} with equal refusals, {shown} shown as printed"
          if not failures else f"{len(failures)} differences in {answered + refused} states")
    sys.exit(1 if failures or answered < given.states else 0)


main()
