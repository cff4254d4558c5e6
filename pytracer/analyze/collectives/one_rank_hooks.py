"""A collective below a hook that a framework calls on one rank only: prepare_data() of Lightning.

Lightning calls it on local rank 0 (lightning 2.5, trainer/connectors/data_connector.py, prepare_data()), and lets the
others wait meanwhile in a barrier of its own: those never come to the collective.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pytracer.analyze.naming import line_in
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_HOOK = "prepare_data"
_BARRIER = "_InfiniteBarrier"
_FOLDERS = ("/lightning/", "/pytorch_lightning/", "/lightning_fabric/")


def hook_words(views: Sequence[ProcessView], ops: Sequence[str]) -> tuple[str, str] | None:
    """What to say in the headline, and what to change; None unless one rank is in the hook, the other in its barrier.

    Args:
        views: The two ranks that wait for each other.
        ops: What each waits in.
    """
    stacks = [list(view.python_stack or ()) for view in views]
    hooks = [_hook(stack) for stack in stacks]
    inside = [place for place, hook in enumerate(hooks) if hook is not None]
    if len(stacks) != 2 or len(inside) != 1 or not _waits_for_hook(stacks[1 - inside[0]]):
        return None
    hook, op = hooks[inside[0]], ops[inside[0]]
    if hook is None:
        return None
    where = line_in(hook.file, hook.line or 0, None)
    told = (
        f"Lightning calls {hook.function}() on local rank 0 only, and {where} in it leads to the {op}, while the "
        "others wait in a barrier of Lightning's own"
    )
    advice = (
        f"Call no collective below {_HOOK}() ({where}): leave the {op} out there, since Lightning lets the other ranks "
        "wait until it is done. Or call it from setup(), which runs on every rank."
    )
    return told, advice


def _hook(stack: Sequence[PythonFrame]) -> PythonFrame | None:
    """The program's hook that Lightning itself called; the innermost frame comes first."""
    return next(
        (
            frame
            for frame, caller in pairwise(stack)
            if (frame.function or "").rpartition(".")[2] == _HOOK and not _of_lightning(frame)
            if _of_lightning(caller)
        ),
        None,
    )


def _waits_for_hook(stack: Sequence[PythonFrame]) -> bool:
    return any(_of_lightning(frame) and (frame.function or "").startswith(_BARRIER) for frame in stack)


def _of_lightning(frame: PythonFrame) -> bool:
    return "site-packages" in (frame.file or "") and any(part in (frame.file or "") for part in _FOLDERS)
