"""What a rank had called in the last function that it was in together with those that wait for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._library_files import is_library_file
from pytracer.analyze.collectives.ways import way_to
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS, LOOPS, deciding_ifs
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans, spans_body
from pytracer.analyze.evidence.waits.waits import main_stack
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import PythonFrame


class CommonCall(msgspec.Struct, frozen=True):
    """`frame`: of that function, where both are at other lines. `called`: by that line; `inner`: its last line.

    `direct`: no library calls it for that line. `work`: what takes the time, `the loop of line 88`. `comes`: whether
    the rank has not passed the line yet at which the others wait, and no branch leads by that line.
    """

    frame: PythonFrame
    called: str
    inner: PythonFrame
    direct: bool
    work: str
    comes: bool

    @property
    def line(self) -> LineWords:
        """`line 86`, beside the innermost line."""
        return line_in(self.frame.file, self.frame.line, self.inner.file)

    @property
    def words(self) -> str:
        """`in tokenize(), called at line 86 in prepare`; `below line 2 in train`."""
        at = f"{self.line} in {self.frame.function}"
        return f"in {self.called}(), called at {at}" if self.direct else f"below {at}"


def common_call(waiter: ProcessView, call: Collective, absent: ProcessView) -> CommonCall | None:
    """None where the stacks have no such function, or the rank was in that one itself."""
    stack = tuple(reversed(main_stack(absent)))
    places = [place for place, frame in enumerate(stack) if not is_library_file(frame.file)]
    inside, outside = way_to(waiter, call), [stack[place] for place in places]
    pairs = enumerate(zip(inside, outside, strict=False))
    at = next((place for place, (here, there) in pairs if here != there), None)
    if at is None or at + 1 >= len(outside):
        return None
    here, there = inside[at], outside[at]
    if (here.file, here.function) != (there.file, there.function) or there.line is None:
        return None
    below = next((place for place in range(at + 1, len(outside)) if _is_named(outside[place])), None)
    if below is None:
        return None
    called = (outside[below].function or "").rpartition(".")[2]
    passed = stack[places[at] + 1 : places[below]]
    direct = all((frame.file, frame.line) == (there.file, there.line) for frame in passed)
    tree = syntax_tree(absent.process.snapshot, there)
    work = _work(tree, there.line, here.line, called) if tree is not None else f"what line {there.line} does"
    comes = tree is not None and here.line is not None and _comes(tree, there.line, here.line)
    return CommonCall(there, called, outside[-1], direct, work, comes)


def _is_named(frame: PythonFrame) -> bool:
    """Whether it is of a function with a name: no lambda, no comprehension."""
    return frame.function is not None and not frame.function.rpartition(".")[2].startswith("<")


def _work(tree: ast.Module, line: int, waits_at: int | None, called: str) -> str:
    """The outermost loop around the call that those who wait are not in, too."""
    around = [item for item in own_nodes(scope_of(tree, line)) if isinstance(item, LOOPS) and spans(item, line)]
    repeating = [item for item in around if isinstance(item, ast.While) or item.lineno < line]
    alone = (item for item in repeating if waits_at is None or not spans(item, waits_at))
    loop = min(alone, key=lambda item: item.lineno, default=None)
    if loop is not None:
        return f"the loop of line {loop.lineno}"
    repeated = (*COMPREHENSIONS, ast.Lambda)
    again = any(isinstance(item, repeated) and spans(item, line) for item in nodes_of(tree))
    return f"what line {line} does" if again else f"{called}()"


def _comes(tree: ast.Module, line: int, waits_at: int) -> bool:
    """Whether the line is before the other, which stands below no branch alone; or in the `with` that waits first."""
    heads = (item for item in nodes_of(tree) if isinstance(item, (ast.With, ast.AsyncWith)))
    if any(item.lineno <= waits_at < item.body[0].lineno and spans_body(item.body, line) for item in heads):
        return True
    leaving = (item for item, around in deciding_ifs(tree, waits_at) if not around)
    decided = any((item.end_lineno or 0) >= line for item in leaving)
    return line < waits_at and not decided and not any(_branches(tree, line, waits_at))


def _branches(tree: ast.Module, line: int, waits_at: int) -> Iterator[bool]:
    """For each block that may be left out, whether it has the second line and not the first."""
    scope = scope_of(tree, waits_at)
    for item in nodes_of(scope):
        blocks: list[list[ast.stmt]] = []
        if isinstance(item, ast.If):
            blocks = [item.body, item.orelse]
        elif isinstance(item, (ast.While, ast.For, ast.AsyncFor)):
            blocks = [item.body, item.orelse] if isinstance(item, ast.While) else [item.orelse]
        elif isinstance(item, ast.Try):
            blocks = [item.orelse, *(handler.body for handler in item.handlers)]
        elif isinstance(item, ast.Match):
            blocks = [case.body for case in item.cases]
        elif isinstance(item, (ast.IfExp, ast.BoolOp)):
            yield spans(item, waits_at) and not spans(item, line)
        yield from (spans_body(block, waits_at) and not spans_body(block, line) for block in blocks)
