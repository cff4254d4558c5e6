"""An array over native memory whose owner ended with the line, or the function, that made the array of it.

`images = self.pipe.run().as_tensor()`: nothing holds what `run()` returns, and its `__del__` frees what `as_tensor()`
gave out. By syntax: the method gives memory at an address out, without the object, and the class frees in `__del__`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.slicing.callers import only_function
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, own_nodes, scope_of
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.origins import is_borrowed
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_OF_ADDRESSES = frozenset({"as_array", "from_address", "frombuffer", "cast", "from_blob", "buffer", "string_at"})
_COPIES = frozenset({"copy", "clone", "array", "tensor", "tobytes", "string_at"})
_LENGTHS = frozenset({"len", "print", "str", "repr", "int", "float", "bool"})
_QUOTED = 60


class TemporaryOwner(msgspec.Struct, frozen=True):
    """`made` has `text`; `lends` is the line of `owner`'s method that gives its memory out, `frees` that of `__del__`.

    `name`: the variable that held the object until its function returned; None where nothing did.
    """

    owner: str
    method: str
    text: str
    made: LineWords
    lends: LineWords
    frees: LineWords
    name: str | None
    function: str

    @property
    def summary(self) -> str:
        """For the headline."""
        held = (
            f"`{self.name}`, which {self.function}() does not keep" if self.name is not None else "which nothing holds"
        )
        text = shortened(self.text, _QUOTED)
        return f"it is of the {self.owner} of {self.made} (`{text}`), {held}"

    @property
    def advice(self) -> str:
        """What to keep, or to copy."""
        ends = f"ends when {self.function}() returns" if self.name is not None else "ends with that line"
        return (
            f"Keep the {self.owner} of {self.made} (`{shortened(self.text, _QUOTED)}`) as long as the tensor, or copy "
            f"in {self.method}() ({self.lends}) while it lives. That object {ends}, as the array of its memory does "
            f"not keep it, and its __del__() ({self.frees}) frees the memory: a clone() of the tensor comes too late."
        )


def temporary_owner(view: ProcessView) -> TemporaryOwner | None:
    """None where several lines of the function that made the tensor may be meant."""
    storage = view.place.storage if view.place is not None else None
    site = storage.allocated_by.place if storage is not None and is_borrowed(storage) else None
    made = python_frame(site) if site is not None else None
    tree = syntax_tree(view.process.snapshot, made)
    if tree is None or made is None or made.line is None:
        return None
    frames = program_frames(view)
    files = {made.file or "": tree, **program_files(view.process.snapshot, frames)}
    here = frames[0].file if frames else None
    found = [*_lent(files, tree, made.file or "", made.line, here)]
    return found[0] if len(found) == 1 else None


def _lent(
    files: Mapping[str, ast.Module], tree: ast.Module, file: str, line: int, here: str | None
) -> Iterator[TemporaryOwner]:
    scope = scope_of(tree, line)
    for call in own_nodes(scope):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.lineno > line:
            continue
        lender = only_function(files, call.func.attr)
        owner = class_around(files[lender[0]], lender[1]) if lender is not None else None
        if lender is None or owner is None or _is_copied(scope, call):
            continue
        name = call.func.value.id if isinstance(call.func.value, ast.Name) else None
        temporary = isinstance(call.func.value, ast.Call)
        frees, lends = _frees(owner), _lends(lender[1])
        if frees is None or lends is None or not (temporary or (name is not None and _is_dropped(scope, name))):
            continue
        yield TemporaryOwner(
            owner.name,
            f"{owner.name}.{lender[1].name}",
            ast.unparse(call),
            line_in(file, call.lineno, here),
            line_in(lender[0], lends, here),
            line_in(lender[0], frees, here),
            None if temporary else name,
            getattr(scope, "name", "the module"),
        )


def _lends(method: ast.FunctionDef | ast.AsyncFunctionDef) -> int | None:
    """The line that makes an array at an address; None where that copies, or hands the object itself on."""
    if any(isinstance(item, ast.Call) and called_name(item) in _COPIES for item in own_nodes(method)):
        return None
    partly = _partly_used(own_nodes(method))
    for item in own_nodes(method):
        if isinstance(item, ast.Name) and item.id == "self" and id(item) not in partly:
            return None
    lines = [
        item.lineno for item in own_nodes(method) if isinstance(item, ast.Call) and called_name(item) in _OF_ADDRESSES
    ]
    return lines[0] if lines else None


def _frees(owner: ast.ClassDef) -> int | None:
    """The line of `__del__` that calls what takes an attribute of the object."""
    method = next((item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "__del__"), None)
    for item in own_nodes(method) if method is not None else ():
        if isinstance(item, ast.Call) and any("self." in ast.unparse(given) for given in item.args):
            return item.lineno
    return None


def _is_dropped(scope: Scope, name: str) -> bool:
    """Whether a variable is the function's own, made by a call, and used for nothing but its attributes and length."""
    bound = [value for _, value in lines_that_bind(scope, name)]
    if isinstance(scope, ast.Module) or len(bound) != 1 or not isinstance(bound[0], ast.Call):
        return False
    uses = [item for item in nodes_of(scope) if isinstance(item, ast.Name) and item.id == name]
    reads = [item for item in uses if isinstance(item.ctx, ast.Load)]
    partly = _partly_used(nodes_of(scope))
    return bool(reads) and all(id(item) in partly for item in reads)


def _partly_used(nodes: Sequence[ast.AST]) -> set[int]:
    """The ids of what is used for nothing but an attribute, or its length and the like."""
    based = {id(item.value) for item in nodes if isinstance(item, ast.Attribute)}
    calls = (item for item in nodes if isinstance(item, ast.Call) and called_name(item) in _LENGTHS)
    return based | {id(item.args[0]) for item in calls if item.args}


def _is_copied(scope: Scope, call: ast.Call) -> bool:
    """`scans.as_tensor().copy()`, `np.array(scans.as_tensor())`."""
    for item in own_nodes(scope):
        if not isinstance(item, ast.Call) or called_name(item) not in _COPIES:
            continue
        given = [*item.args, *([item.func.value] if isinstance(item.func, ast.Attribute) else [])]
        if any(part is call for part in given):
            return True
    return False
