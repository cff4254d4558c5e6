"""A program that kills its child, and then takes the child's exit code for a failure.

multiprocessing's kill() sends SIGKILL, and terminate() SIGTERM: `exitcode` of such a child is -9 or -15, and not 0.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import ExceptionReport

_CODES = ("exitcode", "returncode")
_LONGEST = 60


class OwnKill(msgspec.Struct, frozen=True):
    """`raises`: the line of the sender's exception, in the words of its `type`; `test`: the `if` on the exit code."""

    type: str
    raises: str
    test: str
    test_line: int
    signal: int
    before: str | None = None
    """The exception that the program was handling then, and its line: the kill came on the way out of that."""

    @property
    def words(self) -> str:
        """After who sent the signal."""
        if self.before is not None:
            return f"; that was on the way out of {self.before}, before {self.raises} raised {self.type} in its place"
        return f"; {self.raises} then raised {self.type}, as `{self.test}` held (line {self.test_line})"

    @property
    def advice(self) -> str:
        """To ask for another code, or to let the child end; of an earlier exception, to begin with that."""
        if self.before is not None:
            return (
                f"Begin with {self.before}: the child was killed on the way out of that, and its exit code "
                f"-{self.signal}, at which line {self.test_line} raises, tells nothing of the child."
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
    here = sent.frame.file if sent.frame is not None else None
    raises = line_in(frames[0].file, frames[0].line, here)
    text = shortened(ast.unparse(test.test), _LONGEST)
    before = _before(sender.exception, here)
    return OwnKill(sender.exception.type or "an exception", raises, text, test.lineno, view.process.signal, before)


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
