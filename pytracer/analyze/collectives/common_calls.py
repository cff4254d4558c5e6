"""What a rank had called in the last function that it was in together with those that wait for it."""

from __future__ import annotations

import msgspec

from pytracer.analyze.collectives.ways import way_to
from pytracer.analyze.evidence.waits.waits import program_stack
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import PythonFrame


class CommonCall(msgspec.Struct, frozen=True):
    """`frame`: of that function, where both are at other lines. `called`: by that line; `inner`: its last line."""

    frame: PythonFrame
    called: str
    inner: PythonFrame

    @property
    def line(self) -> LineWords:
        """`line 86`, beside the innermost line."""
        return line_in(self.frame.file, self.frame.line, self.inner.file)

    @property
    def words(self) -> str:
        """`in tokenize(), called at line 86 in prepare`."""
        return f"in {self.called}(), called at {self.line} in {self.frame.function}"


def common_call(waiter: ProcessView, call: Collective, absent: ProcessView) -> CommonCall | None:
    """None where the stacks have no such function, or the rank was in that one itself."""
    inside, outside = way_to(waiter, call), tuple(reversed(program_stack(absent)))
    pairs = enumerate(zip(inside, outside, strict=False))
    at = next((place for place, (here, there) in pairs if here != there), None)
    if at is None or at + 1 >= len(outside):
        return None
    here, there, below = inside[at], outside[at], outside[at + 1]
    if (here.file, here.function) != (there.file, there.function) or there.line is None or below.function is None:
        return None
    return CommonCall(there, below.function.rpartition(".")[2], outside[-1])
