from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

_Scalar = str | bool | int | float | PathLike[str] | np.generic
_Value = _Scalar | Sequence[Any] | Mapping[str, Any] | None
_Config = Mapping[str, Any] | str | PathLike[str] | None
_Report = dict[str, Any]

__version__: str
__all__: list[str]

class Error(ValueError):
    file: str | None
    line: int | None
    field: str | None
    value: str | None
    allowed: str | None
    exit_code: int
    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        field: str | None = None,
        value: str | None = None,
        allowed: str | None = None,
        exit_code: int = 2,
    ) -> None: ...

def flags() -> list[str]: ...
def simulate(
    config: _Config = None,
    *,
    set: Mapping[str, _Value] | None = None,
    **flags: _Value,
) -> _Report: ...
def timeline(
    config: _Config = None,
    *,
    whole: bool = False,
    set: Mapping[str, _Value] | None = None,
    **flags: _Value,
) -> NDArray[np.void]: ...
def schedule(
    name: str | PathLike[str] | None = None,
    config: _Config = None,
    *,
    set: Mapping[str, _Value] | None = None,
    **flags: _Value,
) -> _Report: ...
def check(
    file: str | PathLike[str],
    config: _Config = None,
    *,
    semantics: Literal["buffered", "rendezvous", "nccl", "batched"] = "buffered",
    queues: int | None = None,
    resident_kernels: int | None = None,
    set: Mapping[str, _Value] | None = None,
    **flags: _Value,
) -> _Report: ...
def plan(
    config: _Config = None,
    *,
    fix: Mapping[str, _Value] | None = None,
    objective: Literal["tokens_per_s", "cost", "energy"] = "tokens_per_s",
    workers: int | None = None,
    confirm: int | None = None,
    top: int = 10,
    time: float | str | None = None,
    max_candidates: int = 0,
    refine: int = 0,
    set: Mapping[str, _Value] | None = None,
    **flags: _Value,
) -> _Report: ...
def sweep(
    config: _Config = None,
    axes: Mapping[str | tuple[str, ...], Iterable[Any] | str] | None = None,
    *,
    filters: str | Iterable[str] = (),
    seeds: int = 0,
    workers: int | None = None,
    set: Mapping[str, _Value] | None = None,
    **flags: _Value,
) -> Iterator[_Report]: ...
def load_profile(name: str | PathLike[str]) -> _Report: ...
