"""An address as parts of the report: the fault, the operands of its instruction, and what `pytracer where` prints."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._text import hex_addr
from pytracer.analyze.address_space.address_info import Place, Region
from pytracer.analyze.address_space.description import address_sentence, storage_phrase
from pytracer.analyze.address_space.regions import NEAR_NULL_BYTES
from pytracer.analyze.assemble.threads import thread_kind
from pytracer.analyze.parts import StorageReports
from pytracer.analyze.platform.instruction import Instruction, signed
from pytracer.decode.symbols.image_symbols import ImagePlace, place_in_image
from pytracer.decode.types.snapshot import Storage
from pytracer.report import job as r

EARLIER_LIVES = 4
_SMALL_INDEX = 1 << 32


class AddressReports:
    """Addresses of one process as parts of the report."""

    def __init__(self, storages: StorageReports) -> None:
        self.space, self._storages = storages.space, storages

    def with_surroundings(self, fault: r.Fault, place: Place, instruction: Instruction | None) -> r.Fault:
        """The fault with what lay at, beside and before its address, and what its operands were."""
        region = self.region(place.addr)
        return msgspec.structs.replace(
            fault,
            region=region,
            says=address_sentence(place, region.kind if region else None, region.says if region else None),
            neighbors=self.neighbors(place.addr),
            earlier_lives=[] if _is_of_file(place) else self.earlier_lives(place),
            operands=self.operands(instruction),
        )

    def neighbors(self, addr: int) -> list[r.Neighbor]:
        """The live storages beside an address."""
        return [
            r.Neighbor(
                side=item.side,
                distance_bytes=item.distance_bytes,
                storage=self._life_report(item.storage, addr, item.names),
            )
            for item in self.space.neighbors.beside(addr)
        ]

    def earlier_lives(self, place: Place) -> list[r.StorageReport]:
        """What lay around the address before its last storage did, the latest first."""
        lives = self.space.neighbors.before(place.addr, place.storage)[:EARLIER_LIVES]
        return [
            report
            for life in lives
            if (report := self._life_report(life, place.addr, self.space.uses.names_of(life, place.addr)[1]))
        ]

    def _life_report(self, storage: Storage, addr: int, names: Sequence[str]) -> r.StorageReport | None:
        offset = addr - storage.base
        place = Place(
            addr, "", storage, offset, 0 if 0 <= offset < storage.nbytes else None, "guessed", None, tuple(names)
        )
        return self._storages.of_place(place)

    def region(self, addr: int) -> r.Region | None:
        """The part of the process that an address lay in, with section and symbol for an image."""
        region = self.space.regions.at(addr)
        if region is None:
            return None
        found, says = ImagePlace(), region.words
        if region.image is not None and region.offset is not None:
            found = place_in_image(region.image.path, region.image.build_id, region.offset)
            at = f", {found.symbol}+{found.symbol_offset:#x}" if found.symbol else ""
            says = f"{region.words}{at}" + (f" ({found.section})" if found.section else "")
        return r.Region(
            kind=region.kind,
            says=says,
            start=_hex(region.start),
            end=_hex(region.end),
            permissions=region.permissions,
            path=region.path,
            offset=region.offset,
            section=found.section,
            function=found.symbol,
            function_offset=found.symbol_offset,
            thread=self._thread(region),
        )

    def _thread(self, region: Region) -> r.Thread | None:
        snapshot = self.space.snapshot
        crash = snapshot.crash or snapshot.live
        if region.tid is None or crash is None:
            return None
        named = [(item.tid, item.name) for item in crash.threads] + [(item.tid, item.name) for item in snapshot.threads]
        names = [crash.thread_name] if region.tid == crash.tid else [name for tid, name in named if tid == region.tid]
        name = names[0] if names else None
        return r.Thread(tid=region.tid, name=name, kind=thread_kind(snapshot.pid, region.tid, name or "", False))

    def operands(self, instruction: Instruction | None) -> list[r.Operand]:
        """The registers from which the faulting instruction formed its address, each explained."""
        if instruction is None:
            return []
        parts = (
            (instruction.base, instruction.base_value, "base", 1),
            (instruction.index, instruction.index_value, "index", instruction.scale),
        )
        return [
            self._operand(name, value, role, scale, is_lane=role == "index" and instruction.is_lane)
            for name, value, role, scale in parts
            if name is not None and value is not None
        ]

    def _operand(self, name: str, value: int, role: str, scale: int, *, is_lane: bool) -> r.Operand:
        report = r.Operand(register=name, role=role, value=hex_addr(value), scale=scale)
        number = signed(value)
        if role == "index" and abs(number) < _SMALL_INDEX:
            times = f", times {scale} = {number * scale} bytes" if scale != 1 else ""
            held = "has, by the address," if is_lane else "is"
            return msgspec.structs.replace(report, says=f"{held} {number}{times}")
        if value < NEAR_NULL_BYTES:
            kind, says = ("null", "is null") if value == 0 else ("near-null", f"is {value}")
            return msgspec.structs.replace(report, kind=kind, says=says)
        place = self.space.describe(value)
        storage = self._storages.of_place(place)
        return msgspec.structs.replace(report, kind=place.kind, storage=storage, says=self._target_words(place))

    def _target_words(self, place: Place) -> str | None:
        phrase, region = storage_phrase(place, "to the start of"), self.space.regions.at(place.addr)
        if phrase is not None:
            return f"points {phrase}"
        if region is None:
            return None
        nowhere = region.kind in ("unmapped", "non-canonical")
        return f"{'is' if nowhere else 'points into'} {region.words}"


def _is_of_file(place: Place) -> bool:
    """Whether the storage is a mapped file: what lay there before it was mapped has nothing to do with its pages."""
    return place.kind == "in-storage" and place.mapping is not None and place.mapping.path.startswith("/")


def _hex(value: int | None) -> str | None:
    return hex_addr(value) if value is not None else None
