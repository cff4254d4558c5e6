"""DDP with a static graph whose first forward ran without synchronization: its reducer is not prepared for that.

Below no_sync() DDP's forward does not call prepare_for_backward(), and with static_graph=True the first backward
reduces all the same: finalize_backward() then finds expect_autograd_hooks_ unset (torch 2.13, reducer.cpp). torch does
not check the combination (pytorch/pytorch#143580).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import spans
from pytracer.decode.types.journal import Module

_UNPREPARED = Pattern(r"expect_autograd_hooks_ INTERNAL ASSERT FAILED at \S*reducer\.cpp")
_SETTER, _FLAG = "_set_static_graph", "require_backward_grad_sync"
_UNSYNCED = ("no_sync", "no_backward_sync", "accumulate")  # of DDP, Fabric, accelerate
_CHECKPOINTS = ("checkpoint", "checkpoint_sequential", "gradient_checkpointing_enable")
_ISSUE = "github.com/pytorch/pytorch/issues/143580"


class _Found(msgspec.Struct, frozen=True):
    """How the static graph is asked for, and where; how synchronization is left out, and where."""

    static: tuple[str, str]
    unsynced: tuple[str, str]
    has_checkpoint: bool


def unprepared_reducer(at: FailingLine) -> str | None:
    """What to change."""
    found = _found(at)
    if found is None:
        return None
    (how, place), (by, where) = found.static, found.unsynced
    checkpoint = " (checkpoint(..., use_reentrant=False) does not need it)" if found.has_checkpoint else ""
    return (
        f"Leave out {how} ({place}){checkpoint}; or run one forward and backward with synchronization before the first "
        f"that {where} runs with {by}, and zero_grad() after it. torch does not check that combination: with a "
        f"static graph the first backward reduces also what no forward has prepared ({_ISSUE})."
    )


def unprepared_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _found(at)
    if found is None:
        return None
    (how, place), (by, where) = found.static, found.unsynced
    return f"the first forward ran with {by} ({where}), for which DDP with {how} ({place}) does not prepare its reducer"


def unprepared_behind(at: FailingLine) -> Behind | None:
    """Both lines."""
    found = _found(at)
    return Behind.of([], found.static, found.unsynced) if found is not None else None


def _found(at: FailingLine) -> _Found | None:
    static = _static(at) if _UNPREPARED.search(at.message) else None
    unsynced = _closest(at) if static is not None else None
    if static is None or unsynced is None:
        return None
    calls = (item for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.Call))
    return _Found(static, unsynced, any(called_name(item) in _CHECKPOINTS for item in calls))


def _static(at: FailingLine) -> tuple[str, str] | None:
    """By the recorded options of the one DDP module with a static graph, or by the only line that sets it later."""
    modules = {fact.data.module: fact.data for fact in at.snapshot.recorded(Module)}
    found = [item for item in modules.values() if item.settings.get("static_graph") and item.caller is not None]
    if len(found) == 1 and found[0].caller is not None:
        return "static_graph=True", at.in_file(found[0].caller.file, found[0].caller.line or 0)
    lines = [
        at.in_file(file, item.lineno)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) == _SETTER
    ]
    return (f"{_SETTER}()", lines[0]) if len(lines) == 1 and not found else None


def _closest(at: FailingLine) -> tuple[str, str] | None:
    """The `with` around a line of the stack, else the only place of the program that leaves synchronization out."""
    for frame in at.frames:
        tree = at.files.get(frame.file or "")
        around = [
            (name, at.in_file(frame.file, item.lineno))
            for item in (nodes_of(tree) if tree is not None and frame.line is not None else ())
            if isinstance(item, (ast.With, ast.AsyncWith)) and spans(item, frame.line or 0)
            if (name := _with_words(item)) is not None
        ]
        if around:
            return around[-1]
    places = [(name, at.in_file(file, line)) for file, tree in at.files.items() for name, line in _unsynced(tree)]
    return places[0] if len(places) == 1 else None


def _with_words(item: ast.With | ast.AsyncWith) -> str | None:
    calls = (part for head in item.items for part in nodes_of(head.context_expr) if isinstance(part, ast.Call))
    return next((f"{name}()" for part in calls if (name := called_name(part)) in _UNSYNCED), None)


def _unsynced(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Calls of no_sync(), and lines that may switch the flag of DDP off."""
    for item in nodes_of(tree):
        if isinstance(item, ast.Call) and (name := called_name(item)) in _UNSYNCED:
            yield f"{name}()", item.lineno
        for target in item.targets if isinstance(item, ast.Assign) else ():
            if isinstance(target, ast.Attribute) and target.attr == _FLAG and not _is_true(item):
                yield f"{_FLAG} off", target.lineno


def _is_true(item: ast.AST) -> bool:
    return isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant) and item.value.value is True
