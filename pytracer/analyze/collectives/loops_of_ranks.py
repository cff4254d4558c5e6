"""An `if` on the rank both of whose branches communicate in a loop, over different things.

`for name, full in checkpoint.items(): broadcast(full)` on rank 0, `for name in model.state_dict(): broadcast(...)` on
the others: one key more on one side, and a rank waits in a call that the others never make.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import spans_body

_ASKS_RANK = re.compile(r"rank|is_(?:\w+_)?main|is_master|main_process", re.IGNORECASE)
_QUOTED = 50


@dataclass(frozen=True)
class LoopsOfRanks:
    """`mine` (`full_sd.items()`): what the loop at `line` goes through. `theirs`, `other`: of the other branch."""

    mine: str
    line: int
    theirs: str
    other: int

    @property
    def subject(self) -> str:
        """For the headline."""
        others = f"the other ranks loop over `{self.theirs}` (line {self.other})"
        return f"line {self.line} loops over `{self.mine}`, and {others}"

    @property
    def advice(self) -> str:
        """One list for all."""
        return (
            f"Go through the same names in the same order on all ranks: `{self.mine}` (line {self.line}) and "
            f"`{self.theirs}` (line {self.other}) need not have as many. Take those of one of the two on all ranks (of "
            "a model, its state_dict()), or broadcast the list of them first, and print what one side has alone."
        )


def loops_of_ranks(decides: ast.If, line: int) -> LoopsOfRanks | None:
    """None where the `if` asks something else, or one branch has no such loop. `line`: of the call."""
    if not decides.orelse or _ASKS_RANK.search(ast.unparse(decides.test)) is None:
        return None
    mine, theirs = (decides.body, decides.orelse) if spans_body(decides.body, line) else (decides.orelse, decides.body)
    own = [item for item in mine if isinstance(item, ast.For) and spans_body(item.body, line)]
    others = [item for item in theirs if isinstance(item, ast.For)]
    if len(own) != 1 or len(others) != 1:
        return None
    here, there = ast.unparse(own[0].iter), ast.unparse(others[0].iter)
    called = {called_name(item) for item in ast.walk(own[0]) if isinstance(item, ast.Call) and item.lineno == line}
    shared = {called_name(item) for item in ast.walk(others[0]) if isinstance(item, ast.Call)} & called
    if here == there or not shared - {None}:
        return None
    return LoopsOfRanks(shortened(here, _QUOTED), own[0].lineno, shortened(there, _QUOTED), others[0].lineno)
