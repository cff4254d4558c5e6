"""RecursionError: functions that call themselves, and objects or functions that are nested in each other too deeply."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital, list_words, shortened
from pytracer.analyze.evidence.failing.expressions import parts
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.processes.handlers import caught_before, head_of_handler
from pytracer.analyze.evidence.failing.usage.endless_calls import endless_call
from pytracer.analyze.evidence.failing.usage.rejected_items import rejected_again
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.wraps import (
    Wrap,
    set_elsewhere,
    wraps_of_class,
    wraps_of_closure,
    wraps_of_function,
)
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.recursion_limits import recursion_limit
from pytracer.analyze.evidence.syntax.scopes import (
    Scope,
    class_around,
    is_parameter,
    own_nodes,
    scope_of,
    second_parameter,
    statement_at,
)
from pytracer.analyze.naming import short_file
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, PythonFrame

_MOST = 3  # lines that call each other
_OFTEN = 3  # times that each is on the stack
_FEWEST = 8  # frames
_QUOTED = 60
_NAMED = 2  # lines
_PLAIN = Pattern(r"\w+ of \d+|\[|-?\d|-?(?:nan|inf)\b|None$|True$|False$")  # a value that calls nothing
_LOOKUPS = ("KeyError", "IndexError", "LookupError", "AttributeError", "ImportError", "StopIteration")
_WALKS = ("iter", "next", "len", "list", "enumerate", "zip")


class _Call(msgspec.Struct, frozen=True):
    """A line of the cycle, and the function that it leads to."""

    frame: PythonFrame
    tree: ast.Module
    scope: Scope
    statement: ast.stmt
    callee: str

    @property
    def nodes(self) -> list[ast.AST]:
        """Of the line, not of the block that it heads."""
        return [node for part in parts(self.statement) for node in nodes_of(part)]


class _Nested(msgspec.Struct, frozen=True):
    """`who` holds another one by `name`, which is what the line calls; `wraps`: the lines that add a level."""

    who: str
    name: str
    wraps: Sequence[Wrap]
    of_class: bool


def repeated_calls(at: FailingLine) -> str | None:
    """Functions of the program that call each other, or themselves, until the limit."""
    if at.kind != "RecursionError" or len(at.frames) < _FEWEST:
        return None
    calls = _cycle(at)
    if not calls:
        return None
    tried = next((words for item in calls if (words := _tried_again(at, item)) is not None), None)
    if tried is not None:
        return tried
    rejected = rejected_again(at, calls[0].frame, calls[0].statement, calls[0].callee) if len(calls) == 1 else None
    if rejected is not None:
        return rejected
    unset = next((words for item in calls if (words := _unset(at, item)) is not None), None)
    if unset is not None:
        return unset
    nested = [found for item in calls if (found := _nested(at, item)) is not None]
    if nested:
        return _nested_words(at, nested)
    places = [(item.frame.function, item.frame.line) for item in calls]
    lines = capital(" and ".join(f"line {line} in {function}" for function, line in places))
    how = "calls itself" if len(calls) == 1 else "call each other"
    if any(item.callee == "<lambda>" for item in calls):
        how = "leads to itself, or to another one like it," if len(calls) == 1 else how
    name = calls[0].callee
    endless = endless_call(at.snapshot, at.frames, calls[0].frame) if len(calls) == 1 else None
    if endless is not None and (endless.tests or endless.other is not None):
        return endless.advice
    if all(_is_unconditional(item) for item in calls):
        return f"{lines} {how} without end: {name}() needs a case that returns before the call{_of_property(calls[0])}."
    limit = _limit_words(at)
    deeper = f"; {limit}." if limit is not None else ", or sys.setrecursionlimit()."
    return (
        f"{lines} {how} until the recursion limit: either no case ends it (an argument that gets no smaller, data with "
        f"a cycle), or the data is that deep. Then use a loop, with a list of what is left to do{deeper}"
    )


def _unset(at: FailingLine, call: _Call) -> str | None:
    """`self.data` of an object with __getattr__, which is asked for it because it is not set."""
    owner = class_around(call.tree, call.scope)
    read = [*dict.fromkeys(_attributes(call, owner))] if owner is not None and call.callee == "__getattr__" else []
    plain = read[0].removeprefix("self.") if len(read) == 1 else ""
    asked = {
        value
        for depth, frame in enumerate(at.frames)
        if (frame.function or "").rpartition(".")[2] == "__getattr__"
        for name, value in at.values_at(depth).items()
        if name == _parameter_of(at, frame)
    }
    if not plain or asked != {f"str of {len(plain)}"}:
        return None
    return (
        f"`{read[0]}` is not set when line {call.frame.line} reads it, and so leads to __getattr__() again. Set it in "
        f'__init__, and begin __getattr__ with `if name == "{plain}" or name.startswith("__"): raise '
        "AttributeError(name)`: copy and pickle make the object without __init__."
    )


def _parameter_of(at: FailingLine, frame: PythonFrame) -> str | None:
    tree = syntax_tree(at.snapshot, frame)
    return second_parameter(scope_of(tree, frame.line)) if tree is not None and frame.line is not None else None


def _tried_again(at: FailingLine, call: _Call) -> str | None:
    """A line of a handler, or one that only a handler leads to."""
    line = call.frame.line or 0
    found = caught_before(call.tree, line) if _calls_itself(call) else None
    if found is None or _is_expected(found[1]):
        return None
    tried, handler = found
    first, last = tried.body[0].lineno, tried.body[-1].end_lineno
    lines = f"line {first}" if first == last else f"lines {first} to {last}"
    where = "" if call.frame.file == at.frame.file else f" of {short_file(call.frame.file)}"
    return (
        f"The `{head_of_handler(handler)}` at line {handler.lineno}{where} catches an error each time, and line {line} "
        f"then calls {call.callee}() again. Begin with that error, of {lines}: print it in the handler. Catch only "
        "what a bad sample raises, and give up after some tries (a `for` loop)."
    )


def _is_expected(handler: ast.ExceptHandler) -> bool:
    """`except KeyError: return self.parent.find(name)`: the program goes on by another way."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return all(kind is not None and ast.unparse(kind) in _LOOKUPS for kind in kinds)


