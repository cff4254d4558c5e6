"""The line of the program that makes the very file anew that another of its lines has mapped, and who calls it.

Unlike `file_writers`, which names lines whose file may be this one, the path is followed through the calls, attributes
and defaults of parameters until it is the file's, or the expression that the mapping line has; and the order of the
calls shows that the file can have been mapped by then.
"""

from __future__ import annotations

import ast
import copy
import fnmatch
import os
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.failing.stored.paths import path_parts
from pytracer.analyze.evidence.lifetime.file_mappers import mapping_calls
from pytracer.analyze.evidence.lifetime.file_writers import NOT_OF_PATH, writers
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.slicing.call_chains import Chain, Chains, Step, chain_of, may_follow, parted, spot_of
from pytracer.analyze.evidence.slicing.files import first_file, program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.path_ends import ADDED_BY_NUMPY
from pytracer.analyze.evidence.syntax.scopes import own_nodes, qualified_name
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_QUOTED, _LONGEST = 44, 70
_LEAST = 3  # characters of a name that are shown
_UNKNOWN = Pattern(r"\{.*? \d+ (\d+)\}")  # as path_parts writes what the source does not show, of which scope
_CUTS = ("truncate",)
_OF_FILE = Pattern(r"exists|is_?file|getsize|st_size")
_FIRST_TIME = Pattern(r"\bNone\b|^not |\bnot in\b")
_OF_PATHS = {"os", "osp", "path", "pathlib", "Path", "str"}  # names that mean the same in every file


class Rewriter(msgspec.Struct, frozen=True):
    """`line` makes the file anew, by the call at `caller` where that one alone can be meant; `mapped`: what maps it."""

    line: LineWords
    caller: LineWords | None
    mapped: LineWords | None
    cuts: bool

    @property
    def brief(self) -> str:
        """Behind the size that the file has."""
        if self.caller is None:
            return f"; {self._does}{self._while}"
        return f"; {self.caller} {self._verb} it by {self.line}{self._while}"

    @property
    def advice(self) -> str:
        """What to change."""
        aside = "write a new file aside and rename it over this one (os.replace()): what is mapped then stays whole."
        if self.cuts:
            by = f"{self.caller}, by {self.line}," if self.caller is not None else self.line
            return f"Do not shorten the file at {by}{self._while}: {aside}"
        if self.caller is None:
            return f"Give {self.line} another file name: it {self._verb} this one{self._while}. Or {aside}"
        return f"Give {self.caller} another file name: by {self.line} it {self._verb} this one{self._while}. Or {aside}"

    @property
    def _verb(self) -> str:
        return "shortens" if self.cuts else "rewrites"

    @property
    def _does(self) -> str:
        return f"{self.line} {self._verb} it"

    @property
    def _while(self) -> str:
        return f" while {self.mapped} has it mapped" if self.mapped is not None else " while it is mapped"


class _Use(msgspec.Struct, frozen=True):
    """A call that maps or writes; `parts` of its path, as `chain` leads to it."""

    file: str
    call: ast.Call
    chain: Chain
    parts: tuple[str, ...]

    def is_file(self, path: str) -> bool:
        return "/" + "/".join(self.parts) == path

    def is_other(self, path: str) -> bool:
        """Whether what is shown of its name is not in the file's."""
        name = _UNKNOWN.sub("*", self.parts[-1]) if self.parts else "*"
        shown = not any(_UNKNOWN.search(item) for item in self.parts)
        other = shown and not path.endswith("/" + "/".join(self.parts))
        return other or not fnmatch.fnmatchcase(os.path.basename(path), name)


class _Uses(msgspec.Struct, frozen=True):
    """The calls that map the file, those that write files, those of them that write this one, and that after a map."""

    maps: list[_Use]
    writes: list[_Use]
    same: list[_Use]
    after: list[_Use]


