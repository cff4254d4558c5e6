"""None where a value was expected: which expression it is, and which line made it."""

from __future__ import annotations

import ast
import re

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.failing.clauses import first_clause, without_places
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.saved_nones import saved_none
from pytracer.analyze.evidence.failing.usage.no_gradients import no_gradient
from pytracer.analyze.evidence.failing.usage.none_operands import none_by_message, of_bias
from pytracer.analyze.evidence.failing.usage.none_results import gives_none, none_of_call
from pytracer.analyze.evidence.failing.usage.one_way import set_on_one_way
from pytracer.analyze.evidence.slicing.bindings import bindings_of, last_binding
from pytracer.analyze.evidence.syntax.bindings import attribute_settings, lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.guards import guards_of
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import (
    class_around,
    default_of,
    is_parameter,
)

_MESSAGE = Pattern(
    r"'NoneType' object|NoneType object|'NoneType' and|and 'NoneType'|found <class 'NoneType'>|but got NoneType"
    r"|type 'NoneType'"
    r"|, not '?NoneType'?|, not None\b|[Cc]annot be None\b"
)
_READ = Pattern(r"(?:^|\.)(?:safe_)?load(?:s|_all)?$|from_file|parse_file")
_USED = Pattern(r"'NoneType' object has no attribute '(\w+)'")
_ONLY = Pattern(r": ([\w.]+\(\) returns a value only .{1,130}?)\. ")
_DASHES = 2
_FIRST = 2  # arguments of a loss or layer that may not be left out


def none_value(at: FailingLine) -> str | None:
    """Of a variable, a gradient, or an expression of the line."""
    if at.kind not in ("AttributeError", "TypeError") or not _MESSAGE.search(at.message):
        return None
    node = none_node(at) if at.own else _passed_none(at)
    if node is None:
        return None
    if isinstance(node, ast.Attribute) and node.attr == "grad":
        return no_gradient(at, node)
    name = variable(node)
    if isinstance(node, ast.Call):
        return none_of_call(at, node, f"`{source(node)}`", "")
    if name is None and isinstance(node, (ast.Subscript, ast.Attribute)):
        return _of_item(at, node) or of_bias(node)
    return _of_variable(at, name) if name is not None else None


def _passed_none(at: FailingLine) -> ast.AST | None:
    """The only argument that is None, among the first of a call into torch's own functions; all others are known."""
    call = at.only(ast.Call)
    if call is None or "/torch/" not in (at.stack[0].file or ""):
        return None
    given = passed_values(call)
    nothing = [item for item in given if at.value(item) == "None"]
    known = (isinstance(item, ast.Constant) or at.value(item) is not None or _is_tensor(item) for item in given)
    first = len(nothing) == 1 and any(item is nothing[0] for item in call.args[:_FIRST])
    return nothing[0] if first and not isinstance(nothing[0], ast.Constant) and all(known) else None


