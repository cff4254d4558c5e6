"""The rank of this process: recorded when the default process group is created, and when it is left.

Also exceptions that would be recorded too late: those that mp.spawn catches itself, and those in flight while
`destroy_process_group` runs in a `finally`. The peers fail at once then; the exception reaches the top later, or never,
if the launcher ends the process during its cleanup.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from pytracer.blackbox.note_codes import NoteCode
from pytracer.blackbox.numbers import Entry
from pytracer.record.bootstrap.dynamo import unseen
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core
from pytracer.record.torch import exceptions
from pytracer.record.torch.library import TorchLibrary
from pytracer.record.torch.rendezvous import calling_line, note_rendezvous

if TYPE_CHECKING:
    from pytracer.record.torch_objects import ProcessGroup

_patches = Patches()
_noted: tuple[int, int] | None = None  # pid and rank of the last entry: a forked child writes its own
LEAVING = "destroy_process_group"
_OF_ALL = "_new_group_with_tag"  # without ranks it makes a group of all


def install(box: Core, hooks: TorchLibrary) -> None:
    """Wraps init_process_group and torch.multiprocessing's entry function."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    spawn = importlib.import_module("torch.multiprocessing.spawn")  # the package's attribute of that name is a function

    if dist.is_initialized():
        note_rank(box)
        hooks.watch_ranges()
    original = distributed_c10d.init_process_group

    @functools.wraps(original)
    def init_process_group(*args: object, **kwargs: object) -> object:
        note_rendezvous(box, args, kwargs)
        result = original(*args, **kwargs)
        note_rank(box)
        hooks.watch_ranges()
        return result

    _patches.replace(distributed_c10d, "init_process_group", init_process_group)
    _patches.replace(dist, "init_process_group", init_process_group)

    destroy = distributed_c10d.destroy_process_group

    @functools.wraps(destroy)
    def destroy_process_group(*args: object, **kwargs: object) -> object:
        group = kwargs.get("group", args[0] if args else None)
        if group is None or group is dist.group.WORLD:
            note_leaving(box)
        return destroy(*args, **kwargs)

    _patches.replace(distributed_c10d, "destroy_process_group", destroy_process_group)
    _patches.replace(dist, "destroy_process_group", destroy_process_group)

    for name in (_OF_ALL, "split_group"):
        _note_groups_of(box, name)

    wrap = spawn._wrap

    @functools.wraps(wrap)
    def wrap_and_record(fn: Callable[..., object], *args: object) -> object:
        @functools.wraps(fn)
        def recorded(*inner: object, **kwargs: object) -> object:
            try:
                return fn(*inner, **kwargs)
            except Exception as error:
                exceptions.write(box, error, error.__traceback__)
                raise

        return wrap(recorded, *args)

    _patches.replace(spawn, "_wrap", wrap_and_record)


def uninstall() -> None:
    """Restores what is still ours."""
    _patches.put_back()


@unseen
def note_rank(box: Core) -> None:
    """Writes RANK and the default GROUP, once per process. Never raises."""
    global _noted
    try:
        import torch.distributed as dist

        rank = dist.get_rank()
        if _noted == (os.getpid(), rank):
            return
        _noted = (os.getpid(), rank)
        box.journal(Entry.RANK, {**_rank(), "init": "init_process_group"})
        note_group(box, dist.group.WORLD, list(range(dist.get_world_size())))
    except Exception as error:
        box.lib.pytracer_count_hook_error()
        box.note(NoteCode.RANK, f"the rank could not be noted: {type(error).__name__}: {error}")


@unseen
def note_leaving(box: Core) -> None:
    """Writes RANK with `left`, preceded by the exception in flight, if there is one. Never raises."""
    global _noted
    try:
        import torch.distributed as dist

        if not dist.is_initialized():
            return
        error = sys.exc_info()[1]
        if isinstance(error, Exception):
            exceptions.write(box, error, error.__traceback__, on_its_way=LEAVING)
        box.journal(Entry.RANK, {**_rank(), "left": LEAVING})
        _noted = None  # creating a process group again makes it a rank again
    except Exception:
        box.lib.pytracer_count_hook_error()


def _rank() -> dict[str, object]:
    import torch.distributed as dist

    local = os.environ.get("LOCAL_RANK")
    return {
        "rank": dist.get_rank(),
        "local_rank": int(local) if local is not None and local.isdigit() else None,
        "world_size": dist.get_world_size(),
        "backend": str(dist.get_backend()),
    }


@unseen
def note_group(box: Core, group: ProcessGroup, ranks: list[int] | None) -> None:
    """Writes GROUP; for GroupMember.NON_GROUP_MEMBER without a name. Never raises."""
    try:
        import torch.distributed as dist

        member = isinstance(group, dist.ProcessGroup)
        if member:
            ranks = dist.get_process_group_ranks(group)
        box.journal(
            Entry.GROUP,
            {
                "name": group.group_name if member else None,
                "description": group.group_desc if member else None,
                "backend": str(dist.get_backend(group)) if member else None,
                "ranks": ranks,
            },
        )
    except Exception as error:
        box.lib.pytracer_count_hook_error()
        box.note(NoteCode.GROUP, f"a process group could not be noted: {type(error).__name__}: {error}")


def _note_groups_of(box: Core, name: str) -> None:
    """Wraps a function of distributed_c10d that creates a group: new_group and DeviceMesh end in them (torch 2.13)."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    original = getattr(distributed_c10d, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def make_group(*args: object, **kwargs: object) -> object:
        given = kwargs.get("ranks", args[0] if args else None)
        ranks = [int(rank) for rank in given] if isinstance(given, (list, tuple, range)) else None
        if given is None and name == _OF_ALL and dist.is_initialized():
            ranks = [*range(dist.get_world_size())]
        if ranks is not None and not kwargs.get("use_local_synchronization"):
            # Members synchronize in there: if ranks disagree on their groups, it does not return.
            about = kwargs.get("group_desc")
            begun = {"begun": True, "ranks": ranks, "description": about and str(about), "caller": calling_line()}
            box.journal(Entry.GROUP, begun)
        group = original(*args, **kwargs)
        note_group(box, group, ranks)
        return group

    _patches.replace(distributed_c10d, name, make_group)
    if getattr(dist, name, None) is original:
        _patches.replace(dist, name, make_group)