def rewriter(view: ProcessView, path: str) -> Rewriter | None:
    """None where no line, or more than one, is known to do so once the file is mapped."""
    uses = _all_uses(view, path)
    if len({id(item.call) for item in uses.after}) != 1:
        return None
    if any(may_follow(item.chain, other.chain) is None for item in uses.same for other in uses.maps):
        return None
    here = next((item.file for item in program_frames(view)), None)
    found, lines = uses.after[0], {(item.file, item.call.lineno) for item in uses.maps}
    caller = _caller(uses)
    return Rewriter(
        line_in(found.file, found.call.lineno, here).quoted(_text(view, found)),
        _caller_words(view, caller, here) if caller is not None else None,
        line_in(*lines.pop(), here) if len(lines) == 1 else None,
        called_name(found.call) in _CUTS,
    )


def only_before(view: ProcessView, path: str, at: PythonFrame) -> bool:
    """Whether a line writes the very file, but only before the process maps it, or where there is none."""
    uses = _all_uses(view, path)
    own = [item for item in uses.same if (item.file, item.call.lineno) == (at.file, at.line)]
    return bool(own) and all(
        any(_makes_missing(step) for step in item.chain)
        or all(may_follow(item.chain, other.chain) is False for other in uses.maps)
        for item in own
    )


def _all_uses(view: ProcessView, path: str) -> _Uses:
    frames = program_frames(view)
    files, back = program_files(view.process.snapshot, frames), Slice(view.process.snapshot, frames)
    chains = Chains(files, back, first_file(view.process.snapshot, frames))
    stack = chain_of(view.process.snapshot, frames)
    maps = [
        item
        for file, call in mapping_calls(view, path)
        for item in _uses(chains, back, file, call, _path_of(call))
        if not item.is_other(path) and may_follow(stack, item.chain) is not False
    ]
    maps = [item for item in maps if item.is_file(path)] or maps
    writes = [
        item
        for file, tree in files.items()
        for call, given in writers(tree)
        if called_name(call) not in NOT_OF_PATH and len(given) == 1
        for item in _uses(chains, back, file, call, given[0])
    ]
    same = [item for item in writes if _is_same(item, maps, path)]
    after = [
        item
        for item in same
        if may_follow(stack, item.chain) is not False and _follows(item, maps, path)
        if not any(_makes_missing(step) for step in item.chain)
    ]
    return _Uses(maps, writes, same, after)


def _text(view: ProcessView, use: _Use) -> str:
    """The line; of a long one the call, its path and what makes the file anew."""
    line = line_text(view.process.snapshot, PythonFrame(file=use.file, line=use.call.lineno)) or ""
    if len(line) <= _QUOTED or not use.call.args:
        return shortened(line, _QUOTED)
    mode = next((item for item in use.call.keywords if item.arg == "mode"), None)
    given = [ast.unparse(use.call.args[0]), *([ast.unparse(mode)] if mode is not None else [])]
    whole = len(given) == len(use.call.args) + len(use.call.keywords)
    rest = [] if whole else ["..."]
    return shortened(f"{ast.unparse(use.call.func)}({', '.join([given[0], *rest, *given[1:]])})", _LONGEST)


def _caller_words(view: ProcessView, step: Step, here: str | None) -> LineWords:
    text = line_text(view.process.snapshot, PythonFrame(file=step.file, line=step.line)) or ""
    inside = "" if isinstance(step.scope, ast.Module) else f" in {qualified_name(step.tree, step.scope)}"
    return line_in(step.file, step.line, here).then(inside).quoted(shortened(text, _QUOTED))


def _path_of(call: ast.Call) -> ast.expr | None:
    named = keyword_value(call, "filename", "file", "f", "path")
    return call.args[0] if call.args else named


def _uses(chains: Chains, back: Slice, file: str, call: ast.Call, given: ast.expr | None) -> Iterator[_Use]:
    for chain in chains.to(file, call) or ():
        yield _Use(file, call, chain, _parts(back, call, given, chain))


