from os import PathLike
from typing import Any, Callable, Dict, Iterable, Iterator, List, Literal, Mapping, Optional, Sequence, Union

Value = Union[bool, int, float, str, "PathLike[str]", Sequence["Value"], Mapping[str, "Value"]]
Name = Union[str, "PathLike[str]"]

__version__: str

class Result(Dict[str, Any]):
    def __getattr__(self, name: str) -> Any: ...
    def table(self, name: str) -> Dict[str, List[Any]]: ...
    def plot(self, ax: Any = ...) -> Any: ...

class Error(RuntimeError): ...
class InputError(Error): ...

def simulate(
    scenario: Name,
    set: Optional[Mapping[str, Value]] = ...,
    platform: Optional[Name] = ...,
    *,
    engine: Literal["fluid", "simgrid"] = ...,
    backbone_GBps: float = ...,
    modes: bool = ...,
    limits: bool = ...,
    fit: bool = ...,
) -> Result: ...
def sweep(
    scenario: Name,
    over: Optional[Mapping[str, Union[Value, Iterable[Value]]]] = ...,
    set: Optional[Mapping[str, Value]] = ...,
    platform: Optional[Name] = ...,
    *,
    best: int = ...,
    all: bool = ...,
) -> Iterator[Result]: ...
def import_(
    file: Optional[Name] = ...,
    *,
    flags: Optional[str] = ...,
    format: Optional[Literal["megatron", "yaml", "torchtitan", "bridge"]] = ...,
    set: Optional[Mapping[str, Value]] = ...,
    env: Optional[Mapping[str, Any]] = ...,
    gpus: int = ...,
) -> Result: ...
def export(scenario: Name, format: Literal["megatron", "bridge", "torchtitan"], set: Optional[Mapping[str, Value]] = ...) -> Result: ...
def diagnose(
    trace: Name,
    scenario: Optional[Name] = ...,
    set: Optional[Mapping[str, Value]] = ...,
    platform: Optional[Name] = ...,
    *,
    model: Optional[str] = ...,
    rank: int = ...,
    section: Optional[str] = ...,
    window: Optional[str] = ...,
) -> Result: ...
def show(scenario: Name, set: Optional[Mapping[str, Value]] = ..., platform: Optional[Name] = ...) -> Result: ...
def gates(scenario: Name, set: Optional[Mapping[str, Value]] = ..., platform: Optional[Name] = ...) -> List[Result]: ...
def compare(scenario: Name, set: Optional[Mapping[str, Value]] = ..., platform: Optional[Name] = ...) -> Result: ...
def train(
    scenario: Name,
    set: Optional[Mapping[str, Value]] = ...,
    *,
    on_step: Optional[Callable[[Result], Optional[bool]]] = ...,
    on_message: Optional[Callable[[str], Any]] = ...,
) -> Result: ...
def names(kind: Literal["platforms", "profiles", "models", "modes"]) -> List[str]: ...
def plan(
    model: Name,
    gpus: int,
    *,
    global_batch: Optional[int] = ...,
    seq_length: Optional[int] = ...,
    platform: Optional[Name] = ...,
    profile: Optional[Name] = ...,
    precision: Optional[str] = ...,
    set: Optional[Mapping[str, Value]] = ...,
    over: Optional[Mapping[str, Union[Value, Iterable[Value]]]] = ...,
    best: Optional[int] = ...,
) -> Result: ...
def validate(file: Optional[Name] = ..., *, intervals: bool = ..., leave_out: bool = ...) -> Result: ...
def list(what: Literal["models", "platforms", "profiles", "recipes"]) -> Result: ...
