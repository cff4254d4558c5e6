"""The type of a tensor that memory is overwritten behind, where the program's own function takes larger elements.

Its line has returned; the tensor is still known, by what uses it now. Under autocast a layer's result has 2 bytes for
each element, and so has what empty_like() makes of it.
"""

from __future__ import annotations

import ast

from pytracer._text import count_words
from pytracer.analyze.evidence.heap.behind_storage import Overwritten
from pytracer.analyze.evidence.own_code.own_libraries import passed_in
from pytracer.analyze.evidence.own_code.own_signature import signature
from pytracer.analyze.evidence.own_code.pointer_arguments import is_converted, pointer_arguments
from pytracer.analyze.evidence.own_code.unfit_memory import UnfitMemory
from pytracer.analyze.evidence.slicing.bindings import last_binding
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, statement_at
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame


def unfit_overrun(view: ProcessView, beside: Overwritten | None) -> UnfitMemory | None:
    """Of calls in the function that made it, which are given its address; None where its type is not known."""
    crash = view.crash
    if crash is None or beside is None or beside.overrun.before or beside.name is None or beside.made is None:
        return None
    tree, line = syntax_tree(view.process.snapshot, beside.made), beside.made.line
    base = beside.overrun.storage.base
    held = [item for item in crash.arguments if item.base == base and item.elements and item.dtype is not None]
    types = {(item.dtype, item.element_bytes) for item in held}
    dtype, nbytes = types.pop() if len(types) == 1 else (None, None)
    if tree is None or line is None or dtype is None or nbytes is None:
        return None
    scope, statement = scope_of(tree, line), statement_at(tree, line)
    calls = [item for item in own_nodes(scope) if isinstance(item, ast.Call) and item.lineno >= line]
    calls = [item for item in calls if isinstance(item.func, ast.Attribute) and _is_given(tree, item, beside.name)]
    if statement is None or len({called_name(item) for item in calls}) > 1:
        return None  # the other one may have run in its place, or have written there itself
    for call in calls:
        bound = last_binding(scope, beside.name, call.lineno)
        if bound is None or not statement.lineno <= bound[0] <= line:
            continue  # another tensor may have that name by then
        taken = signature(view, called_name(call) or "") or ()
        for parameter, argument in zip(taken, pointer_arguments(tree, call), strict=False):
            given = list(passed_in([argument]))
            fits = parameter.element is None or parameter.constant or nbytes >= parameter.nbytes
            if given != [beside.name] or fits or is_converted(argument):
                continue
            words = f"`{beside.name}` ({count_words(max(item.elements for item in held), 'element')}, {dtype})"
            text = line_text(view.process.snapshot, PythonFrame(file=beside.made.file, line=line)) or ""
            made = f"line {line} (`{' '.join(text.split())}`)"
            return UnfitMemory(
                called_name(call) or "", parameter, beside.name, words, nbytes, call.lineno, made,
                others=_like(tree, line), dtype=dtype, file=beside.made.file,
            )  # fmt: skip
    return None


def _is_given(tree: ast.Module, call: ast.Call, name: str) -> bool:
    """Whether it is given the address of what has that name."""
    return any(name in passed_in([item]) for item in pointer_arguments(tree, call))


def _like(tree: ast.Module, line: int) -> tuple[str, ...]:
    """`x` of `y = torch.empty_like(x)`, whose type it has."""
    for node in own_nodes(scope_of(tree, line)):
        if isinstance(node, ast.Call) and node.lineno == line and (called_name(node) or "").endswith("_like"):
            return tuple(item.id for item in node.args[:1] if isinstance(item, ast.Name))
    return ()