def _parts(back: Slice, call: ast.Call, given: ast.expr | None, chain: Chain) -> tuple[str, ...]:
    spot = spot_of(chain)
    if given is None or spot is None:
        return ()
    plain = _whole_parts(back, given, spot)
    above = spot_of(chain[:-1])
    called = chain[-2].given if len(chain) > 1 else None
    node = _of_receiver(given, called) if called is not None else None
    if node is not None and above is not None:
        known = _whole_parts(back, node, above)
        plain = known if not any(_UNKNOWN.search(item) for item in known) else plain
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else None
    added = ADDED_BY_NUMPY.get(called_name(call) or "", "") if owner in ("np", "numpy") else ""
    return (*plain[:-1], plain[-1] + added) if plain and added and not plain[-1].endswith(added) else plain


def _of_receiver(given: ast.expr, called: ast.Call) -> ast.expr | None:
    """`store.path` of `self.path` in a method that `store.put()` calls: another object may have another path."""
    receiver = called.func.value if isinstance(called.func, ast.Attribute) else None
    names = {item.id for item in nodes_of(given) if isinstance(item, ast.Name)}
    if receiver is None or "self" not in names or names - {"self"} - _OF_PATHS or ast.unparse(receiver) == "self":
        return None
    made: ast.expr = _Receiver(receiver).visit(copy.deepcopy(given))
    return ast.fix_missing_locations(ast.copy_location(made, receiver))


class _Receiver(ast.NodeTransformer):
    """Puts the object of the caller where a method has `self`."""

    def __init__(self, receiver: ast.expr) -> None:
        self._receiver = receiver

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """See ast.NodeTransformer."""
        return self._receiver if node.id == "self" else node


def _whole_parts(back: Slice, node: ast.expr, spot: Spot) -> tuple[str, ...]:
    """Also of what a function of the program returns: `path_of("teacher")`."""
    made = back.made(node, spot, calls=True)
    return path_parts(back, made.node, made.spot)


def _is_same(item: _Use, maps: list[_Use], path: str) -> bool:
    """Its path is that of the file, or what each mapping line has; of one mapping line, its name need not be shown."""
    if item.is_file(path):
        return bool(maps)
    shown = _UNKNOWN.sub("", item.parts[-1]) if item.parts else ""
    alike = bool(maps) and all(item.parts == other.parts and _share(item, other) for other in maps)
    return alike and (len(shown) >= _LEAST or len(maps) == 1) and not item.is_other(path)


def _share(one: _Use, other: _Use) -> bool:
    """Whether what is not shown is of the module, or of a function that led to both: else it is another value."""
    common = parted(one.chain, other.chain) + 1
    known = {str(id(part)) for step in one.chain[:common] for part in (step.scope, step.tree)}
    return all({*_UNKNOWN.findall(part)} <= known for part in one.parts)


def _makes_missing(step: Step) -> bool:
    """Whether it may run the first time only: where there is no such file yet, or nothing that has it mapped."""
    for item, around in deciding_ifs(step.tree, step.line):
        test = ast.unparse(item.test)
        if _OF_FILE.search(test) or (around and _FIRST_TIME.search(test)):
            return True
    return any(
        isinstance(item, ast.ExceptHandler) and item.lineno <= step.line <= (item.end_lineno or 0)
        for item in own_nodes(step.scope)
    )


def _follows(item: _Use, maps: list[_Use], path: str) -> bool:
    """In the next round of a loop only where the whole path is known: a part that is not may be another one then."""
    loops = item.is_file(path)
    return any(may_follow(item.chain, other.chain, loops=loops) for other in maps)


def _caller(uses: _Uses) -> Step | None:
    """The innermost call that all of these go through and no other use of the line does, where maps lead elsewhere."""
    found = uses.after
    others = (item for item in uses.writes if item.call is found[0].call and item not in found)
    elsewhere = {id(step.call) for item in others for step in item.chain}
    common = min(max(parted(item.chain, other.chain) for other in uses.maps) for item in found)
    for step in reversed(found[0].chain[common:-1]):
        if id(step.call) not in elsewhere and all(any(step.call is one.call for one in item.chain) for item in found):
            return step
    return None
