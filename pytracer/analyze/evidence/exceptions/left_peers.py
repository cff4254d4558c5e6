"""A pipe whose other end is gone, since the processes there had ended well: told to, or with their work done."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.evidence.exceptions.line_reasons import LineReason
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.kin import children_of, left_by
from pytracer.analyze.naming import first_names
from pytracer.analyze.view import JobView, ProcessView

_TYPES = ("BrokenPipeError", "EOFError", "ConnectionResetError")
_CONNECTION = "multiprocessing/connection.py"
_LEAVES = (ast.Break, ast.Return)


class _Mark(msgspec.Struct, frozen=True):
    """`text`: the message that ends a process. `sent`: the call that sends it; `leaves`: where it is met."""

    text: str
    sent: tuple[str, ast.Call]
    leaves: tuple[str, int]


def left_peers(job: JobView, view: ProcessView) -> LineReason | None:
    """None where a child of the process still ran, or had not ended with status 0."""
    own, raised = view.exception, view.process.exception_mono_ns
    if own is None or raised is None or own.type not in _TYPES:
        return None
    if not any((frame.file or "").endswith(_CONNECTION) for frame in view.exception_stack):
        return None
    children = [item for item in children_of(job, view) if item.work is not None]
    at = failing_line(view.process.snapshot, own, view.exception_stack)
    if at is None or not children or not all(left_by(item, raised) for item in children):
        return None
    subject = f"{first_names(children)} had ended with status 0 before"
    marks = [*_marks(at)]
    if len(marks) != 1:
        return LineReason(
            subject,
            f"They had not failed: see what leaves the loop of the function that they run, or how many messages it "
            f"takes, and use no pipe to them after that (line {at.line}); or start them anew.",
            (),
        )
    mark = marks[0]
    sent, leaves = at.in_file(mark.sent[0], mark.sent[1].lineno), at.in_file(*mark.leaves)
    return LineReason(
        f"{subject}; {sent} sends {mark.text}, at which they end",
        f"They had not failed: see whether {sent} (`{short(source(mark.sent[1]))}`) ran before, as they end at "
        f"{mark.text} ({leaves}). Send it behind the last use, or start them anew before line {at.line}.",
        (sent, leaves),
    )


def _marks(at: FailingLine) -> Iterator[_Mark]:
    """Each message that a line sends, and at which another leaves its loop: `cmd == "close"`."""
    ends = {text: place for file, tree in at.files.items() for text, place in _ends(file, tree)}
    for file, tree in at.files.items():
        for item in nodes_of(tree):
            if not isinstance(item, ast.Call) or called_name(item) not in ("send", "put"):
                continue
            for value in passed_values(item):
                parts = value.elts if isinstance(value, ast.Tuple) else [value]
                for text in {ast.unparse(part) for part in parts if isinstance(part, ast.Constant)} & ends.keys():
                    yield _Mark(text, (file, item), ends[text])


def _ends(file: str, tree: ast.Module) -> Iterator[tuple[str, tuple[str, int]]]:
    for item in nodes_of(tree):
        if isinstance(item, _LEAVES):
            for test, around in deciding_ifs(tree, item.lineno)[:1]:
                compares = test.test if around and isinstance(test.test, ast.Compare) else None
                if compares is not None and len(compares.ops) == 1 and isinstance(compares.ops[0], (ast.Eq, ast.Is)):
                    yield ast.unparse(compares.comparators[0]), (file, item.lineno)
