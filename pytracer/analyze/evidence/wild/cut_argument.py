"""An address of 64 bits that the line passes by ctypes, and of which C got 32: the function's `argtypes` are not set.

The program holds the whole number, as `restype = c_void_p` gives it; ctypes passes a Python int as a C int where no
argtypes say otherwise, so that the memory is there, and the address is another one.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

import msgspec

from pytracer._text import capital, hex_addr
from pytracer.analyze.address_space.referrers import STATE_REGISTERS
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.native.fault_function import entered_function
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.own_code.declared_functions import NARROW, PROTOTYPES, Files, declares, functions_named
from pytracer.analyze.evidence.own_code.own_signature import own_definition, signature
from pytracer.analyze.evidence.own_code.passed_memory import called_by_ctypes
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.makers import makers
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, is_parameter, scope_of
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.evidence.wild.truncated_address import HALF, NEAR_BYTES, is_half
from pytracer.analyze.naming import line_in
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence

_WIDE = frozenset({
    "c_void_p", "c_char_p", "c_size_t", "c_ssize_t", "c_int64", "c_uint64", "c_long", "c_ulong", "c_longlong",
    "c_ulonglong",
})  # fmt: skip
_CANONICAL = 1 << 47
_UNKNOWN = "[ctypes.c_void_p, ...]"


class Callee(msgspec.Struct, frozen=True):
    """What the line calls: as it is `written` there, and its `name` in C, with the types that it should be given."""

    written: str
    name: str
    types: str

    @property
    def words(self) -> str:
        """`` `func` (seat_bind) ``."""
        return (
            f"`{self.written}`" if self.written.rpartition(".")[2] == self.name else f"`{self.written}` ({self.name})"
        )


@dataclass(frozen=True)
class CutArgument(Explanation):
    """`name` held `value`, of which register `held_in` had half, `cut`.

    `made`: the call that returned it, and its line. `undeclared`: what the line calls, where no line sets its argtypes.
    `narrow`: what makes a C int of this argument. `whole`: the line that declares it with 64 bits, and the function.
    """

    name: str
    value: int
    held_in: str
    cut: int
    made: tuple[str, str] | None = None
    undeclared: Callee | None = None
    narrow: str | None = None
    whole: tuple[str, str] | None = None

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": the lower 32 bits of {self.source}"

    @property
    def source(self) -> str:
        """`` `self.ptr`, the address that `lib.make()` returned: `f` (lib_use) has no argtypes, ... ``."""
        whole = f"`{self.name}`, {hex_addr(self.value)}"
        if self.made is not None:
            whole = f"the address that `{self.made[0]}()` returned"
        if self.narrow is not None:
            return f"{whole}: {self.narrow}"
        if self.undeclared is None:
            return whole
        return f"{whole}: {self.undeclared.words} has no argtypes, so that ctypes passes an int as a C int"

    def evidence(self, view: ProcessView, address: Evidence | None) -> tuple[Evidence | None, ...]:
        """See Explanation."""
        own = Evidence(
            "register-value",
            f"{self.held_in} held {hex_addr(self.cut)}, and `{self.name}`, which the line passes, is "
            f"{hex_addr(self.value)}: the lower 32 bits are the same",
            register=self.held_in,
            addr=hex_addr(self.cut),
            base=hex_addr(self.value),
        )
        return (own, address)

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        line = line_words(view)
        came = f" `{self.name}` itself is whole: {self.made[1]} made it." if self.made is not None else ""
        if self.narrow is not None:
            return f"Use ctypes.c_void_p there: an address has 64 bits.{came}"
        if self.whole is not None:
            declared, function = self.whole
            return (
                f"{capital(declared)}, so that ctypes passes all 64 bits: it is cut in C: look for int, int32_t, "
                f"or a missing prototype in {function}().{came}"
            )
        if self.undeclared is None:
            return (
                f"Pass `{self.name}` in 64 bits at {line}: ctypes converts a Python int to a C int unless the "
                "function's argtypes say ctypes.c_void_p, or it is wrapped in ctypes.c_void_p(...). In C, an int or a "
                f"missing prototype does the same.{came}"
            )
        return (
            f"Set `{self.undeclared.written}.argtypes = {self.undeclared.types}` before {line}, or pass "
            f"`ctypes.c_void_p({self.name})` there. Every function that is given an address needs it: without argtypes "
            f"ctypes passes a Python int in 32 bits.{came}"
        )


def cut_argument(view: ProcessView) -> CutArgument | None:
    """None where no register near the fault address has half of an address that the line passes by ctypes."""
    crash, place, frame = view.crash, view.place, next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if crash is None or place is None or tree is None or frame is None or frame.line is None or not _by_ctypes(view):
        return None
    near = {
        value % HALF: (register, value)
        for register, value in crash.registers.items()
        if register not in STATE_REGISTERS and is_half(value) and abs(signed(place.addr - value)) < NEAR_BYTES
    }
    for item in crash.numbers if near else ():
        if (item.frame.file, item.frame.line) != (frame.file, frame.line) or not HALF <= item.value < _CANONICAL:
            continue
        held = near.get(item.value % HALF)
        calls = [call for call in calls_on(tree, frame.line) if _is_given(call, item.expression)]
        if held is not None and calls and _is_mapped(view, item.value):
            found = CutArgument(item.expression, item.value, *held)
            return _described(view, found, calls[0], frame.file) if len(calls) == 1 else found
    return None


def _by_ctypes(view: ProcessView) -> bool:
    """Not by cffi, which checks the types of what it passes."""
    names = (image_name(frame.image) for frame in own_frames(view))
    return called_by_ctypes(view) and not any(name.startswith("_cffi_backend.") for name in names)


def _is_mapped(view: ProcessView, addr: int) -> bool:
    """Where that is not recorded, it may be."""
    mappings = view.crash.mappings if view.crash is not None else ()
    return not mappings or any(item.start <= addr < item.end for item in mappings)


def _is_given(call: ast.Call, name: str) -> bool:
    """Whether a call is given it and is none of the conversions: `c_void_p(x)` keeps it, `c_int(x)` is looked into."""
    called = called_name(call) or ""
    return called != "int" and not called.startswith("c_") and _place_of(call, name) is not None


def _place_of(call: ast.Call, name: str) -> int | None:
    """Which argument it is, as it is or within a type of ctypes that has 32 bits; also of `*rest`."""
    for at, item in enumerate(passed_values(call)):
        if isinstance(item, ast.Starred):
            owner, _, key = name.partition("[")
            if ast.unparse(item.value) == owner and key.rstrip("]").isdigit():
                return at + int(key.rstrip("]"))
        elif ast.unparse(_bare(item)) == name:
            return at
    return None


def _bare(node: ast.expr) -> ast.expr:
    """What stays an int: `n` of `int(n)`, and of `c_int(n)`, which cuts it itself."""
    while isinstance(node, ast.Call) and (called_name(node) in NARROW or called_name(node) == "int") and node.args:
        node = node.args[0]
    return node


def _described(view: ProcessView, found: CutArgument, call: ast.Call, file: str | None) -> CutArgument:
    """With what made it, and what cut it, by the program's source."""
    files = program_files(view.process.snapshot, program_frames(view))
    at = _place_of(call, found.name) or 0
    found = replace(found, made=_maker(view, files, call, at))
    within = passed_values(call)[min(at, len(passed_values(call)) - 1)]
    if isinstance(within, ast.Call) and called_name(within) in NARROW:
        return replace(found, narrow=f"`{ast.unparse(within)}` has no more")
    prototype = _prototype(files[file], call.func) if file in files else None
    if prototype is not None:
        declared, line, kinds = prototype
        sure = entered_function(view) in (None, declared) and not [*declares(files, declared, "argtypes")]
        return _declared(found, declared, line_in(file, line, file), kinds, at) if sure else found
    names = functions_named(files, files[file], call.func) if file in files else None
    name = next(iter(names)) if names is not None and len(names) == 1 else None
    entered = entered_function(view)
    own = any(getattr(item, "name", None) == name for tree in files.values() for item in nodes_of(tree))
    if name is None or (entered != name if entered is not None else own):
        return found  # called by a function of the program's, or through one
    lines = [*declares(files, name, "argtypes")]
    if not lines:
        return replace(found, undeclared=Callee(ast.unparse(call.func), name, _types(view, name, call, at)))
    path, line, value = lines[0]
    if len(lines) == 1 and isinstance(value, (ast.List, ast.Tuple)):
        return _declared(found, name, line_in(path, line, file), value.elts, at)
    return found


