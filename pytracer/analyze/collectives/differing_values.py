"""What the variables of two ranks were when they ended, where these differ: a reader knows which of them should not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.collectives.rank_values import RANK, variables_in
from pytracer.analyze.collectives.standing_line import line_of_end
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.naming import short_file
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.evidence import Evidence

_MOST = 3
_LARGEST = 1 << 31  # above are addresses, identities, times
_OWN = Pattern(r"(?:^|[._])(?:pid|port|seed|device|time|start|elapsed|now|id)s?$|id_$", re.IGNORECASE)
_COUNT = Pattern(r"-?\d+|True|False|None|(?:list|tuple|dict) of \d+")


def differing_values(one: ProcessView, other: ProcessView) -> Evidence | None:
    """Counts, truth values, lengths and None of variables that conditions and loops of their common functions ask for.

    None where they are alike, or where they are not recorded for one of them.
    """
    mine, theirs = line_of_end(one), line_of_end(other)
    if mine is None or theirs is None:
        return None
    found = [*dict.fromkeys(_differing(mine, theirs))][:_MOST]
    if not found:
        return None
    ranks = (f"rank {one.process.rank}", f"rank {other.process.rank}")
    (name, first, second), *rest = found
    words = [f"`{name}` was {first} on {ranks[0]} and {second} on {ranks[1]}"]
    words += [f"`{name}` {first} and {second}" for name, first, second in rest]
    place = f"{short_file(mine.frame.file)}:{mine.line}"
    said = f"at their ends, at {place} on {ranks[0]}: {', '.join(words)}"
    return Evidence("variables", said, ranks=[view.process.rank or 0 for view in (one, other)])


def _differing(mine: FailingLine, theirs: FailingLine) -> Iterator[tuple[str, str, str]]:
    """Of the innermost functions first."""
    for depth, frame in enumerate(mine.frames):
        same = [n for n, item in enumerate(theirs.frames) if (item.file, item.function) == (frame.file, frame.function)]
        tree = syntax_tree(mine.snapshot, frame)
        if len(same) != 1 or tree is None or frame.line is None:
            continue
        asked, other = _asked(scope_of(tree, frame.line)), theirs.values_at(same[0])
        for name, value in mine.values_at(depth).items():
            if name in asked and _is_count(value) and _is_count(other.get(name)) and value != other[name]:
                yield name, value, other[name]


def _asked(scope: ast.AST) -> frozenset[str]:
    """What its conditions and loops ask for, and what loops count by; nothing of the rank, which differs by itself."""
    heads: list[ast.AST] = []
    for node in own_nodes(scope):
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            heads.append(node.test)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            heads += [node.iter, node.target]
    names = {ast.unparse(item) for head in heads for item in variables_in(head)}
    return frozenset(name for name in names if not RANK.search(name) and not _OWN.search(name))


def _is_count(text: str | None) -> bool:
    if text is None or _COUNT.fullmatch(text) is None:
        return False
    return not text.lstrip("-").isdecimal() or abs(int(text)) < _LARGEST
