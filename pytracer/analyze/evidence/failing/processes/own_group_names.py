"""A process group that each member names by itself: new_group(use_local_synchronization=True).

The name is a hash of the ranks and of the number of groups that the process has made, so that members which had made
another number wait for each other under different names. The key in the time-out's message has it.
"""

from __future__ import annotations

import ast
import hashlib
import itertools

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.ranks import rank_branch
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans
from pytracer.analyze.naming import LineWords
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.report.job import PythonFrame

_KEY = Pattern(r"wait timeout after \d+ms, keys: \S*//(?P<name>[0-9a-f]{40})//\w+//\d+/(?P<rank>\d+)\s*$")
_MOST_RANKS = 10  # of which all sets are tried
_MOST_GROUPS = 64


def own_group_name(at: FailingLine) -> str | None:
    """Why the others may wait elsewhere, and the line that makes one more group on some ranks."""
    found = _KEY.search(at.message)
    if found is None:
        return None
    known, more = _made_of(at, found["name"]), _made_on_some_ranks(at)
    ranks = f" ({list_words([str(rank) for rank in known[0]])})" if known is not None else ""
    groups = f" (here {known[1]})" if known is not None else ""
    differs = f"{more}, so that the others wait" if more is not None else "a member that has made more or fewer waits"
    return (
        f"new_group(use_local_synchronization=True) names the group by its ranks{ranks} and by the number of groups "
        f"that the process has made{groups}: {differs} under another name. Make shared groups before the others, or "
        "leave that argument out and make every group on all ranks, in the same order."
    )


def own_group_behind(at: FailingLine) -> Behind | None:
    """That line."""
    return Behind.of([], _made_on_some_ranks(at)) if _KEY.search(at.message) is not None else None


def _made_of(at: FailingLine, name: str) -> tuple[tuple[int, ...], int] | None:
    """The ranks and the number of groups of which the hash is, as torch makes it; only where few are possible."""
    size = at.snapshot.rank.world_size if at.snapshot.rank is not None else None
    if not size or size > _MOST_RANKS:
        return None
    sets = itertools.chain.from_iterable(itertools.combinations(range(size), many) for many in range(1, size + 1))
    for ranks, groups in itertools.product(sets, range(_MOST_GROUPS)):
        text = "_".join([*map(str, ranks), str(groups)])
        if hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest() == name:
            return ranks, groups
    return None


def _made_on_some_ranks(at: FailingLine) -> LineWords | None:
    """`` line 18, below `if rank == 0:`, makes one on some ranks only ``: an earlier call, by the same function."""
    for frame, inner in zip(at.frames, (None, *at.frames), strict=False):
        tree = syntax_tree(at.snapshot, frame)
        if tree is None or frame.line is None:
            continue
        made = inner.function.rpartition(".")[2] if inner is not None and inner.function is not None else "new_group"
        names = {called_name(call) for call in calls_on(tree, frame.line)} & {made}
        for node in own_nodes(scope_of(tree, frame.line)):
            if not isinstance(node, ast.Call) or called_name(node) not in names or node.lineno >= frame.line:
                continue
            branch = rank_branch(tree, node.lineno)
            if branch is not None and not spans(branch, frame.line):
                at_line = PythonFrame(file=frame.file, line=branch.lineno, function=frame.function)
                text = (line_text(at.snapshot, at_line) or "").strip()
                words = f"line {node.lineno}, below `{text}`, makes one on some ranks only"
                return LineWords(words, frame.file, node.lineno)
    return None
