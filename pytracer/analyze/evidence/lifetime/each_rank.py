"""A line that creates a file anew, and that each rank of a job runs: it truncates what the others have mapped.

np.memmap(mode="w+") in each rank, or open(path, "wb"): the last rank to come there cuts the file of those that were
before. Nothing is said of a line below a branch on the rank, nor of a path that is each rank's own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import capital, list_words, shortened
from pytracer.analyze.collectives.call_sites import stacks_of
from pytracer.analyze.evidence.lifetime.file_mappers import file_mapper
from pytracer.analyze.evidence.lifetime.file_writers import FileWriter, creates, file_writer
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.slicing.callers import calls_named, calls_of, only_function
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import deciding_ifs, loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import reads_rank
from pytracer.analyze.evidence.syntax.scopes import class_around, function_named, own_nodes, parameters, scope_of, spans
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import PythonFrame

_LEVELS, _HOPS = 4, 4
_QUOTED = 60
_OWN = frozenset(  # another name in each process
    {"getpid", "mkdtemp", "mkstemp", "mktemp", "TemporaryDirectory", "NamedTemporaryFile", "uuid4", "uuid1", "time"}
    | {"time_ns", "now", "token_hex", "randint", "random"}
)
_SPAWN = ("spawn", "start_processes")


_Kind = Literal["maps", "saves", "opens"]


class CreatedByEach(msgspec.Struct, frozen=True):
    """`place` creates the file, by `text`. `others`: ranks that are known to have run it, too."""

    place: LineWords
    text: str
    kind: _Kind
    others: tuple[int, ...]

    @property
    def brief(self) -> str:
        """`` line 51 (`np.memmap(path, mode="w+")`) truncates it in each rank that runs it, and rank 0 had, too ``."""
        too = f", and {self._who} had run it, too" if self.others else ""
        return f"{self._line} truncates it in each rank that runs it{too}"

    @property
    def advice(self) -> str:
        """What to change."""
        said = (
            f"{capital(self._line)} truncates the file each time: a rank that runs it cuts what the others have mapped"
        )
        if self.kind == "saves":
            return (
                f"{said}. Write it on one rank alone (`if rank == 0:`, then dist.barrier() on all), and map it behind "
                "that; or write another file and rename it over this one (os.replace())."
            )
        again = 'with mode="r+"' if self.kind == "maps" else 'without truncating it ("r+b")'
        return (
            f"{said}, and what they wrote is lost. Create it once with its full size (on rank 0, then dist.barrier()), "
            f"and open it {again} on all ranks; or give each rank a file of its own, and merge them. Files that "
            "several ranks wrote so before may lack parts: write them again."
        )

    @property
    def _line(self) -> str:
        return f"{self.place} (`{shortened(self.text, _QUOTED)}`)"

    @property
    def _who(self) -> str:
        return f"rank{'s' * (len(self.others) > 1)} {list_words([str(item) for item in self.others])}"


def created_by_each(job: JobView, view: ProcessView, path: str) -> CreatedByEach | None:
    """Where the line that maps the file creates it, or the line of that name which writes it, in each rank."""
    ranks = [item for item in job.views if item.process.role == "rank"]
    if len(ranks) < 2 or view not in ranks:
        return None
    files = program_files(view.process.snapshot, program_frames(view))
    mapper, writer = file_mapper(view, path), file_writer(view, path)
    first = next(iter(program_frames(view)), None)
    for file, call, kind in _creating(files, mapper.call if mapper is not None else None, writer):
        chain = _chain(files, file, call)
        if chain is None or not call.args or _Rank(files).makes(file, call.lineno, call.args[0]):
            continue
        at = PythonFrame(file=file, line=call.lineno)
        text = line_text(view.process.snapshot, at) or ""
        others = tuple(item.process.rank or 0 for item in ranks if item is not view and _has_run(item, files, chain))
        return CreatedByEach(line_in(file, call.lineno, first.file if first else None), text, kind, others)
    return None


def _creating(
    files: Mapping[str, ast.Module], mapping: ast.Call | None, writer: FileWriter | None
) -> Iterator[tuple[str, ast.Call, _Kind]]:
    """The call that creates the file: the one of its name, else what maps it."""
    named = (writer.at.file, writer.at.line) if writer is not None and writer.begins is None else None
    for file, tree in files.items():
        for node in nodes_of(tree):
            if not isinstance(node, ast.Call) or not creates(node):
                continue
            if node is mapping and named in (None, (file, node.lineno)):
                yield file, node, "maps"
            elif named == (file, node.lineno):
                yield file, node, "opens" if called_name(node) == "open" else "saves"


@dataclass(frozen=True)
class _Link:
    """A call in `file` that leads to what creates the file, or that call itself."""

    file: str
    tree: ast.Module
    line: int
    call: ast.Call | None = field(default=None, compare=False)


def _chain(files: Mapping[str, ast.Module], file: str, call: ast.Call) -> list[_Link] | None:
    """The call, and the calls that lead there; None where one is below a branch on the rank."""
    found = [_Link(file, files[file], call.lineno, call)]
    for link in found:
        if len(found) > _LEVELS * _LEVELS:
            return None
        if _is_by_rank(link):
            return None
        found += [item for item in _callers(files, link) if item not in found]
    return found


def _is_by_rank(link: _Link) -> bool:
    """Whether a condition on the rank decides about a call, also one on its own line."""
    tests = [item.test for item, _ in deciding_ifs(link.tree, link.line)]
    choices = (item for item in nodes_of(link.tree) if isinstance(item, (ast.If, ast.IfExp)))
    own = [item.test for item in choices if item.lineno == link.line and _has(item, link.call)]
    return any(reads_rank(test) for test in (*tests, *own))


def _has(node: ast.AST, call: ast.Call | None) -> bool:
    return any(item is call for item in nodes_of(node))


def _callers(files: Mapping[str, ast.Module], link: _Link) -> Iterator[_Link]:
    scope = scope_of(link.tree, link.line)
    owner = class_around(link.tree, scope)
    name = getattr(scope, "name", None)
    if name == "__init__" and owner is not None:
        yield from (_Link(file, tree, call.lineno, call) for file, tree, call in calls_named(files, owner.name))
        return
    defined = only_function(files, name) if name is not None else None
    for item in calls_of(files, *defined) if defined is not None else ():
        yield _Link(item.file, item.tree, item.call.lineno, item.call)


def _has_run(view: ProcessView, files: Mapping[str, ast.Module], chain: list[_Link]) -> bool:
    """Whether a rank was behind one of the calls at its end, in the same function, where nothing may leave it out."""
    for stack in stacks_of(view):
        for frame in (item for item in stack if not is_library_file(item.file)):
            tree = files.get(frame.file or "")
            for link in chain if tree is not None and frame.line is not None else ():
                if link.tree is tree and _is_behind(tree, link.line, frame.line or 0):
                    return True
    return False


def _is_behind(tree: ast.Module, line: int, at: int) -> bool:
    if scope_of(tree, at) is not scope_of(tree, line) or not line < at:
        return False
    branch = any(around for _, around in deciding_ifs(tree, line))
    return not branch and all(spans(loop, at) for loop in loops_around(tree, line))


class _Rank:
    """Whether an expression is made with the number of the rank, or with what else is its own.

    Followed through variables and callers.
    """

    def __init__(self, files: Mapping[str, ast.Module]) -> None:
        self._files = files
        self._seen: set[int] = set()

    def makes(self, file: str, line: int, node: ast.AST, hops: int = _HOPS) -> bool:
        """Of an expression at a line of a file."""
        if id(node) in self._seen:
            return False
        self._seen.add(id(node))
        if reads_rank(node) or any(isinstance(item, ast.Call) and called_name(item) in _OWN for item in nodes_of(node)):
            return True
        return hops > 0 and any(self.makes(*item, hops - 1) for item in self._sources(file, line, node))

    def _sources(self, file: str, line: int, node: ast.AST) -> Iterator[tuple[str, int, ast.AST]]:
        tree = self._files[file]
        owners = {id(item.value) for item in nodes_of(node) if isinstance(item, ast.Attribute)}
        for item in nodes_of(node):
            name = variable(item)
            if id(item) in owners and isinstance(item, ast.Name):
                continue  # of `shard.path` that attribute counts, not all that `shard` was made with
            if name is not None:
                yield from self._values(file, tree, line, name)
            elif isinstance(item, ast.Attribute):
                yield from self._attributes(item.attr)
            if isinstance(item, ast.Call):
                function = function_named(tree, called_name(item) or "")
                nodes = own_nodes(function) if function is not None else ()
                yield from (
                    (file, part.lineno, part.value) for part in nodes if isinstance(part, ast.Return) and part.value
                )

    def _values(self, file: str, tree: ast.Module, line: int, name: str) -> Iterator[tuple[str, int, ast.AST]]:
        scope = scope_of(tree, line)
        owner = class_around(tree, scope) if name.startswith("self.") else None
        nodes = [*nodes_of(owner)] if owner is not None else [*own_nodes(scope), *own_nodes(tree)]
        for value in (value for item in nodes for to, value in set_by(item) if variable(to) == name):
            if value is not None:
                yield file, value.lineno, value
        if name not in parameters(scope) or isinstance(scope, (ast.Module, ast.Lambda)):
            return
        owner = class_around(tree, scope)
        for link in _callers(self._files, _Link(file, tree, scope.body[0].lineno)):
            if link.call is None:
                continue
            if called_name(link.call) in (scope.name, owner.name if owner is not None else None):
                value = argument_of(link.call, scope, name)
                yield from [(link.file, link.line, value)] if value is not None else []
            elif called_name(link.call) in _SPAWN and parameters(scope)[0] == name:
                yield link.file, link.line, ast.Name("rank")  # mp.spawn() passes the number of the process

    def _attributes(self, name: str) -> Iterator[tuple[str, int, ast.AST]]:
        """Of `shard.slide`: what the program's classes set it to."""
        for file, tree in self._files.items():
            for item in nodes_of(tree):
                for to, value in set_by(item):
                    if value is not None and variable(to) == f"self.{name}":
                        yield file, value.lineno, value
