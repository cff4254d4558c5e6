"""What the callbacks note, and what they add to an exception."""

from __future__ import annotations

import os

from pytracer._printable import shell_command
from pytracer.record.api import enable, is_enabled, step
from pytracer.record.core import core
from pytracer.record.doing import doing


def begin(directory: str | None) -> None:
    """Records this process, unless it is recorded already."""
    if not is_enabled():
        enable(directory)


def begin_epoch(epoch: int) -> None:
    """Epochs are counted from 0, as the frameworks do."""
    doing("epoch", str(epoch))


def begin_batch(epoch: int, batch: int | None, global_step: int) -> None:
    """A batch is noted in the ring of the thread only: there may be millions."""
    step(global_step)
    doing("epoch", f"{epoch}, batch {batch}" if batch is not None else str(epoch), lasting=False)


def add_note(error: BaseException) -> None:
    """Where the report of the job is to be had, below the traceback (CPython 3.11)."""
    if is_enabled() and hasattr(error, "add_note"):
        error.add_note(f"pytracer: `{shell_command('pytracer', 'inspect', os.path.relpath(core().directory))}`")
