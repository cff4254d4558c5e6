"""libpytracer_torch through ctypes: the C interface of csrc/hooks/library.h.

There is one library for each minor version of torch that this pytracer was built for, and each serves every CPython.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytracer import _paths as paths
from pytracer._errors import RecordingError
from pytracer._torch_libraries import Libraries, Torch, libraries
from pytracer.record import c_interface
from pytracer.record.c_interface import Function

if TYPE_CHECKING:
    from torch.optim import Optimizer

_OBJECT, _WIDE = ctypes.py_object, ctypes.c_uint64
_FUNCTIONS = (
    Function("version", ctypes.c_char_p),
    Function("install", _OBJECT, (ctypes.c_int, _OBJECT)),
    Function("uninstall", None),
    Function("call_site", _WIDE),
    Function("watch_ranges", None),
    Function("follow_preexisting", _OBJECT, (_OBJECT, _WIDE)),
    Function("buckets", _OBJECT, (_OBJECT,)),
    Function("optimizer_steps", _OBJECT),
    Function("attend_steps", None, (_OBJECT,)),
    Function("forget_optimizer", None, (ctypes.c_void_p,)),
)

Bucket = tuple[int, int, int, list[tuple[int, int, int]]]
"""Index, address, bytes, and of each parameter (`_cdata`, offset in bytes, bytes)."""


class OptimizerSteps:
    """What `TorchLibrary.optimizer_steps` returns, for type checkers."""

    last: object


class TorchLibrary:
    """The hooks for the torch of this process, loaded and not installed."""

    def __init__(self, path: Path) -> None:
        self._lib = c_interface.load(path)
        c_interface.declare(self._lib, "pytracer_torch_", _FUNCTIONS)

    @property
    def torch_version(self) -> str:
        """What the library was built for: a minor version of torch, or the identity of one torch."""
        return str(self._lib.pytracer_torch_version().decode())

    def install(self, level: int, library_directories: Sequence[str]) -> list[tuple[str, str]]:
        """Installs the hooks; returns the name of each and why it is not installed, or "".

        Frames of files below `library_directories` (ending in a slash) are not the user's own.
        """
        installed: list[tuple[str, str]] = self._lib.pytracer_torch_install(level, list(library_directories))
        return installed

    def uninstall(self) -> None:
        """Removes the hooks."""
        self._lib.pytracer_torch_uninstall()

    def call_site_function(self) -> int:
        """The address of the function that the CUDA half calls for a call site, under the allocator's lock."""
        return int(self._lib.pytracer_torch_call_site())

    def watch_ranges(self) -> None:
        """This process has a process group: from now on named ranges show its collectives and FSDP's units."""
        self._lib.pytracer_torch_watch_ranges()

    def follow_preexisting(self, objects: list[object], budget_ns: int) -> tuple[int, int, int]:
        """Adds the storages of tensors among `objects`: how many were looked at, storages followed, not followed."""
        seen: tuple[int, int, int] = self._lib.pytracer_torch_follow_preexisting(objects, budget_ns)
        return seen

    def buckets(self, reducer: object) -> list[Bucket]:
        """The buckets of a DDP Reducer, in order of reduction.

        Raises:
            TypeError: `reducer` is something else.
        """
        found: list[Bucket] = self._lib.pytracer_torch_buckets(reducer)
        return found

    def optimizer_steps(self) -> OptimizerSteps:
        """An object; assigning an optimizer that has stepped to its attribute `last` counts the steps of the first."""
        made: OptimizerSteps = self._lib.pytracer_torch_optimizer_steps()
        return made

    def attend_steps(self, attend: Callable[[Optimizer], int] | None) -> None:
        """`attend` is called with a new optimizer, and after the CLOCK_MONOTONIC time in ns that it returned last.

        None ends that; either starts counting anew.
        """
        self._lib.pytracer_torch_attend_steps(attend)

    def forget_optimizer(self, address: int) -> None:
        """The optimizer at that address was destroyed."""
        self._lib.pytracer_torch_forget_optimizer(address)


def load_for_this_process() -> tuple[TorchLibrary, Libraries]:
    """`load` for the torch that was imported."""
    import torch

    return load(Torch(torch.__version__, torch.version.git_version or ""))


def load(torch: Torch) -> tuple[TorchLibrary, Libraries]:
    """The library for this torch, and where its CUDA half is.

    Raises:
        RecordingError: there is none, or it does not load; the message says why.
    """
    if "t" in sys.abiflags:
        raise RecordingError("this CPython is free-threaded", "use one with the GIL")
    found = libraries(torch)
    path = found.path()
    try:
        library = TorchLibrary(path)
    except (OSError, AttributeError) as error:
        raise RecordingError(f"{path} does not load: {error}", paths.install_again()) from error
    if library.torch_version != found.built_for:
        raise RecordingError(f"{path} was built for torch {library.torch_version}", paths.install_again())
    return library, found
