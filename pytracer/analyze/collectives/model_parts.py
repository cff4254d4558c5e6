"""Parts of one model that two ranks passed at the same time, known by their sizes: the layers of `experts.rail`.

Both ranks have the same parameters, of the same sizes, so that it is no other model, but another part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytracer.analyze.collectives.model_sizes import parameter_sizes
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.journal import Unit
from pytracer.decode.types.snapshot import Collective

_Side = tuple[ProcessView, Collective]


def parts_passed(first: _Side, second: _Side) -> tuple[str, str] | None:
    """The only part, or parameter, that has the bytes of each call; None where the models differ, or several have."""
    if any(view.process.snapshot.recorded(Unit) for view, _ in (first, second)):
        return None
    sizes = [parameter_sizes(view) for view, _ in (first, second)]
    if not sizes[0] or sizes[0] != sizes[1] or first[1].dtype != second[1].dtype:
        return None
    found = [[*_parts(sizes[0], call.nbytes)] for _, call in (first, second)]
    (one, other) = (items[0] if len(items) == 1 else None for items in found)
    return (one, other) if one is not None and other is not None and one != other else None


def _parts(sizes: Mapping[str, int], nbytes: int | None) -> Iterator[str]:
    """Of prefixes with the same parameters the longest."""
    members = dict[str, list[str]]()
    for name in sizes:
        words = name.split(".")
        for end in range(1, len(words) + 1):
            members.setdefault(".".join(words[:end]), []).append(name)
    found = {tuple(names): part for part, names in members.items() if sum(sizes[name] for name in names) == nbytes}
    yield from found.values()  # a longer prefix comes later
