"""Why a pointer must not be freed as it is: another allocator gave it out, or it has a second owner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from pytracer._text import capital
from pytracer.analyze.evidence.own_code.freeing_line import FreeingLine


class FreedPointer(ABC):
    """What is wrong of one that is freed: `line` frees it."""

    line: FreeingLine

    @property
    @abstractmethod
    def summary(self) -> str:
        """Behind the headline."""

    @property
    @abstractmethod
    def advice(self) -> str:
        """The change to make."""


@dataclass(frozen=True)
class OtherAllocator(FreedPointer):
    """`name` comes of a call of `maker`, and is freed by another way than `right`, which belongs to that."""

    line: FreeingLine
    name: str
    maker: str
    place: str
    right: str

    @property
    def summary(self) -> str:
        """See FreedPointer."""
        return f"`{self.name}` is of {self.maker}() ({self.place}), but {self.line.way} frees it ({self.line.place})"

    @property
    def advice(self) -> str:
        """See FreedPointer."""
        return (
            f"Free `{self.name}` by {self.right}() at {self.line.place}, not by {self.line.way}: {self.maker}() "
            f"({self.place}) returns an address inside of a block, which {self.line.way} does not know."
        )


@dataclass(frozen=True)
class OwnedByObject(FreedPointer):
    """`name` has `given`, its own memory, which ends with it. `place`: where the memory is given away."""

    line: FreeingLine
    name: str
    declared: str
    given: str
    place: str

    @property
    def summary(self) -> str:
        """See FreedPointer."""
        own = f"`{self.given}` ({self.place}) belongs to {self.declared}"
        return f"{own}, and {self.line.way} at {self.line.place} frees it"

    @property
    def advice(self) -> str:
        """See FreedPointer."""
        return (
            f"Do not free it at {self.line.place}: `{self.name}` frees its memory itself. Return a copy "
            "(`.clone()`, no deleter), or let the deleter keep the object: `auto *held = new "
            f"auto(std::move({self.name}))`, held->{self.given.partition('.')[2] or 'data()'}, and a deleter that does "
            "`delete held`."
        )


@dataclass(frozen=True)
class TakenMember(FreedPointer):
    """pybind11 takes the member that `method` returns, by `policy` at `place`; the class's destructor deletes it."""

    line: FreeingLine
    method: str
    owner: str
    place: str

    @property
    def summary(self) -> str:
        """See FreedPointer."""
        return (
            f"`{self.line.name}` has two owners: ~{self.owner}() deletes it ({self.line.place}), and so does Python, "
            f"by return_value_policy::take_ownership of {self.method}() ({self.place})"
        )

    @property
    def advice(self) -> str:
        """See FreedPointer."""
        return (
            f"Write py::return_value_policy::reference_internal at {self.place}: what {self.method}() returns belongs "
            f"to the {self.owner}, whose destructor deletes it ({self.line.place})."
        )


@dataclass(frozen=True)
class CopiedOwner(FreedPointer):
    """`owner` frees a member in its destructor, has no copy constructor, and is returned by value at `place`."""

    line: FreeingLine
    owner: str
    copied: str
    place: str

    @property
    def summary(self) -> str:
        """See FreedPointer."""
        return (
            f"each copy of a {self.owner} has the same `{self.line.name}`, which ~{self.owner}() frees "
            f"({self.line.place}), and {self.place} copies one"
        )

    @property
    def advice(self) -> str:
        """See FreedPointer."""
        return (
            f"Return a reference or a pointer at {self.place} (`{self.copied}`), or let {self.owner} hold "
            f"`{self.line.name}` in a std::vector or std::shared_ptr: it has no copy constructor, so that a copy has "
            "the same pointer, and both free it."
        )


@dataclass(frozen=True)
class LiteralFreed(FreedPointer):
    """`name` may be `literal`, which the line at `place` sets it to."""

    line: FreeingLine
    name: str
    literal: str
    place: str

    @property
    def summary(self) -> str:
        """See FreedPointer."""
        return (
            f"{self.place} sets `{self.name}` to {self.literal}, which is no block of malloc(), and {self.line.way} at "
            f"{self.line.place} frees `{self.line.name}`"
        )

    @property
    def advice(self) -> str:
        """See FreedPointer."""
        return (
            f"Write `strdup({self.literal})` at {self.place}, or free `{self.line.name}` at {self.line.place} "
            "only where it was allocated."
        )


@dataclass(frozen=True)
class MovedResult(FreedPointer):
    """`name` of the program's line `passed` is of `maker`, which returns an address that it moved on at `place`."""

    line: FreeingLine
    name: str
    maker: str
    place: str
    passed: str

    @property
    def summary(self) -> str:
        """See FreedPointer."""
        return (
            f"`{self.name}` is of {self.maker}(), which returns an address inside of a block ({self.place} moves it), "
            f"and {self.line.way} at {self.line.place} frees it"
        )

    @property
    def advice(self) -> str:
        """See FreedPointer."""
        return (
            f"Let {self.maker}() return the first address of its block, which alone can be freed: move another pointer "
            f"at {self.place}, or return a copy of the rest. {capital(self.passed)} passes `{self.name}`."
        )
