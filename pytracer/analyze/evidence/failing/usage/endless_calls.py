"""A function that calls itself without end: what leads to the call is decided by arguments that it passes on unchanged.

`if isinstance(t, Variable): xavier(t.data)` in xavier(t), as `t.data` is a tensor as well; `if n > 0: return f(n)`.
Also a function that was to call another one of its own name, which it replaced: an imported one, or one of Python's.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._text import list_words, shortened
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.nodes import clauses_of, nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, scope_of, statement_at
from pytracer.analyze.naming import LineWords, line_in
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_QUOTED = 60
_TENSORS = frozenset({"Variable", "autograd.Variable", "torch.autograd.Variable", "Tensor", "torch.Tensor"})
_VARIABLES = tuple(item for item in _TENSORS if item.endswith("Variable"))
_VIEWS = frozenset({"data", "T", "mT", "real"})  # of a tensor: a tensor again
_COPIES = frozenset(
    {"detach", "clone", "contiguous", "cpu", "cuda", "float", "double", "half", "to", "squeeze", "unsqueeze", "flatten"}
    | {"view", "reshape", "transpose", "t", "permute", "requires_grad_"}
)
_ASKS = frozenset({"isinstance", "callable", "hasattr", "torch.is_tensor", "is_tensor", "issubclass"})
_LEAVES = (ast.Return, ast.Raise, ast.Assert)
_SAME = (ast.Is, ast.IsNot, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_BRANCHES = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)


class EndlessCall(msgspec.Struct, frozen=True):
    """`call` at `at` calls its own function `name`. `tests`: what leads there; `changed`: an argument that is alike.

    `other`: where the name was another function before: `line 3 imports`, or Python's own.
    """

    name: str
    call: str
    at: LineWords
    tests: tuple[LineWords, ...] = ()
    changed: str | None = None
    is_variable: bool = False
    other: str | None = None
    defined: LineWords | None = None

    @property
    def clause(self) -> str:
        """Behind the line that calls itself."""
        if self.other is not None:
            return f", where {self.name}() is that function itself"
        if not self.tests:
            return ", which no test ends"
        return f", as {list_words(self.tests)} {'is' if len(self.tests) == 1 else 'are'} the same for `{self.call}`"

    @property
    def advice(self) -> str:
        """What ends it: never a larger stack."""
        none = "No larger stack and no higher limit ends that."
        if self.other is not None:
            return (
                f"{self.at.capitalize()} calls its own function without end: {self.name}() was {self.other}, which the "
                f"`def` at {self.defined} replaces. Import the other one by another name, or rename this one. {none}"
            )
        if not self.tests:
            return f"{self.name}() needs a case that returns before it calls itself at {self.at}. {none}"
        alike = f": `{self.changed}` is a tensor as well" if self.changed is not None else ""
        also = ", and each tensor is a Variable since torch 0.4" if self.is_variable else ""
        return (
            f"End the recursion: {self.at} calls {self.name}() again by `{self.call}`, and {list_words(self.tests)}, "
            f"on which that depends, comes out the same each time{alike}{also}. Do there what {self.name}() was to do "
            f"in the end, or pass what makes the test come out differently. {none}"
        )

    @property
    def places(self) -> tuple[Place, ...]:
        """The lines that the advice names."""
        lines = [self.at, *self.tests, *([self.defined] if self.defined is not None else [])]
        return tuple((item.file, item.line) for item in lines if item.line is not None)


def endless_call(snapshot: Snapshot, stack: Sequence[PythonFrame], at: PythonFrame) -> EndlessCall | None:
    """Of the line that calls its own function; None where an argument may end it."""
    tree = program_files(snapshot, stack).get(at.file or "")
    if tree is None or at.line is None:
        return None
    scope, statement = scope_of(tree, at.line), statement_at(tree, at.line)
    if not isinstance(scope, _Function) or statement is None:
        return None
    calls = [*_own_calls(tree, scope, statement)]
    if len(calls) != 1:
        return None
    call, line = calls[0], line_in(at.file, at.line, at.file)
    text = shortened(ast.unparse(call), _QUOTED)
    other = _replaced(tree, scope) if isinstance(call.func, ast.Name) else None
    if other is not None and not _descends(scope, call):
        return EndlessCall(scope.name, text, line, other=other, defined=line_in(at.file, scope.lineno, at.file))
    if any(isinstance(item, _BRANCHES) for item in nodes_of(statement)):
        return None
    tests = _tests(scope, statement)
    if not tests and _descends(scope, call):
        return None  # what it goes down may end by an exception
    return _Endless(tree, scope, call, text, line).of(tests) if tests is not None else None


def _own_calls(tree: ast.Module, scope: _Function, statement: ast.stmt) -> Iterator[ast.Call]:
    """`f(x)` in `f()`, `self.f(x)` in a method."""
    is_method = class_around(tree, scope) is not None
    bound = (scope.name,) if lines_that_bind(scope, scope.name) else ()
    for node in nodes_of(statement):
        if not isinstance(node, ast.Call):
            continue
        func = node.func
        if is_method and isinstance(func, ast.Attribute) and func.attr == scope.name:
            if ast.unparse(func.value) in ("self", "cls"):
                yield node
        elif not is_method and isinstance(func, ast.Name) and func.id == scope.name not in bound:
            yield node


def _replaced(tree: ast.Module, scope: _Function) -> str | None:
    """What the name was before the `def`: an imported function, or one of Python's own."""
    if scope not in tree.body:
        return None
    for item in tree.body:
        names = item.names if isinstance(item, (ast.Import, ast.ImportFrom)) else []
        if any((name.asname or name.name) == scope.name for name in names) and item.lineno < scope.lineno:
            return f"what line {item.lineno} imports (`{shortened(ast.unparse(item), _QUOTED)}`)"
    return "Python's own" if callable(getattr(builtins, scope.name, None)) else None