def _declared(found: CutArgument, name: str, place: str, kinds: list[ast.expr], at: int) -> CutArgument:
    """With what its one declaration says of this argument."""
    if at >= len(kinds) or any(isinstance(item, ast.Starred) for item in kinds):
        return found
    kind = ast.unparse(kinds[at])
    if kind.rpartition(".")[2] in NARROW:
        return replace(found, narrow=f"{place} declares it as {kind}")
    says = f"{place} declares `{found.name}` as {kind}"
    return replace(found, whole=(says, name)) if kind.rpartition(".")[2] in _WIDE else found


def _prototype(tree: ast.Module, called: ast.expr) -> tuple[str, int, list[ast.expr]] | None:
    """`node_sum = CFUNCTYPE(c_float, c_void_p)(("node_sum", lib))`: its name in C, the line, and the argument types."""
    if not isinstance(called, ast.Name):
        return None
    scope = scope_of(tree, called.lineno)
    value = _only_value(scope, tree, called.id)
    if not isinstance(value, ast.Call) or not value.args:
        return None
    kind = _only_value(scope, tree, value.func.id) if isinstance(value.func, ast.Name) else value.func
    named = value.args[0].elts[:1] if isinstance(value.args[0], ast.Tuple) else []
    name = named[0].value if named and isinstance(named[0], ast.Constant) else None
    if not isinstance(kind, ast.Call) or called_name(kind) not in PROTOTYPES or not isinstance(name, str):
        return None
    return name, kind.lineno, kind.args[1:]


