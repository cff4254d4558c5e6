"""A program that kills its child, and then takes the child's exit code for a failure.

multiprocessing's kill() sends SIGKILL, and terminate() SIGTERM: `exitcode` of such a child is -9 or -15, and not 0.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import spans_body
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import line_in, names_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView, RecordedSender
from pytracer.report.job import ExceptionReport, PythonFrame

_CODES = ("exitcode", "returncode")
_KILLS = ("kill", "terminate", "send_signal")
_EXITS = ("__exit__", "__aexit__", "__del__")
_LONGEST = 60


class OwnKill(msgspec.Struct, frozen=True):
    """`raises`: the line of the sender's exception, in the words of its `type`; `test`: the `if` on the exit code."""

    type: str
    raises: str
    test: str
    test_line: int
    signal: int
    other: str | None = None
    """Another child that had ended badly: `process 12 (worker), which ended with status 3`."""
    before: str | None = None
    """The exception that the program was handling then, and its line: the kill came on the way out of that."""

    @property
    def words(self) -> str:
        """After who sent the signal."""
        if self.before is not None:
            return f"; that was on the way out of {self.before}, before {self.raises} raised {self.type} in its place"
        because = f", and {self.other}" if self.other is not None else ""
        return f"; {self.raises} then raised {self.type}, as `{self.test}` held (line {self.test_line}){because}"

    @property
    def advice(self) -> str:
        """To ask for another code, or to let the child end; of an earlier exception, to begin with that."""
        if self.before is not None:
            return (
                f"Begin with {self.before}: the child was killed on the way out of that, and its exit code "
                f"-{self.signal}, at which line {self.test_line} raises, tells nothing of the child."
            )
        if self.other is not None:
            return (
                f"Begin with that one: line {self.test_line} raises where a child ended badly, and the program kills "
                "this one itself."
            )
        return (
            f"The program itself kills the child, whose exit code is -{self.signal} then: let line {self.test_line} "
            f"accept that (`-signal.SIGKILL`), or ask only for the codes of children that had ended before. Or let the "
            "child end by itself (an Event that it asks for), and join() it."
        )


def own_kill(job: JobView, view: ProcessView) -> OwnKill | None:
    """None where who killed it did not raise below a condition on an exit code."""
    sent = view.senders[0] if view.senders else None
    sender = next((item for item in job.views if sent is not None and item.process is sent.sender), None)
    if sent is None or sender is None or not sender.raised or sender.exception is None:
        return None
    frames = sender.exception_stack_of_program
    tree = syntax_tree(sender.process.snapshot, frames[0]) if frames else None
    if tree is None or frames[0].line is None or view.process.signal is None:
        return None
    tests = (item for item, around in deciding_ifs(tree, frames[0].line) if around)
    test = next((item for item in tests if _asks_code(item.test)), None)
    if test is None:
        return None
    others = _ended_badly(job, sender, view)
    if _asks_another(sent, tree, test.test, frames[0].file) and not others:
        return None
    here = sent.frame.file if sent.frame is not None else None
    raises = line_in(frames[0].file, frames[0].line, here)
    text = shortened(ast.unparse(test.test), _LONGEST)
    before = _before(sender.exception, here) if _on_the_way_out(sent) else None
    kind = sender.exception.type or "an exception"
    return OwnKill(kind, raises, text, test.lineno, view.process.signal, _ended_words(others), before)


def _ended_badly(job: JobView, sender: ProcessView, view: ProcessView) -> list[ProcessView]:
    """The sender's other children that ended with a status of their own before it raised."""
    raised = sender.process.exception_mono_ns
    others = [item for item in children_of(job, sender) if item.index != view.index and item.process.exit_code]
    ends = ((item, item.process.ended_mono_ns) for item in others)
    return [item for item, end in ends if end is None or raised is None or end <= raised]


def _ended_words(others: list[ProcessView]) -> str | None:
    if not others:
        return None
    codes = {item.process.exit_code for item in others}
    status = f" with status {codes.pop()}" if len(codes) == 1 else " badly"
    return f"{names_words(others)} had ended{status}"


def _asks_another(sent: RecordedSender, tree: ast.Module, test: ast.expr, file: str | None) -> bool:
    """Whether the object whose code is asked is another one than that of the kill, both in one file and by `self`."""
    frame = sent.frame
    if frame is None or frame.file != file or frame.line is None:
        return False
    calls = [item for item in calls_on(tree, frame.line) if called_name(item) in _KILLS]
    killed = {variable(item.func.value) for item in calls if isinstance(item.func, ast.Attribute)}
    asked = {variable(item.value) for item in nodes_of(test) if isinstance(item, ast.Attribute) and item.attr in _CODES}
    names = killed | asked
    return (
        len(killed) == len(asked) == 1 and killed != asked and all((item or "").startswith("self.") for item in names)
    )


def _on_the_way_out(sent: RecordedSender) -> bool:
    """Whether it was sent where exceptions come by: in an `__exit__`, a `finally` or an `except`."""
    for place in sent.send.stack:
        if place.function.rpartition(".")[2] in _EXITS:
            return True
        frame = PythonFrame(function=place.function, file=place.file, line=place.line)
        tree = syntax_tree(sent.sender.snapshot, frame) if not is_library_file(place.file) else None
        tries = [item for item in nodes_of(tree) if isinstance(item, ast.Try)] if tree is not None else []
        parts = [part for item in tries for part in (item.finalbody, *(one.body for one in item.handlers)) if part]
        if place.line is not None and any(spans_body(part, place.line) for part in parts):
            return True
    return False


def _before(exception: ExceptionReport, here: str | None) -> str | None:
    """`KeyError: 'policy' (line 40)`: the first of what was being handled."""
    first = exception.context[-1] if exception.context else None
    if first is None:
        return None
    frame = next((item for item in first.python_stack or [] if not is_library_file(item.file)), None)
    at = f" ({line_in(frame.file, frame.line, here)})" if frame is not None and frame.line is not None else ""
    said = f"{first.type}{f': {first.message}' if first.message else ''}"
    return f"{shortened(said, _LONGEST)}{at}"


def _asks_code(test: ast.expr) -> bool:
    return any(isinstance(item, ast.Attribute) and item.attr in _CODES for item in nodes_of(test))
