"""A lock or Semaphore that a function takes by acquire() and does not give back on one of its ways out.

`slots.acquire()`, then `if cached: return view`, then `slots.release()`: each pass through that branch keeps one for
good. Where a `finally` or a `with` gives it back, nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.loops import LEAVES, last_of, loops_around
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, qualified_name, spans_body

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LONGEST = 50


class Unreleased(msgspec.Struct, frozen=True):
    """`taken`: the line of acquire(). `line`, `how`: of what leaves; `head`, `head_line`: of its `if` or `except`."""

    file: str
    thing: str
    taken: int
    line: int
    how: str
    head: str
    head_line: int
    function: str
    released: int
    awaited: bool = False
    """Whether it is one of asyncio."""

    @property
    def words(self) -> str:
        """For the headline, in the file of the line that is spoken of."""
        return (
            f"the `{self.how}` of line {self.line} in {self.function} (below `{self.head}`) leaves without "
            f"`{self.thing}.release()`, so each pass through it keeps what line {self.taken} took"
        )

    @property
    def advice(self) -> str:
        """What to change."""
        entered = "async with" if self.awaited else "with"
        return (
            f"Take `{self.thing}` by `{entered}` in {self.function}, in place of line {self.taken} and line "
            f"{self.released}: that gives it back on each way out. Or call `{self.thing}.release()` before the "
            f"`{self.how}` of line {self.line}, too."
        )


def unreleased(files: Mapping[str, ast.Module], file: str, names: frozenset[str]) -> list[Unreleased]:
    """All of a file, of what has one of these names; none where another function gives back what one has taken."""
    found: list[Unreleased] = []
    tree = files.get(file)
    if tree is None or any(_is_handed_on(item, names) for item in files.values()):
        return found
    for function in (item for item in nodes_of(tree) if isinstance(item, _FUNCTIONS)):
        nodes = own_nodes(function)
        for taken in _calls(nodes, "acquire"):
            thing = taken.func.value  # type: ignore[attr-defined]
            if (last_name(thing) or "") in names:
                found += _left(tree, file, function, taken, ast.unparse(thing))
    return found


def _is_handed_on(tree: ast.Module, names: frozenset[str]) -> bool:
    """Whether a release() stands where nothing was taken, as in the task that was begun with the lock taken."""
    takers = [item for item in nodes_of(tree) if isinstance(item, _FUNCTIONS) and _of(item, "acquire", names)]
    own = {id(part) for item in takers for part in _of(item, "release", names)}
    return any(id(item) not in own for item in _of(tree, "release", names, deep=True))


def _of(scope: ast.AST, method: str, names: frozenset[str], *, deep: bool = False) -> list[ast.Attribute]:
    """The method of such a name, also where it is passed on without a call."""
    nodes = nodes_of(scope) if deep else own_nodes(scope)
    return [item for item in nodes if isinstance(item, ast.Attribute) and item.attr == method
            and (last_name(item.value) or "") in names]  # fmt: skip


def _left(
    tree: ast.Module, file: str, function: ast.FunctionDef | ast.AsyncFunctionDef, taken: ast.Call, text: str
) -> Iterator[Unreleased]:
    """Branches between the taking and the last release() of the function, which leave without one."""
    nodes = own_nodes(function)
    gives = [item for item in _calls(nodes, "release") if ast.unparse(item.func.value) == text]  # type: ignore[attr-defined]
    last = max((item.lineno for item in gives), default=0)
    tries = [item for item in nodes if isinstance(item, ast.Try)]
    if last <= taken.lineno or any(spans_body(part.finalbody, item.lineno) for part in tries for item in gives):
        return
    loops = [id(item) for item in loops_around(tree, taken.lineno)]
    for item in nodes:
        if not isinstance(item, (ast.If, ast.ExceptHandler)) or not taken.lineno < item.lineno < last:
            continue
        leaving = last_of(item.body)
        inside = [id(one) for one in loops_around(tree, leaving.lineno)] != loops
        if not isinstance(leaving, LEAVES) or (inside and isinstance(leaving, (ast.Continue, ast.Break))):
            continue
        if isinstance(leaving, ast.Raise) or any(_is_in(item, give)
                                                 for give in gives):  # fmt: skip
            continue
        if any(taken.lineno < give.lineno < item.lineno and not _is_below(nodes, give) for give in gives):
            continue
        if _asks_for(item, taken):
            continue
        yield Unreleased(
            file, shortened(text, _LONGEST), taken.lineno, leaving.lineno, type(leaving).__name__.lower(), _head(item),
            item.lineno, qualified_name(tree, function), last,
            any(isinstance(part, ast.Await) and part.value is taken for part in nodes),
        )  # fmt: skip


def _asks_for(item: ast.AST, taken: ast.Call) -> bool:
    """`if not lock.acquire(blocking=False): return`: nothing was taken."""
    return isinstance(item, ast.If) and any(part is taken for part in nodes_of(item.test))


def _is_in(item: ast.If | ast.ExceptHandler, give: ast.Call) -> bool:
    return any(part is give for statement in item.body for part in nodes_of(statement))


def _is_below(nodes: Sequence[ast.AST], give: ast.Call) -> bool:
    """Whether a release stands in a branch of its own, which another way does not take."""
    return any(
        isinstance(item, (ast.If, ast.ExceptHandler)) and _is_in(item, give) for item in nodes
    )  # fmt: skip


def _calls(nodes: Sequence[ast.AST], method: str) -> Iterator[ast.Call]:
    for item in nodes:
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == method:
            yield item


def _head(item: ast.If | ast.ExceptHandler) -> str:
    if isinstance(item, ast.If):
        return shortened(f"if {ast.unparse(item.test)}", _LONGEST)
    return f"except {shortened(ast.unparse(item.type), _LONGEST)}" if item.type is not None else "except"
