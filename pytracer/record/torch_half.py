"""The torch half: loads `_native`, installs its hooks, patches the few Python places that tell more."""

from __future__ import annotations

import gc
import importlib
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from pytracer._version import __version__
from pytracer.blackbox.numbers import Entry
from pytracer.record import unseen
from pytracer.record.config import LEVEL_NUMBERS
from pytracer.record.core import Core, core

_native: Any = None
_guards = False  # guard mode was armed in this process


def install(box: Core, level: str, *, late: bool = False) -> None:
    """Installs everything that works here. What does not is written into the box and steps aside. Never raises.

    `late`: torch was imported some time ago, so that modules may exist.
    """
    try:
        _install(box, level, late)
    except Exception as error:
        box.lib.pytracer_count_hook_error()
        box.note(f"the torch hooks are not installed: {type(error).__name__}: {error}")


def arm_guard(box: Core) -> None:
    """Guard mode as the environment says, once the hooks are there: they bring storages to it."""
    global _guards
    if _native is None or not (_guards or os.environ.get("PYTRACER_GUARD")):
        return
    from pytracer.record import guard  # here: few runs guard, and every process would pay for the import

    _guards = True
    guard.arm(box, guard.guard_from_environment(box))


def uninstall() -> None:
    """Takes the hooks and patches back."""
    global _native
    from pytracer.record import elastic, loaders, workers

    for patched in (elastic, loaders, workers):
        patched.uninstall()
    if _native is None:
        return
    from pytracer.record import cuda, ddp, distributed, fsdp, names, steps

    for part in (names, steps, fsdp, ddp, distributed, cuda):
        part.uninstall()
    _native.uninstall()
    if _guards:
        core().lib.pytracer_guard_pause()
    _native = None


def mismatch(torch_version: str) -> str | None:
    """Why the built extension does not fit this torch and Python; None when it does.

    torch's C++ classes change between minor versions: an extension built for another one calls the wrong function.
    """
    try:
        info = json.loads((Path(__file__).resolve().parents[1] / "_build_info.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "pytracer is not built; run `make build`, or `pip install --no-build-isolation -e .`"
    if not info.get("native"):
        return "pytracer was built without torch (PYTRACER_WITHOUT_TORCH=1); build again to record torch"
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    built = str(info.get("torch"))
    if _minor(built) != _minor(torch_version) or info.get("python") != python:
        return (
            f"pytracer was built for torch {built} and Python {info.get('python')}, this is torch {torch_version} and "
            f"Python {python}; build again with `pip install --no-build-isolation -e .`"
        )
    return None


def _minor(version: str) -> list[str]:
    return version.split("+")[0].split(".")[:2]


def _install(box: Core, level: str, late: bool) -> None:
    global _native
    import torch

    box.journal(
        Entry.VERSIONS,
        {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "pytracer": __version__,
        },
    )
    unseen.begin(box.note)
    _install_without_native(box)
    reason = mismatch(torch.__version__)
    if reason is not None:
        box.note(f"the torch hooks are not installed: {reason}")
        return
    native: Any = importlib.import_module("pytracer._native")

    _native = native
    libraries = [os.path.dirname(path) + os.sep for path in (torch.__file__, os.path.dirname(__file__))]
    # Wrappers around torch's own functions: not the user's place (typing_extensions.deprecated, torch 2.13).
    libraries += [
        sys.modules[name].__file__ or ""
        for name in ("contextlib", "functools", "typing_extensions")
        if name in sys.modules
    ]
    libraries = [path for path in libraries if path]
    for name, refusal in native.install(LEVEL_NUMBERS[level], libraries):
        if refusal:
            box.note(f"the hook {name} is not installed: {refusal}")
    arm_guard(box)
    from pytracer.record import cuda, ddp, distributed, fsdp, handlers, names, older, steps

    # Hooks that came with torch have seen every storage and module of the program. One walk for both: it is long.
    objects = gc.get_objects() if late else []
    if late:
        older.follow(box, native, objects)
    handlers.install_for_workers(box)
    names.install(box, objects)
    del objects
    steps.install(native, names.attend)
    if torch.distributed.is_available():
        distributed.install(box, native)
        ddp.install(box, native)
        fsdp.install(box)
    cuda.install(box, native, level)


def _install_without_native(box: Core) -> None:
    """Patches that need torch's Python only: an extension that does not fit must not take them along."""
    import torch

    from pytracer.record import elastic, loaders, workers

    workers.install(box)
    loaders.install(box)
    if torch.distributed.is_available():
        elastic.install(box)
