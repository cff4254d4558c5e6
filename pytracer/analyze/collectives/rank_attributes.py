"""An attribute that a method asks for, and that each object of its class is made with by the rank.

`tracker = Tracker(enabled=rank == 0)`, and in its log() `if self.enabled:`: what that leads to runs on one rank alone.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.collectives.alike_tests import constructor_values
from pytracer.analyze.collectives.rank_objects import held_values
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import last_name, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import asks_if_given, reads_rank
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, parameters, scope_of
from pytracer.analyze.naming import line_in
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_FLAG = Pattern(r"(?:\w+\.)*_?is_(?:\w+_)?(?:main|master)(?:_\w+)?(?:\(\))?")
_TEXT = 60


class RankAttribute(msgspec.Struct, frozen=True):
    """`name`: `self.enabled`; `value`: `rank == 0`, as `place` has it: the constructor, or the first that calls it."""

    name: str
    value: str
    place: str

    @property
    def words(self) -> str:
        """`` `self.enabled` is `rank == 0`, by line 30 ``."""
        return f"`{self.name}` is `{self.value}`, by {self.place}"


def rank_attribute(
    snapshot: Snapshot, frames: Sequence[PythonFrame], tree: ast.Module, test: ast.expr, here: str | None
) -> RankAttribute | None:
    """The first attribute of its own object in a condition that all objects of the class have by the rank.

    Args:
        snapshot: Of a rank.
        frames: Of its stack; the files of the program are found from there.
        tree: Of the file of the condition.
        test: The condition.
        here: The path of that file.
    """
    for item in nodes_of(test):
        name = variable(item) if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Load) else None
        if name is None or not isinstance(item, ast.Attribute) or name != f"self.{item.attr}":
            continue
        found = _of_constructor(snapshot, frames, tree, item, here)
        if found is not None:
            return found
    return None


def _of_constructor(
    snapshot: Snapshot, frames: Sequence[PythonFrame], tree: ast.Module, asked: ast.Attribute, here: str | None
) -> RankAttribute | None:
    scope, name = scope_of(tree, asked.lineno), f"self.{asked.attr}"
    owner, values = class_around(tree, scope), constructor_values(tree, scope, name)
    if owner is None or values is None or len(values) != 1:
        return None
    value, first = values[0]
    files = program_files(snapshot, frames)
    if any(_may_differ(program, owner, asked.attr, own=program is tree) for program in files.values()):
        return None
    if not isinstance(value, ast.Name) or value.id not in parameters(first):
        own = _by_rank(value, first)
        return RankAttribute(name, own, line_in(here, value.lineno, here)) if own is not None else None
    found: list[RankAttribute] = []
    for file, program in files.items():
        for call in nodes_of(program):
            if not isinstance(call, ast.Call) or called_name(call) != owner.name:
                continue
            given = held_values(tree, asked, call) if not _unpacks(call) else []
            text = _by_rank(given[0], scope_of(program, call.lineno)) if len(given) == 1 else None
            if text is None:
                return None  # by its default, or by something that all ranks may have alike
            found.append(RankAttribute(name, text, line_in(file, call.lineno, here)))
    return found[0] if found else None


def _may_differ(program: ast.Module, owner: ast.ClassDef, attribute: str, *, own: bool) -> bool:
    """Whether a file sets the attribute (the constructor's own is known), or makes such objects in another way."""
    for item in nodes_of(program):
        if isinstance(item, ast.ClassDef) and any(last_name(base) == owner.name for base in item.bases):
            return True
        if isinstance(item, ast.Attribute) and item.attr == attribute and isinstance(item.ctx, ast.Store) and not own:
            return True
        if isinstance(item, ast.Call) and _in_other_way(item, owner, attribute):
            return True
    return own and any(isinstance(item, ast.Call) and called_name(item) == "cls" for item in nodes_of(owner))


def _in_other_way(call: ast.Call, owner: ast.ClassDef, attribute: str) -> bool:
    """`setattr(run, key, value)`, `partial(Tracker, True)`."""
    name = called_name(call)
    if name == "partial":
        return bool(call.args) and last_name(call.args[0]) == owner.name
    key = call.args[1] if name == "setattr" and len(call.args) > 1 else None
    return key is not None and (not isinstance(key, ast.Constant) or key.value == attribute)


def _unpacks(call: ast.Call) -> bool:
    return any(item.arg is None for item in call.keywords) or any(isinstance(item, ast.Starred) for item in call.args)


def _by_rank(value: ast.expr, scope: Scope) -> str | None:
    """A comparison with the rank, a flag of the main process, or a variable that is bound once to such."""
    if isinstance(value, ast.Name):
        bound = [made for line, made in lines_that_bind(scope, value.id) if line < value.lineno]
        made = bound[0] if len(bound) == 1 else None
        if isinstance(made, ast.expr) and _is_by_rank(made):
            return shortened(ast.unparse(made), _TEXT)
        if bound:
            return None
    return shortened(ast.unparse(value), _TEXT) if _is_by_rank(value) else None


def _is_by_rank(value: ast.expr) -> bool:
    """Whether it comes out by the rank: `rank == 0`, `is_main and args.log`, `not is_main_process()`."""
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
        return _is_by_rank(value.operand)
    if isinstance(value, ast.BoolOp):
        return any(_is_by_rank(item) for item in value.values)
    if isinstance(value, ast.Compare):
        return reads_rank(value) and not asks_if_given(value)
    return _FLAG.fullmatch(ast.unparse(value)) is not None
