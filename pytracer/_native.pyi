"""Types of the torch half (csrc/bindings/module.cpp)."""

from collections.abc import Callable
from typing import Any

TORCH_VERSION: tuple[int, int]

def install(level: int, library_directories: list[str]) -> list[tuple[str, str]]:
    """Installs the hooks; returns each one's name and why it refused, or "" when it works.

    Frames of files below `library_directories` (ending in a slash) are not the user's own.
    """

def uninstall() -> None:
    """Takes the hooks back."""

def optimizer_steps() -> Any:
    """An object whose attribute `last` is told each optimizer that has stepped: counts the steps of the first one."""

def attend_steps(attend: Callable[[Any], int] | None, /) -> None:
    """`attend` is called with an optimizer that is new, and after the CLOCK_MONOTONIC time in ns that it returned last.

    None ends it; either begins anew to count.
    """

def forget_optimizer(address: int, /) -> None:
    """The optimizer at that address is gone."""

def watch_ranges() -> None:
    """This process has a process group: its ranges tell of collectives and of FSDP's units from now on."""

def buckets(reducer: Any) -> list[tuple[int, int, int, list[tuple[int, int, int]]]]:
    """Buckets in order of reduction: index, address, bytes, and per parameter (_cdata, offset, bytes)."""

def follow_preexisting(objects: list[Any], budget_ns: int) -> tuple[int, int, int]:
    """Adds the storages of tensors among `objects`: how many were looked at, storages followed, not followed."""
