"""The loops around a line, and the branches that decide whether it is reached."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of, spans

Loop = ast.For | ast.AsyncFor | ast.While
LOOPS = (ast.For, ast.AsyncFor, ast.While)
PLAIN_LOOPS = (ast.For, ast.While)
ITEM_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp)
COMPREHENSIONS = (*ITEM_COMPREHENSIONS, ast.DictComp)
LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)  # behind it, a block does not go on


def deciding_ifs(tree: ast.Module, line: int) -> list[tuple[ast.If, bool]]:
    """The `if` statements of its function that decide whether a line is reached, the closest first.

    Each with whether it stands around the line; the others leave before it: by return, `continue`, `break` or `raise`,
    also at the end of a `with`.
    A `break` or `continue` of a loop that ends above the line leaves only that loop.
    """
    scope = scope_of(tree, line)
    found = []
    for item in own_nodes(scope):
        if not isinstance(item, ast.If) or item.lineno >= line:
            continue
        around = line <= (item.end_lineno or 0)
        last = last_of(item.body)
        leaves_loop = isinstance(last, (ast.Continue, ast.Break)) and _loop_ends(scope, item.lineno) >= line
        if around or leaves_loop or isinstance(last, (ast.Return, ast.Raise)):
            found.append((item, around))
    return sorted(found, key=lambda pair: -pair[0].lineno)


def last_of(body: Sequence[ast.stmt]) -> ast.stmt:
    """The last statement of a block; of a `with` at its end, that of the `with`: `with open(path): return load(f)`."""
    last = body[-1]
    return last_of(last.body) if isinstance(last, (ast.With, ast.AsyncWith)) else last


def _loop_ends(scope: Scope, line: int) -> int:
    """The last line of the innermost loop around a line; 0 without one."""
    loops = ((item.lineno, item.body[-1].end_lineno or 0) for item in loops_of(scope))  # `else` runs behind the loop
    return max((loop for loop in loops if loop[0] < line <= loop[1]), default=(0, 0))[1]


def loops_of(scope: Scope) -> Iterator[Loop]:
    """The loops of a function, without those of functions inside; comprehensions are none."""
    return (item for item in own_nodes(scope) if isinstance(item, LOOPS))


def loops_around(tree: ast.Module, line: int, kinds: tuple[type[Loop], ...] = LOOPS) -> list[Loop]:
    """Those of a line's function that have it below their head, in the body or the `else`; the outermost first."""
    loops = (item for item in loops_of(scope_of(tree, line)) if isinstance(item, kinds))
    found = [item for item in loops if item.lineno < line <= (item.end_lineno or 0)]
    return sorted(found, key=lambda item: item.lineno)


def loop_around(tree: ast.Module, line: int) -> int | None:
    """The first line of the innermost loop around a line of a function."""
    loops = loops_around(tree, line)
    return loops[-1].lineno if loops else None


def counting_loop(tree: ast.Module, line: int) -> int | None:
    """The first line of the loop that decides how often a line is done.

    Not one that ends as soon as it is done once: `while True: try: q.put(x, timeout=1); break` only tries again.
    """
    loops = loops_around(tree, line)
    while loops and _ends_with(tree, loops[-1], line):
        loops.pop()
    return loops[-1].lineno if loops else None


def _ends_with(tree: ast.Module, loop: Loop, line: int) -> bool:
    """Whether what follows the line in its block leaves the loop: by `break`, or by what its test asks."""
    asked = {ast.unparse(item) for item in nodes_of(loop.test)} if isinstance(loop, ast.While) else set()
    for block in _blocks(loop):
        at = next((place for place, item in enumerate(block) if spans(item, line)), None)
        for item in block[at + 1 :] if at is not None else ():
            sets = isinstance(item, ast.Assign) and isinstance(item.value, ast.Constant)
            told = isinstance(item, ast.Assign) and sets and any(ast.unparse(one) in asked for one in item.targets)
            if told or (isinstance(item, ast.Break) and loops_around(tree, item.lineno)[-1:] == [loop]):
                return True
    return False


def _blocks(loop: Loop) -> Iterator[list[ast.stmt]]:
    """The body, and those of what is inside; of a `try`, its `else` follows its body."""
    for item in nodes_of(loop):
        if isinstance(item, ast.Try):
            yield [*item.body, *item.orelse]
        elif isinstance(item, (*LOOPS, ast.If, ast.With)):
            yield item.body
            yield item.orelse if not isinstance(item, ast.With) else []


def breaks(loop: Loop, item: ast.AST) -> bool:
    """Whether it is a `break` of that loop, and not of one inside."""
    return any(item is own for own in breaks_of(loop))


def breaks_of(loop: Loop) -> Iterator[ast.Break]:
    """Those that end this loop, and not one inside or around it: a `break` in an `else` is that of the loop around."""
    return _breaks(loop.body)


def _breaks(nodes: Iterable[ast.AST]) -> Iterator[ast.Break]:
    for item in nodes:
        if isinstance(item, ast.Break):
            yield item
        elif isinstance(item, LOOPS):
            yield from _breaks(item.orelse)
        elif not isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            yield from _breaks(ast.iter_child_nodes(item))
