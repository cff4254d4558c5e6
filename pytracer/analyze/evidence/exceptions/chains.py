"""A first failure that led to the one that ended the process: Python's chain of exceptions, by the handler between.

The last exception of a chain is often but what a handler made of the first one: a name that it misses, other words for
the same, the same sample tried again. A first one that the program expected (a key that is looked up elsewhere, an
import with a fallback) is no reason.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Literal

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import message_words
from pytracer.analyze.evidence.exceptions.telling import telling_words
from pytracer.analyze.evidence.failing.processes.handlers import Handler, ended_by_first, handler_between
from pytracer.analyze.evidence.phrases import error_at_words
from pytracer.analyze.naming import place_words, short_file
from pytracer.analyze.parts import innermost_of_program
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, HandledExceptionReport, PythonFrame

# Where a handler names one of these, its program goes on by another way.
_EXPECTED = frozenset(
    ("KeyError", "IndexError", "LookupError", "AttributeError", "ImportError", "ModuleNotFoundError", "StopIteration",
     "StopAsyncIteration", "GeneratorExit", "Empty", "Full", "NotImplementedError")
)  # fmt: skip
_FIRST_RUN = frozenset(("FileNotFoundError",))  # what there is not yet
_IMPORTS = frozenset(("ImportError", "ModuleNotFoundError", "StopIteration", "StopAsyncIteration", "GeneratorExit"))
_ANY = frozenset(("", "Exception", "BaseException"))
# CPython's own words for a StopIteration that leaves a generator: genobject.c, since 3.7 (PEP 479).
_LEFT_GENERATORS = tuple(
    f"{kind} raised {error}"
    for kind in ("generator", "coroutine", "async generator")
    for error in ("StopIteration", "StopAsyncIteration")
)
_SLIPS = frozenset(("NameError", "UnboundLocalError"))
_OFTEN = 3  # times that a handler is on the stack of an endless recursion
_FEW = 70  # characters of a message
_TOLD = 40  # characters of a message that the last one repeats

How = Literal["on its way", "worded anew", "failed handler", "tried again", "by a library"]


class Chain(msgspec.Struct, frozen=True):
    """`first`: the oldest one of the program. `frame`: where the last one left the handler."""

    first: HandledExceptionReport
    how: How
    handler: Handler | None
    frame: PythonFrame | None
    repeated: bool  # the last one's message has the first one's

    def headline(self, raised: str, subject: str | None) -> str:
        """With what the last one says, and what the first one is about."""
        first = self._first(subject)
        if self.how == "on its way":
            return f"{first}, and while that was on its way, {raised}"
        if self.how == "failed handler":
            return f"{first}, and then, in {self._except}, {raised}"
        if self.how == "tried again":
            return f"{raised}, called again and again in {self._except}, which hides {first}"
        if self.how == "worded anew":
            return f"{raised}, for {first}"
        return f"{raised}, while {first} was being handled"

    @property
    def look(self) -> str:
        """Where to begin, and why."""
        at = innermost_of_program(self.first.python_stack or ())
        begin = f"Begin with the first error{f', at {place_words(at)}' if at is not None else ''}"
        if self.how == "on its way":
            hides = f", and {place_words(self.frame)} failed on its way out" if self.frame is not None else ""
            return f"{begin}: it ended the run{hides}."
        if self.how == "tried again":
            return (
                f"{begin}: {self._except} hides it and tries again. Print the error there, or catch only what a bad "
                "sample raises; try again in a loop with a limited number of tries."
            )
        if self.how == "worded anew":
            return f"{begin}: the last one was raised for it."
        if self.how == "failed handler" and self.frame is not None:
            return f"{begin}, then repair the handler, which fails at line {self.frame.line}."
        return f"{begin}."

    @property
    def besides(self) -> str:
        """What is to be done besides the repair of the first one."""
        if self.how == "failed handler" and self.frame is not None:
            return f" Then repair the handler, which fails at line {self.frame.line}."
        again = f" Print the error in {self._except}, which hides it, and give up after some tries."
        return again if self.how == "tried again" else ""

    def _first(self, subject: str | None) -> str:
        """`KeyError: 'a' at train.py:21 in step`; in few words where its subject follows, or the last one has it."""
        message = telling_words(self.first.message)
        if subject is not None and len(message) > _FEW:
            message = message[:_FEW].rpartition(": ")[0] or message_words(message, _FEW)
        report = msgspec.structs.replace(self.first, message="" if self.repeated else message)
        return f"{error_at_words(report)}{f': {subject}' if subject is not None else ''}"

    def report(self, last: ExceptionReport, stack: Sequence[PythonFrame]) -> ExceptionReport:
        """The first one, as if it had ended the process."""
        return as_uncaught(self.first, last, stack)

    @property
    def _except(self) -> str:
        if self.handler is None or self.frame is None:
            return "its handler"
        return f"the `{self.handler.head}` at {short_file(self.frame.file or '')}:{self.handler.line}"


def chain_of(snapshot: Snapshot, exception: ExceptionReport, stack: Sequence[PythonFrame]) -> Chain | None:
    """None where the last exception is the reason: of the others the program took care."""
    first = original(exception)
    if first is None:
        return None
    repeated = (first.message or "")[:_TOLD] in (exception.message or "") if first.message else False
    own = next((item for item in stack if not is_library_file(item.file)), None)
    if exception.message in _LEFT_GENERATORS and _kind(first.type) in ("StopIteration", "StopAsyncIteration"):
        return Chain(first, "worded anew", None, own, False)
    if ended_by_first(snapshot, stack, first):
        return Chain(first, "on its way", None, own, repeated)
    kind, last = _kind(first.type), _kind(exception.type)
    handler = handler_between(snapshot, stack, first)
    if handler is None:
        if own is not None and stack and stack[0] == own and _from_another(snapshot, own):
            return Chain(first, "worded anew", None, own, repeated)
        before = first.python_stack or []
        caught = bool(before) and is_library_file(before[-1].file)
        raised = bool(stack) and is_library_file(stack[0].file)
        if not (caught and raised) or kind in _EXPECTED or repeated:
            return None
        return Chain(first, "by a library", None, own, repeated)
    here = own is not None and (own.file, own.line) == (handler.file, handler.at)
    again = handler.tries_again(exception.columns if here else None)
    how = _how(handler, kind, last, stack)
    if how == "failed handler" and (not here or kind in _FIRST_RUN or (again and last not in _SLIPS)):
        return None  # the program goes on by another way, or tries again with something changed: that may be the reason
    frame = PythonFrame(function=own.function if own else None, file=handler.file, line=handler.at)
    return Chain(first, how, handler, frame, repeated) if how is not None else None


def found_its_way(snapshot: Snapshot, exception: ExceptionReport, stack: Sequence[PythonFrame]) -> bool:
    """Whether the first exception was one that the program expected: a miss of a cache, a name looked up elsewhere."""
    first = original(exception)
    handler = handler_between(snapshot, stack, first) if first is not None else None
    return first is not None and handler is not None and _expected(handler, _kind(first.type))


def as_uncaught(first: HandledExceptionReport, last: ExceptionReport, stack: Sequence[PythonFrame]) -> ExceptionReport:
    """An earlier one; with the variables of the last one, where both failed in the same call of a function."""
    own, mine = _program(stack), _program(first.python_stack or ())
    same = bool(own) and bool(mine) and (own[0].file, own[0].function) == (mine[0].file, mine[0].function)
    calls = sum((item.file, item.function) == (own[0].file, own[0].function) for item in own) if same else 0
    return ExceptionReport(
        type=first.type,
        message=first.message,
        python_stack=first.python_stack,
        variables=first.variables or (last.variables if calls == 1 else None),
        columns=first.columns,
        near=first.near,
        outer=first.outer,
    )


def original(exception: ExceptionReport | None) -> HandledExceptionReport | None:
    """The first exception of a chain that ran a line of the program."""
    context = (exception.context or []) if exception is not None else []
    own = [item for item in context if any(not is_library_file(frame.file) for frame in item.python_stack or ())]
    return own[-1] if own else None


def _how(handler: Handler, kind: str, last: str, stack: Sequence[PythonFrame]) -> How | None:
    if last == "RecursionError":
        # The limit may have struck at another line of the handler than the one that tries again.
        again = sum(item.file == handler.file and handler.has(item.line or 0) for item in stack)
        return "tried again" if kind != "RecursionError" and again >= _OFTEN else None
    if _expected(handler, kind):
        return None
    innermost = bool(stack) and (stack[0].file, stack[0].line) == (handler.file, handler.at)
    if innermost and isinstance(handler.statement, ast.Raise):
        return "worded anew"
    if handler.catches & (_ANY | {"RuntimeError"}) or (innermost and last in _SLIPS):
        return "failed handler"
    return None


def _from_another(snapshot: Snapshot, frame: PythonFrame) -> bool:
    """`raise X() from error`, outside of the handler."""
    text = line_text(snapshot, frame) or ""
    return text.startswith("raise ") and " from " in text and not text.endswith(" from None")


def _expected(handler: Handler, kind: str) -> bool:
    return kind in _EXPECTED and (kind in _IMPORTS or handler.alone or not handler.catches & _ANY)


def _program(stack: Sequence[PythonFrame]) -> list[PythonFrame]:
    return [item for item in stack if not is_library_file(item.file)]


def _kind(name: str | None) -> str:
    return (name or "").rpartition(".")[2]
