"""Autograd functions of the program: what backward() returns, against what forward() takes."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import Shape, sizes_in
from pytracer.analyze.evidence.slicing.bindings import bindings_of, last_binding
from pytracer.analyze.evidence.slicing.calls import method_of
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters

_COUNT = Pattern(r"function (\w+)Backward returned an incorrect number of gradients \(expected (\d+), got (\d+)\)")
_SHAPE = Pattern(
    r"Function (\w+)Backward returned an invalid gradient at index (\d+) - got (\[[\d, ]*\]) but expected shape "
    r"compatible with (\[[\d, ]*\])"
)
_SAVED = Pattern(r"save_for_backward can only save variables, but argument (\d+) is of type (\w+)")
_LACKING = Pattern(r"'(\w+)Backward' object has no attribute '(\w+)'")
_LEGACY = "Legacy autograd function with non-static forward"
_NAMES = 6


class _Function(msgspec.Struct, frozen=True):
    """A class derived from torch.autograd.Function. `inputs`: what forward() takes beside ctx; None for `*args`."""

    at: FailingLine
    file: str
    owner: ast.ClassDef
    forward: ast.FunctionDef
    inputs: list[str] | None

    @property
    def backward(self) -> ast.FunctionDef | None:
        """The method that was run."""
        return method_of(self.owner, ("backward",))

    def line(self, node: ast.AST | int) -> str:
        """`line 15`, with the file where it is another one."""
        number = node if isinstance(node, int) else getattr(node, "lineno", 0)
        return self.at.in_file(self.file, number)


def of_function(at: FailingLine) -> str | None:
    """The first that fits the message."""
    return _words(at)[0]


def function_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    return _words(at)[1]


def _words(at: FailingLine) -> tuple[str | None, str | None]:
    count, shape, saved = (pattern.search(at.message) for pattern in (_COUNT, _SHAPE, _SAVED))
    if count is not None:
        return _counted(at, count[1], int(count[2]), int(count[3])) or (None, None)
    if shape is not None:
        sizes = Shape(sizes_in(shape[3]), ""), Shape(sizes_in(shape[4]), "")
        return _shaped(at, shape[1], int(shape[2]), *sizes) or (None, None)
    lacking = _LACKING.search(at.message) if at.kind == "AttributeError" else None
    if lacking is not None:
        return _not_kept(at, lacking[1], lacking[2]), None
    if saved is not None:
        return _saved(at, int(saved[1]), saved[2]) or (None, None)
    return _legacy(at), None


def _counted(at: FailingLine, name: str, expected: int, got: int) -> tuple[str, str] | None:
    found = _function(at, name)
    method = found.backward if found is not None else None
    if found is None or method is None:
        return None
    head = f"{name}.backward() ({found.line(method)})"
    inputs = found.inputs if found.inputs is not None and len(found.inputs) == expected else None
    takes = f"forward() ({found.line(found.forward)}) was given {expected}"
    takes += f" ({_listed(inputs)})" if inputs is not None else ""
    returns = [item for item in own_nodes(method) if isinstance(item, ast.Return)]
    if not any(item.value is not None for item in returns):
        if got != 1 or any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in own_nodes(method)):
            return None
        last = method.body[-1]
        made = _gradients_of(method, inputs)
        write = f"`return {', '.join(made)}`" if made else f"a `return` of {expected} gradients, in that order,"
        words = (
            f"{head} has no `return`, so that it gives None, and {takes}: one gradient for each is needed. Add {write} "
            f"at its end, after {found.line(last.end_lineno or last.lineno)} (None for what needs no gradient)."
        )
        return words, f"{head} has no `return`"
    of_size = [item for item in returns if _count(item.value) == got]
    if len(of_size) != 1 or of_size[0].value is None:
        return None
    value = of_size[0].value
    words = f"{head} returns {got} gradient{'s' * (got != 1)} at {found.line(value)} (`{source(value)}`), and {takes}"
    subject = f"{head} returns {got}, and forward() was given {expected}"
    if got < expected:
        gets = "gets" if expected - got == 1 else "get"
        rest = f", so that {_listed(inputs[got:])} {gets} none" if inputs is not None else ""
        nones = ", ".join(["None"] * (expected - got))
        words += f"{rest}. Return one for each, in that order; for flags, sizes and whatever needs none, add `{nones}`."
        return words, subject
    return f"{words}: return one for each, in that order, and no more.", subject


def _shaped(at: FailingLine, name: str, place: int, got: Shape, expected: Shape) -> tuple[str, str] | None:
    found = _function(at, name)
    method = found.backward if found is not None else None
    if found is None or method is None:
        return None
    returns = [item.value for item in own_nodes(method) if isinstance(item, ast.Return) and item.value is not None]
    if len(returns) != 1:
        return None
    parts = returns[0].elts if isinstance(returns[0], ast.Tuple) else returns
    places = _places(parts, place)
    if len(places) != 1:
        return None
    place, value = places[0], parts[places[0]]
    bound = last_binding(method, value.id, returns[0].lineno) if isinstance(value, ast.Name) else None
    made = f" ({found.line(bound[0])}: `{source(bound[1])}`)" if bound is not None and bound[1] is not None else ""
    made = made or f" ({found.line(value)})"
    own = found.inputs[place] if found.inputs is not None and place < len(found.inputs) else None
    given = f"`{own}`" if own is not None else f"argument {place} of forward()"
    fix = f"`{source(value)}.reshape({list(expected.sizes)})`, written with the sizes of {given}"
    if got.elements != expected.elements:
        fix = (
            f"sum over the dimensions that forward() expanded {given} in"
            if got.elements > expected.elements
            else f"compute it for all of {given}"
        )
    words = (
        f"{name}.backward() returns `{source(value)}`{made} as the gradient of {given} "
        f"({found.line(found.forward)}): it is {got.words}, and {given} was {expected.words}. A gradient must have the "
        f"shape of its argument: {fix}."
    )
    return words, f"`{source(value)}`{made} of {name}.backward() is {got.words}, and {given} was {expected.words}"


def _places(parts: Sequence[ast.expr], number: int) -> list[int]:
    """Which gradients can be meant by a number of torch's, which leaves out arguments that are no tensors."""
    if any(isinstance(item, ast.Starred) for item in parts):
        return []
    some = [not is_none(item) for item in parts]
    return [n for n, held in enumerate(some) if held and sum(some[:n]) <= number <= n]


