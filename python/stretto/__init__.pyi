from os import PathLike
from typing import Any, Callable, Dict, Iterable, Iterator, List, Literal, Mapping, Optional, Sequence, Union

Value = Union[bool, int, float, str, "PathLike[str]", Sequence["Value"], Mapping[str, "Value"]]
Name = Union[str, "PathLike[str]"]

__version__: str

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
) -> Dict[str, Any]: ...
def sweep(
    scenario: Name,
    over: Optional[Mapping[str, Union[Value, Iterable[Value]]]] = ...,
    set: Optional[Mapping[str, Value]] = ...,
    platform: Optional[Name] = ...,
    *,
    best: int = ...,
    all: bool = ...,
) -> Iterator[Dict[str, Any]]: ...
def import_(
    file: Optional[Name] = ...,
    *,
    flags: Optional[str] = ...,
    format: Optional[Literal["megatron", "yaml", "torchtitan", "bridge"]] = ...,
    set: Optional[Mapping[str, Value]] = ...,
    env: Optional[Mapping[str, Any]] = ...,
    gpus: int = ...,
) -> Dict[str, Any]: ...
def export(scenario: Name, format: Literal["megatron", "bridge", "torchtitan"], set: Optional[Mapping[str, Value]] = ...) -> Dict[str, Any]: ...
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
) -> Dict[str, Any]: ...
def show(scenario: Name, set: Optional[Mapping[str, Value]] = ..., platform: Optional[Name] = ...) -> Dict[str, Any]: ...
def gates(scenario: Name, set: Optional[Mapping[str, Value]] = ..., platform: Optional[Name] = ...) -> List[Dict[str, Any]]: ...
def compare(scenario: Name, set: Optional[Mapping[str, Value]] = ..., platform: Optional[Name] = ...) -> Dict[str, Any]: ...
def train(
    scenario: Name,
    set: Optional[Mapping[str, Value]] = ...,
    *,
    on_step: Optional[Callable[[Dict[str, Any]], Optional[bool]]] = ...,
    on_message: Optional[Callable[[str], Any]] = ...,
) -> Dict[str, Any]: ...
def names(kind: Literal["platforms", "profiles", "models", "modes"]) -> List[str]: ...
