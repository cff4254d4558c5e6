"""A file or folder that is not there yet because only one rank makes it, and this one did not wait for that."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.paths import PATH_CALLS, path_parts
from pytracer.analyze.evidence.slicing.spots import END, Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.loops import deciding_ifs, last_of
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import comes_alone, is_for_one_rank, one_rank_number, one_rank_words
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans
from pytracer.blackbox.ranks import identity_of

_MISSING = Pattern(
    r"\[Errno 2\] No such file or directory|Parent directory .* does not exist|non-existent directory"
    r"|No such file or directory \(os error 2\)|is not a local folder|Incorrect path_or_model_id"
    r"|Can't load \w+ for|Repo id must|Error no file named|not find the requested files"
)
_FOLDERS = ("makedirs", "mkdir")
_TREES = frozenset(
    {"extractall", "extract_archive", "unpack_archive", "copytree", "snapshot_download", "save_pretrained"}
    | {"download_and_extract_archive", "save_to_disk", "hf_hub_download"}
)
_WRITES = frozenset(
    {"save", "savez", "savez_compressed", "save_file", "save_model", "savetxt", "dump", "to_csv", "to_parquet"}
    | {"to_pickle", "to_json", "write_text", "write_bytes", "touch", "tofile", "imwrite", "savefig", "copy"}
    | {"copyfile", "copy2", "move", "urlretrieve", "download_url", "symlink", "ZipFile", "memmap"}
)
_RENAMES = ("os.replace", "os.rename", "os.renames")
_OF_PATHS = ("replace", "rename")
# What lets ranks meet; a function of the program that calls one of these does so, too. On its way a rank may also wait.
_MEETS = Pattern(
    r"barrier|broadcast|reduce|gather|scatter|sync|init_process_group|DistributedDataParallel|DDP|FSDP|for_everyone"
    r"|FullyShardedDataParallel|fully_shard|backward|all_to_all|prepare|_first$|^recv|^send",
    re.IGNORECASE,
)
_WAITS = Pattern(f"{_MEETS.pattern}|wait|sleep|exists|is_file|is_dir", re.IGNORECASE)
_MOST_CALLERS = 4


class _Maker(msgspec.Struct, frozen=True):
    """`line`: of the call that makes it; `guard`: the `if` by which only one rank comes there."""

    call: ast.Call
    spot: Spot
    guard: ast.If
    path: ast.expr

    @property
    def folder(self) -> bool:
        return called_name(self.call) in _FOLDERS


class _Site(msgspec.Struct, frozen=True):
    """Where a call lies: its guard, if any, and the function of the stack from which it was reached."""

    spot: Spot
    guard: ast.If | None
    met: bool
    reached: bool


def made_by_one(at: FailingLine) -> str | None:
    """What to do about it."""
    maker = _maker(at)
    if maker is None:
        return None
    line, name = at.place(maker.spot, maker.call.lineno), source(maker.path)
    what = "folder" if maker.folder else "file"
    said = (
        f"The {what} `{name}` is made at {line}, {_below(maker)} `if {source(maker.guard.test)}:` "
        f"({at.place(maker.spot, maker.guard.lineno)}): {one_rank_words(maker.guard.test)} alone comes there, and "
        f"nothing lets the other ranks wait for it before line {at.line}."
    )
    if not maker.folder:
        return f"{said} Put a barrier between the two, dist.barrier(), which all ranks call."
    exist = "" if "exist_ok=True" in ast.unparse(maker.call) else " with exist_ok=True"
    return (
        f"{said} Call `{source(maker.call)}`{exist} on all ranks, outside of that branch, or put a barrier behind it, "
        "dist.barrier(), which all ranks call."
    )


def _below(maker: _Maker) -> str:
    """Of a function that the `if` is not in, too: its call stands below it."""
    leaves = isinstance(last_of(maker.guard.body), (ast.Return, ast.Raise))
    return "behind" if leaves and is_for_one_rank(maker.guard.test) is False else "below"


def made_by_one_subject(at: FailingLine) -> str | None:
    """For the headline."""
    maker = _maker(at)
    if maker is None:
        return None
    line = at.place(maker.spot, maker.call.lineno)
    return f"only {one_rank_words(maker.guard.test)} makes it ({line}), and rank {rank_of(at)} did not wait for that"


def rank_of(at: FailingLine) -> int | None:
    """Of the process, as it was noted, or as its launcher told it."""
    noted = at.snapshot.rank
    if noted is not None:
        return noted.rank
    identity = identity_of(at.snapshot.environment)
    return identity.rank if identity is not None else None


def _maker(at: FailingLine) -> _Maker | None:
    """The only call that makes what is missing; None where other ranks make it as well."""
    spot = at.slice.spot(0)
    if _MISSING.search(at.message) is None or spot is None or at.node is None:
        return None
    wanted = [(path_parts(at.slice, item, spot), writes) for item, writes in paths_of(at.node)]
    wanted = [(parts, writes) for parts, writes in wanted if parts]
    found: list[_Maker] = []
    for file, tree in at.files.items() if wanted else ():
        for call in (item for item in nodes_of(tree) if isinstance(item, ast.Call)):
            own = isinstance(call.func, ast.Name) and _is_defined(tree, call.func.id)
            if own or not can_make(call) or (file == at.frame.file and spans(call, at.line)):
                continue
            site = _site(at, Spot(file, tree, scope_of(tree, call.lineno), call.lineno))
            path = next((p for p in made_by(call) if _makes(call, path_parts(at.slice, p, site.spot), wanted)), None)
            if path is None:
                continue
            if site.guard is None or site.met or not site.reached:
                return None
            found.append(_Maker(call, site.spot, site.guard, path))
    if not found or rank_of(at) in (None, 0, one_rank_number(found[0].guard.test)) or _may_be_local_root(at):
        return None
    return found[0]


def _may_be_local_root(at: FailingLine) -> bool:
    """Whether it is the first rank of its node: it has made the folder of that node itself."""
    identity = identity_of(at.snapshot.environment)
    return identity is not None and identity.local_rank == 0


def _is_defined(tree: ast.Module, name: str) -> bool:
    """Whether the file has one of that name: its own `save` writes where its own lines do."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return any(isinstance(item, kinds) and item.name == name for item in tree.body)


