"""A parameter that DDP saw ready twice in one backward: reentrant checkpoints, or several forwards before it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.autograd.several_forwards import excludes, several_forwards
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.decode.types.journal import Module

_TWICE = "Expected to mark a variable ready only once"
_NAMED = Pattern(r"Parameter at index \d+ with name ([\w.]+) has been marked as ready twice")
_CHECKPOINTS = ("checkpoint", "checkpoint_sequential")
_WORD = Pattern(r"[A-Za-z_]\w*")
_LAST = frozenset({"module", "weight", "bias"})


class _Found(msgspec.Struct, frozen=True):
    """`words`: the advice, after what the subject says."""

    subject: str
    words: str


class _Wrapped(msgspec.Struct, frozen=True):
    """The DistributedDataParallel of the process, with the line that made it."""

    unused: bool
    place: str


def ready_twice(at: FailingLine) -> str | None:
    """What to change."""
    found = _found(at)
    return found.words if found is not None else None


def ready_twice_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _found(at)
    return found.subject if found is not None else None


def _found(at: FailingLine) -> _Found | None:
    if _TWICE not in at.message:
        return None
    wrapped, named = _wrapped(at), _NAMED.search(at.message)
    if wrapped is None:
        return None
    reentrant = [(place, call, tree) for place, call, tree in _checkpoints(at) if _has(tree, call, named)]
    if wrapped.unused:
        return _with_unused(reentrant[0][0], wrapped) if reentrant else _last_forward(at, wrapped)
    again = _run_again(reentrant)
    return _of_shared(again, wrapped) if again is not None else None


def _with_unused(line: str, wrapped: _Wrapped) -> _Found:
    what = f"the reentrant checkpoint() of {line} does not go with DDP(find_unused_parameters=True) ({wrapped.place})"
    return _Found(
        what,
        f"DDP looks for unused parameters in the graph of the output ({wrapped.place}: find_unused_parameters=True), "
        f"which has none of those below the reentrant checkpoint() of {line}: it marks them as ready, and then their "
        f"gradients come. Write checkpoint(..., use_reentrant=False) at {line}; or leave out "
        f"find_unused_parameters=True at {wrapped.place}, if each step uses all parameters.",
    )


def _of_shared(again: tuple[str, str], wrapped: _Wrapped) -> _Found:
    what, where = again
    return _Found(
        f"`{what}` runs in reentrant checkpoint() {where}",
        f"`{what}` runs in reentrant checkpoint() {where}: each has a backward of its own, and DDP gets the gradients "
        "of the same parameters again in the next. Write checkpoint(..., use_reentrant=False) there; or "
        f"static_graph=True in DistributedDataParallel ({wrapped.place}), if each step does the same.",
    )


def _wrapped(at: FailingLine) -> _Wrapped | None:
    """The only one, without a static graph."""
    found = list({fact.data.module: fact.data for fact in at.snapshot.recorded(Module)}.values())
    found = [item for item in found if "find_unused_parameters" in item.settings]
    if len(found) != 1 or found[0].settings.get("static_graph") or found[0].caller is None:
        return None
    caller = found[0].caller
    return _Wrapped(bool(found[0].settings["find_unused_parameters"]), at.in_file(caller.file, caller.line or 0))


def _checkpoints(at: FailingLine) -> Iterator[tuple[str, ast.Call, ast.Module]]:
    """The program's calls of torch's checkpoint() that are reentrant, which it is where nothing is said."""
    for file, tree in at.files.items():
        own = {item.name for item in nodes_of(tree) if isinstance(item, (ast.FunctionDef, ast.ClassDef))}
        for call in (item for item in nodes_of(tree) if isinstance(item, ast.Call)):
            name, spread = called_name(call), any(item.arg is None for item in call.keywords)
            if name not in _CHECKPOINTS or name in own or spread or not call.args:
                continue
            option = keyword_value(call, "use_reentrant")
            if option is None or (isinstance(option, ast.Constant) and option.value is not False):
                yield at.in_file(file, call.lineno), call, tree


def _has(tree: ast.Module, call: ast.Call, named: re.Match[str] | None) -> bool:
    """Whether a part of the parameter's name is in what it runs; true of one without a name."""
    words = {part for part in named[1].split(".") if not part.isdigit()} - _LAST if named is not None else set()
    return not words or bool(words & _handed(tree, call))


