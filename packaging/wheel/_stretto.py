"""The functions of python/module.cpp by the command of the same wheel, so that one wheel serves every Python and C library:
a process of the command has its own. python/stretto/__init__.py makes dicts of their results, which are the JSON of the command."""
import json as _json
import os as _os
import pathlib as _pathlib
import subprocess as _subprocess

_INSTALLED = _pathlib.Path(__file__).resolve().parent / "_installed"
_WRONG_INPUT = 2  # the command's exit code


class Error(RuntimeError):
    pass


class InputError(Error):
    pass


def _run(*words):
    """Returns the standard output of a command and the lines of its standard error."""
    try:
        done = _subprocess.run([str(_INSTALLED / "bin/stretto"), *words], stdin=_subprocess.DEVNULL, capture_output=True)
    except OSError as error:
        raise Error(f"{error.filename}: {error.strerror}") from None
    lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line]
    if done.returncode:
        message = (lines or [f"the command ended with {done.returncode}"])[-1]
        raise (InputError if done.returncode == _WRONG_INPUT else Error)(message[len("stretto: "):] if message.startswith("stretto: ") else message)
    return done.stdout.decode(), lines


def _json_of(command, *words):
    return _run(command, *words, "--json", "-")[0]


def _request(scenario, set, platform):
    return [*([f"./{scenario}"] if scenario.startswith("-") else [scenario]), *(word for one in set for word in ("--set", one)),
            *(["--platform", platform] if platform else [])]


def simulate(scenario, set, platform, engine, backbone_GBps, modes, limits, fit):
    words = ["--engine", engine] + (["--backbone-GBps", repr(backbone_GBps)] if backbone_GBps else [])
    return _json_of("simulate", *_request(scenario, set, platform), *words,
                    *(name for name, is_asked in (("--modes", modes), ("--limits", limits), ("--fit", fit)) if is_asked))


def show(scenario, set, platform):
    return _json_of("show", *_request(scenario, set, platform))


def gates(scenario, set, platform):
    return _json_of("show", "--gates", *_request(scenario, set, platform))


def compare(scenario, set, platform):
    return _json_of("compare", *_request(scenario, set, platform))


def train(scenario, set, platform, on_step, on_message):
    if on_step is not None or on_message is not None:
        raise InputError("train: on_step and on_message need the module of a build (docs/library.md), because this one runs the command")
    return _json_of("train", *_request(scenario, set, platform))


def _text_of(*words):
    text, lines = _run(*words)
    return _json.dumps({"text": text, "notes": [line[len("note: "):] if line.startswith("note: ") else line for line in lines]})


def import_settings(file, flags, format, set, environment, gpus):
    return _text_of("import", *([file] if file else ["--flags", flags]), *(["--format", format] if format else []),
                    *(word for one in set for word in ("--set", one)), *(word for one in environment for word in ("--env", one)),
                    *(["--gpus", str(gpus)] if gpus else []))


def export_settings(scenario, set, platform, format):
    return _text_of("export", *_request(scenario, set, platform), "--format", format)


def diagnose(scenario, set, platform, trace, section, window, rank, model):
    named = [word for option, value in (("--section", section), ("--window", window), ("--model", model)) if value for word in (option, value)]
    return _json_of("diagnose", trace, *(_request(scenario, set, platform) if scenario else []), *named, *(["--rank", str(rank)] if rank >= 0 else []))


class Sweep:
    """Runs a whole sweep; next() returns its points, and "" after the last."""

    def __init__(self, scenario, set, platform, over, best, all):
        words = [word for one in over for word in ("--over", one)]
        value = _json.loads(_json_of("sweep", *_request(scenario, set, platform), *words, "--best", str(best), *(["--all"] if all else [])))
        self._points = iter(value["points"])

    def next(self):
        point = next(self._points, None)
        return "" if point is None else _json.dumps(point)


def names(kind):
    kinds = ("platforms", "profiles", "models", "modes")
    if kind not in kinds:
        raise InputError(f"names: expected one of {', '.join(kinds)}, got {kind}")
    return sorted(path.stem for path in (_INSTALLED / "share/stretto" / kind).glob("*.toml"))


__version__ = _run("--version")[0].split()[1]
