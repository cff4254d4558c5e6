"""What sys.exit() was given: None and whole numbers are statuses, anything else is printed and makes status 1."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import spans
from pytracer.analyze.naming import line_in
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_KINDS = {ast.Dict: "dict", ast.List: "list", ast.Tuple: "tuple", ast.DictComp: "dict", ast.ListComp: "list"}
_PRINTED = 1  # the status


class ExitValue(msgspec.Struct, frozen=True):
    """`words`: what it was given, behind the line; `advice`: what to give it."""

    words: str
    advice: str


def exit_value(snapshot: Snapshot, stack: Sequence[PythonFrame], status: int | None) -> ExitValue | None:
    """`sys.exit(main())` of a main() that returns its metrics; None where the source does not show what it was."""
    frames = [frame for frame in stack if not is_library_file(frame.file)]
    back = Slice(snapshot, frames, stack=stack)
    spot = back.spot(0) if frames and status == _PRINTED else None
    if spot is None:
        return None
    calls = [
        item
        for item in nodes_of(spot.scope)
        if isinstance(item, ast.Call) and called_name(item) in ("exit", "SystemExit") and spans(item, spot.line)
    ]
    given = calls[0].args[0] if len(calls) == 1 and len(calls[0].args) == 1 else None
    made = back.made(given, spot, calls=True) if isinstance(given, (ast.Call, ast.Name)) else None
    kind = _kind(made.node) if made is not None else None
    if isinstance(given, ast.Name) and kind == "a str":  # the message of a failure that is meant
        return None
    if given is None or made is None or kind is None:
        return None
    here, there = f"line {spot.line}", line_in(made.spot.file, made.line, spot.file)
    called = f"{called_name(given)}()" if isinstance(given, ast.Call) else f"`{ast.unparse(given)}`"
    alone = f"Call {called} alone at {here}" if isinstance(given, ast.Call) else f"Leave it out at {here}"
    gives = "returns" if isinstance(given, ast.Call) else "is"
    return ExitValue(
        f"{called} {gives} {kind} ({there}), which sys.exit() prints and takes for a failure",
        f"{alone}, or return 0 or None where it went well: only None and whole numbers are statuses.",
    )


def _kind(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant):
        if node.value is True:
            return "True, which is 1"
        return f"a {type(node.value).__name__}" if isinstance(node.value, (str, float)) else None
    return f"a {_KINDS[type(node)]}" if type(node) in _KINDS else None
