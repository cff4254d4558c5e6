"""Outputs of torch.compile(mode="reduce-overhead") that were used after a later run had overwritten them.

They lie in memory of a CUDA graph, which its next run uses again. The message has the line inside of the compiled
function that made the output; what called it, and what kept the output, is in the program.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import spans
from pytracer.analyze.naming import place_words, short_file
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.report.job import PythonFrame

_MESSAGE = "accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run"
_FRAME = Pattern(r'File "([^"\n]+)", line (\d+), in (\S+)')
_TREES = "torch/_inductor/cudagraph_trees.py"
_LONGEST, _MOST = 80, 3
_STEP = (
    "torch.compiler.cudagraph_mark_step_begin() at the begin of an iteration says which outputs are no longer needed; "
    "it keeps none alive."
)


class _Overwritten(msgspec.Struct, frozen=True):
    """`made`: where the output was made, inside of the compiled function. `used`: the program's line outside of it.

    `again`: whether a call of a compiled function met it among its inputs. `calls`: those of the function, by name.
    """

    made: PythonFrame
    function: str
    used: PythonFrame
    again: bool
    calls: tuple[ast.Call, ...]


def overwritten_output(at: FailingLine) -> str | None:
    """Which output, where it was used, and where to clone it."""
    found = _overwritten(at)
    if found is None:
        return None
    used, line = at.in_file(found.used.file, found.used.line or 0), found.used.line or 0
    what = f"an output of an earlier run of {found.function}() ({_made(at, found)})"
    if found.again:
        begin = f"What {used} calls was given {what}, whose memory the new run had taken back"
    else:
        begin = f"{used[0].upper()}{used[1:]} uses {what}, which a later run has overwritten"
    own = [item for item in found.calls if spans(item, line)] if found.again else []
    calls, file = own or list(found.calls), short_file(found.used.file)
    places = [f"`{shortened(ast.unparse(item), _LONGEST)}.clone()` at {file}:{item.lineno}" for item in calls[:_MOST]]
    how = (
        f"Clone what it returns before the next call: {list_words(places)}"
        if places
        else (f"Clone what {found.function}() returns, outside of it, before it is called again")
    )
    return f"{begin}. {how} (each tensor, if it returns several). {_STEP}"


def overwritten_subject(at: FailingLine) -> str | None:
    """What the headline says."""
    found = _overwritten(at)
    if found is None:
        return None
    used = place_words(found.used)
    place = f" at {used}" if found.used != at.frame else ""  # else the headline has it
    how = f"was passed to a later call at {used}" if found.again else f"was used{place} after a later run"
    return f"an output of {found.function}(), {_made(at, found)}, {how}, and its CUDA graph had reused its memory"


def _made(at: FailingLine, found: _Overwritten) -> str:
    return f"made at {at.in_file(found.made.file, found.made.line or 0)}"


def _overwritten(at: FailingLine) -> _Overwritten | None:
    if _MESSAGE not in at.message:
        return None
    named = [PythonFrame(function=name, file=file, line=int(line)) for file, line, name in _FRAME.findall(at.message)]
    own = [frame for frame in named if not is_library_file(frame.file)]
    if not own:
        return None
    outer = (own[0].function or "").rpartition(".")[2]  # the compiled function; what it calls follows
    inside = [frame for frame in at.frames if (frame.function or "").rpartition(".")[2] == outer]
    below = at.stack[: at.stack.index(at.frames[0])]
    again = any((frame.file or "").endswith(_TREES) for frame in below)
    outside = [frame for frame in at.frames if frame not in inside]
    if not outside:
        return None
    used = outside[0]
    tree = syntax_tree(at.snapshot, used)
    calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call)] if tree is not None else []
    return _Overwritten(own[-1], outer, used, again, tuple(item for item in calls if called_name(item) == outer))