def _saved(at: FailingLine, place: int, kind: str) -> tuple[str, str] | None:
    """save_for_backward() with what is no tensor."""
    call = at.only(ast.Call)
    name = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    applied = call is not None and called_name(call) == "apply"
    found = _function(at, name.id) if isinstance(name, ast.Name) and applied else None
    if found is None:
        return None
    saves = [item for item in nodes_of(found.owner) if isinstance(item, ast.Call)
             and called_name(item) == "save_for_backward" and place < len(item.args)]  # fmt: skip
    if len(saves) != 1 or any(isinstance(item, ast.Starred) for item in saves[0].args):
        return None
    value = source(saves[0].args[place])
    keep = f"ctx.{value}" if value.isidentifier() else "an attribute of ctx"
    where = f"save_for_backward() at {found.line(saves[0])} is given `{value}`, which is of type {kind}"
    words = (
        f"{where}, and takes tensors (or None) only. Keep it on ctx instead: `{keep} = {value}` there, and read {keep} "
        "in backward()."
        if value.isidentifier()
        else f"{where}, and takes tensors (or None) only. Keep it as {keep} instead, and read that in backward()."
    )
    return words, where


def _not_kept(at: FailingLine, name: str, attribute: str) -> str | None:
    """What backward() reads from ctx, and forward() never sets."""
    found = _function(at, name)
    if found is None:
        return None
    setup = method_of(found.owner, ("setup_context",)) or found.forward
    context = parameters(setup)[0] if setup is found.forward and parameters(setup) else "ctx"
    sets = [
        item
        for item in nodes_of(found.owner)
        if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store) and item.attr == attribute
    ]
    if sets:
        return None
    value = attribute if attribute in parameters(setup) else "..."
    return (
        f"backward() reads `{attribute}` from ctx at line {at.line}, and no line of {name} sets it: write "
        f"`{context}.{attribute} = {value}` in {setup.name}() ({found.line(setup)}). Tensors go through "
        "save_for_backward()."
    )


def _legacy(at: FailingLine) -> str | None:
    """The only autograd function whose forward() is no static method."""
    if _LEGACY not in at.message:
        return None
    found = [
        (file, item, method)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.ClassDef) and (method := method_of(item, ("forward",))) is not None
        if any(
            ast.unparse(base).endswith("autograd.Function") or ast.unparse(base) == "Function" for base in item.bases
        )
        if not any(ast.unparse(by) == "staticmethod" for by in method.decorator_list)
    ]
    if len(found) != 1:
        return None
    file, owner, method = found[0]
    return (
        f"forward() of {owner.name} ({at.in_file(file, method.lineno)}) is no @staticmethod: make forward(ctx, ...) "
        f"and backward(ctx, ...) static, keep on ctx what they keep on self, and call `{owner.name}.apply(...)`."
    )


def _function(at: FailingLine, name: str) -> _Function | None:
    """The only class of that name in the files of the program, if it is an autograd function."""
    found = [
        (file, item)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.ClassDef) and item.name == name
    ]
    if len(found) != 1:
        return None
    file, owner = found[0]
    forward = method_of(owner, ("forward",))
    if forward is None or not any(ast.unparse(base).endswith("Function") for base in owner.bases):
        return None
    with_context = method_of(owner, ("setup_context",)) is None
    names = parameters(forward)[1:] if with_context else parameters(forward)
    return _Function(at, file, owner, forward, None if forward.args.vararg is not None else names)


def _count(value: ast.expr | None) -> int | None:
    """How many gradients a `return` gives; None where its text does not have that."""
    if isinstance(value, ast.Tuple):
        return len(value.elts) if not any(isinstance(item, ast.Starred) for item in value.elts) else None
    return 1 if value is not None else None


def _gradients_of(method: ast.FunctionDef, inputs: list[str] | None) -> list[str]:
    """Variables of backward() that are named for each input, as `grad_x` or `x_grad` for `x`; else nothing."""
    made = []
    for name in inputs or ():
        spelt = (f"grad_{name}", f"{name}_grad", f"d{name}", f"d_{name}", f"g_{name}")
        held = [item for item in spelt if next(bindings_of(method, item), None) is not None]
        if len(held) != 1:
            return []
        made.append(held[0])
    return made


def _listed(names: list[str]) -> str:
    return list_words([f"`{name}`" for name in names], _NAMES)
