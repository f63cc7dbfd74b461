"""Stretto from Python: predict a training step, look at its schedule, compare with what this machine measures.

    import stretto
    step = stretto.simulate("llama3-70b", {"parallel.data_parallel_size": 8, "training.global_batch_size": 128})
    print(step["step_ms"], step["mfu"])

Scenarios and platforms are files, or names of those that come with Stretto (`names`). Results are the dicts of docs/json.md.
Wrong input is an InputError in one line: file, line, key, what was expected.
"""
import json as _json
import threading as _threading

from . import _stretto
from ._stretto import Error, InputError, __version__

__all__ = ["Error", "InputError", "__version__", "compare", "gates", "names", "show", "simulate"]

_one_at_a_time = _threading.Lock()


def _value(value):
    """A value as --set takes it: text as it is, the rest as in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_json.dumps(v) if isinstance(v, str) else _value(v) for v in value) + "]"
    return repr(value)


def _call(function, scenario, set, platform, *more):
    pairs = [f"{key}={_value(value)}" for key, value in (set or {}).items()]
    with _one_at_a_time:
        return _json.loads(function(str(scenario), pairs, str(platform or ""), *more))


def simulate(scenario, set=None, platform=None, *, engine="fluid", backbone_GBps=0.0, modes=False):
    """The predicted step; with `modes` every overlap mode, with advice. Keys are overridden by `set`."""
    return _call(_stretto.simulate, scenario, set, platform, engine, float(backbone_GBps), bool(modes))


def show(scenario, set=None, platform=None):
    """The schedule, verified."""
    return _call(_stretto.show, scenario, set, platform)


def gates(scenario, set=None, platform=None):
    """What each overlap knob needs, and which of it is missing."""
    return _call(_stretto.gates, scenario, set, platform)["gates"]


def compare(scenario, set=None, platform=None):
    """Every overlap mode at every number of ranks, predicted and measured on this machine's processor."""
    return _call(_stretto.compare, scenario, set, platform)


def names(kind):
    """Names of the "platforms", "profiles", "models" or "modes" that come with Stretto."""
    return _stretto.names(kind)
