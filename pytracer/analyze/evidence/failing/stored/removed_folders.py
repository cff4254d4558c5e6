"""A file that the program removes, or the folder of it: the only `rmtree()` takes folders of that name away.

Checkpoints are rotated so: `shutil.rmtree(self.kept.pop(0))`, and the best one is among those that are removed.
"""

from __future__ import annotations

import ast
import os

from pytracer.analyze.evidence.failing.expressions import short
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.processes.made_by_one import paths_of
from pytracer.analyze.evidence.failing.stored.removed_files import may_be, removed_file, removed_subject, targets
from pytracer.analyze.evidence.slicing.callers import calls_named
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.scopes import scope_of


def removed_path(at: FailingLine) -> str | None:
    """Of a file that the program removes, or of the folder that it is in."""
    return removed_file(at) or _removed_folder(at)


def removed_path_subject(at: FailingLine) -> str | None:
    """For the headline: what the program does there."""
    return removed_subject(at) or _folder_subject(at)


def _removed_folder(at: FailingLine) -> str | None:
    """To keep what is still read; None of a file that is written, and where a call removes other folders."""
    found = _removal(at)
    if found is None:
        return None
    call, spot, part = found
    line = at.place(spot, call.lineno)
    return (
        f"There is no folder {part!r}, and {line} (`{short(ast.unparse(call))}`) removes folders of such names: print "
        f"what it is given, to see whether this one was removed or never made. If it was removed, leave out there what "
        f"line {at.line} still reads, such as the best checkpoint, or copy that to a folder of its own."
    )


def _folder_subject(at: FailingLine) -> str | None:
    found = _removal(at)
    if found is None:
        return None
    call, spot, part = found
    line = at.place(spot, call.lineno)
    return f"there is no folder {part!r}; {line} (`{short(ast.unparse(call))}`) removes folders of such names"


def _removal(at: FailingLine) -> tuple[ast.Call, Spot, str] | None:
    path, part = at.values.get("file"), at.values.get("file missing part")
    if at.kind != "FileNotFoundError" or path is None or part is None or at.node is None:
        return None
    if os.path.basename(path) == part or any(writes for _, writes in paths_of(at.node)):
        return None
    calls = [
        (item, Spot(file, tree, scope_of(tree, item.lineno), item.lineno))
        for file, tree, item in calls_named(at.files, "rmtree")
        if item.args
    ]
    if len(calls) != 1:
        return None
    call, spot = calls[0]
    given = [*targets(at, call.args[0], spot)]
    return (call, spot, part) if any(may_be(parts, part) for parts in given) else None
