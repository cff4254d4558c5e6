"""A rank that had left the loop in which the others wait for it, and that waits or works behind it.

Both had come through the same call of a function; the line in it at which the one rank is comes after the line that
the others have not returned from. So whatever loops these are in, below that line, had ended on the one rank.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._text import capital, uncapital
from pytracer.analyze.collectives.left_loops import LeftLoop, left_loop
from pytracer.analyze.collectives.ways import way_to
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.comprehension_loops import rounds_around
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans
from pytracer.analyze.evidence.waits.busy import polled_by, polled_test
from pytracer.analyze.evidence.waits.polled_paths import asked_paths
from pytracer.analyze.evidence.waits.waits import program_stack
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import PythonFrame

_WRITES = frozenset(
    {"rename", "replace", "move", "copy", "copyfile", "symlink", "link", "save", "savez", "tofile", "touch", "dump"}
    | {"write_text", "write_bytes", "mkdir", "makedirs", "save_file", "save_pretrained", "to_parquet", "to_csv"}
)


class GoneOn(msgspec.Struct, frozen=True):
    """`left` had left `loop`, in which `waits` is; `file`: of its lines, where the headline names another one before.

    `path`: a file that `left` looks for, which `waits` is to write.
    """

    left: str
    waits: str
    loop: LeftLoop
    file: str | None
    path: str | None = None
    writes: LineWords | None = None

    @property
    def words(self) -> str:
        """Both, as a part of the headline."""
        said = self.loop.subject(self.left, is_gone=True)
        return f"{self._within}{said}{f'; {self._file}' if self._file else ''}"

    @property
    def advice(self) -> str:
        """So that all leave it together; a file is no way to wait for a rank that waits itself."""
        barrier = f" {capital(self._file)}: dist.barrier() on all ranks waits for it as well." if self._file else ""
        said = self.loop.advice(self.left)
        return f"{f'{capital(self._within)}{uncapital(said)}' if self._within else said}{barrier}"

    @property
    def _within(self) -> str:
        return f"in {os.path.basename(self.file)}, " if self.file is not None else ""

    @property
    def _file(self) -> str:
        """`` rank 0 writes `BEST`, for which rank 1 waits, only behind that loop (line 84) ``."""
        if self.writes is None:
            return ""
        return f"{self.waits} writes `{self.path}`, for which {self.left} waits, only behind that loop ({self.writes})"


def gone_on(waiter: ProcessView, call: Collective, absent: ProcessView) -> GoneOn | None:
    """None where the one is not behind the other by their stacks, or no loop is known that may end on one rank."""
    inside, outside = way_to(waiter, call), tuple(reversed(program_stack(absent)))
    at = _parts(waiter, inside, outside)
    ranks = (waiter.process.rank, absent.process.rank)
    if at is None or ranks[0] is None or ranks[1] is None:
        return None
    loop = left_loop(waiter, call, [ranks[1]], absent)
    around = (frame for frame in inside[at:] if loop is not None and loop.line in _loop_lines(waiter, frame))
    frame = next(around, None)
    if loop is None or frame is None:
        return None
    found = _written_behind(waiter, inside, absent, frame.file)
    path, writes = found if found is not None else (None, None)
    files = {item.file for item in (*outside[-1:], *inside[-1:])}
    return GoneOn(
        f"rank {ranks[1]}", f"rank {ranks[0]}", loop, None if files == {frame.file} else frame.file, path, writes
    )


def _parts(waiter: ProcessView, inside: Sequence[PythonFrame], outside: Sequence[PythonFrame]) -> int | None:
    """Which frame of the way in the one has left: the first that differs, of the same function, where it is behind."""
    pairs = zip(inside, outside, strict=False)
    at = next((place for place, (here, there) in enumerate(pairs) if here != there), None)
    if at is None:
        return None
    here, there = inside[at], outside[at]
    tree = syntax_tree(waiter.process.snapshot, here)
    if tree is None or here.line is None or there.line is None or here.file != there.file or here.line >= there.line:
        return None
    if here.function != there.function or scope_of(tree, here.line) is not scope_of(tree, there.line):
        return None
    again = any(spans(item, there.line) for item in loops_around(tree, here.line))
    return at if not again else None


def _loop_lines(view: ProcessView, frame: PythonFrame) -> Iterator[int]:
    tree = syntax_tree(view.process.snapshot, frame)
    yield from (item.lineno for item in (rounds_around(tree, frame.line) if tree is not None and frame.line else ()))


def _written_behind(
    waiter: ProcessView, inside: Sequence[PythonFrame], absent: ProcessView, here: str | None
) -> tuple[str, LineWords] | None:
    """The path that the absent rank asks for in a loop, and the line below the waiter's own that writes it."""
    polled = polled_by(absent)
    test = polled_test(absent, polled) if polled is not None else None
    back = Slice(absent.process.snapshot, program_stack(absent))
    spot = back.spot(0)
    asked = next(asked_paths(back, test, spot), None) if test is not None and spot is not None else None
    if asked is None:
        return None
    for frame in reversed(inside):
        tree = syntax_tree(waiter.process.snapshot, frame)
        if tree is None or frame.line is None or frame.file != asked[1].file:
            continue
        for node in own_nodes(scope_of(tree, frame.line)):
            is_behind = isinstance(node, ast.Call) and node.lineno > frame.line and called_name(node) in _WRITES
            if isinstance(node, ast.Call) and is_behind and _is_passed(node, asked[0]):
                return ast.unparse(asked[0]), line_in(frame.file, node.lineno, here)
    return None


def _is_passed(call: ast.Call, path: ast.expr) -> bool:
    own = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return any(ast.unparse(item) == ast.unparse(path) for item in (*passed_values(call), *own))