def _only_value(scope: Scope, tree: ast.Module, name: str) -> ast.AST | None:
    """What the only line that binds a variable of the function, or of the module, binds it to."""
    if is_parameter(scope, name):
        return None
    bound = lines_that_bind(scope, name) or lines_that_bind(tree, name)
    return bound[0][1] if len(bound) == 1 else None


def _maker(view: ProcessView, files: Files, call: ast.Call, at: int) -> tuple[str, str] | None:
    """The call that returned the number, and its line; None where it may be another one, or is none."""
    back = Slice(view.process.snapshot, program_frames(view))
    spot, values = back.spot(0), passed_values(call)
    node = _bare(values[at]) if at < len(values) else None
    if spot is None or node is None or isinstance(node, ast.Starred):
        return None
    found = makers({**files}, back, node, spot)
    made = found[0].node if len(found) == 1 else None
    if not isinstance(made, ast.Call):
        return None
    return ast.unparse(made.func), line_in(found[0].spot.file, found[0].line, spot.file)


def _types(view: ProcessView, name: str, call: ast.Call, at: int) -> str:
    """What the argtypes should be, by the function's source."""
    definition, taken = own_definition(view, name), signature(view, name)
    if definition is None or taken is None:
        return _UNKNOWN
    variadic = definition.parameters.rstrip().endswith("...")
    taken = taken[:-1] if variadic else taken
    fits = at < len(taken) and taken[at].ctype == "c_void_p" and (variadic or len(taken) == len(call.args))
    kinds = [item.ctype for item in taken]
    return f"[{', '.join(f'ctypes.{kind}' for kind in kinds)}]" if fits and all(kinds) else _UNKNOWN
