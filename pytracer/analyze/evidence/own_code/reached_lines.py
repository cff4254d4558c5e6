"""Whether a line of a program may have run before the lines that its stack is at."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import loops_of
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, scope_of, spans
from pytracer.report.job import PythonFrame

_DEEPEST = 4


@dataclass(frozen=True)
class ReachedLines:
    """Of a program's files, with its stack."""

    files: Mapping[str, ast.Module]
    frames: Sequence[PythonFrame]
    _known: dict[tuple[int, int], bool] = field(default_factory=dict)  # by a scope's id(), and the levels that are left

    def may_have_run(self, file: str, line: int, depth: int = _DEEPEST) -> bool:
        """Not where its function, or all that call that, are still at a line before it, and no loop has both."""
        scope = scope_of(self.files[file], line)
        running = self.running(scope)
        if running:
            loops = [item for item in loops_of(scope) if spans(item, line)]
            return min(running) >= line or any(spans(loop, at) for loop in loops for at in running)
        if isinstance(scope, (ast.Module, ast.Lambda)) or depth == 0:
            return True
        known = self._known.get((id(scope), depth))
        if known is None:
            owner = class_around(self.files[file], scope)
            name = owner.name if owner is not None and scope.name == "__init__" else scope.name
            callers = self._calls.get(name, ())
            known = not callers or any(self.may_have_run(path, at, depth - 1) for path, at in callers)
            self._known[id(scope), depth] = known
        return known

    def running(self, scope: Scope) -> Sequence[int]:
        """The lines at which a function is on the stack."""
        return self._running.get(id(scope), ())

    @cached_property
    def _running(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for item in self.frames:
            tree = self.files.get(item.file or "")
            if tree is not None and item.line:
                found.setdefault(id(scope_of(tree, item.line)), []).append(item.line)
        return found

    @cached_property
    def _calls(self) -> dict[str, list[tuple[str, int]]]:
        """By the name that is called, the files and lines."""
        found: dict[str, list[tuple[str, int]]] = {}
        for file, tree in self.files.items():
            for node in nodes_of(tree):
                if isinstance(node, ast.Call) and (name := called_name(node)) is not None:
                    found.setdefault(name, []).append((file, node.lineno))
        return found
