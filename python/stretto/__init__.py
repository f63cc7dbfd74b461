"""Stretto from Python: predict a training step, look at its schedule, compare with what this machine measures.

    import stretto
    step = stretto.simulate("llama3-70b", {"parallel.data_parallel_size": 8, "training.global_batch_size": 128})
    print(step.step_ms, step["mfu"])
    stretto.plan("llama3-70b", gpus=64).plot()

Scenarios and platforms are files, or names of those that come with Stretto (`names`). Results are the dicts of docs/json.md,
whose keys are attributes too; `table` makes columns of a list, `plot` a picture.
Wrong input is an InputError in one line: file, line, key, what was expected.
"""
import collections.abc as _abc
import json as _json
import numbers as _numbers
import os as _os
import threading as _threading

from . import _command, _stretto
from ._result import Result
from ._stretto import Error, InputError, __version__

__all__ = ["Error", "InputError", "Result", "__version__", "compare", "diagnose", "export", "gates", "import_", "list", "names", "plan", "show",
           "simulate", "sweep", "train", "validate"]

_list = list  # a function below has its name

_one_at_a_time = _threading.RLock()  # callbacks of train() may call the library


_DEPTH = 16  # lists and dicts inside each other, as in a file


def _result(text):
    return _json.loads(text, object_hook=Result)


def _expected(what, wanted, value):
    return InputError(f"{what}: expected {wanted}, got {type(value).__name__}")


def _text(value):
    """Returns a TOML string. JSON has the same escapes, except that TOML requires an escape for DEL and forbids
    surrogates."""
    return _json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _number(what, value):
    try:
        return str(int(value)) if isinstance(value, _numbers.Integral) else repr(float(value))
    except (OverflowError, ValueError):
        raise InputError(f"{what}: expected a number of 64 bits, got a larger one") from None


def _value(key, value, depth=0):
    """Returns a value as --set takes it: a top-level string unchanged, everything else in TOML's syntax."""
    if depth > _DEPTH:
        raise InputError(f"{key}: expected at most {_DEPTH} lists and dicts in each other, got more")
    if isinstance(value, bool) or type(value).__name__ == "bool_":  # numpy's
        return "true" if value else "false"
    if isinstance(value, (str, _os.PathLike)):
        value = _os.fspath(value)
        if isinstance(value, str):
            return value if depth == 0 else _text(value)
    if isinstance(value, _numbers.Real):
        return _number(key, value)
    if isinstance(value, (_list, tuple)):
        return "[" + ", ".join(_value(key, one, depth + 1) for one in value) + "]"
    if isinstance(value, _abc.Mapping):
        pairs = [(_name(f"a key of {key}", name), one) for name, one in value.items()]
        return "{" + ", ".join(f"{_text(name)} = {_value(f'{key}.{name}', one, depth + 1)}" for name, one in pairs) + "}"
    raise _expected(key, "a bool, number, string, list or dict", value)


def _name(what, value, wanted="a string"):
    """Returns text that UTF-8 can encode and that has no NUL, because NUL would end a path or a message."""
    if isinstance(value, _os.PathLike):
        value = _os.fspath(value)
    if not isinstance(value, str):
        raise _expected(what, wanted, value)
    if "\0" in value:
        raise InputError(f"{what}: expected text, got a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{what}: expected text that UTF-8 can hold, got half of a character") from None
    return value


def _request(scenario, set, platform):
    scenario = _name("scenario", scenario, "a name or a path")
    platform = "" if platform is None else _name("platform", platform, "a name, a path or None")
    if set is not None and not isinstance(set, _abc.Mapping):
        raise _expected("set", 'a dict of keys and values, as {"training.lr": 3e-4}', set)
    pairs = [_name(key, f"{key}={_value(key, value)}") for key, value in
             ((_name("a key of set", key), value) for key, value in (set or {}).items())]
    return scenario, pairs, platform


def _call(function, scenario, set, platform, *more):
    request = _request(scenario, set, platform)
    with _one_at_a_time:
        return _result(function(*request, *more))


def simulate(scenario, set=None, platform=None, *, engine="fluid", backbone_GBps=0.0, modes=False, limits=False, fit=False):
    """Returns the predicted step. With `modes` it also has every overlap mode, with advice; with `limits`, on published
    GPUs, what the step depends on; with `fit`, changes with which it fits into memory. `set` overrides keys."""
    if isinstance(backbone_GBps, bool) or not isinstance(backbone_GBps, _numbers.Real):
        raise _expected("backbone_GBps", "a number of GB/s", backbone_GBps)
    backbone_GBps = float(_number("backbone_GBps", backbone_GBps))
    return _call(_stretto.simulate, scenario, set, platform, _name("engine", engine), backbone_GBps, bool(modes), bool(limits), bool(fit))


def sweep(scenario, over=None, set=None, platform=None, *, best=10, all=False):
    """Yields each point of a sweep as a dict, as soon as it is known. `over` is a dict of keys and lists of values, or
    "legal". A point that cannot be among the `best` is not simulated, unless `all`."""
    axes = _axes(over)
    if isinstance(best, bool) or not isinstance(best, _numbers.Integral) or best < 1:
        raise _expected("best", "a whole number from 1 on", best)
    request = _request(scenario, set, platform)
    with _one_at_a_time:
        points = _stretto.Sweep(*request, axes, int(best), bool(all))
    while True:
        with _one_at_a_time:
            line = points.next()
        if not line:
            return
        yield _result(line)


def _whole(what, value, least):
    if isinstance(value, bool) or not isinstance(value, _numbers.Integral) or not least <= value < 2**31:
        raise _expected(what, f"a whole number from {least} on", value)
    return int(value)


