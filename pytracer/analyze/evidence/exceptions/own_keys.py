"""A key of a store that a rank waits for in vain, as each rank has drawn another one.

`store.wait([f"{self.run}/ready"])`, where `self.run` comes of a generator without a seed, `uuid4()`, the time, or the
process's number. A rank may send the others what it has drawn: where it may have done so, nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.own_values import STORE_SETS, OwnValue, OwnValues, is_handed_out, iter_spots
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import JobView, ProcessView

_TIMEOUT = Pattern(r"wait timeout after \d+ ?ms, keys: |Timeout waiting for key")
_WAITS = ("wait", "get", "multi_get")
_DEEPEST = 6
_PREFIX = 2  # arguments of PrefixStore
_Key = tuple[ast.expr, Spot]


class OwnKey(msgspec.Struct, frozen=True):
    """`value`: the part that is another one on each rank. `line`, `file`: of the call that sets such a key."""

    value: OwnValue
    file: str | None
    line: int
    here: str | None

    @property
    def subject(self) -> str:
        """Behind the headline."""
        has = "has" if self.value.sure else "may have"
        sets = f"{line_in(self.file, self.line, self.here)} sets that of its own rank"
        return f"each rank {has} another key, as {self.value.reason}; {sets}"

    @property
    def advice(self) -> str:
        """What to change."""
        what = f"`{self.value.names[0]}`" if self.value.names else "the key"
        longer = "" if not self.value.sure else " A longer timeout does not help."
        return f"Make {what} the same on all ranks: {self.value.change}.{longer}"

    @property
    def behind(self) -> Behind:
        """The lines that draw it, and that set the key."""
        value = self.value
        drawn = line_in(value.spot.file, value.call.lineno, None)
        return Behind.of([], value.maker, drawn, line_in(self.file, self.line, None))


def own_key(job: JobView, view: ProcessView) -> OwnKey | None:
    """None where no line sets such a key, or the ranks may have agreed on it."""
    frames, exception = view.exception_stack_of_program, view.exception
    if exception is None or _TIMEOUT.search(exception.message or "") is None or not frames:
        return None
    if len({item.process.rank for item in job.views if item.process.role == "rank"}) < _PREFIX:
        return None
    snapshot = view.process.snapshot
    slice_, files = Slice(snapshot, frames, stack=view.exception_stack), program_files(snapshot, frames)
    spot = slice_.spot(0)
    calls = calls_on(spot.tree, spot.line) if spot is not None else []
    waits = [item for item in calls if called_name(item) in _WAITS and _is_of_object(item)]
    if spot is None or len(waits) != 1:
        return None
    search = OwnValues(slice_, files, spot.file)
    keys = [*_keys(slice_, waits[0], spot)]
    for key, at in keys:
        value, _ = search.of(key, at)
        if value is None or is_handed_out(files, value):
            continue
        found = _setter(search, slice_, files, waits[0], spot, value)
        return OwnKey(value, *found, spot.file) if found is not None else None
    return None


def _is_of_object(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and bool(call.args)


def _keys(slice_: Slice, call: ast.Call, spot: Spot) -> Iterator[_Key]:
    """What a call passes as keys, and the prefixes of its store."""
    yield call.args[0], spot
    owner, at = call.func.value, spot  # type: ignore[attr-defined]
    for _ in range(_DEEPEST):
        made = slice_.made(owner, at, calls=True)
        if not isinstance(made.node, ast.Call) or called_name(made.node) != "PrefixStore":
            return
        if len(made.node.args) != _PREFIX:
            return
        yield made.node.args[0], made.spot
        owner, at = made.node.args[1], made.spot


def _setter(
    search: OwnValues, slice_: Slice, files: Mapping[str, ast.Module], wait: ast.Call, spot: Spot, value: OwnValue
) -> tuple[str, int] | None:
    """The only line that sets a key of the same form with the same draw in it."""
    forms = set(key_forms(slice_, wait.args[0], spot))
    found: list[tuple[str, int]] = []
    for file, tree in files.items():
        for call in nodes_of(tree):
            if not isinstance(call, ast.Call) or called_name(call) not in STORE_SETS or not _is_of_object(call):
                continue
            at = _spot(slice_, file, tree, call.lineno)
            if not forms & {*key_forms(slice_, call.args[0], at)}:
                continue
            drawn = (search.of(key, place)[0] for key, place in _keys(slice_, call, at))
            if any(item is not None and item.call is value.call for item in drawn):
                found.append((file, call.lineno))
    return found[0] if len(found) == 1 else None


def _spot(slice_: Slice, file: str, tree: ast.Module, line: int) -> Spot:
    """Of a line; in the function of a frame with what that one was given."""
    scope = scope_of(tree, line)
    own = next((item for item in iter_spots(slice_) if item.file == file and item.scope is scope), None)
    return structs.replace(own, line=line) if own is not None else Spot(file, tree, scope, line)


def key_forms(slice_: Slice, key: ast.expr, spot: Spot, depth: int = 0) -> Iterator[str]:
    """`{}/ready` of `f"{run}/ready"`, for each key of a list; of a call what it passes."""
    if isinstance(key, (ast.List, ast.Tuple)):
        for item in key.elts:
            yield from key_forms(slice_, item, spot, depth)
    elif isinstance(key, (ast.ListComp, ast.GeneratorExp)):
        yield from key_forms(slice_, key.elt, spot, depth)
    elif isinstance(key, ast.Call) and slice_.function(key, spot) is not None:
        yield f"{called_name(key)}({', '.join(ast.unparse(item) for item in passed_values(key))})"
    elif depth < _DEEPEST and isinstance(key, (ast.Name, ast.Attribute)):
        made = slice_.made(key, spot, calls=False)
        if made.node is not key and isinstance(made.node, ast.expr):
            yield from key_forms(slice_, made.node, made.spot, depth + 1)
    else:
        yield _form(key)


def _form(key: ast.AST) -> str:
    if isinstance(key, ast.Constant):
        return str(key.value)
    if isinstance(key, ast.JoinedStr):
        return "".join(_form(item) for item in key.values)
    if isinstance(key, ast.BinOp) and isinstance(key.op, ast.Add):
        return _form(key.left) + _form(key.right)
    return "{}"
