"""A call that returned None: of a function of the program the way that ends without a value, and what leads there."""

from __future__ import annotations

import ast

from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.processes.handlers import head_of_handler
from pytracer.analyze.evidence.failing.stored.states import not_in_environment
from pytracer.analyze.evidence.failing.usage.untaken import MOST, untaken
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.guards import guards_of
from pytracer.analyze.evidence.syntax.returns import returns_none_at
from pytracer.analyze.evidence.syntax.scopes import definitions, own_nodes, parameters, qualified_name, spans_body

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Function = ast.FunctionDef | ast.AsyncFunctionDef
# What gives None, and when.
_MAY_FIND_NOTHING = {
    "get": "found no such key, or None there: check `is None`",
    "match": "found no match in the text: print repr() of it, and check `is None`",
    "search": "found no match in the text: print repr() of it, and check `is None`",
    "fullmatch": "found no match in the text: print repr() of it, and check `is None`",
    "imread": "could not read that file: check the path (os.path.exists) and that it is an image",
    "getenv": "found no such environment variable: export it, or give a default",
    "which": "found no such program in PATH",
    "find": "found no such element",
}
_IN_PLACE = {
    "sort",
    "append",
    "extend",
    "update",
    "reverse",
    "shuffle",
    "insert",
    "add",
    "backward",
    "step",
    "zero_grad",
}

# Decorators that give what the function returns.
_PLAIN = {"staticmethod", "classmethod", "property", "cached_property", "no_grad", "inference_mode", "enable_grad"}
_PLAIN |= {"cache", "lru_cache", "override", "abstractmethod", "autocast", "compile", "script", "overload"}
_ENVIRONMENT = Pattern(r"(?:^|\.)(?:environ\.get|getenv)$")
_FOR_EFFECT = Pattern(
    r"_?(?:log|print|save|update|register|reset|append|add|check|set|record|write|clear|zero|info|debug)"
)


def none_of_call(at: FailingLine, call: ast.Call, what: str, line: str, spot: Spot | None = None) -> str | None:
    """Why a call gave None.

    Args:
        at: The failing line.
        call: What returned None.
        what: What is None, as text.
        line: Where it was called, in parentheses; or nothing.
        spot: Where the call is; that of the failing line otherwise.
    """
    called, spot = called_name(call), spot or at.slice.spot(0)
    if called is None:
        return None
    text = f"{what} is None{line}: "
    found = _function(at, call, called, spot)
    if found is not None and not _is_wrapped(found[0]):
        return _of_function(at, text, call, spot, *found)
    if _ENVIRONMENT.search(ast.unparse(call.func)) and call.args and isinstance(call.args[0], ast.Constant):
        return not_in_environment(str(call.args[0].value))
    if called in _IN_PLACE:
        return (
            f"{text}`{source(call)}` works in place and returns None. Call it on a line of its own, and use the object."
        )
    if called in _MAY_FIND_NOTHING:
        return f"{text}`{source(call)}` {_MAY_FIND_NOTHING[called]}."
    return f"{text}`{source(call)}` returned None. Check `is None` there, or what it is given."


def _function(
    at: FailingLine, call: ast.Call, called: str, spot: Spot | None
) -> tuple[_Function, str, Spot | None] | None:
    """The program's own that is called, its name, and where it is."""
    found = at.slice.function(call, spot) if spot is not None else None
    alike = [item for item in definitions(at.tree).get(called, ()) if isinstance(item, _FUNCTIONS)]
    may = [item for item in alike if not _only_raises(item)]  # a base class's
    if len(may) == 1 and isinstance(call.func, ast.Attribute) == (parameters(may[0])[:1] == ["self"]):
        if isinstance(call.func, ast.Attribute) and called in _MAY_FIND_NOTHING and not _is_of(at, call.func, found):
            return None  # a dict has .get() as well
        of_self = found[1] if found is not None and found[0] is may[0] else None
        name = qualified_name(at.tree, may[0]) if len(alike) > 1 else called
        return may[0], name, of_self or (structs.replace(spot, file=at.frame.file, tree=at.tree) if spot else None)
    return (found[0], qualified_name(found[1].tree, found[0]), found[1]) if found is not None else None


def _is_of(at: FailingLine, func: ast.Attribute, found: tuple[_Function, Spot] | None) -> bool:
    """Whether a method is that of an object of a class of the program."""
    kind = (at.value(func.value) or "").split(" ")[0].split("(")[0]
    is_self = isinstance(func.value, ast.Name) and func.value.id == "self"
    return (
        found is not None
        or is_self
        or any(isinstance(item, ast.ClassDef) for item in definitions(at.tree).get(kind, ()))
    )


def _is_wrapped(own: _Function) -> bool:
    """Whether a decorator may return None in its place."""
    return any(ast.unparse(item).split("(")[0].split(".")[-1] not in _PLAIN for item in own.decorator_list)