def import_(file=None, *, flags=None, format=None, set=None, env=None, gpus=0):
    """Returns settings of another program as a scenario: a dict of `text`, in TOML, and `notes`. `file` is a launch
    script, a log, a recipe or a configuration; `flags` are the flags themselves; `env` has variables that a script
    finds set."""
    if (file is None) == (flags is None):
        raise InputError("import_: expected one of file and flags")
    if env is not None and not isinstance(env, _abc.Mapping):
        raise _expected("env", 'a dict of names and values, as {"TP": "8"}', env)
    texts = ["" if one is None else _name(what, one) for what, one in (("file", file), ("flags", flags), ("format", format))]
    variables = [f"{_name('a key of env', key)}={_name(f'env {key}', str(value))}" for key, value in (env or {}).items()]
    _, pairs, _ = _request("", set, None)
    with _one_at_a_time:
        return _result(_stretto.import_settings(*texts, pairs, variables, _whole("gpus", gpus, 0)))


def export(scenario, format, set=None):
    """Returns a scenario in another program's terms, "megatron", "bridge" or "torchtitan": a dict of `text` and
    `notes`."""
    return _call(_stretto.export_settings, scenario, set, None, _name("format", format))


def diagnose(trace, scenario=None, set=None, platform=None, *, model=None, rank=-1, section=None, window=None):
    """Returns why a run differs from the predicted step. Without a scenario it returns the one that the trace shows: a
    dict of `scenario`, in TOML, its `keys`, and what is `not_known`; `model` names the model then."""
    texts = ["" if one is None else _name(what, one) for what, one in (("section", section), ("window", window))]
    return _call(_stretto.diagnose, "" if scenario is None else scenario, set, platform, _name("trace", trace, "a path"), *texts,
                 _whole("rank", rank, -1), "" if model is None else _name("model", model))


def _program(*words):
    """Returns the JSON of a command of the program."""
    code, printed, message = _command.run([*words, "--json", "-"])
    if code:
        raise (InputError if code == 2 else Error)(message or f"stretto {words[0]} ended with code {code}")
    return _result(printed)


def _options(pairs):
    """Returns the words of options that are given; their values are text or whole numbers."""
    words = []
    for option, value in pairs:
        if value is not None:
            words += [option, str(_whole(option, value, 1)) if isinstance(value, _numbers.Number) else _name(option, value)]
    return words


def _axes(over):
    if over is not None and not isinstance(over, _abc.Mapping):
        raise _expected("over", 'a dict of keys and values, as {"gpus": [64, 128]}', over)
    axes = []
    for key, values in (over or {}).items():
        values = [values] if isinstance(values, str) or not isinstance(values, _abc.Iterable) else values
        axes.append(_name("a key of over", key) + "=" + ",".join(_value(key, value) for value in values))
    return axes


def plan(model, gpus, *, global_batch=None, seq_length=None, platform=None, profile=None, precision=None, set=None, over=None, best=None):
    """Returns the best layouts of a model on a number of GPUs: `points`, and `best` in full. `model` is a name or a
    config.json."""
    _, pairs, _ = _request("", set, None)
    words = _options((("--gpus", gpus), ("--global-batch", global_batch), ("--seq-length", seq_length), ("--platform", platform),
                      ("--profile", profile), ("--precision", precision), ("--best", best)))
    for option, values in (("--set", pairs), ("--over", _axes(over))):
        for value in values:
            words += [option, value]
    return _program("plan", _name("model", model, "a name or a path"), *words)


def validate(file=None, *, intervals=False, leave_out=False):
    """Returns predicted against published step times: `groups` and `rows`. `file` has published steps (docs/validate.md);
    None: those that come with Stretto."""
    words = [] if file is None else [_name("file", file, "a path or None")]
    return _program("validate", *words, *(["--intervals"] if intervals else []), *(["--leave-out"] if leave_out else []))


def list(what):
    """Returns the "models", "platforms", "profiles" or "recipes" that have names: `rows` of what is known of each."""
    return _program("list", _name("what", what))


def show(scenario, set=None, platform=None):
    """Returns the verified schedule."""
    return _call(_stretto.show, scenario, set, platform)


def gates(scenario, set=None, platform=None):
    """Returns the conditions of each overlap knob, and which of them are not met."""
    return _call(_stretto.gates, scenario, set, platform)["gates"]


def compare(scenario, set=None, platform=None):
    """Returns every overlap mode at every number of ranks, as predicted and as measured on this machine's
    processor."""
    return _call(_stretto.compare, scenario, set, platform)


def train(scenario, set=None, *, on_step=None, on_message=None):
    """Trains on this machine's processor, or resumes, and returns every step. `on_step` is called after each with a
    dict of `step`, `loss`, `gradient_norm`, `lr`, `step_ms`, `tokens_per_s` and `skipped`. When it returns False,
    raises, or Ctrl-C is pressed, training stops cleanly: with a checkpoint, where the scenario has a checkpoint_dir.
    `on_message` is called with lines about checkpoints and weights."""
    for name, callback in (("on_step", on_step), ("on_message", on_message)):
        if callback is not None and not callable(callback):
            raise _expected(name, "a function or None", callback)
    after_step = None if on_step is None else lambda line: on_step(_result(line)) is not False
    return _call(_stretto.train, scenario, set, None, after_step, on_message)


def names(kind):
    """Returns the names of the "platforms", "profiles", "models" or "modes" that come with Stretto."""
    return _stretto.names(_name("kind", kind))
