"""An iterator that has been read to its end before: generators, filter, map, zip, iter() of a loader, open files."""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.exceptions.name_origins import EMPTY_MESSAGE, USED_UP
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.emptied import is_empty
from pytracer.analyze.evidence.syntax.bindings import bound_value, lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Function, Scope, function_named, own_nodes

_TAKEN = Pattern(r"iterator of a DataLoader, (\d+) batches taken$")
_FILES = {"open": "file", "reader": "reader of a file", "DictReader": "reader of a file"}
# What reads an iterator to its end; of other calls it is only known that they were given it.
_READERS = {"list", "tuple", "set", "frozenset", "dict", "sum", "max", "min", "sorted", "any", "all", "join", "extend",
            "enumerate", "zip", "map", "filter", "cat", "stack", "Counter", "deque", "array"}  # fmt: skip
_ONLY_LOOKS = {"type", "isinstance", "print", "id", "repr", "callable", "hasattr", "next", "iter", "islice", "reader",
               "DictReader", "tqdm"}  # fmt: skip
_KINDS = ("StopIteration", "ZeroDivisionError", "IndexError")


class _Once(msgspec.Struct, frozen=True):
    """A variable that can be read once: what it is, the line that made it in words, and lines that read it before."""

    name: str
    kind: str
    made: str
    reads: tuple[tuple[int, str], ...]
    surely: bool  # whether the first of them reads it, and is not only given it
    given: str = "is given"  # else, with a condition around it


def nothing_left(at: FailingLine) -> str | None:
    """Of a variable of the failing line, or of what an empty one was made from."""
    if at.kind not in _KINDS and not EMPTY_MESSAGE.search(at.message) and "empty parameter list" not in at.message:
        return None
    if at.kind == "StopIteration":
        return _ended(at)
    names = at.names
    for name in names:
        found = _read_once(at, name, at.line)
        if found is not None and found.reads:
            return _words(found, at.line, f"nothing is left at line {at.line}")
    for name in names:
        words = _made_of_nothing(at, name) if at.value(name) in ("0", "0.0") or is_empty(at.value(name)) else None
        if words is not None:
            return words
    return None


def _made_of_nothing(at: FailingLine, name: str) -> str | None:
    """`rows = [row for row in reader]`, or a loop over it that fills `rows`."""
    bound = bound_value(at.scope, name, at.line)
    sources: list[tuple[int, ast.AST]] = []
    if bound is not None and bound[1] is not None:
        sources.append((bound[0], bound[1]))
    for item in own_nodes(at.scope):
        if isinstance(item, (ast.For, ast.AsyncFor)) and item.lineno < at.line and _raises(item, name):
            sources.append((item.lineno, item.iter))
    for line, value in sources:
        for inner in names_in(value):
            found = _read_once(at, inner, line)
            if found is not None and found.reads:
                empty = "0" if at.value(name) in ("0", "0.0") else "empty"
                return _words(found, line, f"{at.here(line)} finds nothing left, and `{name}` is {empty}")
    return None


def _raises(loop: ast.For | ast.AsyncFor, name: str) -> bool:
    """Whether a round of it adds to a variable."""
    for item in nodes_of(loop):
        if isinstance(item, ast.AugAssign) and variable(item.target) == name:
            return True
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and variable(item.func.value) == name:
            return True
    return False


def _read_once(at: FailingLine, name: str, line: int) -> _Once | None:
    value = at.value(name) or ""
    bound = [item for item in lines_that_bind(at.scope, name) if item[0] < line]
    made = at.made(name)
    if len(bound) > 1 or (bound and bound[0][1] is None):
        return None
    node = bound[0][1] if bound and not isinstance(bound[0][1], ast.Call) else made.node if made else None
    node = node if node is not None else bound[0][1] if bound else None
    called = called_name(node) if isinstance(node, ast.Call) else None
    kind = value.removesuffix(USED_UP) if value.endswith(USED_UP) else _FILES.get(called or "")
    if kind is None or (kind in _FILES.values() and value):
        return None
    shown = f" ({at.shown(made)})" if made is not None and made.line != line else ""
    if not shown and bound and bound[0][1] is not None:
        shown = f" (line {bound[0][0]}: `{source(bound[0][1])}`)"
    if any(_rewinds(item, name) for item in own_nodes(at.scope)):
        return None
    reads = reads_between(at.scope, name, bound[0][0] if bound else 0, line)
    always = tuple(item for item in reads if not _is_skipped(at.scope, item[0], line))
    reads = always if always or kind in _FILES.values() else reads
    return _Once(
        name,
        kind,
        shown,
        reads,
        bool(always) and _surely(at, name, reads[0][0]),
        "is given" if always else "may have been given",
    )


def _is_skipped(scope: Scope, one: int, line: int) -> bool:
    """Whether the first line is below a condition that the second one is not below."""
    for item in own_nodes(scope):
        if isinstance(item, (ast.If, ast.Try, ast.Match)) and item.lineno < one <= (item.end_lineno or 0):
            around = item.lineno < line <= (item.end_lineno or 0)
            below = item.orelse[0].lineno if isinstance(item, (ast.If, ast.Try)) and item.orelse else 0
            if not around or (isinstance(item, ast.If) and below and one < below <= line):
                return True
    return False


