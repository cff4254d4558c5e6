"""A broken check of torch's own data, in a process that then died of a fault while it shut down: an overwritten object.

Such a check ("INTERNAL ASSERT FAILED ... please report a bug") compares what torch alone writes. Where torch has a bug,
its objects are still whole, and the process ends by the exception. Where they are not, something wrote over them.
"""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.own_code.own_libraries import own_libraries
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.platform.glibc_messages import explain_text
from pytracer.analyze.platform.signals import SIGABRT, SIGBUS, SIGSEGV
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_OF_TORCH = Pattern(r"INTERNAL ASSERT FAILED at .*please report a bug to PyTorch", re.DOTALL)
# What torch does not check, and writes by.
_UNCHECKED = {"PackedSequence": "batch_sizes of a PackedSequence made by hand (they must never increase)"}
_BY_NATIVE_CODE = "RuntimeError"  # what torch's C++ exceptions become
_MOST = 2


def memory_may_be_overwritten(view: ProcessView) -> bool:
    """Whether both were seen: torch's check, and a fault, or a damaged heap, later."""
    exception, crash = view.exception, view.process.snapshot.crash
    if not view.raised or exception is None or crash is None or view.process.status_kind != "signaled":
        return False
    if not _OF_TORCH.search(exception.message or ""):
        return False
    return (crash.signal in (SIGSEGV, SIGBUS) and crash.code > 0) or heap_damaged_later(view) is not None


def heap_damaged_later(view: ProcessView) -> str | None:
    """What the C library printed about its heap when it ended a process that native code's exception was ending."""
    crash = view.process.snapshot.crash
    exception = view.exception
    if not view.raised or crash is None or crash.signal != SIGABRT or view.process.status_kind != "signaled":
        return None
    if exception is None or exception.type != _BY_NATIVE_CODE:
        return None  # what Python raises itself does not come of it
    text = (crash.abort_text or "").strip()
    return text if explain_text(text) is not None else None


def overwritten_advice(view: ProcessView, frames: list[PythonFrame]) -> str:
    """What may have written there, and how to find it."""
    suspects = unchecked_calls(view, frames)
    libraries = own_libraries(view)
    suspects += [libraries.words] if libraries is not None else []
    listed = list_words(suspects) if suspects else "operators and native code that do not check sizes and indices"
    return (
        "torch's check of its own objects failed, and the process then died of a memory error: an earlier call may "
        "have written over them (possible). `pytracer run --guard` stops at such a write beside a tensor. Suspects: "
        f"{listed}."
    )


def unchecked_calls(view: ProcessView, frames: list[PythonFrame]) -> list[str]:
    """What the program makes by hand that torch takes unchecked, each with its line."""
    found = []
    for file, tree in program_files(view.process.snapshot, frames).items():
        own = bool(frames) and file == frames[0].file
        for node in nodes_of(tree):
            words = _UNCHECKED.get(called_name(node) or "") if isinstance(node, ast.Call) else None
            if words is not None and isinstance(node, ast.Call):
                place = f"line {node.lineno}" if own else f"{file.rpartition('/')[2]}:{node.lineno}"
                found.append(f"{words} at {place}")
    return found[:_MOST]