def _cycle(at: FailingLine) -> list[_Call]:
    """The lines that repeat, innermost first; nothing of many."""
    keys = [(frame.file, frame.function, frame.line) for frame in at.frames]
    # Where the limit struck is any line of the innermost function: those behind it called.
    counts = Counter(keys[1:])
    found: dict[object, _Call] = {}
    for inner, frame, key in zip(at.frames, at.frames[1:], keys[1:], strict=False):
        if counts[key] < _OFTEN or key in found:
            continue
        tree = syntax_tree(at.snapshot, frame)
        line = frame.line or 0
        statement = statement_at(tree, line) if tree is not None else None
        if tree is None or statement is None:
            return []
        callee = (inner.function or "").rpartition(".")[2]
        found[key] = _Call(frame, tree, scope_of(tree, line), statement, callee)
    return [*found.values()] if len(found) <= _MOST else []


def _nested(at: FailingLine, call: _Call) -> _Nested | None:
    """Where the line calls the function of another object, or another function made by the same lines."""
    if _calls_itself(call):
        return None
    files = _files(at)
    owner = class_around(call.tree, call.scope)
    if owner is not None:
        held = [*dict.fromkeys(_attributes(call, owner))]
        if len(held) > 1:
            values = at.values if call.scope is at.scope else {}
            held = [name for name in held if not _PLAIN.match(values.get(name, ""))]
        found = {name: wraps_of_class(files, owner.name, name.removeprefix("self.")) for name in held}
        grows = [name for name, wraps in found.items() if wraps]
        held = grows if len(held) > 1 else held
        return _Nested(owner.name, held[0], found[held[0]], of_class=True) if len(held) == 1 else None
    if call.callee == "<lambda>":
        return _nested_lambda(files, call)
    name = getattr(call.scope, "name", None)
    if name is None:
        return None
    for node in call.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            outer = _outer(call, node.func.id)
            if outer is not None:
                wraps = wraps_of_closure(files, call.frame.file or "", call.scope, outer, node.func.id)
                return _Nested(f"{name}()", node.func.id, wraps, of_class=False)
    walked = _walked(call)
    if walked is not None and call.callee == name:
        return _Nested(f"{name}()", walked, wraps_of_function(files, call.scope, walked), of_class=False)
    return None