def _handed(tree: ast.Module, call: ast.Call) -> set[str]:
    """The words of what it runs, by its names' loops, assignments and functions; of all around it, if that is open."""
    scope, run = scope_of(tree, call.lineno), call.args[0]
    names = {variable(item) or "" for item in nodes_of(run)} - {"", "self"}
    last = {name.rpartition(".")[2] for name in names}
    texts = [ast.unparse(run)]
    texts += [ast.unparse(item) for item in nodes_of(tree) if isinstance(item, ast.FunctionDef) and item.name in last]
    for item in own_nodes(scope):
        if isinstance(item, (ast.For, ast.Assign)) and names & {variable(part) for part in _bound(item)}:
            texts.append(ast.unparse(item.iter if isinstance(item, ast.For) else item.value))
    text = " ".join(texts)
    return {*_WORD.findall(text if "self." in text else ast.unparse(scope))}


def _run_again(reentrant: list[tuple[str, ast.Call, ast.Module]]) -> tuple[str, str] | None:
    """What two calls of one function run, or one in each round of a loop that does not choose it."""
    for number, (place, call, tree) in enumerate(reentrant):
        what, scope = ast.unparse(call.args[0]), scope_of(tree, call.lineno)
        for other, again, _ in reentrant[number + 1 :]:
            if ast.unparse(again.args[0]) == what and again in [*own_nodes(scope)] and not excludes(scope, call, again):
                return source(call.args[0]), f"twice ({place} and {other})"
        loops = loops_around(tree, call.lineno)
        head = loops[-1] if loops else None
        read = {variable(item) for item in nodes_of(call.args[0])} - {None}
        if isinstance(head, ast.For) and not read & {variable(item) for item in _bound(head)} and not _steps(head):
            return source(call.args[0]), f"in each round of the loop of line {head.lineno} ({place})"
    return None


def _steps(loop: ast.For) -> bool:
    """Whether each round has a backward of its own."""
    return any(isinstance(item, ast.Call) and called_name(item) == "backward" for item in nodes_of(loop))


def _bound(loop: ast.For | ast.Assign) -> Iterator[ast.AST]:
    """All that a round, or the assignment, sets."""
    for item in nodes_of(loop):
        targets = item.targets if isinstance(item, ast.Assign) else [item.target] if isinstance(item, ast.For) else []
        for target in targets:
            yield from nodes_of(target)


def _last_forward(at: FailingLine, wrapped: _Wrapped) -> _Found | None:
    """Several calls of the wrapped model above one backward()."""
    found = several_forwards(at)
    if found is None or _is_used_outside(at):
        return None
    return _Found(
        f"{found.summary} before one backward(), below DDP(find_unused_parameters=True) ({wrapped.place})",
        f"{found.summary} before the backward() of {found.backward}, and DDP (find_unused_parameters=True, "
        f"{wrapped.place}) looks for unused parameters in the result of the last call only: what just the calls before "
        "used counts as unused, and then its gradient comes. Call it once with all inputs and let forward() return all "
        "results, or call backward() after each.",
    )


def _is_used_outside(at: FailingLine) -> bool:
    """Whether a line reads the named parameter, or what has it, by `.module`: `net.module.emb.weight.norm()`."""
    named = _NAMED.search(at.message)
    first = named[1].partition(".")[0] if named is not None else None
    return any(
        isinstance(item, ast.Attribute)
        and item.attr == first
        and isinstance(item.value, ast.Attribute)
        and item.value.attr == "module"
        for tree in at.files.values()
        for item in nodes_of(tree)
    )
