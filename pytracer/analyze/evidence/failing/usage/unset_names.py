"""A name that is not set, by what its lines stand below: branches, a `try`, another function, the name of an error."""

from __future__ import annotations

import ast
import difflib

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.processes.handlers import head_of_handler
from pytracer.analyze.evidence.failing.usage.untaken import untaken
from pytracer.analyze.evidence.slicing.bindings import is_demonstration
from pytracer.analyze.evidence.slicing.spots import END, Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.guards import guards_of, stands_in
from pytracer.analyze.evidence.syntax.names import bare_names
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import places_that_bind
from pytracer.analyze.evidence.syntax.scopes import (
    Function,
    all_parameters,
    function_named,
    own_nodes,
    qualified_name,
    spans,
    spans_body,
)
from pytracer.analyze.evidence.syntax.tries import tries_around

_UNSET = Pattern(r"local variable '(\w+)'|name '(\w+)' is not defined|free variable '(\w+)'")
_AROUND = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Match)
_LEAVES = (ast.Raise, ast.Return)
_LIKE = 0.8
_LONG_NAME = 4
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_UNSETS = (ast.Delete, ast.ExceptHandler)


def name_left_unset(at: FailingLine) -> str | None:
    """What kept the program from each line that sets it."""
    found = _UNSET.search(at.message)
    if at.kind not in ("NameError", "UnboundLocalError") or found is None:
        return None
    name = found[1] or found[2] or found[3]
    ways = (_of_error, _of_result, _of_branches, _of_try, _of_module, _of_main_part, _of_function, _misspelt)
    return next((words for way in ways if (words := way(at, name)) is not None), None)


def _before(at: FailingLine, name: str) -> list[int]:
    """All lines of the function above the failing one that bind it; nothing where one takes it away again."""
    undone = any(
        isinstance(item, _UNSETS) and name in (bare_names(item) if isinstance(item, ast.Delete) else {item.name})
        for item in own_nodes(at.scope)
    )
    return [line for line in places_that_bind(at.scope, name) if line < at.line] if not undone else []


def _of_error(at: FailingLine, name: str) -> str | None:
    """`e` of `except OSError as e`, behind that block."""
    handlers = [item for item in own_nodes(at.scope) if isinstance(item, ast.ExceptHandler) and item.name == name]
    if not handlers or len(places_that_bind(at.scope, name)) != len(handlers):
        return None
    if any(item.lineno <= at.line <= (item.end_lineno or 0) or item.lineno > at.line for item in handlers):
        return None
    return (
        f"`{name}` is the name that the `{head_of_handler(handlers[0])}` at {at.here(handlers[0].lineno)} gives its "
        f"error, and Python deletes it at the end of that block: set `last = None` before the `try` and "
        f"`last = {name}` there, and use that."
    )


def _of_result(at: FailingLine, name: str) -> str | None:
    """`loss = loss(out, y)` of a function or class of the module: its name becomes a local variable."""
    statement = at.statement
    own = next((item for item in at.tree.body if getattr(item, "name", None) == name), None)
    lines = places_that_bind(at.scope, name)
    if not isinstance(statement, ast.Assign) or own is None or lines != [at.line] or isinstance(at.scope, ast.Module):
        return None
    return (
        f"Line {at.line} (`{source(statement)}`) puts its result into `{name}`, which makes that name a local variable "
        f"of the whole function, so that {name}() ({at.here(own.lineno)}) is not seen: give the result another name."
    )


def _of_branches(at: FailingLine, name: str) -> str | None:
    """Each line is in the branch of an `if` or `match`, and none of these was taken."""
    lines, spot = _before(at, name), at.slice.spot(0)
    guards = guards_of(at.scope, lines, at.line) if lines else None
    if not guards or spot is None or (len(lines) == 1 and _is_plain(guards[0].test)):
        return None
    first = at.here(guards[0].head)
    why = untaken(at, spot, guards, f"Set it before {first} for that case, or see why no branch with it was taken.")
    return f"`{name}` is set {why.words}. {why.advice}" if why is not None else None


def _is_plain(test: ast.expr) -> bool:
    """Whether it asks for no text: the value that it had is told by others."""
    return not any(isinstance(item, ast.Constant) and isinstance(item.value, str) for item in nodes_of(test))


def _of_try(at: FailingLine, name: str) -> str | None:
    """An error kept the program from the line, and a handler went on as if nothing had been."""
    lines = _before(at, name)
    tries = [item for item in tries_around(at.scope, lines[0]) if not spans(item, at.line)] if lines else []
    if len(tries) != 1 or any(not spans_body(tries[0].body, line) for line in lines) or tries[0].finalbody:
        return None
    if not any(stands_in(tries[0].body, line) for line in lines) or _may_be_passed_by(at, tries[0]):
        return None
    caught = [item for item in tries[0].handlers if not isinstance(item.body[-1], (*_LEAVES, ast.Continue, ast.Break))]
    if len(caught) != 1:
        return None
    handler, first = caught[0], tries[0].body[0].lineno
    last = tries[0].body[-1].end_lineno or first
    part = f"line {first}" if first == last else f"lines {first} to {last}"
    return (
        f"`{name}` is set only at {at.here(lines[0])}, and an error in {part} kept the program from it: the "
        f"`{head_of_handler(handler)}` at {at.here(handler.lineno)} caught it and went on. Begin with that error: "
        f"print it there with its traceback; then let the handler raise it, leave, or set `{name}`."
    )


