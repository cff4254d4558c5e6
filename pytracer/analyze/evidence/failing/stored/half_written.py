"""A file that is cut off, which the program itself writes under its final name, and takes for whole once it is there.

`if os.path.exists(path): return path` before a download to `path`: a download that stops leaves its part there, and the
next attempt, or the next run, reads that. In the same run something must have caught the error in between.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import takewhile

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.processes.made_by_one import paths_of
from pytracer.analyze.evidence.failing.stored.opened import OpenedFile, broken_file, file_subject, opened
from pytracer.analyze.evidence.failing.stored.paths import PATH_CALLS, path_parts
from pytracer.analyze.evidence.lifetime.file_writers import NOT_OF_PATH, writers
from pytracer.analyze.evidence.slicing.callers import calls_named
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.loops import deciding_ifs, loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, parameters, scope_of, withs_around
from pytracer.analyze.evidence.syntax.tries import tries_around

_OF_OTHERS = ("absent", "folder", "lfs", "html", "zeros")  # no writing that stopped half way
_ASKS = ("exists", "isfile", "is_file", "lexists")
_REMOVES = frozenset({"remove", "unlink", "rmtree", "move"})
_CLEANS = _REMOVES | {"replace", "rename", "truncate", "exit", "_exit", "abort"}
_WIDE = Pattern(
    r"^(?:OSError|IOError|EnvironmentError|Exception|BaseException)$|[Tt]imeout|Connect|URLError|RequestException"
    r"|HTTPException|HTTPError|IncompleteRead|ChunkedEncoding|ProtocolError|ClientError"
)
_LOADS = Pattern(r"\burl|requests\.|httpx|iter_content|iter_bytes|download|\bhttp")
_COPIES = ("copy", "copy2", "copyfile")  # what they read may be cut off itself; copy2 keeps its time
_ONLY_SAY = frozenset(
    {"print", "debug", "info", "warning", "warn", "error", "exception", "critical", "log", "sleep", "str", "repr"}
    | {"format", "print_exc", "format_exc"}
)
_SECOND = 1_000_000_000
_DEEPEST = 4


class _HalfWritten(msgspec.Struct, frozen=True):
    """`call` writes, at the last of the `spots`. `test`: takes a file that is there for whole, at `asks`.

    `caught`: where it lies, and its head, of an `except` that goes on. `own`: whether this run wrote the file.
    """

    file: OpenedFile
    call: ast.Call
    path: ast.expr
    spot: Spot
    test: ast.expr
    asks: Spot
    caught: tuple[Spot, int, str] | None
    own: bool
    loads: bool

    @property
    def origin(self) -> str | None:
        """Of a copy: what it is made from."""
        is_copy = called_name(self.call) in _COPIES and bool(self.call.args)
        return short(source(self.call.args[0])) if is_copy else None


class _Way(msgspec.Struct, frozen=True):
    """The call that writes, and the calls by which its function is reached: innermost first."""

    call: ast.Call
    path: ast.expr
    spots: tuple[Spot, ...]


def half_written(at: FailingLine) -> str | None:
    """What to change at the line that writes it, and what to delete."""
    found = _half_written(at)
    if found is None:
        return None
    path, writes = short(source(found.path)), at.place(found.spot, found.call.lineno)
    asks = at.place(found.asks, found.test.lineno)
    caught = ""
    if found.caught is not None:
        caught = f", or remove it in `{found.caught[2]}` ({at.place(found.caught[0], found.caught[1])})"
    size = " Compare its size with the Content-Length: a connection may also end early." if found.loads else ""
    first = f"Delete {found.file.name}, and start again."
    if found.origin is not None:
        first = (
            f"Compare the size of {found.file.name} with that of `{found.origin}` ({writes}): where they are alike, "
            f"that one is cut off, too, and has to be made anew. Then delete {found.file.name}, and start again."
        )
    return (
        f"{first} `{short(source(found.test))}` ({asks}) cannot know a part from "
        f"the whole: let {writes} write to another name, and os.replace() it to `{path}` when it is "
        f"whole{caught}.{size}"
    )


def half_written_subject(at: FailingLine) -> str | None:
    """For the headline, behind what is wrong with the file."""
    found, broken = _half_written(at), file_subject(at)
    if found is None or broken is None:
        return None
    writes, asks = at.place(found.spot, found.call.lineno), at.place(found.asks, found.test.lineno)
    takes = f"{asks} takes what is there for the whole file"
    if found.origin is not None:
        return f"{broken}: `{found.origin}`, from which {writes} copies it, may be so, too, or the copy ended; {takes}"
    if not found.own or found.caught is None:
        ended = f"an earlier download at {writes} was ended" if found.loads else f"an earlier run was ended at {writes}"
        return f"{broken}, most likely because {ended}; {takes}"
    spot, line, head = found.caught
    failed = f"the download of this run at {writes}" if found.loads else f"the writing of it in this run at {writes}"
    return f"{broken}, most likely because {failed} failed: `{head}` ({at.place(spot, line)}) goes on, and {takes}"


def _half_written(at: FailingLine) -> _HalfWritten | None:
    """The only such line; of a file that this run wrote, only where an error of that is caught."""
    file = opened(at.values)
    if file is None or file.kind in _OF_OTHERS or broken_file(at) is None or file_subject(at) is None:
        return None
    known = _known(at)
    read = {path_parts(at.slice, node, spot) for node, spot in _reads(at)}
    read = {parts for parts in read if parts and _ends_as(parts, file.path)}
    own, found = _is_of_this_run(at, file), list[_HalfWritten]()
    for way in _ways(at, known) if read and own is not None else ():
        if path_parts(at.slice, way.path, way.spots[0]) not in read:
            continue
        test, caught = _test(at, way, read), _caught(way)
        if test is None or _cleans(way):
            return None  # it is whole when it is there
        if own and called_name(way.call) not in _COPIES and (caught is None or not _may_ask_again(at, *test)):
            return None  # it is not known what left it
        found.append(_HalfWritten(file, way.call, way.path, way.spots[0], *test, caught, bool(own), _loads(way)))
    return found[0] if len(found) == 1 else None


def _loads(way: _Way) -> bool:
    """Whether it is a download: by its function, or the block that the file is open in."""
    spot = way.spots[0]
    nodes = [way.call, *withs_around(spot.tree, way.call.lineno)] if spot.scope is spot.tree else [spot.scope]
    return any(_LOADS.search(ast.unparse(item)) for item in nodes)


def _ends_as(parts: tuple[str, ...], path: str) -> bool:
    shown = [*takewhile(lambda part: "{" not in part, parts[::-1])][::-1]
    return tuple(shown) == tuple(part for part in path.split("/") if part not in ("", "."))[-len(shown) :] or not shown


def _is_of_this_run(at: FailingLine, file: OpenedFile) -> bool | None:
    """Whether it was changed since the process began; None where whole seconds cannot decide, or nothing is known."""
    raised = [fact.mono_ns for fact in at.snapshot.facts if fact.kind == "EXCEPTION"]
    if not raised or file.age_seconds is None:
        return None
    lived_ns = raised[-1] - at.snapshot.created_mono_ns
    if (file.age_seconds + 1) * _SECOND <= lived_ns:
        return True
    return False if file.age_seconds * _SECOND > lived_ns else None


def _reads(at: FailingLine) -> Iterator[tuple[ast.AST, Spot]]:
    """What the line may take for the path; of what a function of the program gives, each of its returns."""
    spot = at.slice.spot(0)
    if spot is None or at.node is None:
        return
    given = [item for item, writes in paths_of(at.node) if not writes]
    handles = {variable(item) for item in given} - {None}
    for part in (part for around in withs_around(at.tree, at.line) for part in around.items):
        opener = part.context_expr
        if part.optional_vars is not None and variable(part.optional_vars) in handles and isinstance(opener, ast.Call):
            given += opener.args[:1]
    for item in given:
        made = at.slice.made(item, spot, calls=True)
        yield made.node, made.spot
        yield from ((value, inside) for value, inside in _returned(at, made.node, made.spot))


def _returned(at: FailingLine, node: ast.AST, spot: Spot) -> Iterator[tuple[ast.expr, Spot]]:
    found = at.slice.function(node, spot) if isinstance(node, ast.Call) else None
    for item in own_nodes(found[0]) if found is not None else ():
        if isinstance(item, ast.Return) and item.value is not None and found is not None and isinstance(node, ast.Call):
            inside = Spot(found[1].file, found[1].tree, found[0], item.lineno + 1, None, (node, spot))
            yield item.value, inside


def _known(at: FailingLine) -> dict[Scope, Spot]:
    """By function: those of the stack, and those whose call gives the line its path."""
    spots = [spot for _, spot in _reads(at)]
    stack = (at.slice.spot(depth) for depth in range(len(at.frames)))
    return {spot.scope: spot for spot in (*spots, *stack) if spot is not None}


def _ways(at: FailingLine, known: dict[Scope, Spot]) -> Iterator[_Way]:
    """Each call that writes a file; one whose path is a parameter by each call of its function."""
    for file, tree in at.files.items():
        for call, path in _writes(tree):
            own = scope_of(tree, call.lineno)
            spot = _at(known, file, tree, own, call.lineno)
            callers = [] if own in known or own is tree else [*_callers(at, known, own)]
            if not callers:
                yield _Way(call, path, (spot,))
            for caller, outer in callers:
                yield _Way(call, path, (structs.replace(spot, call=(caller, outer)), outer))


def _writes(tree: ast.Module) -> Iterator[tuple[ast.Call, ast.expr]]:
    for call, paths in writers(tree):
        if called_name(call) not in (*NOT_OF_PATH, "truncate"):
            yield from ((call, path) for path in paths)
    for item in nodes_of(tree):
        if isinstance(item, ast.Call) and called_name(item) == "urlretrieve":
            named = keyword_value(item, "filename")
            yield from ((item, path) for path in ([named] if named is not None else item.args[1:2]))


def _at(known: dict[Scope, Spot], file: str, tree: ast.Module, scope: Scope, line: int) -> Spot:
    held = known.get(scope)
    return structs.replace(held, line=line) if held is not None else Spot(file, tree, scope, line)


def _callers(at: FailingLine, known: dict[Scope, Spot], function: Scope) -> Iterator[tuple[ast.Call, Spot]]:
    name = getattr(function, "name", None)
    for file, tree in at.files.items() if name is not None and parameters(function) else ():
        for item in nodes_of(tree):
            if isinstance(item, ast.Call) and called_name(item) == name:
                yield item, _at(known, file, tree, scope_of(tree, item.lineno), item.lineno)


def _test(at: FailingLine, way: _Way, read: set[tuple[str, ...]]) -> tuple[ast.expr, Spot] | None:
    """The `if` which decides that it is written, and asks for no more than whether it is there."""
    for spot in way.spots:
        for item, _ in deciding_ifs(spot.tree, spot.line):
            calls = [part for part in nodes_of(item.test) if isinstance(part, ast.Call)]
            asks = [part for part in calls if called_name(part) in _ASKS]
            if not asks or any(called_name(part) not in (*_ASKS, *PATH_CALLS) for part in calls):
                continue
            there = structs.replace(spot, line=item.lineno)
            if any(path_parts(at.slice, _asked(part), there) in read for part in asks):
                return item.test, there
    return None


def _may_ask_again(at: FailingLine, test: ast.expr, spot: Spot) -> bool:
    """Whether the question can come behind the writing: in a loop, or by another call of its function."""
    tree, line = spot.tree, test.lineno
    for _ in range(_DEEPEST):
        scope = scope_of(tree, line)
        if loops_around(tree, line):
            return True
        found = [*calls_named(at.files, getattr(scope, "name", ""))]
        if len(found) != 1:
            return len(found) > 1
        _, tree, call = found[0]
        line = call.lineno
    return False


def _asked(call: ast.Call) -> ast.expr:
    """`path` of `os.path.exists(path)` and of `path.exists()`."""
    return call.args[0] if call.args else getattr(call.func, "value", call.func)


def _cleans(way: _Way) -> bool:
    """Whether a handler around it, or another line of its function, removes what was written."""
    for spot in way.spots:
        behind = [part for item in tries_around(spot.scope, spot.line) for part in (*item.handlers, *item.finalbody)]
        calls = [part for node in behind for part in nodes_of(node) if isinstance(part, ast.Call)]
        if any(called_name(part) in _CLEANS for part in calls):
            return True
        rest = (part for part in own_nodes(spot.scope) if isinstance(part, ast.Call) and part.lineno > spot.line)
        if any(called_name(part) in _REMOVES for part in rest):
            return True
    return False


def _caught(way: _Way) -> tuple[Spot, int, str] | None:
    """The innermost handler around it that goes on, and does no more than say so: another call may write, too."""
    for spot in way.spots:
        for item in tries_around(spot.scope, spot.line):
            handler = next((part for part in item.handlers if _is_wide(part.type)), None)
            calls = [part for part in nodes_of(handler) if isinstance(part, ast.Call)] if handler is not None else []
            if any(called_name(part) not in _ONLY_SAY for part in calls):
                return None
            if handler is not None and not any(isinstance(part, ast.Raise) for part in handler.body):
                head = f"except {ast.unparse(handler.type)}" if handler.type is not None else "except"
                return spot, handler.lineno, short(head)
    return None


def _is_wide(kind: ast.expr | None) -> bool:
    """Whether it catches what ends a transfer."""
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(item is None or _WIDE.search(ast.unparse(item).rpartition(".")[2]) is not None for item in kinds)
