from os import PathLike
from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, Union

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
) -> Dict[str, Any]: ...
def show(scenario: Name, set: Optional[Mapping[str, Value]] = ..., platform: Optional[Name] = ...) -> Dict[str, Any]: ...
def gates(scenario: Name, set: Optional[Mapping[str, Value]] = ..., platform: Optional[Name] = ...) -> List[Dict[str, Any]]: ...
def compare(scenario: Name, set: Optional[Mapping[str, Value]] = ..., platform: Optional[Name] = ...) -> Dict[str, Any]: ...
def names(kind: Literal["platforms", "profiles", "models", "modes"]) -> List[str]: ...