def _may_be_passed_by(at: FailingLine, item: ast.Try) -> bool:
    """Whether a branch or a loop of no round may have kept the program from the `try` itself."""
    around = [part for part in own_nodes(at.scope) if isinstance(part, _AROUND) and spans(part, item.lineno)]
    return any(not spans(part, at.line) for part in around)


def _of_module(at: FailingLine, name: str) -> str | None:
    """A variable of the module that a function reads, and that is set only in branches."""
    if not _is_global(at, name):
        return None
    lines, spot = places_that_bind(at.tree, name), _module_spot(at)
    guards = guards_of(at.tree, lines, 0) if lines and not any(is_demonstration(at.tree, n) for n in lines) else None
    if not guards or any(line > spot.line for line in lines):
        return None
    first = at.here(guards[0].head)
    why = untaken(at, spot, guards, f"Set it before {first} for that case, or see why no branch with it was taken.")
    return f"`{name}` is set {why.words}. {why.advice}" if why is not None else None


def _of_main_part(at: FailingLine, name: str) -> str | None:
    """Below `if __name__ == "__main__":`, which the worker that failed has not run."""
    lines = places_that_bind(at.tree, name)
    if not _is_global(at, name) or not lines or not all(is_demonstration(at.tree, line) for line in lines):
        return None
    if any(item.file == at.frame.file and item.function == "<module>" for item in at.frames):
        return None
    return (
        f"`{name}` is set only at {at.here(lines[0])}, below `if __name__ == '__main__':`, which does not run where "
        "this file is imported, as each spawned process does. Pass it to the function that runs there (`args=`), or "
        "set it above that `if`."
    )


def _of_function(at: FailingLine, name: str) -> str | None:
    """A local variable of another function of the file."""
    if not _is_global(at, name) or places_that_bind(at.tree, name):
        return None
    functions = [item for item in nodes_of(at.tree) if isinstance(item, _FUNCTIONS)]
    own = [item for item in functions if lines_that_bind(item, name) and not _declares(item, name)]
    if len(own) != 1 or any(name in all_parameters(item) for item in functions):
        return None
    if spans(own[0], getattr(at.scope, "lineno", 0)):
        return None  # a function in it sees the variable, which has no value yet
    (line, value), set_in = lines_that_bind(own[0], name)[0], qualified_name(at.tree, own[0])
    reader = getattr(at.scope, "name", "that line")
    return (
        f"`{name}` is set only in {set_in}() ({at.here(line)}), where it is a local variable that other functions do "
        f"not see: {_share(value, set_in, reader)}."
    )


def _share(value: ast.AST | None, set_in: str, reader: str) -> str:
    if isinstance(value, (ast.Import, ast.ImportFrom)):
        return "import it at the top of the file"
    return f"let {set_in}() return it, and pass it to {reader}()"


def _misspelt(at: FailingLine, name: str) -> str | None:
    """No line of the file sets it, and one of the names that the line could read is almost the same."""
    if any(places_that_bind(item, name) for item in (at.tree, at.scope)) or len(name) < _LONG_NAME:
        return None
    known = {*_names_of(at.scope), *_names_of(at.tree)} - {name}
    near = difflib.get_close_matches(name, sorted(known), 2, _LIKE)
    same = [item for item in known if item.casefold() == name.casefold()]
    like = same[0] if len(same) == 1 else near[0] if len(near) == 1 else None
    if like is None or like[0].isupper() != name[0].isupper() or function_named(at.tree, name) is not None:
        return None  # `Dataset` is a class that was not imported, beside a variable `dataset`
    scope = at.scope if like in _names_of(at.scope) else at.tree
    line = next(iter(places_that_bind(scope, like)), getattr(scope, "lineno", 0))
    return (
        f"No line of this file sets `{name}`, but `{like}`{f' ({at.here(line)})' if line else ''}: most likely one of "
        "the two is misspelt."
    )


def _names_of(scope: ast.AST) -> set[str]:
    """What it binds, with its parameters."""
    stored = {item.id for item in own_nodes(scope) if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store)}
    stored |= {
        (part.asname or part.name.split(".")[0])
        for item in own_nodes(scope)
        if isinstance(item, (ast.Import, ast.ImportFrom))
        for part in item.names
    }
    held = {item.name for item in getattr(scope, "body", ()) if isinstance(item, (*_FUNCTIONS, ast.ClassDef))}
    return stored | held | {*(all_parameters(scope) if isinstance(scope, (*_FUNCTIONS, ast.Lambda)) else ())}


def _is_global(at: FailingLine, name: str) -> bool:
    """Whether the failing function reads one of its module."""
    return at.kind == "NameError" and not isinstance(at.scope, ast.Module) and not places_that_bind(at.scope, name)


def _declares(function: Function, name: str) -> bool:
    return any(isinstance(item, ast.Global) and name in item.names for item in own_nodes(function))


def _module_spot(at: FailingLine) -> Spot:
    """Where the module is: at the line of its frame, or behind its end."""
    last = len(at.frames) - 1
    spot = at.slice.spot(last) if at.frames[last].file == at.frame.file else None
    if spot is not None and isinstance(spot.scope, ast.Module):
        return spot
    return Spot(at.frame.file, at.tree, at.tree, END)
