"""Which rank this is: noted when the default process group is made. Also exceptions that mp.spawn catches itself."""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any

from pytracer.blackbox.schema import Entry
from pytracer.record import exceptions
from pytracer.record.core import Core
from pytracer.record.patches import Patches

_patches = Patches()
_noted: tuple[int, int] | None = None  # pid and rank of the last note: a forked child notes again


def install(box: Core) -> None:
    """Wraps init_process_group and torch.multiprocessing's entry function."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    spawn = importlib.import_module("torch.multiprocessing.spawn")  # the package's attribute of that name is a function

    if dist.is_initialized():
        note_rank(box)
    original = distributed_c10d.init_process_group

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        note_rank(box)
        return result

    _patches.replace(distributed_c10d, "init_process_group", init_process_group)
    _patches.replace(dist, "init_process_group", init_process_group)

    wrap = spawn._wrap

    @functools.wraps(wrap)
    def wrap_and_record(fn: Any, *args: Any) -> Any:
        @functools.wraps(fn)
        def recorded(*inner: Any, **kwargs: Any) -> Any:
            try:
                return fn(*inner, **kwargs)
            except Exception as error:
                exceptions.write(box, error, error.__traceback__)
                raise

        return wrap(recorded, *args)

    _patches.replace(spawn, "_wrap", wrap_and_record)


def uninstall() -> None:
    """Puts back what is still ours."""
    _patches.put_back()


def note_rank(box: Core) -> None:
    """Writes RANK and the default GROUP, once per process. Never raises."""
    global _noted
    try:
        import torch.distributed as dist

        rank = dist.get_rank()
        if _noted == (os.getpid(), rank):
            return
        _noted = (os.getpid(), rank)
        local = os.environ.get("LOCAL_RANK")
        box.journal(
            Entry.RANK,
            {
                "rank": rank,
                "local_rank": int(local) if local is not None and local.isdigit() else None,
                "world_size": dist.get_world_size(),
                "backend": str(dist.get_backend()),
                "init": "init_process_group",
            },
        )
        group = dist.group.WORLD
        box.journal(
            Entry.GROUP,
            {
                "name": getattr(group, "group_name", None),
                "description": getattr(group, "group_desc", None),
                "backend": str(dist.get_backend()),
                "ranks": list(range(dist.get_world_size())),
            },
        )
    except Exception as error:
        box.lib.pytracer_count_hook_error()
        box.note(f"the rank could not be noted: {type(error).__name__}: {error}")
