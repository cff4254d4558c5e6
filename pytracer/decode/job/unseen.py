"""Processes that the launcher saw without the recorder, in sentences."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from pytracer._printable import shell_command
from pytracer._text import list_words
from pytracer.decode.types.host_counters import UnseenProcess
from pytracer.decode.types.snapshot import Damage, LauncherRecord

_FILE = "run.json"
_NAME = re.compile(r"[\w.+-]{1,64}")


def unseen_damage(launchers: Sequence[LauncherRecord]) -> list[Damage]:
    """What the run is missing, as the reader's other gaps."""
    return [
        Damage(_FILE, 0, unseen_words(item))
        for launcher in launchers
        if launcher.witness is not None
        for item in launcher.witness.unseen
    ]


def unseen_words(item: UnseenProcess) -> str:
    """Which process, why, and what to do."""
    words = [os.path.basename(item.command[0]), *item.command[1:2]] if item.command else []
    name = f" ({shell_command(*words)})" if words else ""
    loads = ", which loaded torch," if item.torch else ""
    return f"process {item.pid}{name}{loads} was started without the recorder: {_why(item)}"


def _why(item: UnseenProcess) -> str:
    if item.lacks is None:
        return "it runs as another user, for whom LD_PRELOAD is dropped; start it by a `pytracer run` of its own"
    lacks = [name for name in item.lacks if _NAME.fullmatch(name)]
    if not lacks:
        return "the loader ignored LD_PRELOAD (statically linked, set-uid, or another C library)"
    both = "both" if len(lacks) == 2 else "it"
    return f"its environment lacked {list_words(lacks)}; pass {both} on, or start it by a `pytracer run` of its own"
