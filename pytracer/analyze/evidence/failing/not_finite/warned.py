"""Lines of the program of which Python had warned, before the exception, that their numbers are not finite.

What a warning is about need not be what the exception is about: it is the line to look at first, and no proof.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.exceptions.earlier_warnings import warning_words
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.not_finite.hazard import Hazard
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of, statement_at
from pytracer.analyze.naming import LineWords

# torch 2.13, aten/src/ATen/native/ReduceOps.cpp; numpy 2.4, numpy/_core/src/umath/extobj.c, _methods.py, nanfunctions
_OF_NUMBERS = Pattern(
    r"degrees of freedom (?:is )?<= 0|(?:invalid value|divide by zero|overflow) encountered"
    r"|[Mm]ean of empty slice|All-NaN (?:slice|axis)"
)
_MOST = 2
_SHOWS = frozenset(
    {"print", "debug", "info", "warning", "warn", "error", "critical", "log", "log_dict", "write", "set_postfix"}
    | {"add_scalar", "add_scalars", "set_description"}
)


class Warned(msgspec.Struct, frozen=True):
    """`says`: the first sentence of the warning."""

    place: LineWords
    file: str
    line: int
    says: str

    @property
    def words(self) -> str:
        """`line 73 had warned before: "std(): degrees of freedom is <= 0"`."""
        return f'{self.place} had warned before: "{self.says}"'


class WarnedHazard(msgspec.Struct, frozen=True):
    """An expression that can make it, at a line that had warned."""

    hazard: Hazard
    warned: Warned

    @property
    def clause(self) -> str:
        """`line 3, which had warned before ("divide by zero encountered in log"), takes the log of ...`."""
        return f'{self.warned.place}, which had warned before ("{self.warned.says}"), {self.hazard.says}'


def warned(at: FailingLine) -> list[Warned]:
    """The last ones of the program's own files, none where there are many."""
    found = [
        (item.file, item.line, warning_words(item.message))
        for item in at.exception.warnings or ()
        if item.file and item.line and item.message and _OF_NUMBERS.search(item.message)
        if not is_library_file(item.file)
    ]
    last = {(file, line): says for file, line, says in found}
    if len(last) > _MOST:
        return []
    return [Warned(at.in_file(*key), *key, says) for key, says in last.items() if not _is_only_shown(at, *key)]


def _is_only_shown(at: FailingLine, file: str, line: int) -> bool:
    """Whether its numbers are logged, there or by all who call its function, or made finite: no others come of them."""
    tree = at.files.get(file)
    statement = statement_at(tree, line) if tree is not None else None
    if tree is None or statement is None:
        return False
    if _shows(statement) or any(
        isinstance(item, ast.Call) and called_name(item) == "nan_to_num" for item in nodes_of(statement)
    ):
        return True
    name, calls = getattr(scope_of(tree, line), "name", None), list[bool]()
    for other in at.files.values():
        for item in nodes_of(other):
            if name is not None and isinstance(item, ast.Call) and called_name(item) == name:
                around = statement_at(other, item.lineno)
                calls.append(around is not None and _shows(around))
    return bool(calls) and all(calls)


def _shows(statement: ast.stmt) -> bool:
    """`print(...)`, `log.info(...)`, whose result nobody takes."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and called_name(call) in _SHOWS


def warned_hazard(at: FailingLine, found: Sequence[Hazard]) -> WarnedHazard | None:
    """The only one of several expressions whose line has warned."""
    pairs = [WarnedHazard(item, of) for item in found for of in warned(at) if _is_at(item, of.file, of.line)]
    return pairs[0] if len(pairs) == 1 and len(found) > 1 else None


def with_warned(at: FailingLine, found: tuple[str, str] | None) -> tuple[str, str] | None:
    """The subject and the advice, with what had warned at a line that they do not name."""
    subject, advice = found if found is not None else ("", "")
    new = [item for item in warned(at) if f"{item.place}" not in f"{subject} {advice}"]
    if not new:
        return found
    words = "; ".join(item.words for item in new)
    look = f"Look first at {' and '.join(str(item.place) for item in new)}, of which Python had warned"
    look = f"{look}: torch.isfinite() of what it makes." if found is None else f"{look}."
    return f"{subject}; {words}" if subject else words, f"{look} {advice}".rstrip()


def _is_at(item: Hazard, file: str, line: int) -> bool:
    statement = statement_at(item.spot.tree, item.line)
    lines = range(statement.lineno, (statement.end_lineno or 0) + 1) if statement is not None else range(0)
    return item.spot.file == file and (line == item.line or line in lines)
