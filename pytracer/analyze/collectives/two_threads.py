"""Two threads of each rank that call collectives of one process group: which comes first is chance on each rank.

`torch.distributed.checkpoint.async_save()` is such a thread, which the program does not start itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from pytracer._library_files import is_library_file
from pytracer.analyze.collectives.call_sites import site_of
from pytracer.analyze.collectives.left_out_calls import LeftOut
from pytracer.analyze.collectives.matching import GroupMatch, Mismatch
from pytracer.analyze.collectives.rounds import site_words
from pytracer.analyze.collectives.ways import way_to
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import function_named
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective

_SAVES = "async_save"


def two_threads(match: GroupMatch, found: Mismatch, sides: Sequence[ProcessView]) -> LeftOut | None:
    """Where each rank calls the two lines' collectives from two threads of its own."""
    variants = found.variants[:2]
    sites = [site for side in variants if (site := site_of(side.call)) is not None]
    if len(sites) < 2 or sites[0] == sites[1] or len(sides) < 2:
        return None
    for view in sides:
        own = [call for call in view.process.snapshot.collectives if call.group == match.name]
        threads = [{call.tid for call in own if site_of(call) == site} for site in sites]
        if not all(threads) or threads[0] & threads[1]:
            return None
    saves = [
        saved
        for view, side, site, other in zip(sides, variants, sites, sites[::-1], strict=False)
        if is_library_file(other[0]) and not is_library_file(site[0])
        for saved in _saves(view, side.call, site[0])
    ]
    if len(saves) == 1:
        line = next(site[2] for site in sites if not is_library_file(site[0]))
        return _of_save(*saves[0], line)
    return LeftOut(
        None,
        f"{site_words(sites[0])} and {site_words(sites[1])} run in two threads of each rank, and call collectives of "
        "one process group: which comes first is chance. Give the thread a group of its own "
        "(torch.distributed.new_group), or join() it before the other collective.",
    )


def _saves(view: ProcessView, call: Collective, here: str) -> Iterator[tuple[str, str]]:
    """Calls that save in a thread without a group of their own: the line and the function as it is written."""
    frames = way_to(view, call)[::-1]
    files = program_files(view.process.snapshot, frames)
    if any(function_named(tree, _SAVES) is not None for tree in files.values()):  # the program's own, perhaps
        return
    for file, tree in files.items():
        for item in nodes_of(tree):
            if not isinstance(item, ast.Call) or called_name(item) != _SAVES:
                continue
            if keyword_value(item, "process_group") is None and all(part.arg is not None for part in item.keywords):
                yield line_in(file, item.lineno, here), source(item.func)


def _of_save(where: str, function: str, line: int) -> LeftOut:
    return LeftOut(
        f"`{function}()` of {where} saves in a thread, whose collectives share a process group with those of line "
        f"{line}",
        "Which of the two threads comes first is chance on each rank. Make a group for the saves once, on all ranks "
        f'(`group = dist.new_group(backend="gloo")`), pass `process_group=group` to `{function}()` at {where}, and '
        "call result() of the last save before the next one, and before destroy_process_group().",
    )
