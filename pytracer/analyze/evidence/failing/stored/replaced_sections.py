"""A section of a configuration that an override replaced as a whole: `config.update({"optim": {"lr": 0.1}})`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of


def replaced_section(at: FailingLine, key: str, names: Sequence[str]) -> str | None:
    """The rest of a sentence: the defaults that have the key, and the only line that lays another dict over them.

    Args:
        at: The failing line.
        key: That the section lacks, as it is written: `'momentum'`.
        names: The keys that it has.
    """
    sections = [*_sections(at, key, names)]
    parts = [(file, item) for file, tree in at.files.items() for item in nodes_of(tree) if isinstance(item, ast.expr)]
    merges = [(file, item) for file, item in parts if _lays_over(item)]
    if len(sections) != 1 or len(merges) != 1:
        return None
    file, section, literal = sections[0]
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


def _lays_over(node: ast.AST) -> bool:
    """`config.update(new)`, `{**defaults, **new}`, `defaults | new`."""
    if isinstance(node, ast.Call):
        return called_name(node) == "update" and isinstance(node.func, ast.Attribute) and len(node.args) == 1
    if isinstance(node, ast.Dict):
        return len(node.keys) > 1 and all(item is None for item in node.keys)
    return False
