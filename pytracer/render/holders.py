"""Holders of a storage as text."""

from __future__ import annotations

from pytracer._text import list_words
from pytracer.render.frames import position_words
from pytracer.report import job as r

SHOWN = 3


def holder_lines(storage: r.StorageReport) -> list[str]:
    """E.g. "`kv_cache` in step() at train.py:12 holds it (possible)"; at most three, and what autograd saved."""
    held = [item for item in storage.holders or [] if item.kind != "saved"]
    lines = [f"{_variable(item)} holds it (possible)" for item in held[:SHOWN]]
    if len(held) > SHOWN:
        lines.append(f"and {len(held) - SHOWN} more: see --json")
    saved = list(dict.fromkeys(item.expression or "?" for item in storage.holders or [] if item.kind == "saved"))
    return [*lines, f"saved for backward by {list_words(saved)} (possible)"] if saved else lines


def _variable(item: r.Holder) -> str:
    frame = item.python
    where = f"{position_words(frame)}" if frame else ""
    if frame is not None and frame.function == "<module>":
        text = f"`{item.expression}` at {where}"
    elif item.kind == "global":
        text = f"`{item.expression}`, global of the module of {where}"
    else:
        text = f"`{item.expression}` in {frame.function if frame else '?'}() at {where}"
    return text if item.crashed_thread else f"{text}, thread {item.thread or 'unknown'}"
