"""`import torch` with the recorder preloaded, and what runs there for pytracer: CPU time of the thread (JSON, ms).

Two places: the boot, inside of the load of torch/_C, and the hooks, at the end of the import. 5 ms do not show in the
times of the whole process, a second and more.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from typing import Any

now = time.thread_time_ns
taken: dict[str, float] = {}


def timed(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, with its time measured."""

    def act_and_note(*args: Any, **kwargs: Any) -> Any:
        begin = now()
        result = act(*args, **kwargs)
        taken[name] = (now() - begin) / 1e6
        return result

    return act_and_note


def spec_of(name: str, *args: Any, **kwargs: Any) -> Any:
    """The preloaded core gets boot.py from importlib, and executes it."""
    found: Any = find(name, *args, **kwargs)
    if name == "_pytracer_boot":
        boot = timed("boot", found.loader.exec_module)

        def boot_and_watch(module: Any) -> None:
            boot(module)
            from pytracer.record.bootstrap import torch_half

            torch_half.install = timed("hooks", torch_half.install)

        found.loader.exec_module = boot_and_watch
    return found


find = importlib.util.spec_from_file_location
importlib.util.spec_from_file_location = spec_of
import torch  # noqa: E402, F401

json.dump(taken, sys.stdout)
