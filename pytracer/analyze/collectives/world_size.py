"""Where a program takes its world size from, and how many processes it starts itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.passing import names_of_object
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_LONGEST = 60
_CONVERTS = ("str", "int", "format")
_LISTED = 2
_SPAWN = ("spawn", "start_processes")


def world_size_source(snapshot: Snapshot, at: PythonFrame | None, name: str) -> str | None:
    """``int(os.environ['SLURM_NTASKS'])` (line 14)`; None where many lines set it, or none does.

    Args:
        snapshot: of the process.
        at: the line that called init_process_group().
        name: `world_size` as an argument, or the variable of the environment.
    """
    tree = syntax_tree(snapshot, at)
    if tree is None or at is None or at.line is None:
        return None
    if name == "WORLD_SIZE":
        found = list(_environment(tree, name))
    else:
        given = _argument(tree, at.line, name)
        own = _last(given) if given is not None else None
        if given is None or own is None:
            return f"`{_shown(given)}` (line {given.lineno})" if given is not None else None
        names = names_of_object(tree, own)
        found = [value for key, value in _settings(tree) if key in names]
    if not found or len(found) > _LISTED:
        return None
    return " or ".join(f"`{_shown(item)}` (line {item.lineno})" for item in found)


def argument_words(snapshot: Snapshot, at: PythonFrame | None, name: str) -> str | None:
    """`` `rank=args.local_rank` (line 33) ``: what a call of init_process_group() passes by that name."""
    tree = syntax_tree(snapshot, at)
    given = _argument(tree, at.line, name) if tree is not None and at is not None and at.line is not None else None
    return f"`{name}={_shown(given)}` (line {given.lineno})" if given is not None else None


def environment_setting(snapshot: Snapshot, at: PythonFrame | None, name: str) -> tuple[int, str] | None:
    """The only line of a file that sets a variable of the environment to something computed, and what."""
    tree = syntax_tree(snapshot, at)
    found = list(_environment(tree, name)) if tree is not None else []
    calls = (part for item in found for part in nodes_of(item) if isinstance(part, ast.Call))
    computed = found if any(called_name(part) not in _CONVERTS for part in calls) else []
    return (computed[0].lineno, _shown(computed[0])) if len(found) == len(computed) == 1 else None


def spawned(snapshot: Snapshot, at: PythonFrame | None) -> tuple[int, str] | None:
    """`31, args.gpus`: the line of the only call of mp.spawn() in the file, and how many processes it asks for."""
    tree = syntax_tree(snapshot, at)
    found = []
    for item in nodes_of(tree) if tree is not None else ():
        if isinstance(item, ast.Call) and called_name(item) in _SPAWN:
            found += [word.value for word in item.keywords if word.arg == "nprocs"]
    return (found[0].lineno, _shown(found[0])) if len(found) == 1 else None


def _argument(tree: ast.Module, line: int, name: str) -> ast.expr | None:
    for item in calls_on(tree, line):
        if called_name(item) == "init_process_group":
            return keyword_value(item, name)
    return None


def _settings(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """`x = value`, `self.x = value`; not of one name by another."""
    for item in nodes_of(tree):
        targets = (
            item.targets if isinstance(item, ast.Assign) else [item.target] if isinstance(item, ast.AnnAssign) else []
        )
        value = item.value if isinstance(item, (ast.Assign, ast.AnnAssign)) else None
        for target in targets:
            name = _last(target)
            if name is not None and value is not None and _last(value) is None:
                yield name, value


def _environment(tree: ast.Module, name: str) -> Iterator[ast.expr]:
    """`os.environ["WORLD_SIZE"] = ...`."""
    for item in nodes_of(tree):
        for target in item.targets if isinstance(item, ast.Assign) else ():
            key = target.slice if isinstance(target, ast.Subscript) else None
            if isinstance(key, ast.Constant) and key.value == name and isinstance(item, ast.Assign):
                yield item.value


def _shown(node: ast.expr) -> str:
    return shortened(ast.unparse(node), _LONGEST)


def _last(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
