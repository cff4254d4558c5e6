"""A loop that two ranks had gone through alike: their last common call is of a line behind it, in a loop around.

`for epoch in ...: for batch in loader: step(batch)` with an all_reduce() of `evaluate()` behind the inner loop: a rank
that is in the first step of the next epoch, after both had made that all_reduce(), does not part from the other by
the rounds of the inner loop.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from pytracer.analyze.collectives.call_sites import Site, calls_of_group, site_of
from pytracer.analyze.collectives.ways import Side, in_step, way_to
from pytracer.analyze.evidence.slicing.called_names import called_names
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.spots import END
from pytracer.analyze.evidence.syntax.comprehension_loops import rounds_around
from pytracer.analyze.evidence.syntax.loops import Loop
from pytracer.analyze.evidence.syntax.scopes import definitions, own_nodes, spans
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective

_ANY = ("forward", "__call__", "<module>", "<lambda>")  # which are called by no name, or which are no functions


def is_gone_through(inside: ProcessView, call: Collective, absent: ProcessView, depth: int, loop: Loop) -> bool:
    """Whether the call is the first of a pass through a loop which both ranks had gone through alike before.

    Args:
        inside: The rank that is in the loop.
        call: Its call, which the other one did not make.
        absent: The other rank.
        depth: Of the loop's function among the program's frames, the innermost first.
        loop: The loop.
    """
    way = way_to(inside, call)
    there, other = Side(inside, way, call), Side(absent, (), call)
    last = _last_site(there, other)
    if last is None or not in_step(there, other):
        return False
    frames = way[::-1]
    files = program_files(inside.process.snapshot, frames)
    if _reaches(files, frames[depth].file, [loop], last) is not False:
        return False
    return any(_reaches(files, frames[at].file, nodes, last) is True for at, nodes in _behind(there, depth, loop))


def _last_site(there: Side, other: Side) -> Site | None:
    """Of the call before, where both made it from one line, and had both called from that of the open call, too."""
    number, open_site = there.call.sequence_nr, site_of(there.call)
    made = [
        {item.sequence_nr: site_of(item) for item in calls_of_group(side.view, side.call.group)}
        for side in (there, other)
    ]
    last, theirs = (items.get(number - 1) for items in made)
    begun = all(open_site in [site for at, site in items.items() if at < number] for items in made)
    return last if last == theirs and last != open_site and begun else None


def _behind(there: Side, depth: int, loop: Loop) -> Iterator[tuple[int, Sequence[ast.stmt]]]:
    """What follows the loop in each loop around it, also in one around the line that called its function."""
    frames = there.way[::-1]
    for at in range(depth, len(frames)):
        frame = frames[at]
        tree = syntax_tree(there.view.process.snapshot, frame)
        if tree is None or frame.line is None:
            continue
        end = (loop.end_lineno or END) if at == depth else frame.line
        for outer in rounds_around(tree, frame.line):
            if at == depth and (outer is loop or not spans(outer, loop.lineno)):
                continue
            yield at, [item for item in own_nodes(outer) if isinstance(item, ast.stmt) and item.lineno > end]


def _reaches(files: Mapping[str, ast.Module], file: str | None, nodes: Sequence[ast.stmt], site: Site) -> bool | None:
    """Whether statements of a file have the line of a call, or call the function that it is in, by the names alone.

    Any call may be of an object, of the program's classes whose objects can be called. None where one of several
    functions of a name is called, and at the end of patience.
    """
    name = site[1].rpartition(".")[2]
    if site[0] == file and any(spans(item, site[2]) for item in nodes):
        return True
    if name in _ANY:
        return None
    names, is_whole = called_names(files, [*nodes, *_called_objects(files)])
    return True if name in names else False if is_whole else None


def _called_objects(files: Mapping[str, ast.Module]) -> Iterator[ast.AST]:
    for tree in files.values():
        for name in ("forward", "__call__"):
            yield from definitions(tree).get(name, ())
