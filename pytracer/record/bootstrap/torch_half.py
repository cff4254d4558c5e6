"""The torch half: loads libpytracer_torch, installs its hooks, and patches Python functions with more information."""

from __future__ import annotations

import gc
import importlib
import os
import platform
import sys
from typing import TYPE_CHECKING

from pytracer._errors import RecordingError
from pytracer.blackbox.note_codes import NoteCode
from pytracer.blackbox.numbers import LEVELS, Entry
from pytracer.record import config
from pytracer.record.bootstrap import dynamo
from pytracer.record.bootstrap.lazy import LazyInstaller
from pytracer.record.core import Core, core

if TYPE_CHECKING:
    from pytracer.record.torch.library import TorchLibrary

_PARTS = (
    *(f"torch.{name}" for name in ("elastic", "dataloader", "dataloader_workers", "names", "optimizer", "fsdp", "ddp")),
    *("torch.process_groups", "torch.queues", "torch.futures", "torch.saving", "cuda.install", "relayed"),
)

_ASYNC_SAVE = "torch.distributed.checkpoint._async_thread_executor"  # since torch 2.7
_RECORD = os.path.dirname(os.path.dirname(__file__))

_hooks: TorchLibrary | None = None
_waiting: list[LazyInstaller] = []
_guards = False  # guard mode was started in this process


def install(box: Core, level: str, *, late: bool = False) -> None:
    """Installs all available hooks. Others are recorded as notes. Never raises.

    `late`: torch was imported earlier, so that modules may exist.
    """
    try:
        _install(box, level, late)
    except Exception as error:
        box.lib.pytracer_count_hook_error()
        box.note(NoteCode.TORCH_HOOKS, f"the torch hooks are not installed: {type(error).__name__}: {error}")


def arm_guard(box: Core) -> None:
    """Starts guard mode as the environment requires, after the hooks, which allocate the guarded storages."""
    global _guards
    if _hooks is None or not (_guards or config.guard_words()):
        return
    from pytracer.record import guard_mode  # imported here: few runs use guard mode, and every process would pay for it

    _guards = True
    guard_mode.arm(box, guard_mode.guard_from_environment(box))


def uninstall() -> None:
    """Removes the hooks and patches."""
    global _hooks
    while _waiting:
        _waiting.pop().forget()
    for name in _PARTS:  # those that were installed at any time
        module = sys.modules.get(f"pytracer.record.{name}")
        if module is not None:
            module.uninstall()
    if _hooks is None:
        return
    _hooks.uninstall()
    if _guards:
        core().lib.pytracer_guard_pause()
    _hooks = None


def _install(box: Core, level: str, late: bool) -> None:
    global _hooks
    import torch

    box.journal(
        Entry.VERSIONS,
        {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "pytracer": box.version,
        },
    )
    dynamo.begin(box.note)
    _install_without_hooks(box, late)
    from pytracer.record.torch import library

    try:
        _hooks, chosen = library.load_for_this_process()
    except RecordingError as error:
        box.note(NoteCode.TORCH_HOOKS, f"the torch hooks are not installed: {error}")
        box.announce(f"tensors and collectives are not recorded: {error}")
        return
    hooks = _hooks
    beside = os.path.dirname(torch.__file__)
    libraries = [path + os.sep for path in (beside, os.path.join(os.path.dirname(beside), "triton"), _RECORD)]
    # Wrappers around torch's own functions are no call site of the user (typing_extensions.deprecated, torch 2.13).
    libraries += [
        sys.modules[name].__file__ or ""
        for name in ("contextlib", "functools", "typing_extensions")
        if name in sys.modules
    ]
    libraries = [path for path in libraries if path]
    for name, refusal in hooks.install(LEVELS[level], libraries):
        if refusal:
            box.note(NoteCode.HOOK, f"the hook {name} is not installed: {refusal}", name)
    arm_guard(box)
    from pytracer.record.torch import names, optimizer

    # Hooks installed with torch have seen every storage and module of the program. One walk for both, because it is
    # slow.
    objects = gc.get_objects() if late else []
    if late:
        from pytracer.record.torch import preexisting

        preexisting.follow(box, hooks, objects)
    names.install(box, objects)
    del objects
    optimizer.install(hooks, names.attend)
    if torch.distributed.is_available():
        _watch_groups(box, hooks, late)
    if torch.version.cuda is not None:
        from pytracer.record.cuda import install

        install.install(box, hooks, chosen, level)


def _install_without_hooks(box: Core, late: bool) -> None:
    """Patches that need torch's Python only, which must work even if there is no library for this torch."""
    import torch

    def install_loaders() -> None:
        from pytracer.record.torch import dataloader, dataloader_workers

        dataloader_workers.install(box)
        dataloader.install(box)

    def install_elastic() -> None:
        from pytracer.record.torch import elastic

        elastic.install(box)

    def install_saving() -> None:
        from pytracer.record.torch import saving

        saving.install(box)

    def install_queues() -> None:
        from pytracer.record.torch import queues

        queues.install(box)

    def install_futures() -> None:
        from pytracer.record.torch import futures

        futures.install(box)

    def install_relayed() -> None:
        from pytracer.record import relayed

        relayed.install(box)

    data = importlib.import_module("torch.utils.data")
    worker = importlib.import_module("torch.utils.data._utils.worker")
    if not box.preloaded:
        from pytracer.record.bootstrap import handlers

        handlers.install_for_workers(box)
    # A spawned worker calls the second one first.
    _wait(
        LazyInstaller(box, install_loaders).at_call(data.DataLoader, "__init__").at_call(worker, "_worker_loop"), late
    )
    pools = sys.modules.get("concurrent.futures.thread")  # torch imports it
    if pools is not None:
        _wait(LazyInstaller(box, install_futures).at_call(pools.ThreadPoolExecutor, "__init__"), late)
    _wait(LazyInstaller(box, install_queues).at_import("multiprocessing.queues"), False)
    if torch.distributed.is_available():
        _wait(LazyInstaller(box, install_elastic).at_import("torch.distributed.elastic.multiprocessing.errors"), False)
        _wait(LazyInstaller(box, install_saving).at_import(_ASYNC_SAVE), False)
        launchers = LazyInstaller(box, install_relayed)
        for name in ("lightning.fabric", "lightning_fabric"):
            launchers.at_import(f"{name}.strategies.launchers.subprocess_script")
        _wait(launchers, False)


def _watch_groups(box: Core, hooks: TorchLibrary, late: bool) -> None:
    """Process groups, and DistributedDataParallel, which needs one."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d
    from torch.nn.parallel import DistributedDataParallel

    def install_groups() -> None:
        from pytracer.record.torch import ddp, process_groups

        process_groups.install(box, hooks)
        ddp.install(box, hooks)

    def install_fsdp() -> None:
        from pytracer.record.torch import fsdp

        fsdp.install(box)

    groups = LazyInstaller(box, install_groups).at_call(DistributedDataParallel, "__init__")
    groups.at_call(importlib.import_module("torch.multiprocessing.spawn"), "_wrap")
    for owner in (distributed_c10d, dist):
        groups.at_call(owner, "init_process_group", "destroy_process_group", "_new_group_with_tag", "split_group")
    _wait(groups, late or dist.is_initialized())
    _wait(LazyInstaller(box, install_fsdp).at_import("torch.distributed.fsdp"), False)


def _wait(part: LazyInstaller, late: bool) -> None:
    """`late`: the program may already have used the part's entry points."""
    _waiting.append(part)
    if late:
        part.arrive()
