"""A parameter that has another size in the model of each rank, where that is what the ranks passed to a collective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytracer.analyze.view import ProcessView
from pytracer.decode.types.journal import Unit
from pytracer.decode.types.snapshot import Collective

_ROLES = ("parameter", "buffer")


def unequal_parameter(first: tuple[ProcessView, Collective], second: tuple[ProcessView, Collective]) -> str | None:
    """Its name, `tok.weight`, the same on both ranks.

    Named tensors have no shape: both sizes in bytes must be those of the calls, and those of one name only. None with
    FSDP, whose ranks have parts of one model, and these may differ.
    """
    if any(view.process.snapshot.recorded(Unit) for view, _ in (first, second)):
        return None
    sizes = [_sizes(view) for view, _ in (first, second)]
    wanted = [call.nbytes for _, call in (first, second)]
    if None in wanted or wanted[0] == wanted[1] or first[1].dtype != second[1].dtype:
        return None
    found = [name for name in sizes[0] if [own.get(name) for own in sizes] == wanted]
    return found[0] if len(found) == 1 else None


def parameter_sizes(view: ProcessView) -> Mapping[str, int]:
    """Bytes of each parameter, by its name; of several models those that are of one size."""
    return _sizes(view, _ROLES[:1])


def _sizes(view: ProcessView, roles: Sequence[str] = _ROLES) -> Mapping[str, int]:
    """The same of buffers, too."""
    found: dict[str, set[int]] = {}
    for items in view.process.snapshot.named.values():
        for item in items:
            if item.role in roles:
                found.setdefault(item.name.removeprefix(f"{item.role} "), set()).add(item.nbytes)
    return {name: sizes.pop() for name, sizes in found.items() if len(sizes) == 1}
