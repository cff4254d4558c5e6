"""Modules whose parameters FSDP keeps in parts: used without the forward() that gathers them, or loaded as if whole."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import parts, source, walk_in_order
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.processes.unsharded_roots import unsharded_root
from pytracer.analyze.evidence.failing.recorded import is_sharded, shape_of
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, scope_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.report.job import PythonFrame

_MIXED = Pattern(r"got mixed torch\.Tensor and DTensor")
_NOT_GATHERED = Pattern(
    r"got mixed torch\.Tensor and DTensor|'weight' must be 2-D"
    r"|Output \d+ of View is a view and its base or another view of its base has been modified inplace"
)
_COPYING = "While copying the parameter named"
_FSDP2, _FSDP1 = "fully_shard", ("FullyShardedDataParallel", "FSDP")
_FORWARD = ("forward", "__call__")
_LOADS = "load_state_dict"
_GATHERS = frozenset({"register_fsdp_forward_method", "summon_full_params", "unshard"})
_PARAMETERS = ("weight", "bias")
_FEW = 2
_OTHER_PARTS = frozenset({"parallelize_module", "distribute_tensor", "distribute_module"})


class _Bypass(msgspec.Struct, frozen=True):
    """The call of a method that is not forward(), from outside of its module."""

    call: ast.Call
    method: str
    owner: ast.ClassDef
    place: str
    wrap: tuple[str, str] | None  # the line that shards, and whether by `fully_shard`


def bypassed_forward(at: FailingLine) -> str | None:
    """What to do about it."""
    found = _bypass(at)
    if found is None or found.wrap is None:
        return None
    line, by = found.wrap
    whole = source(found.call.func.value) if isinstance(found.call.func, ast.Attribute) else "model"
    whole = whole.removesuffix(".module")  # what the wrapper holds
    what = (
        f"{capital(found.place)} calls `{source(found.call.func)}()`, and FSDP gathers the parameters of a module in "
        f"its forward() only: those that line {at.line} uses are still in parts."
    )
    if by == _FSDP2:
        return (
            f"{what} Call `register_fsdp_forward_method({whole}, {found.method!r})` (torch.distributed.fsdp) after "
            f"fully_shard() ({line}), or go through `{whole}(...)`."
        )
    return (
        f"{what} Go through `{whole}(...)` and let forward() return what {found.method}() does; without gradients also "
        f"below `with FSDP.summon_full_params({whole}, writeback=False):` on all ranks. Or do not wrap "
        f"{found.owner.name} as a unit of its own ({line})."
    )


def bypass_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _bypass(at)
    if found is None or found.wrap is None:
        return None
    return (
        f"its parameters are not gathered, since {found.place} calls `{source(found.call.func)}()` and not forward() "
        "of the sharded module"
    )


def _bypass(at: FailingLine) -> _Bypass | None:
    """Outwards, to the first method of a module that another object calls: forward() there is none."""
    if _NOT_GATHERED.search(at.message) is None or _COPYING in at.message or (at.own and not _reads_own(at)):
        return None
    calls = {called_name(item) for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.Call)}
    if calls & (_GATHERS | _OTHER_PARTS):
        return None
    for inner, outer in zip(at.frames, at.frames[1:], strict=False):
        tree, around = (syntax_tree(at.snapshot, item) for item in (inner, outer))
        if tree is None or around is None or inner.line is None:
            return None
        function = scope_of(tree, inner.line)
        owner = class_around(tree, function)
        if not isinstance(function, ast.FunctionDef):
            return None
        if function.name in _FORWARD and _calls_itself(around, outer):
            continue
        if function.name in _FORWARD:
            return None
        call = _only_call(around, outer, function.name)
        if owner is None or call is None or not isinstance(call.func, ast.Attribute):
            return None
        if isinstance(call.func.value, ast.Name) and call.func.value.id in ("self", "super"):
            continue
        is_module = any(isinstance(item, ast.FunctionDef) and item.name == "forward" for item in owner.body)
        place = at.in_file(outer.file, outer.line or 0)
        return _Bypass(call, function.name, owner, place, _wrapped(at, call.func.value)) if is_module else None
    return None


def _reads_own(at: FailingLine) -> bool:
    """Whether the line itself works on a sharded parameter of its module: `self.encoder(x) * self.scale`."""
    return at.node is not None and any(
        isinstance(item, ast.Attribute) and ast.unparse(item).startswith("self.") and is_sharded(at.value(item))
        for item in nodes_of(at.node)
    )


def _calls_itself(tree: ast.Module, frame: PythonFrame) -> bool:
    """`self(x)` or `self.forward(x)`: a wrapper around the module takes no part in that."""
    calls = calls_on(tree, frame.line or 0)
    return any(source(item.func) in ("self", "self.forward", "self.__call__") for item in calls)


def _only_call(tree: ast.Module, frame: PythonFrame, name: str) -> ast.Call | None:
    calls = [item for item in calls_on(tree, frame.line or 0) if called_name(item) == name]
    return calls[0] if len(calls) == 1 else None


def _wrapped(at: FailingLine, module: ast.expr | None = None) -> tuple[str, str] | None:
    """The line that shards last, and by what: the module itself where that is seen, and not the layers in it."""
    calls = [
        (file, item) for file, tree in at.files.items() for item in sorted(_shards(tree), key=lambda item: item.lineno)
    ]
    whole = ast.unparse(module).removesuffix(".module") if module is not None else None
    own = [pair for pair in calls if pair[1].args and ast.unparse(pair[1].args[0]) == whole]
    if not calls:
        return None
    file, call = (own or calls)[-1]
    return at.in_file(file, call.lineno), _FSDP2 if called_name(call) == _FSDP2 else _FSDP1[0]


def _shards(tree: ast.Module) -> Iterator[ast.Call]:
    names = (_FSDP2, *_FSDP1)
    return (item for item in nodes_of(tree) if isinstance(item, ast.Call) and called_name(item) in names)


def mixed_operands(at: FailingLine) -> str | None:
    """Which of the operands is a DTensor, and whose parameter it is."""
    if _MIXED.search(at.message) is None or _COPYING in at.message or at.node is None:
        return None
    operands = dict.fromkeys(
        ast.unparse(item)
        for part in parts(at.node)
        for item in walk_in_order(part)
        if isinstance(item, (ast.Name, ast.Attribute, ast.Subscript))
    )
    sharded = [name for name in operands if is_sharded(at.values.get(name))]
    plain = [name for name in operands if shape_of(at.values.get(name)) is not None]
    if len(sharded) != 1 or not plain:
        return None
    (name,) = sharded
    root = unsharded_root(at, name, plain)
    if root is not None:
        return root
    made = at.made(name, calls=False)
    whole, place, of_module = name, f"line {at.line}", _parameter(name)
    if made is not None and isinstance(made.node, ast.Attribute) and made.through:
        whole, place, of_module = ast.unparse(made.node), at.place(made.spot, made.line), _parameter(source(made.node))
    given = f"`{whole}` of {place}, " if whole != name else ""
    others = " and ".join(f"`{item}`" for item in plain[:_FEW])
    are = "are plain tensors" if len(plain) > 1 else "is a plain tensor"
    begin = f"`{name}` is a DTensor ({given}{at.values[name].partition(' ')[2]}), and {others} {are}:"
    wrap = _wrapped(at)
    called = {called_name(item) for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.Call)}
    if wrap is not None and wrap[1] == _FSDP2 and not called & _OTHER_PARTS and of_module is not None:
        inside = name.startswith("self.") and getattr(at.scope, "name", "") == _FORWARD[0]
        other = (
            f"leave `{of_module}` to the sharded module around it, without a fully_shard() of its own"
            if inside
            else f"call that module (`{of_module}(...)`, if it is one) in place of using the parameter"
        )
        return (
            f"{begin} parameters are gathered only in the forward() of a module that fully_shard() was called for. "
            f"Take `{whole}.full_tensor()` at {place}, on all ranks, or {other}."
        )
    return (
        f"{begin} take `{whole}.full_tensor()` at {place}, on all ranks, or make {others} a DTensor of the same mesh "
        f"(`distribute_tensor({plain[0]}, {name}.device_mesh, [Replicate()])`)."
    )


def _parameter(text: str) -> str | None:
    """`model.output` of `model.output.weight`."""
    owner, _, name = text.rpartition(".")
    return owner if name in _PARAMETERS and owner not in ("", "self") else None


def whole_state(at: FailingLine) -> str | None:
    """A state_dict with full tensors, for a module that fully_shard() has cut."""
    call = at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    wrap = _wrapped(at, owner) if _COPYING in at.message and _MIXED.search(at.message) is not None else None
    if wrap is None or wrap[1] != _FSDP2 or call is None or called_name(call) != _LOADS or not call.args:
        return None
    model = source(call.func.value) if isinstance(call.func, ast.Attribute) else "model"
    state = source(call.args[0])
    return (
        f"`{state}`{at.came(state)} has whole tensors, and the parameters of `{model}` are in parts since "
        f"fully_shard() ({wrap[0]}): load it before that, or call set_model_state_dict({model}, {state}, "
        "options=StateDictOptions(full_state_dict=True)) of torch.distributed.checkpoint.state_dict on all ranks."
    )