def _nested_lambda(files: dict[str, ast.Module], call: _Call) -> _Nested | None:
    """A lambda that a function returns, and that calls what this was given: `lambda x: g(f(x))`."""
    made = [node for node in call.nodes if isinstance(node, ast.Lambda)]
    if len(made) != 1 or not isinstance(call.statement, ast.Return) or call.statement.value is not made[0]:
        return None
    called = (node.func for node in nodes_of(made[0].body) if isinstance(node, ast.Call))
    names = [node.id for node in called if isinstance(node, ast.Name) and is_parameter(call.scope, node.id)]
    found = {name: wraps for name in names if (wraps := wraps_of_function(files, call.scope, name))}
    if len(found) != 1:
        return None
    name, wraps = found.popitem()
    return _Nested(f"the lambda of line {call.frame.line}", name, wraps, of_class=False)


def _calls_itself(call: _Call) -> bool:
    """Whether the line may call the function of the same object: by its name, `self.name`, or as `self[...]`."""
    bases = {id(node.value) for node in call.nodes if isinstance(node, ast.Attribute)}
    for node in call.nodes:
        if isinstance(node, ast.Attribute) and node.attr == call.callee and ast.unparse(node.value) in _OWN:
            return True
        if isinstance(node, ast.Name) and node.id in ("self", "cls") and id(node) not in bases:
            return True
        named = isinstance(node, ast.Name) and node.id == call.callee
        if named and not is_parameter(call.scope, call.callee) and not lines_that_bind(call.scope, call.callee):
            return True
    return False


_OWN = ("self", "cls", "super()")


def _attributes(call: _Call, owner: ast.ClassDef) -> Iterator[str]:
    """`self.x` of a line, without methods of its own."""
    methods = {item.name for item in owner.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))}
    for node in call.nodes:
        if isinstance(node, ast.Attribute) and node.attr not in methods and ast.unparse(node.value) == "self":
            yield f"self.{node.attr}"


def _outer(call: _Call, name: str) -> Scope | None:
    """The function around the line's own one, where that has the variable."""
    if is_parameter(call.scope, name) or lines_that_bind(call.scope, name) or isinstance(call.scope, ast.Module):
        return None
    outer = scope_of(call.tree, call.scope.lineno)
    has = not isinstance(outer, ast.Module) and (is_parameter(outer, name) or lines_that_bind(outer, name))
    return outer if has else None


