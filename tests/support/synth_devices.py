"""Memory of CUDA devices and CUDA graphs, packed from literals of their own. Part of `synth.py`: `box.devices`.

Events are numbered consecutively, as in the recorder; a crash records the number of the last one before it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

LIVE, AWAITED, FREED = 1, 2, 3
Id = tuple[int, int]  # site_id, site_where
NOBODY = (0, 0)


@dataclass
class Block:
    """One block of an allocator."""

    addr: int
    nbytes: int
    by: Id
    epoch: int
    order: int
    device: int = 0
    stream: int = 0
    pool: tuple[int, int] = (0, 0)
    state: int = LIVE
    freed_by: Id = NOBODY
    freed_epoch: int = 0
    freed_order: int = 0

    def packed(self, shown: int) -> bytes:
        """96 bytes."""
        head = struct.pack("<IHHQQQII", shown, self.state, self.device, self.addr, self.nbytes, self.stream, *self.pool)
        who = struct.pack("<ii4I", 11, 11 if self.freed_order else 0, *self.by, *self.freed_by)
        return head + who + struct.pack("<4I16s", self.epoch, self.order, self.freed_epoch, self.freed_order, b"")


@dataclass
class Devices:
    """Events are added in order; `regions()` is the content of the recording's regions."""

    order: int = 0
    blocks: list[Block] = field(default_factory=list)
    segments: list[bytes] = field(default_factory=list)
    graphs: list[bytes] = field(default_factory=list)
    inputs: list[bytes] = field(default_factory=list)
    streams: list[bytes] = field(default_factory=list)

    def next(self) -> int:
        """The number of the next event."""
        self.order += 1
        return self.order

    def segment(
        self, addr: int, nbytes: int, *, device: int = 0, pool: tuple[int, int] = (0, 0), gone: bool = False
    ) -> None:
        """Memory from the driver; `gone`: released at once."""
        begin = self.next()
        end = self.next() if gone else 0
        head = struct.pack("<IHHQQQIIII", begin, 2 if gone else 1, device, addr, nbytes, 0, *pool, 0, 0)
        self.segments.append(head + struct.pack("<4I", 1, begin, 1 if gone else 0, end))

    def alloc(self, addr: int, nbytes: int, by: Id, epoch: int, **more: int | tuple[int, int]) -> Block:
        """A block is allocated."""
        block = Block(addr, nbytes, by, epoch, self.next(), **more)  # type: ignore[arg-type]
        self.blocks.append(block)
        return block

    def free(self, addr: int, by: Id, epoch: int, *, awaited: bool = False) -> None:
        """The program frees the last block at `addr`."""
        block = next(item for item in reversed(self.blocks) if item.addr == addr)
        block.state = AWAITED if awaited else FREED
        block.freed_by, block.freed_epoch, block.freed_order = by, epoch, self.next()

    def graph(
        self, number: int, by: Id, *, pool: tuple[int, int] = (1, 0), state: int = 2, replays: int = 0, broken: int = 0,
        captured_ns: int = 0, reset_ns: int = 0, replayed_ns: int = 0,
    ) -> None:  # fmt: skip
        """A capture."""
        head = struct.pack("<IIIIIIQ", number, state, number, 0, *pool, 0x10) + struct.pack("<4I", *by, *NOBODY)
        head += struct.pack("<4Q", captured_ns, reset_ns, replays, replayed_ns or captured_ns)
        head += struct.pack("<4I", 1, 0, 0, 1 if broken else 0) + struct.pack(
            "<QQIIII", broken, captured_ns, 0, 0, 99, 0
        )
        self.graphs.append(head)

    def graph_input(
        self, graph: int, addr: int, nbytes: int, *, by: Id = NOBODY, freed_by: Id | None = None,
        taken: tuple[int, int, Id] | None = None,
    ) -> None:  # fmt: skip
        """A block that it uses; `freed_by`: freed since the capture; `taken`: address, size, owner of the next."""
        state = 3 if taken else 2 if freed_by is not None else 1
        freed = self.next() if freed_by is not None else 0
        new_addr, new_nbytes, new_by = taken or (0, 0, NOBODY)
        new = self.next() if taken else 0
        item = struct.pack("<IHHIIQQ", 1, state, 0, graph, 0, addr, nbytes)
        item += struct.pack("<8I", *by, *(freed_by or NOBODY), 1, freed, *new_by)
        self.inputs.append(item + struct.pack("<QQIIQ", new_addr, new_nbytes, 1, new, 0))

    def stream(self, handle: int, state: int, *, since_ns: int, error: int = 0, device: int = 0) -> None:
        """A stream, with the state that the device last reported."""
        self.streams.append(struct.pack("<IHHQQQiI24s", 1, state, device, handle, since_ns, since_ns, error, 0, b""))

    def regions(self) -> dict[int, tuple[int, bytes]]:
        """Kind -> size of an item, items."""
        freed = [block.packed(n) for n, block in enumerate((b for b in self.blocks if b.state == FREED), 1)]
        live = [block.packed(block.freed_order or block.order) for block in self.blocks if block.state != FREED]
        found = {48: (96, live), 49: (96, freed), 50: (64, self.segments), 51: (128, self.graphs)}
        found |= {52: (96, self.inputs), 53: (64, self.streams)}
        for size, items in found.values():
            assert all(len(item) == size for item in items)
        return {kind: (size, b"".join(items)) for kind, (size, items) in found.items() if items}