def _is_tensor(node: ast.AST) -> bool:
    """`torch.tensor([0, 1])`, which is never None."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith("torch.")


def _of_item(at: FailingLine, node: ast.Subscript | ast.Attribute) -> str | None:
    """`cfg["warmup"]`, `args.config`: from a file, an option, or a line that sets it."""
    text = source(node)
    option = _of_option(at, ast.unparse(node))
    if option is not None:
        return option
    came = at.came(ast.unparse(node))
    if came:
        return f"`{text}`{came} is None: check `is None` here, or set it there."
    held = _of_object(at, node)
    if held is not None:
        return held
    table = at.made(node.value)
    if table is None or not isinstance(table.node, ast.Call) or not _READ.search(ast.unparse(table.node.func)):
        return None
    saved = saved_none(at, node)
    if saved is not None:
        return saved
    return (
        f"`{text}` is None: it is null or empty in what {at.place(table.spot, table.line)} reads "
        f"(`{source(table.node)}`). Give it a value there, or handle None before line {at.line}."
    )


def item_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    words = none_value(at)
    node = none_node(at) if words is not None else None
    if words is None or not isinstance(node, (ast.Subscript, ast.Attribute)):
        return None
    return first_clause(words) or f"`{source(node)}` is None"


def none_node(at: FailingLine) -> ast.AST | None:
    """What was None: what the message uses it for narrows it down."""
    node = at.node
    told = none_by_message(at)
    if told is not None:
        return told
    used = _USED.search(at.message)
    found: list[ast.AST] = []
    for item in nodes_of(node) if node is not None else ():
        if (isinstance(item, ast.Attribute) and used is not None and item.attr == used[1]) or (
            used is None and isinstance(item, ast.Subscript) and "subscriptable" in at.message
        ):
            found.append(item.value)
        elif used is None and isinstance(item, ast.Call) and "callable" in at.message:
            found.append(item.func)
    if used is None and "is not iterable" in at.message and isinstance(at.statement, (ast.For, ast.AsyncFor)):
        found.append(at.statement.iter)
    if not found and node is not None:
        found = [item for item in nodes_of(node) if at.value(item) == "None"]
    nothing = [item for item in found if at.value(item) == "None"]
    kept = nothing or [item for item in found if at.value(item) is None]
    return kept[0] if len({ast.dump(item) for item in kept}) == 1 else None


def _of_variable(at: FailingLine, name: str) -> str | None:
    if name.startswith("self."):
        owner = class_around(at.tree, at.scope)
        of = _Owner(owner, name.removeprefix("self."), at.frame.file) if owner is not None else None
        return _of_attribute(at, name, of) if of is not None else None
    unset = set_on_one_way(at, name)
    if unset is not None:
        return unset.words
    option = _of_option(at, name)
    if option is not None:
        return option
    bound = last_binding(at.scope, name, at.line)
    if any(isinstance(item, ast.Global) and name in item.names for item in nodes_of(at.tree)):
        return None  # another function may have set it
    if bound is not None and isinstance(bound[1], ast.Call) and bound[2] is None:
        return none_of_call(at, bound[1], f"`{name}`", f" ({at.here(bound[0])})")
    if bound is not None and bound[1] is not None and is_none(bound[1]):
        return (
            f"`{name}` is still None from {at.here(bound[0])}: no line between set it, as in a branch "
            "or loop that did not "
            "run. Check `is None` before, or set it."
        )
    chosen = _chosen(at, name, bound[1], at.here(bound[0])) if bound is not None and bound[2] is None else None
    if chosen is not None:
        return chosen
    begun = _begun_with_none(at, name)
    if begun is not None:
        return begun
    if not lines_that_bind(at.scope, name) and is_parameter(at.scope, name):
        default = default_of(at.scope, name)
        if is_none(default) and len(at.frames) > 1:
            return (
                f"`{name}` is None, its default: the caller at {at.at(at.frames[1])} passes none, or None. "
                "Pass it, or handle None here."
            )
    if bound is None and any(line < at.line for line, _ in lines_that_bind(at.scope, name)):
        return None  # one of several lines
    made = at.made(name, calls=False)
    call = made.node if made is not None else None
    if made is not None and isinstance(call, ast.Call) and called_name(call) != "add_argument" and made.line != at.line:
        return none_of_call(at, call, f"`{name}`", f" ({at.shown(made)})", made.spot)
    came = at.came(name)
    return f"`{name}`{came} is None: check `is None` there, or mend what made it." if came else None


def _chosen(at: FailingLine, name: str, value: ast.AST | None, place: str) -> str | None:
    """`logger = Logger() if args.log else None`."""
    if not isinstance(value, ast.IfExp) or is_none(value.body) == is_none(value.orelse):
        return None
    test = f"not `{source(value.test)}`" if is_none(value.body) else f"`{source(value.test)}`"
    return (
        f"`{name}` is None, as {place} makes it only if {test}. Ask `if {name} is not None` before line {at.line}, or "
        "let that hold."
    )


def _begun_with_none(at: FailingLine, name: str) -> str | None:
    """`total = None` before a loop whose `total += loss` is the only other line that sets it."""
    found = bindings_of(at.scope, name)
    before = [(line, value) for line, value, _ in found if line != at.line]
    if len(before) != 1 or not is_none(before[0][1]) or not isinstance(at.statement, ast.AugAssign):
        return None
    return (
        f"`{name}` is None from {at.here(before[0][0])}, and line {at.line} counts on from it: begin with a number "
        f"there (`{name} = 0.0`), or set it in the first round."
    )


def _of_option(at: FailingLine, name: str) -> str | None:
    """An option of the command line that was not given."""
    made = at.made(name)
    if made is None or not isinstance(made.node, ast.Call) or called_name(made.node) != "add_argument":
        return None
    sets = (item.targets for item in nodes_of(at.tree) if isinstance(item, ast.Assign))
    if "." in name and any(ast.unparse(part) == name for held in sets for part in held):
        return None
    flags = [item.value for item in made.node.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    flag = next((item for item in flags if item.startswith("--")), None)
    default = keyword_value(made.node, "default")
    required = any(item.arg in ("required", "action") for item in made.node.keywords)
    if flag is None or required or (default is not None and not is_none(default)):
        return None
    given = (word.partition("=")[0] for word in at.snapshot.argv if word.startswith("--"))
    if any(len(word) > _DASHES and flag.startswith(word) for word in given):  # argparse takes the begin of one, too
        return None
    return (
        f"`{name}` is None, the default of {flag} ({at.place(made.spot, made.line)}): no {flag} was given. "
        f"Start it with `{flag} ...`, give it a default there, or handle None before line {at.line}."
    )


def none_subject_of_option(at: FailingLine) -> str | None:
    """What the headline says of it."""
    words = none_value(at)
    found = re.match(r"`[^`]+` is None, the default of (--[\w-]+) ", words or "")
    return f"no {found[1]} was given" if found is not None else None


def one_way_subject(at: FailingLine) -> str | None:
    """Of a result that a function sets on one way: what the headline says of it."""
    words = none_value(at)
    node = none_node(at) if words is not None and at.own else None
    name = variable(node) if node is not None else None
    found = set_on_one_way(at, name) if name is not None else None
    return found.subject if found is not None and found.words == words else None


def untaken_subject(at: FailingLine) -> str | None:
    """Of a function that returns a value for others only: what the headline says of it."""
    words = none_value(at) or ""
    found = _ONLY.search(without_places(words))
    first = first_clause(words) or ""
    return first if found is not None and "returns a value" in first else found[1] if found is not None else None


def _of_object(at: FailingLine, node: ast.Subscript | ast.Attribute) -> str | None:
    """`vocab.words`, of an object of a class of the program."""
    spot = at.slice.spot(0)
    known = isinstance(node, ast.Attribute) and at.value(node) == "None" and spot is not None
    found = at.slice.class_of(node.value, spot) if known and isinstance(node, ast.Attribute) and spot else None
    if found is None or not isinstance(found[0], ast.ClassDef) or not isinstance(node, ast.Attribute):
        return None
    return _of_attribute(at, source(node), _Owner(found[0], node.attr, found[1].file))


class _Owner(msgspec.Struct, frozen=True):
    """A class, one attribute of its objects, and the file that it is in."""

    node: ast.ClassDef
    attribute: str
    file: str | None


def _of_attribute(at: FailingLine, name: str, of: _Owner) -> str | None:
    if _is_set_to_none(at, of.node, of.attribute):
        return None
    held = f"self.{of.attribute}"
    lines = [
        (line, method, made)
        for method in of.node.body
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef))
        for line, value, index in bindings_of(method, held)
        if (made := _part(value, index)) is not None and not is_none(made)
    ]
    first = attribute_settings(of.node).get(of.attribute)
    if first is None:
        return None
    above = last_binding(at.scope, name, at.line) if name == held else None
    if above is not None and isinstance(above[1], ast.Call) and above[2] is None:
        return none_of_call(at, above[1], f"`{name}`", f" ({at.here(above[0])})")
    since = f"`{name}` is None since {at.in_file(of.file, first[0])}"
    if not lines:
        return f"{since}, and no line of {of.node.name} sets it: set it before this use."
    line, setter, value = lines[-1]
    if setter.name == "__init__":
        return _set_by_constructor(at, name, of, first[0], lines)
    only = f"{since}: only {setter.name}() sets it ({at.in_file(of.file, line)})"
    if setter is at.scope:
        return (
            f"{only}, and not before line {at.line}: handle its first call (`if {name} is None`), or begin with a "
            f"value at {at.here(first[0])}."
        )
    if gives_none(at, value):
        return f"{only}, which has not run before, or `{source(value)}` gave None there. See which of the two it is."
    guards = guards_of(setter, [line for line, method, _ in lines if method is setter], 0)
    if guards:
        tests = list_words([f"`{source(item.test)}` ({at.in_file(of.file, item.line)})" for item in guards])
        return f"{only}, below {tests}, which has not run or did not hold. See which it is, and handle None until then."
    return f"{only}, which has not run before. Call it first, or set it in __init__."


def _set_by_constructor(
    at: FailingLine,
    name: str,
    of: _Owner,
    first: int,
    lines: list[tuple[int, ast.FunctionDef | ast.AsyncFunctionDef, ast.expr]],
) -> str:
    line, setter, value = lines[-1]
    if isinstance(value, ast.Name) and is_parameter(setter, value.id):
        return _of_given(at, name, of, line, value.id)
    guards = guards_of(setter, [item[0] for item in lines], 0) if all(item[1] is setter for item in lines) else None
    if guards:
        tests = list_words([f"`{source(item.test)}` ({at.in_file(of.file, item.line)})" for item in guards])
        return (
            f"`{name}` is None: {of.node.name}.__init__() sets it only below {tests}, and else to None "
            f"({at.in_file(of.file, first)}). Give the constructor what that needs, or handle None before line "
            f"{at.line}."
        )
    chosen = _chosen(at, name, value, at.in_file(of.file, line))
    if chosen is not None:
        return chosen
    called = (
        none_of_call(at, value, f"`{name}`", f" ({at.in_file(of.file, line)})") if isinstance(value, ast.Call) else None
    )
    return called or (
        f"`{name}` is None: {at.in_file(of.file, line)} in __init__ set it to what gave None; check it there."
    )


def _part(value: ast.AST | None, index: int | None) -> ast.expr | None:
    """`b` of `x, y = a, b`, of what a line binds."""
    whole = isinstance(value, (ast.Tuple, ast.List)) and index is not None and index < len(value.elts)
    part = value.elts[index or 0] if whole and isinstance(value, (ast.Tuple, ast.List)) else value
    return part if isinstance(part, ast.expr) and (index is None or whole) else None


def _of_given(at: FailingLine, name: str, of: _Owner, line: int, parameter: str) -> str:
    """Of an attribute that keeps what the constructor is given."""
    calls = [
        (file, item.lineno)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) == of.node.name
    ]
    where = f" by {at.in_file(*calls[0])}" if len(calls) == 1 else ""
    return (
        f"`{name}` is None: {of.node.name}() was given None{where}, or nothing, for `{parameter}`, which "
        f"{at.in_file(of.file, line)} keeps. Pass it, or handle None here."
    )


def _is_set_to_none(at: FailingLine, owner: ast.ClassDef, name: str) -> bool:
    """By a method other than __init__, or from outside of the class: it may have had a value."""
    first = next((item for item in owner.body if getattr(item, "name", "") == "__init__"), None)
    inside = {id(item) for item in nodes_of(first)} if first is not None else set[int]()
    return any(
        isinstance(target, ast.Attribute) and target.attr == name and is_none(item.value)
        for tree in at.files.values()
        for item in nodes_of(tree)
        if isinstance(item, ast.Assign) and id(item) not in inside
        for target in item.targets
    )
