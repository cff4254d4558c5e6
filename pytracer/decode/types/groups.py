"""Process groups of a rank. Of thousands that all ranks help to make, most ranks are members of a few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import overload

from pytracer.decode.types.storages import PythonFrame


@dataclass(frozen=True)
class Group:
    """A process group of this process. `ranks` are global, in the group's order; `index` is the order of creation.

    `name` is None for a group that this process helped to make without being a member.
    """

    name: str | None
    description: str | None
    backend: str | None
    size: int | None
    own_rank: int | None  # this process's rank in the group; None when it never ran anything in it
    ranks: tuple[int, ...] | None
    index: int | None
    made_at: PythonFrame | None = None  # the line of the program that began to make it
    begun_ns: int | None = None  # when, of a group that was never completed

    @property
    def is_own(self) -> bool:
        """Whether this process is a member, or never completed making it."""
        return self.name is not None or self.begun_ns is not None

    @property
    def as_made(self) -> Group:
        """What a process knows of it that helped to make it and is no member."""
        size = len(self.ranks) if self.ranks is not None else None
        return replace(self, name=None, description=None, backend=None, size=size, own_rank=None, begun_ns=None)


class GroupList(Sequence[Group]):
    """The groups of one process. `made`: all, as one knows them that is no member, one tuple for thousands of
    processes; `own`: those of its own, by their place in `made`.
    """

    def __init__(self, made: tuple[Group, ...], own: Mapping[int, Group]) -> None:
        self.made = made
        self.own = own

    def __len__(self) -> int:
        return len(self.made)

    @overload
    def __getitem__(self, index: int) -> Group: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Group]: ...
    def __getitem__(self, index: int | slice) -> Group | Sequence[Group]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        return self.own.get(place) or self.made[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]