def _descends(scope: _Function, call: ast.Call) -> bool:
    """Whether it passes on a part of what it was given, as a walk through a tree does: `x.left`, `n - 1`."""
    arguments = scope.args
    named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    names = {item.arg for item in named}
    loops = [node.target for node in nodes_of(scope) if isinstance(node, (ast.For, ast.comprehension))]
    parts = {item.id for target in loops for item in nodes_of(target) if isinstance(item, ast.Name)}
    for given in (*call.args, *(item.value for item in call.keywords)):
        inner = given.left if isinstance(given, ast.BinOp) else given
        while isinstance(inner, (ast.Attribute, ast.Subscript)):
            inner = inner.value
        if isinstance(inner, ast.Name) and (inner.id in parts or (inner is not given and inner.id in names)):
            return True
    return False


def _tests(scope: _Function, statement: ast.stmt) -> list[ast.expr] | None:
    """All that decides whether a function comes to a statement; None where that is more than plain tests."""
    found: list[ast.expr] = []
    block: Sequence[ast.stmt] = scope.body
    while True:
        inner: Sequence[ast.stmt] | None = None
        for item in block:
            if item is statement:
                return found
            if any(part is statement for part in nodes_of(item)):
                inner = _inner(item, statement)
                if inner is None:
                    return None
                if isinstance(item, ast.If):
                    found.append(item.test)
                break
            if any(isinstance(part, _LEAVES) for part in nodes_of(item)):
                if not isinstance(item, ast.If):
                    return None
                found.append(item.test)
                found += [part.test for part in nodes_of(item) if isinstance(part, ast.If) and part is not item]
        if inner is None:
            return None
        block = inner


def _inner(item: ast.stmt, statement: ast.stmt) -> Sequence[ast.stmt] | None:
    """The block of an `if` or a `with` that has a statement."""
    blocks = [item.body, item.orelse] if isinstance(item, ast.If) else [item.body] if isinstance(item, ast.With) else []
    return next((one for one in blocks if any(part is statement for top in one for part in nodes_of(top))), None)


