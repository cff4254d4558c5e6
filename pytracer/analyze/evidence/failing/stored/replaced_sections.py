"""A section of a configuration that an override replaced as a whole: `config.update({"optim": {"lr": 0.1}})`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import bare_names
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import all_parameters, scope_of


def replaced_section(at: FailingLine, key: str, names: Sequence[str]) -> str | None:
    """The rest of a sentence: the defaults that have the key, and the only line that lays another dict over them.

    Args:
        at: The failing line.
        key: That the section lacks, as it is written: `'momentum'`.
        names: The keys that it has.
    """
    sections = [*_sections(at, key, names)]
    parts = [(file, item) for file, tree in at.files.items() for item in nodes_of(tree) if isinstance(item, ast.expr)]
    if len(sections) != 1 or any(
        _takes_out(item, key, sections[0][1]) for tree in at.files.values() for item in nodes_of(tree)
    ):
        return None
    file, section, literal = sections[0]
    whole = {name for tree in at.files.values() for name in _names_of(tree, literal)}
    table = at.node.value if isinstance(at.node, ast.Subscript) else at.node
    whole |= bare_names(table) if table is not None else set()
    merges = [(file, item) for file, item in parts if _lays_over(item, section) and _is_of(at, file, item, whole)]
    if len(merges) != 1:
        return None
    other, merge = merges[0]
    return (
        f"the defaults of {section} have it ({at.in_file(file, literal.lineno)}), and `{source(merge)}` "
        f"({at.in_file(other, merge.lineno)}) replaces such a section as a whole. Merge each section there "
        f"(`{{**old[name], **new[name]}}`), or write all of its keys."
    )


def _sections(at: FailingLine, key: str, names: Sequence[str]) -> Iterator[tuple[str, str, ast.Dict]]:
    """Dicts within a dict that have the key, and all of the keys that the section has: with their own key."""
    for file, tree in at.files.items():
        for outer in nodes_of(tree):
            if not isinstance(outer, ast.Dict):
                continue
            for name, value in zip(outer.keys, outer.values, strict=True):
                if not isinstance(value, ast.Dict) or not isinstance(name, ast.Constant):
                    continue
                held = {repr(part.value) for part in value.keys if isinstance(part, ast.Constant)}
                if key in held and {*names} <= held:
                    yield file, repr(name.value), value


def _names_of(tree: ast.Module, literal: ast.Dict) -> Iterator[str]:
    """The variables that are set to what has the defaults."""
    for item in nodes_of(tree):
        if isinstance(item, ast.Assign) and any(part is literal for part in nodes_of(item.value)):
            yield from (target.id for target in item.targets if isinstance(target, ast.Name))


def _is_of(at: FailingLine, file: str, merge: ast.expr, whole: set[str]) -> bool:
    """Whether it merges the defaults or the failing dict, or a parameter of a function that is given one of them."""
    owner = merge.func.value if isinstance(merge, ast.Call) and isinstance(merge.func, ast.Attribute) else merge
    names = bare_names(owner)
    scope = scope_of(at.files[file], merge.lineno)
    for name in [*names]:
        bound = [value for _, value in lines_that_bind(scope, name) if value is not None]
        names |= {name for value in bound for name in bare_names(value)}
    if names & whole:
        return True
    if isinstance(scope, ast.Module) or not names & {*all_parameters(scope)}:
        return False
    calls = [item for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.Call)]
    given = [item for item in calls if called_name(item) == getattr(scope, "name", "")]
    return any(isinstance(part, ast.Name) and part.id in whole for item in given for part in nodes_of(item))


def _takes_out(node: ast.AST, key: str, section: str) -> bool:
    """`del optim["momentum"]`, `optim.pop("momentum")`, `config["optim"] = other`."""
    if isinstance(node, ast.Call):
        return called_name(node) == "pop" and bool(node.args) and ast.unparse(node.args[0]) == key
    if not isinstance(node, ast.Subscript):
        return False
    dropped = isinstance(node.ctx, ast.Del) and ast.unparse(node.slice) == key
    return dropped or (isinstance(node.ctx, ast.Store) and ast.unparse(node.slice) == section)


def _lays_over(node: ast.AST, section: str) -> bool:
    """`config.update(new)`, `{**defaults, **new}`, `defaults | new`."""
    if isinstance(node, ast.Call):
        new = node.args[0] if len(node.args) == 1 else None
        written = [part for part in new.keys if part is not None] if isinstance(new, ast.Dict) else None
        fits = written is None or section in [ast.unparse(part) for part in written] or None in getattr(new, "keys", ())
        return called_name(node) == "update" and isinstance(node.func, ast.Attribute) and new is not None and fits
    if isinstance(node, ast.Dict):
        return len(node.keys) > 1 and all(item is None for item in node.keys)
    return False
