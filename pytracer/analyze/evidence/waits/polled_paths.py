"""Ranks that all look for files in one loop, each at another path: one that it draws or makes for itself.

`while len(os.listdir(stage)) < world`, where `stage` has a number in it that `np.random` draws without a seed, the
process's id, the time, or is a temporary folder. Where the ranks agree on the path, or one of them alone makes it,
nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.own_values import MODULES, OwnValues, is_handed_out
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.path_questions import ASKS_OF_PATH, LISTS_FOLDER
from pytracer.analyze.evidence.syntax.ranks import is_rank
from pytracer.analyze.naming import line_in
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_ASKS = ASKS_OF_PATH | LISTS_FOLDER
_WORLD = Pattern(r"world|n_?ranks|num_ranks|n_?procs?\b|num_proc")


class OwnPath(msgspec.Struct, frozen=True):
    """`reason`: the line that makes it another one on each rank; `change`: of that line. `sure`: whether it must.

    `of_all`: whether the loop counts or names what all ranks write; else a process of each rank may have to write it.
    """

    path: str
    reason: str
    change: str
    sure: bool
    of_all: bool = False

    @property
    def sentence(self) -> str:
        """For the headline."""
        does = "looks" if self.sure else "may look"
        return f"Each {does} at another path, as {self.reason}"

    @property
    def alone(self) -> str:
        """The same of a rank that looks alone."""
        return f"each rank {'has' if self.sure else 'may have'} a path of its own, as {self.reason}"

    @property
    def advice(self) -> str:
        """What to change."""
        return f"{self.repair} Give the loop a limit, after which it raises an error with the path."

    @property
    def repair(self) -> str:
        """The same of a loop that has a limit."""
        make = "Make" if self.of_all else "If another rank is to write what each looks for, make"
        return (
            f"{make} `{self.path}` the same path on all ranks: {self.change}. Or let the ranks wait by dist.barrier() "
            "in place of files."
        )


def own_path(snapshot: Snapshot, frames: Sequence[PythonFrame], test: ast.expr) -> OwnPath | None:
    """Of the path that a loop of the innermost frame asks for.

    Args:
        snapshot: Of a rank.
        frames: Those of the program, the innermost first.
        test: The condition on which the loop goes on, or is left.
    """
    slice_, files = Slice(snapshot, frames), program_files(snapshot, frames)
    spot = slice_.spot(0)
    asked = next(asked_paths(slice_, test, spot), None) if spot is not None else None
    if asked is None or spot is None:
        return None
    path, at, lists = asked
    value, parts = OwnValues(slice_, files, spot.file).of(path, at)
    of_rank = _of_rank(parts, spot.file) if lists else None
    of_all = _is_of_all(slice_, test, spot)
    if of_rank is not None:
        return OwnPath(ast.unparse(path), *of_rank, sure=True, of_all=of_all)
    if value is None or is_handed_out(files, value):
        return None
    return OwnPath(ast.unparse(path), value.reason, value.change, value.sure, of_all)


def _is_of_all(slice_: Slice, test: ast.expr, spot: Spot) -> bool:
    """Whether the condition goes by the number of ranks, itself or by a variable."""
    parts = [item for item in nodes_of(test) if isinstance(item, (ast.Name, ast.Attribute))]
    made = (slice_.made(item, spot, calls=False) for item in parts)
    nodes = (node for item in made for node in (*(node for node, _ in item.through), item.node))
    return any(_WORLD.search(ast.unparse(node)) for node in nodes)


def asked_paths(slice_: Slice, test: ast.AST, spot: Spot, depth: int = 0) -> Iterator[tuple[ast.expr, Spot, bool]]:
    """The path of `os.listdir(stage)` and `stage.exists()`, and whether it is a folder that is listed."""
    for call in (item for item in nodes_of(test) if isinstance(item, ast.Call)):
        name, owner = called_name(call), call.func.value if isinstance(call.func, ast.Attribute) else None
        of_module = owner is None or ast.unparse(owner) in MODULES
        if name in _ASKS:
            if of_module and call.args:
                yield call.args[0], spot, name in LISTS_FOLDER
            elif owner is not None and not of_module:
                yield owner, spot, name in LISTS_FOLDER
        elif not depth and (own := slice_.returned(call, spot)) is not None:
            yield from asked_paths(slice_, *own, depth=1)


def _of_rank(parts: Sequence[Made], here: str | None) -> tuple[str, str] | None:
    """Of a folder that is listed: of another rank's file the path has the rank in it, too."""
    ways = [way for made in parts for way in (*made.through, (made.node, made.spot))]
    node, spot = next((item for item in ways if is_rank(item[0])), (None, None))
    if node is None or spot is None:
        return None
    words = f"{line_in(spot.file, getattr(node, 'lineno', spot.line), here)} puts the rank into it (`{source(node)}`)"
    return words, "leave the rank out of the folder, and put it into the names of the files"