def _rewinds(item: ast.AST, name: str) -> bool:
    """`file.seek(0)`."""
    func = item.func if isinstance(item, ast.Call) else None
    return isinstance(func, ast.Attribute) and func.attr == "seek" and variable(func.value) == name


def _surely(at: FailingLine, name: str, line: int) -> bool:
    nodes = [*own_nodes(at.scope)]
    loops = [item.iter for item in nodes if isinstance(item, (ast.For, ast.AsyncFor, ast.comprehension))]
    over = [part for item in loops if item.lineno == line for part in nodes_of(item)]
    if any(isinstance(part, ast.Name) and part.id == name for part in over):
        return True
    for item in nodes:
        if isinstance(item, ast.Call) and item.lineno == line and any(variable(part) == name for part in item.args):
            called = called_name(item) or ""
            own = function_named(at.tree, called)
            if called in _READERS or (own is not None and _reads_parameter(item, own, name)):
                return True
    return False


def _reads_parameter(call: ast.Call, own: Function, name: str) -> bool:
    """Whether a function of the program loops over what it is given."""
    places = [item.arg for item in own.args.args if item.arg != "self"]
    number = next(n for n, item in enumerate(call.args) if variable(item) == name)
    given = places[number] if number < len(places) else None
    loops = [item.iter for item in own_nodes(own) if isinstance(item, (ast.For, ast.AsyncFor, ast.comprehension))]
    calls = [item for item in own_nodes(own) if isinstance(item, ast.Call) and called_name(item) in _READERS]
    return any(variable(item) == given for item in [*loops, *(part for item in calls for part in item.args)])


def reads_between(scope: Scope, name: str, after: int, before: int) -> tuple[tuple[int, str], ...]:
    """Lines between two that read an iterator, each with the text of the call; type() and print() only look at it."""
    looked = {
        id(part)
        for item in own_nodes(scope)
        if isinstance(item, ast.Call) and called_name(item) in _ONLY_LOOKS
        for part in item.args
    }
    heads = [
        item for item in own_nodes(scope) if isinstance(item, (ast.Call, ast.For, ast.AsyncFor, ast.comprehension))
    ]
    found: dict[int, str] = {}
    for item in own_nodes(scope):
        if not isinstance(item, ast.Name) or item.id != name or not isinstance(item.ctx, ast.Load):
            continue
        if id(item) in looked or not after < item.lineno < before:
            continue
        inside = [head for head in heads if any(part is item for part in _given(head))]
        if inside:
            found.setdefault(item.lineno, source(inside[0]) if isinstance(inside[0], ast.Call) else "")
    return tuple(sorted(found.items()))


def _given(head: ast.AST) -> list[ast.expr]:
    if isinstance(head, ast.Call):
        return passed_values(head)
    return [head.iter] if isinstance(head, (ast.For, ast.AsyncFor, ast.comprehension)) else []


def _words(found: _Once, line: int, consequence: str) -> str:
    first, text = found.reads[0]
    by = f"line {first}{f' (`{text}`)' if text else ''}"
    again = (
        f"open it again before line {line}, or read it into a list once"
        if found.kind in _FILES.values()
        else f"keep a list where it is made (`{found.name} = list(...)`)"
    )
    kind = found.kind if found.kind in _FILES.values() else f"{found.kind} object"
    before = f"{by} reads it before, so that" if found.surely else f"{by} {found.given} it before:"
    return f"`{found.name}`{found.made} is a {kind}, which can be read only once, and {before} {consequence}: {again}."


def _ended(at: FailingLine) -> str | None:
    """next() of what was made once, and is asked more often."""
    call = at.only(ast.Call)
    if call is None or called_name(call) != "next" or len(call.args) != 1:
        return None
    name = variable(call.args[0])
    value = (at.value(name) or "") if name is not None else ""
    taken = _TAKEN.match(value)
    if name is None or (taken is not None and taken[1] == "0") or (taken is None and not value.endswith(USED_UP)):
        return None
    made = at.made(name)
    inner = made.node.args[0] if made is not None and isinstance(made.node, ast.Call) and made.node.args else None
    over = inner if inner is not None and isinstance(made.node if made else None, ast.Call) else None
    asked = called_name(made.node) == "iter" if made is not None and isinstance(made.node, ast.Call) else False
    yields = any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in own_nodes(at.scope))
    where = f" ({at.shown(made)})" if made is not None and made.line != at.line else at.came(name)
    end = f"has given its {taken[1]} batches" if taken is not None else "has come to its end"
    if asked and over is not None:
        text = source(over)
        how = f"keep `{text}` and make a new iter({text}) there each time, or when StopIteration comes"
    else:
        how = "make it anew there each time, or when StopIteration comes"
    if yields:
        again = how.removesuffix(" each time, or when StopIteration comes")
        how = f"catch StopIteration around line {at.line} and `return` there, or {again} where it shall begin again"
    return f"`{name}`{where} {end}, and line {at.line} asks for more: {how}."