def paths_of(node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """What the line's calls are given, each with whether the call writes there."""
    for call in (item for item in nodes_of(node) if isinstance(item, ast.Call)):
        for item in given_to(call) if called_name(call) not in PATH_CALLS else ():
            yield item, can_make(call)


def given_to(call: ast.Call) -> Iterator[ast.expr]:
    """What a call may take for a path: its arguments, and the object whose method it is."""
    if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) not in ("os", "torch", "np", "shutil"):
        yield call.func.value
    yield from (item for item in call.args if not isinstance(item, ast.Starred))
    yield from (item.value for item in call.keywords if item.arg is not None)


def made_by(call: ast.Call) -> Iterator[ast.expr]:
    """What a call that can make a file may make: of a renaming the new name."""
    if not _renames(call):
        return given_to(call)
    named = keyword_value(call, "dst")
    return iter([named] if named is not None else call.args[-1:])


def _renames(call: ast.Call) -> bool:
    """`os.replace(a, b)`, and `path.replace(b)`; not of text, which takes two, nor with options."""
    if ast.unparse(call.func) in _RENAMES:
        return True
    return called_name(call) in _OF_PATHS and len(call.args) == 1 and not call.keywords


def can_make(call: ast.Call) -> bool:
    """Whether a call makes a file or folder, by its name."""
    name = called_name(call)
    if name == "open":
        given = [*call.args, *(item.value for item in call.keywords if item.arg == "mode")]
        modes = [item.value for item in given if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        return any(re.fullmatch(r"[wax][bt+]*", mode) for mode in modes)
    return name in _FOLDERS or name in _WRITES or name in _TREES or _renames(call)


def _makes(call: ast.Call, made: tuple[str, ...], wanted: list[tuple[tuple[str, ...], bool]]) -> bool:
    """Whether what a call makes is what the line needs: the folder to write into, or the file itself."""
    name = called_name(call)
    for parts, writes in wanted if made else ():
        if name in _FOLDERS:
            above = parts[:-1] if writes else parts
            if above and made[: len(above)] == above:
                return True
        elif made == parts or (name in _TREES and parts[: len(made)] == made):
            return True
    return False


def _site(at: FailingLine, spot: Spot) -> _Site:
    """Outwards, by the only call of each function, to a function that this rank is in."""
    guard, met, start = None, False, spot
    stack = [item for depth in range(len(at.frames)) if (item := at.slice.spot(depth)) is not None]
    way: list[tuple[ast.Call, Spot]] = []
    for _ in range(_MOST_CALLERS):
        inside = next((item for item in stack if item.scope is spot.scope), None)
        here = guard_of(spot.tree, spot.line) if guard is None else None
        guard = guard or here
        known = [item for item, _ in way]
        met = met or _meets(at, spot, here, inside.line if inside is not None else END, known)
        if inside is not None:
            deeper = [item for item in stack if (item.depth or 0) < (inside.depth or 0)]
            met = met or any(_calls_within(at, item, range(1, item.line), _WAITS) for item in deeper)
            end = here.end_lineno if here is not None else spot.line
            return _Site(
                _called_from(start, way, structs.replace(inside, line=spot.line)), guard, met, (end or 0) < inside.line
            )
        calls = [
            (item, Spot(file, tree, scope_of(tree, item.lineno), item.lineno))
            for file, tree in at.files.items()
            for item in nodes_of(tree)
            if isinstance(item, ast.Call) and called_name(item) == getattr(spot.scope, "name", None)
            if not _is_of_library(tree, item)
        ]
        if len(calls) != 1:
            break
        way.append(calls[0])
        spot = calls[0][1]
    return _Site(start, guard, met, reached=False)


def _is_of_library(tree: ast.Module, call: ast.Call) -> bool:
    """`torch.save()`, beside a function `save()` of the program."""
    origin = imported_as(tree, call.func) if isinstance(call.func, ast.Attribute) else None
    return origin is not None and origin.partition(".")[0] in ("torch", "numpy", "os", "shutil", "json", "pickle")


def _called_from(start: Spot, way: list[tuple[ast.Call, Spot]], last: Spot) -> Spot:
    """The innermost place, with what called each function on the way to the one of the stack."""
    place = last
    for number in range(len(way) - 1, -1, -1):
        inner = way[number - 1][1] if number else start
        place = structs.replace(inner, call=(way[number][0], place))
    return place


def guard_of(tree: ast.Module, line: int) -> ast.If | None:
    """An `if` by which one rank alone comes to a line."""
    for item, around in _ifs(tree, line):
        if comes_alone(item, line, around=around):
            return item
    return None


def _ifs(tree: ast.Module, line: int) -> list[tuple[ast.If, bool]]:
    """Also one that has it all on its line."""
    same = [item for item in own_nodes(scope_of(tree, line)) if isinstance(item, ast.If) and item.lineno == line]
    return [*((item, True) for item in same), *deciding_ifs(tree, line)]


def _meets(at: FailingLine, spot: Spot, guard: ast.If | None, last: int, known: list[ast.Call]) -> bool:
    """Whether the ranks meet in a function that one of them makes the file in, or a call away.

    Args:
        at: The failing line.
        spot: The place in that function.
        guard: The `if` there by which only one rank comes to it.
        last: The line up to which the others come.
        known: Calls that were looked into.
    """
    first, end = (guard.lineno, guard.end_lineno or 0) if guard is not None else (spot.line, spot.line)
    if guard is not None and not guard.lineno <= spot.line <= end:
        end = END  # it leaves: what comes after it is of the one rank
    behind = bool(_calls_within(at, spot, range(end + 1, last), _WAITS, known))
    return behind or any(
        item.lineno >= first or any(is_for_one_rank(test.test) is not None for test, _ in _tests(spot, item))
        for item in _calls_within(at, spot, range(1, min(end + 1, last)), _MEETS, known)
    )


def _tests(spot: Spot, item: ast.Call) -> list[tuple[ast.If, bool]]:
    return [(test, around) for test, around in _ifs(spot.tree, item.lineno) if around]


def _calls_within(
    at: FailingLine, spot: Spot, lines: range, kind: Pattern, known: Sequence[ast.Call] = ()
) -> list[ast.Call]:
    names = _functions_that(at, kind)
    calls = [item for item in own_nodes(spot.scope) if isinstance(item, ast.Call) and item.lineno in lines]
    return [
        item
        for item in calls
        if not any(item is other for other in known)
        if kind.search(called_name(item) or "") or called_name(item) in names
    ]


def _functions_that(at: FailingLine, kind: Pattern) -> frozenset[str]:
    """Functions and classes of the program that make such a call, by name."""
    bodies: dict[str, set[str]] = {}
    for tree in at.files.values():
        for item in nodes_of(tree):
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                calls = {called_name(part) or "" for part in nodes_of(item) if isinstance(part, ast.Call)}
                bodies.setdefault(item.name, set()).update(calls)
    found = {name for name, calls in bodies.items() if any(kind.search(call) for call in calls)}
    while new := {name for name, calls in bodies.items() if name not in found and calls & found}:
        found |= new
    return frozenset(found)
