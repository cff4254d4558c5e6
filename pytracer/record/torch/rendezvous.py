"""With which values a process calls init_process_group(): recorded before it waits for the others.

A rank that has another port, size or number than the others never returns from there, and what the launcher set may
have been changed since by os.environ.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from pytracer.blackbox.numbers import Entry
from pytracer.record.bootstrap.dynamo import unseen
from pytracer.record.core import Core

if TYPE_CHECKING:
    from types import FrameType

# Arguments of torch.distributed.init_process_group in their order (torch 2.13, distributed_c10d.py).
_ARGUMENTS = ("backend", "init_method", "timeout", "world_size", "rank", "store")
_DIGITS = 9


@unseen
def note_rendezvous(box: Core, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Writes RENDEZVOUS, unless the program passes a store of its own. Never raises."""
    try:
        given = {**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs}
        if given.get("store") is None:
            box.journal(Entry.RENDEZVOUS, {**_rendezvous(given), "caller": calling_line()})
    except Exception:
        box.lib.pytracer_count_hook_error()


def _rendezvous(given: Mapping[str, object]) -> dict[str, object]:
    url = urlsplit(str(given.get("init_method") or "env://"))
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    values: dict[str, object] = {"local_rank": _number(os.environ.get("LOCAL_RANK"))}
    passed = ["init_method"] if url.scheme != "env" else []
    for name in ("rank", "world_size"):
        argument = given.get(name)
        chosen = query.get(name) if not isinstance(argument, int) or argument < 0 else str(argument)
        passed += [name] if chosen is not None else []
        values[name] = _number(os.environ.get(name.upper()) if chosen is None else chosen)
    if url.scheme == "env":
        values |= {"master_addr": os.environ.get("MASTER_ADDR"), "master_port": _number(os.environ.get("MASTER_PORT"))}
    elif url.scheme == "tcp":
        values |= {"master_addr": url.hostname, "master_port": url.port}
    elif url.scheme == "file":
        values["file"] = url.netloc + url.path
    return {**values, "passed": passed}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and len(text) <= _DIGITS and text.isascii() and text.isdigit() else None


def calling_line() -> dict[str, object] | None:
    """The first line outside torch and ourselves that the calling thread is in."""
    import torch

    libraries = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.path.dirname(__file__)) + os.sep, "<")
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(libraries):
        frame = frame.f_back
    if frame is None:
        return None
    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name)  # since 3.11
    return {"function": name, "file": code.co_filename, "line": frame.f_lineno}
