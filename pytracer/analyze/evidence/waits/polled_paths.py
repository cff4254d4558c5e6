"""Ranks that all look for files in one loop, each at another path: one that it draws or makes for itself.

`while len(os.listdir(stage)) < world`, where `stage` has a number in it that `np.random` draws without a seed, the
process's id, the time, or is a temporary folder. Where the ranks agree on the path, or one of them alone makes it,
nothing is said.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.stored.paths import PATH_CALLS
from pytracer.analyze.evidence.slicing.by_rank import before
from pytracer.analyze.evidence.slicing.data_numbers import is_passed_on
from pytracer.analyze.evidence.slicing.drawn_sizes import drawn_value
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.ranks import is_of_rank, is_rank, rank_branch
from pytracer.analyze.naming import line_in
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_MOST = 80
_FOLDERS = frozenset({"listdir", "scandir", "iterdir", "glob", "iglob", "rglob"})
_ASKS = frozenset({"exists", "is_file", "isfile", "is_dir", "isdir", "lexists", *_FOLDERS})
_MODULES = ("os", "os.path", "glob", "osp", "path")
_OF_PROCESS = frozenset(
    {"uuid.uuid1", "uuid.uuid4", "os.getpid", "os.urandom", "secrets.token_hex", "secrets.token_urlsafe"}
    | {"tempfile.mkdtemp", "tempfile.mkstemp", "tempfile.mktemp", "tempfile.TemporaryDirectory"}
    | {"tempfile.NamedTemporaryFile"}
)
_OF_TIME = frozenset(
    {"time.time", "time.time_ns", "time.monotonic", "time.perf_counter", "time.strftime", "time.ctime"}
    | {"datetime.datetime.now", "datetime.datetime.today", "datetime.datetime.utcnow", "datetime.now"}
)
_PARTS = frozenset({"parent", "name", "stem", "hex", "path"})
_CARRIES = PATH_CALLS | {
    "int",
    "hex",
    "format",
    "with_name",
    "with_suffix",
    "strftime",
    "isoformat",
    "replace",
    "strip",
}
_WORLD = re.compile(r"world|n_?ranks|num_ranks|n_?procs?\b|num_proc")
_Files = Mapping[str, ast.Module]


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
    def advice(self) -> str:
        """What to change."""
        make = "Make" if self.of_all else "If another rank is to write what each looks for, make"
        return (
            f"{make} `{self.path}` the same path on all ranks: {self.change}. Or let the ranks wait by dist.barrier() "
            "in place of files. Give the loop a limit, after which it raises an error with the path."
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
    found = _Search(slice_, files, spot.file, ast.unparse(path), lists=lists).of(path, at)
    return structs.replace(found, of_all=_is_of_all(slice_, test, spot)) if found is not None else None


def _is_of_all(slice_: Slice, test: ast.expr, spot: Spot) -> bool:
    """Whether the condition goes by the number of ranks, itself or by a variable."""
    parts = [item for item in ast.walk(test) if isinstance(item, (ast.Name, ast.Attribute))]
    made = (slice_.made(item, spot, calls=False) for item in parts)
    nodes = (node for item in made for node in (*(node for node, _ in item.through), item.node))
    return any(_WORLD.search(ast.unparse(node)) for node in nodes)


def asked_paths(slice_: Slice, test: ast.AST, spot: Spot, depth: int = 0) -> Iterator[tuple[ast.expr, Spot, bool]]:
    """The path of `os.listdir(stage)` and `stage.exists()`, and whether it is a folder that is listed."""
    for call in (item for item in ast.walk(test) if isinstance(item, ast.Call)):
        name, owner = called_name(call), call.func.value if isinstance(call.func, ast.Attribute) else None
        of_module = owner is None or ast.unparse(owner) in _MODULES
        if name in _ASKS:
            if of_module and call.args:
                yield call.args[0], spot, name in _FOLDERS
            elif owner is not None and not of_module:
                yield owner, spot, name in _FOLDERS
        elif not depth and (own := slice_.returned(call, spot)) is not None:
            yield from asked_paths(slice_, *own, depth=1)


class _Search:
    """Back from a path over all that it is made of; `here`: the file that is spoken of."""

    def __init__(self, slice_: Slice, files: _Files, here: str | None, path: str, *, lists: bool) -> None:
        self._slice = slice_
        self._files = files
        self._here = here
        self._path = path
        self._lists = lists

    def of(self, path: ast.expr, spot: Spot) -> OwnPath | None:
        """The nearest part that is another one on each rank."""
        waiting: list[tuple[ast.AST, Spot]] = [(path, spot)]
        seen: set[tuple[str, int, int]] = set()
        while waiting and len(seen) < _MOST:
            node, place = waiting.pop(0)
            made = self._slice.made(node, place, calls=False)
            key = (ast.unparse(made.node), id(made.spot.scope), made.spot.line)
            if _is_common(made):
                return None
            if key in seen or not isinstance(made.node, ast.expr):
                continue
            seen.add(key)
            found = self._of_call(made) or self._of_rank(made)
            if found is not None:
                return found
            waiting += self._behind(made.node, made.spot)
        return None

    def _behind(self, node: ast.expr, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
        """A step back. Not into what makes an object of which a path is only a part."""
        if isinstance(node, ast.Attribute) and variable(node) is None:
            yield from [(node.value, spot)] if node.attr in _PARTS else []
        elif not isinstance(node, ast.Call) or self._slice.function(node, spot) is not None:
            yield from before(self._slice, node, spot)
        elif called_name(node) in _CARRIES:
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            yield from ((item, spot) for item in node.args)
            yield from [(owner, spot)] if owner is not None and ast.unparse(owner) not in _MODULES else []

    def _of_call(self, made: Made) -> OwnPath | None:
        call, spot = made.node, made.spot
        if not isinstance(call, ast.Call):
            return None
        where = f"{line_in(spot.file, call.lineno, self._here)} (`{source(call.func)}`)"
        drawn = drawn_value(self._slice, self._files, call, spot)
        if drawn is not None:
            words = drawn.words(self._here)
            seed = (
                f"seed `{drawn.library}` alike on all of them before" if drawn.library is not None else "seed it alike"
            )
            change = f"draw it on rank 0 and broadcast it (broadcast_object_list), or {seed}"
            return OwnPath(self._path, words, change, sure=True)
        name = imported_as(spot.tree, call.func)
        change = "make it on rank 0, and broadcast it (broadcast_object_list)"
        if name in _OF_PROCESS:
            return OwnPath(self._path, f"{where} gives each process another one", change, sure=True)
        if name in _OF_TIME:
            return OwnPath(self._path, f"{where} takes the time of each process", change, sure=False)
        return None

    def _of_rank(self, made: Made) -> OwnPath | None:
        """Of a folder that is listed: of another rank's file the path has the rank in it, too."""
        ways = [*made.through, (made.node, made.spot)] if self._lists else []
        node, spot = next((item for item in ways if is_rank(item[0])), (None, made.spot))
        if node is None:
            return None
        line = getattr(node, "lineno", spot.line)
        words = f"{line_in(spot.file, line, self._here)} puts the rank into it (`{source(node)}`)"
        change = "leave the rank out of the folder, and put it into the names of the files"
        return OwnPath(self._path, words, change, sure=True)


def _is_common(made: Made) -> bool:
    """Whether the ranks share it, or one rank alone makes it, and the others may get it from that one."""
    for node, spot in (*made.through, (made.node, made.spot)):
        names = [item.id for item in ast.walk(node) if isinstance(item, ast.Name)]
        if any(is_passed_on(name, spot) for name in names):
            return True
        if rank_branch(spot.tree, getattr(node, "lineno", spot.line)) is not None:
            return True
        if isinstance(node, ast.IfExp) and is_of_rank(node.test):
            return True
    return False