def _only_raises(own: _Function) -> bool:
    return isinstance(own.body[-1], ast.Raise) and not any(isinstance(item, ast.Return) for item in own_nodes(own))


def gives_none(at: FailingLine, call: ast.expr | None) -> bool:
    """Whether it calls a function of the program that may return None, or a method that does: then it may have."""
    called = called_name(call) if isinstance(call, ast.Call) else None
    if called is None or not isinstance(call, ast.Call):
        return False
    found = _function(at, call, called, at.slice.spot(0))
    return returns_none_at(found[0]) is not None if found is not None else called in _MAY_FIND_NOTHING


def _of_function(
    at: FailingLine, text: str, call: ast.Call, spot: Spot | None, own: _Function, name: str, home: Spot | None
) -> str:
    file = home.file if home is not None else at.frame.file
    returns = [item for item in own_nodes(own) if isinstance(item, ast.Return)]
    values = [item for item in returns if item.value is not None and not is_none(item.value)]
    first = at.in_file(file, own.lineno)
    if not values:
        return f"{text}{name}() ({first}) returns nothing: end it with `return` and the value."
    nothing = [item.lineno for item in returns if item not in values]
    if nothing:
        return (
            f"{text}{name}() returns None at {at.in_file(file, nothing[0])}. Handle that case here, or mend it there."
        )
    if _has_last_return(own):
        return f"{text}what {name}() ({first}) returns was None. Handle that here, or mend it there."
    last, dropped = at.in_file(file, max(item.lineno for item in values)), _last_value(own)
    guards = guards_of(own, [item.lineno for item in values], 0) if dropped is None else None
    if guards and home is not None and spot is not None:
        inside = structs.replace(home, scope=own, line=guards[0].line, depth=None, call=(call, spot))
        why = untaken(at, inside, guards, "Return a value for the others, too.")
        if why is None and len(guards) <= MOST:  # a branch returned it
            return f"{text}what {name}() ({first}) returns was None. Handle that here, or mend it there."
        if why is not None and (why.by_value or all(_is_something(item.value) for item in values)):
            return f"{text}{name}() ({first}) returns a value {why.words}. {why.advice}"
    caught = _caught(own, values) if not any(_may_find_nothing(item.value) for item in values) else None
    if caught is not None:
        handler, (begin, end) = caught
        part = at.in_file(file, begin) if begin == end else f"lines {begin} to {end}"
        return (
            f"{text}{name}() ({first}) returns nothing where the `{head_of_handler(handler)}` at "
            f"{at.in_file(file, handler.lineno)} catches an error of {part}. Print that error there "
            "with its traceback, and let the handler raise it or return a value."
        )
    also = f", and {at.in_file(file, dropped.lineno)} (`{source(dropped)}`) leaves its value" if dropped else ""
    return (
        f"{text}{name}() ({first}) ends without `return` on some way through it: its last `return` is at {last}{also}. "
        "Return a value on all."
    )


def _caught(own: _Function, values: list[ast.Return]) -> tuple[ast.ExceptHandler, tuple[int, int]] | None:
    """The only handler that goes on to the end, of a `try` that has each `return`."""
    tries = [item for item in own.body if isinstance(item, ast.Try)]
    if (
        len(tries) != 1
        or own.body[-1] is not tries[0]
        or not all(spans_body(tries[0].body, item.lineno) for item in values)
    ):
        return None
    on = [item for item in tries[0].handlers if not isinstance(item.body[-1], (ast.Raise, ast.Return))]
    direct = any(item in tries[0].body for item in values)
    lines = (tries[0].body[0].lineno, tries[0].body[-1].end_lineno or 0)
    return (on[0], lines) if len(on) == 1 and direct else None


def _may_find_nothing(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and called_name(value) in _MAY_FIND_NOTHING


def _is_something(value: ast.expr | None) -> bool:
    """Whether it is never None: a new object, a tuple, a result of arithmetic."""
    made = isinstance(value, ast.Call) and (called_name(value) or "")[:1].isupper()
    return made or isinstance(
        value, (ast.Tuple, ast.List, ast.Dict, ast.ListComp, ast.BinOp, ast.Compare, ast.JoinedStr)
    )


def _last_value(own: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.expr | None:
    """A call at the end of a branch whose value nobody takes."""
    body: list[ast.stmt] = own.body
    while body and isinstance(body[-1], ast.If):
        body = body[-1].orelse or body[-1].body
    last = body[-1] if body else None
    call = last.value if isinstance(last, ast.Expr) else None
    if not isinstance(call, ast.Call) or not ast.unparse(call.func).startswith("self."):
        return None
    return None if _FOR_EFFECT.match(called_name(call) or "") else call


def _has_last_return(own: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it ends with `return` and a value, which was None then."""
    return isinstance(own.body[-1], ast.Return)