class _Endless:
    """One call of a function by itself."""

    def __init__(self, tree: ast.Module, scope: _Function, call: ast.Call, text: str, line: LineWords) -> None:
        self._tree, self._scope, self._call, self._text, self._line = tree, scope, call, text, line
        arguments = scope.args
        self._names = [item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        self._changed: str | None = None

    def of(self, tests: Sequence[ast.expr]) -> EndlessCall | None:
        """None where one of them may come out differently, or where there is none and the data may be that deep."""
        if not all(self._is_same(item) for test in tests for item in clauses_of(test)):
            return None
        if not tests and self._goes_down():
            return None
        variable = self._changed is not None and any(name in ast.unparse(test) for test in tests for name in _VARIABLES)
        quoted = tuple(
            line_in(self._line.file, test.lineno, self._line.file).after(
                f"`{shortened(ast.unparse(test), _QUOTED)}` at "
            )
            for test in tests
        )
        return EndlessCall(self._scope.name, self._text, self._line, quoted, self._changed, variable)

    def _goes_down(self) -> bool:
        """Whether it passes on a part of what it was given: `node.kids[0]`, which the last one lacks."""
        passed = [*self._call.args, *(item.value for item in self._call.keywords)]
        return any(isinstance(node, (ast.Attribute, ast.Subscript)) for item in passed for node in nodes_of(item))

    def _is_same(self, atom: ast.expr) -> bool:
        """Whether a plain test has the same result for what the call passes on."""
        if isinstance(atom, ast.Call):
            asked = ast.unparse(atom.func)
            first = atom.args[0] if atom.args else None
            if asked not in _ASKS or not isinstance(first, ast.Name) or atom.keywords:
                return False
            kinds = ast.unparse(atom.args[1]) if len(atom.args) > 1 else ""
            of_tensors = asked.endswith("is_tensor") or (asked == "isinstance" and kinds in _TENSORS)
            return self._is_kept(first.id, of_tensors=of_tensors)
        if isinstance(atom, ast.Compare):
            sides = [atom.left, *atom.comparators]
            names = [item.id for item in sides if isinstance(item, ast.Name)]
            plain = all(isinstance(item, (ast.Name, ast.Constant)) for item in sides)
            if len(names) > 1 and not all(isinstance(item, _SAME) for item in atom.ops):
                return False  # of lists, which may become alike
            return plain and all(self._is_kept(name, of_tensors=False) for name in names)
        return False

    def _is_kept(self, name: str, *, of_tensors: bool) -> bool:
        """Whether an argument is passed on as it is. `of_tensors`: another tensor is as good."""
        if name not in self._names or lines_that_bind(self._scope, name) or self._is_added_to(name):
            return False
        given = self._given(name)
        if isinstance(given, ast.Constant):
            return True  # from the second call on
        if given is None:
            starred = any(isinstance(item, ast.Starred) for item in self._call.args)
            return not starred and all(item.arg is not None for item in self._call.keywords)
        if isinstance(given, ast.Name) and given.id == name:
            return True
        inner = given.func if isinstance(given, ast.Call) else given
        kinds = _COPIES if isinstance(given, ast.Call) else _VIEWS
        if of_tensors and isinstance(inner, ast.Attribute) and inner.attr in kinds and ast.unparse(inner.value) == name:
            self._changed = ast.unparse(given)
            return True
        return False

    def _is_added_to(self, name: str) -> bool:
        own = (item.target for item in nodes_of(self._scope) if isinstance(item, (ast.AugAssign, ast.NamedExpr)))
        return any(isinstance(item, ast.Name) and item.id == name for item in own)

    def _given(self, name: str) -> ast.expr | None:
        """What the call passes for a parameter; None for its default."""
        word = next((item.value for item in self._call.keywords if item.arg == name), None)
        places = self._names[isinstance(self._call.func, ast.Attribute) :]
        at = places.index(name) if name in places else len(self._call.args)
        return word or (self._call.args[at] if at < len(self._call.args) else None)
