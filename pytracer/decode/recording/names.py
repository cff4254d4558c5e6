"""The tree of names: modules, and tensors that have a name, each with the storages that it had."""

from __future__ import annotations

from collections.abc import Iterator

from pytracer.blackbox import schema
from pytracer.blackbox import structures as raw
from pytracer.blackbox.codec import decode
from pytracer.blackbox.schema import NameRole, Region
from pytracer.decode.recording.file import BoxFile
from pytracer.decode.recording.journal import Journal
from pytracer.decode.types.snapshot import NamedTensor

_TRANSPARENT = 1
_DEEPEST = 64
_LONGEST = 1024  # of a path; those of models that exist have 200
_ROLES: dict[int, str] = {
    NameRole.PARAMETER: "parameter",
    NameRole.BUFFER: "buffer",
    NameRole.STATE: "optimizer state",
    NameRole.USER: "user",
}


class Names:
    """Decodes the names of one recording."""

    def __init__(self, box: BoxFile, journal: Journal) -> None:
        self._journal = journal
        self._slots: list[raw.NameSlot] = []
        for extent in box.regions(Region.NAMES, schema.NAME_SLOT.nbytes):
            for i in range(extent.item_count):
                self._slots.append(decode(raw.NameSlot, box.data, extent.offset + i * extent.item_bytes))
                if not self._slots[-1].role:
                    break  # slots are used in order, regions filled before the next one is made
        self._paths: dict[int, tuple[str, int]] = {}
        # A path alone is a name, unless tensors of several models have the same one.
        roots: dict[str, set[int]] = {}
        for slot in self._slots:
            if slot.role in (NameRole.PARAMETER, NameRole.BUFFER):
                path, root = self._below_root(slot)
                roots.setdefault(path, set()).add(root)
        self._shared = {path for path, found in roots.items() if len(found) > 1}
        self._root_names = self._numbered(sorted({root for path in self._shared for root in roots[path]}))

    def read(self) -> dict[int, tuple[NamedTensor, ...]]:
        """All names that a storage had, by the base address of the storage; what the handler saw is the latest."""
        found: dict[int, list[NamedTensor]] = {}
        for slot in self._slots:
            if slot.role in _ROLES:
                for named in self._places(slot):
                    found.setdefault(named.base, []).append(named)
        return {base: tuple(items) for base, items in found.items()}

    def _places(self, slot: raw.NameSlot) -> Iterator[NamedTensor]:
        fqn = self._fqn(slot)
        role = _ROLES[slot.role]
        name = f"{role} {fqn}" if role in ("parameter", "buffer") else fqn
        for prefix, earlier in (("", False), ("earlier_", True), ("grad_", False), ("earlier_grad_", True)):
            gradient = "grad" in prefix
            epoch, base, addr = (getattr(slot, prefix + field) for field in ("epoch", "base", "addr"))
            if epoch and base:
                yield NamedTensor(
                    name=f"gradient of {fqn}" if gradient else name,
                    role="gradient" if gradient else role,
                    base=base,
                    addr=addr,
                    nbytes=slot.nbytes,
                    epoch=epoch,
                    earlier=earlier,
                )

    def _fqn(self, slot: raw.NameSlot) -> str:
        if slot.role == NameRole.STATE:
            text, owner = self._text(slot.name), self._slot(slot.parent)
            return f"{text} of {self._fqn(owner)}" if owner and owner.role == NameRole.PARAMETER else text
        fqn, root = self._below_root(slot)
        return f"{fqn} of {self._root_names[root]}" if fqn in self._shared and " of group " not in fqn else fqn

    def _below_root(self, slot: raw.NameSlot) -> tuple[str, int]:
        """The path of a tensor below its root, and the root's slot."""
        parent, root = self._path(slot.parent, 0)
        text = self._text(slot.name)
        return f"{parent}.{text}" if parent else text, root

    def _numbered(self, roots: list[int]) -> dict[int, str]:
        """Root modules by their classes: `Net`, `Net #2`. Optimizers are roots of parameters that no module has."""
        counts: dict[str, int] = {}
        names: dict[int, str] = {}
        for root in roots:
            slot = self._slot(root)
            kind = self._text(slot.name) if slot else "?"
            counts[kind] = counts.get(kind, 0) + 1
            names[root] = kind if counts[kind] == 1 else f"{kind} #{counts[kind]}"
        return names

    def _path(self, number: int, depth: int) -> tuple[str, int]:
        """The path of a module below its root, and the root's slot."""
        slot = self._slot(number)
        if slot is None or depth == _DEEPEST:
            return "", 0
        known = self._paths.get(number)
        if known is None:
            if slot.parent == 0:
                known = "", number
            else:
                above, root = self._path(slot.parent, depth + 1)
                text = "" if slot.flags & _TRANSPARENT else self._text(slot.name)
                known = ".".join(part for part in (above, text) if part)[-_LONGEST:], root
            self._paths[number] = known
        return known

    def _slot(self, number: int) -> raw.NameSlot | None:
        return self._slots[number - 1] if 0 < number <= len(self._slots) else None

    def _text(self, number: int) -> str:
        entry = self._journal.entries.get(number * 8)
        named = entry is not None and entry.kind == schema.Entry.NAME
        return entry.payload[:_LONGEST].decode("utf-8", "replace") if entry and named else "?"
