"""The line that calls what torch.compile made, whose launches are recorded with the first line of the function itself.

By the source: the only call of a decorated function, or of a variable that torch.compile() gave or that was compiled in
place. Where there are several, which of them launched is not known, and nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from pytracer._text import list_words
from pytracer.analyze.evidence.cuda.launches import Launch
from pytracer.analyze.evidence.slicing.callers import only_call
from pytracer.analyze.evidence.slicing.calls import MADE_ON_CALL
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.names import names_of, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, function_headed, qualified_name, scope_of
from pytracer.analyze.naming import place_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_MOST_NAMES = 4
_COMPILE = "compile"


class CompiledCaller(msgspec.Struct, frozen=True):
    """`frame` is the line that calls it; `passed`: the variables that it passes."""

    frame: PythonFrame
    passed: tuple[str, ...]

    @property
    def words(self) -> str:
        """`, called at train.py:53 in evaluate`."""
        return f", called at {place_words(self.frame)}"

    @property
    def advice(self) -> str:
        """What to look at there."""
        if not self.passed or len(self.passed) > _MOST_NAMES:
            return ""
        names = list_words([f"`{name}`" for name in self.passed])
        return f" Begin with {names} at {place_words(self.frame)}: print min() and max() of what holds indices."


def compiled_caller(view: ProcessView, launch: Launch | None) -> CompiledCaller | None:
    """None where the launch is not of a compiled function, or several lines may have called it."""
    at = launch.python if launch is not None and launch.node is None and launch.is_custom else None
    tree = syntax_tree(view.process.snapshot, at)
    function = function_headed(tree, at.line) if tree is not None and at is not None and at.line is not None else None
    if at is None or tree is None or function is None:
        return None
    stack = view.exception_stack_of_program if view.raised else []
    files = program_files(view.process.snapshot, [*stack, at])
    if function.name in MADE_ON_CALL:
        calls = [*_calls_of_objects(files)]
        found = calls[0] if len(calls) == 1 and class_around(tree, function) is not None else None
    elif any(_is_compile(item) for item in function.decorator_list):
        only = only_call(files, function)
        found = (only.file, only.tree, only.call) if only is not None and only.passed is None else None
    else:
        return None
    return _caller(*found) if found is not None else None


def _caller(file: str, tree: ast.Module, call: ast.Call) -> CompiledCaller:
    function = qualified_name(tree, scope_of(tree, call.lineno))
    frame = PythonFrame(function=function, file=file, line=call.lineno)
    passed = dict.fromkeys(item for part in passed_values(call) for item in names_of(part))
    return CompiledCaller(frame, tuple(passed))


def _calls_of_objects(files: Mapping[str, ast.Module]) -> Iterator[tuple[str, ast.Module, ast.Call]]:
    """Of variables that were compiled, wherever they were."""
    names = {name for tree in files.values() for name in _compiled_names(tree)}
    for file, tree in files.items():
        for item in nodes_of(tree):
            if isinstance(item, ast.Call) and variable(item.func) in names:
                yield file, tree, item


def _compiled_names(tree: ast.Module) -> Iterator[str]:
    for item in nodes_of(tree):
        if isinstance(item, ast.Assign) and _is_compile(item.value) and isinstance(item.value, ast.Call):
            yield from (name for target in item.targets if (name := variable(target)) is not None)
        elif isinstance(item, ast.Expr) and isinstance(item.value, ast.Call) and called_name(item.value) == _COMPILE:
            owner = item.value.func.value if isinstance(item.value.func, ast.Attribute) else None
            name = variable(owner) if owner is not None else None
            if name is not None:
                yield name


def _is_compile(node: ast.expr) -> bool:
    """`torch.compile`, `torch.compile(dynamic=False)`, `compile(model)`; not `re.compile(...)`."""
    func = node.func if isinstance(node, ast.Call) else node
    if isinstance(func, ast.Name):
        return func.id == _COMPILE
    return isinstance(func, ast.Attribute) and func.attr == _COMPILE and ast.unparse(func.value) == "torch"