def _walked(call: _Call) -> str | None:
    """The parameter that a generator goes through at the line."""
    if not any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in own_nodes(call.scope)):
        return None
    heads: list[ast.AST] = []
    if isinstance(call.statement, (ast.For, ast.AsyncFor)):
        heads.append(call.statement.iter)
    for node in call.nodes:
        if isinstance(node, ast.YieldFrom):
            heads.append(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _WALKS:
            heads += node.args
    names = {item.id for item in heads if isinstance(item, ast.Name) and is_parameter(call.scope, item.id)}
    return names.pop() if len(names) == 1 else None


def _nested_words(at: FailingLine, found: Sequence[_Nested]) -> str:
    nested = found[0]
    name = f"`{nested.name}`"
    limit = _limit_words(at)
    delays = f" {begin(limit)}; a higher one only delays it." if limit else " A higher limit only delays it."
    wraps = {(wrap.file, wrap.line) for wrap in nested.wraps}
    links = {
        (file, node.lineno): ast.unparse(node)
        for item in found
        if item.of_class
        for file, node in set_elsewhere(_files(at), item.who, item.name.removeprefix("self."))
    }
    set_at = [(*place, text) for place, text in links.items() if place not in wraps]
    if len(nested.wraps) != 1 or set_at:
        places = [(wrap.file, wrap.line, wrap.text) for wrap in nested.wraps]
        places += set_at
        named = [f"{at.in_file(file, line)} (`{shortened(text, _QUOTED)}`)" for file, line, text in places]
        also = f"{begin(list_words(named))} set{'s' * (len(named) == 1)} it. " if 0 < len(named) <= _NAMED else ""
        what = f"a {nested.who}" if nested.of_class else nested.who
        return (
            f"{name} leads to {what} again each time, deeper than the recursion limit or in a circle. {also}Look for "
            "the line that adds one again and again, or that closes the circle; follow a chain that is meant by a loop "
            f"instead of calls.{f' {begin(limit)}.' if limit is not None else ''}"
        )
    return f"{_level_words(at, nested, nested.wraps[0])}{delays}"


def _level_words(at: FailingLine, nested: _Nested, wrap: Wrap) -> str:
    """The line that adds a level, and what to write there."""
    place, text = at.in_file(wrap.file, wrap.line), shortened(wrap.text, _QUOTED)
    who = capital(nested.who) if " " in nested.who else nested.who
    first = f"{who} is nested in itself by `{nested.name}`, and {place} adds a level {wrap.when}:"
    if nested.of_class and wrap.mended is None:
        name = nested.name.removeprefix("self.")
        return (
            f"{first} `{text}` lets each hold the one before it. Keep them in a list, or follow the chain by a loop "
            f"(`while x is not None: x = x.{name}`) instead of calls."
        )
    how = f" (`{wrap.mended}`)" if wrap.mended and len(wrap.mended) <= _QUOTED else ""
    return (
        f"{first} `{text}` wraps what it has wrapped before. Keep the first one under a name of its own and wrap that"
        f"{how}, or wrap only once."
    )


def level_added(snapshot: Snapshot, stack: Sequence[PythonFrame]) -> str | None:
    """Of any stack that repeats: the line of the program that adds a level, where that is what it goes through."""
    at = failing_line(snapshot, ExceptionReport(type="RecursionError"), stack)
    calls = _cycle(at) if at is not None and len(at.frames) >= _FEWEST else []
    nested = next((found for item in calls if at is not None and (found := _nested(at, item)) is not None), None)
    if at is None or nested is None or len(nested.wraps) != 1:
        return None
    return _level_words(at, nested, nested.wraps[0])


def _limit_words(at: FailingLine) -> str | None:
    """`line 9 sets the limit to 3000`, where a line of the program does."""
    found = recursion_limit(_files(at))
    if found is None or not found.always:
        return None
    return f"{at.in_file(found.file, found.line)} sets the limit to {found.limit}"


def begin(words: str) -> str:
    """As the beginning of a sentence: the name of a file stays as it is."""
    return capital(words) if words.startswith("line ") else words


def _files(at: FailingLine) -> dict[str, ast.Module]:
    return program_files(at.snapshot, at.frames)


def _is_unconditional(call: _Call) -> bool:
    """Whether the function always comes to the line, which always calls the same one."""
    if isinstance(call.scope, (ast.Module, ast.Lambda)) or not _calls_itself(call):
        return False
    if not any(item is call.statement for item in call.scope.body) or hasattr(call.statement, "body"):
        return False
    before = [item for item in call.scope.body if item.lineno < call.statement.lineno]
    leaves = (ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Try)
    if any(isinstance(node, leaves) for item in before for node in nodes_of(item)):
        return False
    may = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
    return not any(isinstance(node, may) for node in call.nodes)


def _of_property(call: _Call) -> str:
    """`return self.device` in `device`."""
    kinds = {ast.unparse(item) for item in getattr(call.scope, "decorator_list", ())}
    name = f"self.{call.callee}"
    if not kinds & {"property", "cached_property", "functools.cached_property"}:
        return ""
    return f", or `{name}` at line {call.frame.line} was meant to be another attribute, as `self._{call.callee}`"
