"""Builds black boxes by hand, from its own literals: a second opinion on `pytracer/blackbox/schema.py`.

Nothing here imports the package. Events are added to a `Box` in order; the recording is written at the end:

    box = Box(pid=101, rank=1)
    box.alloc(0x7F0000000000, 4096, by=("train", "train.py", 12))
    box.free(0x7F0000000000, by="MulBackward0")
    box.at(250).step(3).collective("gloo:all_reduce", nbytes=4096)
    box.crash(signal=11, addr=0x7F0000000010, python=[("train", "train.py", 30)], native=[("/lib/libx.so", 0x1100)])
    box.write(directory / "node0.101.blackbox")

Methods that intern something (`code`, `node`, `site`) return a `By`; all others return the recording.
"""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.synth_devices import Devices
from tests.support.synth_threads import UNKNOWN, OtherThread, pack_memory, pack_threads

Frame = tuple[str, str, int]  # function, file, line
MS = 1_000_000
LARGE = 131072
WALL = 1_700_000_000_000_000_000  # wall clock minus monotonic clock

EVENTS = {
    "MARK": 1,
    "STEP": 2,
    "SAMPLE": 3,
    "NODE": 16,
    "RANGE_BEGIN": 17,
    "RANGE_END": 18,
    "OP": 19,
    "DEVICE_OP": 20,
    "STREAM": 24,
}
STREAM_ACTIONS = {
    "recorded": 1,
    "waits for event": 2,
    "waits for stream": 3,
    "host waited": 5,
    "host waited for device": 6,
}
REGISTERS = (
    *(f"r{n}" for n in range(8, 16)),
    *("rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx", "rsp", "rip", "eflags"),
    *("csgsfs", "err", "trapno", "oldmask", "cr2"),
)
AARCH64_REGISTERS = (*(f"x{n}" for n in range(31)), "sp", "pc", "pstate")


class By(NamedTuple):
    """A call site: `site_id` and `site_where` of a storage."""

    id: int = 0
    where: int = 0


NOBODY = By()
GUARD_POOL = (0x7E00_0000_0000, 0x7E10_0000_0000)
GUARD_COUNTS = (
    *("guarded", "quarantined", "refused_bytes", "refused_mappings", "refused_records", "refused_system"),
    *("unsealed", "live", "live_bytes", "most_bytes", "mappings"),
)
Who = By | Frame | str | None


@dataclass
class Life:
    """One storage, from its allocation on."""

    base: int
    nbytes: int
    thread: int
    by: By
    epoch: int
    sequence: int
    freed_thread: int = 0
    freed_by: By = NOBODY
    freed_epoch: int = 0
    freed_sequence: int = 0

    def packed(self, order: int) -> bytes:
        """The 64 bytes of a lifetime."""
        fixed = struct.pack("<QQIHH", self.base, self.nbytes, order, self.thread, self.freed_thread)
        who = struct.pack("<IIII", *self.by, *self.freed_by)
        when = (self.epoch, self.sequence, self.freed_epoch, self.freed_sequence)
        return fixed + who + struct.pack("<IIIIQ", *when, 0)


@dataclass
class Thread:
    """One thread context."""

    tid: int
    name: str
    pthread: int
    ended: int = 0
    sequence: int = 0
    allocs: int = 0
    frees: int = 0
    records: list[tuple[int, int, bytes]] = field(default_factory=list)
    small: list[Life] = field(default_factory=list)
    large: list[Life] = field(default_factory=list)


def line_table_311(lines: Sequence[int]) -> bytes:
    """A location table of CPython 3.11 and later: 16 bytes of instructions for each of `lines` (deltas)."""
    table = bytearray()
    for delta in lines:
        table.append(0x80 | 13 << 3 | 7)
        value = delta << 1 if delta >= 0 else (-delta << 1) | 1
        while value >= 64:
            table.append(0x40 | value & 63)
            value >>= 6
        table.append(value)
    return bytes(table)


class Box:
    """One recording under construction. `at` sets the time, in milliseconds after the creation of the recording."""

    def __init__(
        self,
        pid: int = 101,
        ppid: int = 100,
        *,
        rank: int | None = None,
        world_size: int = 2,
        host: str = "node0",
        boot_id: str = "b0075f00-0000-4000-8000-000000000001",
        created_ns: int = 5_000_000_000,
        start_ticks: int | None = None,
        argv: Sequence[str] = ("python", "train.py"),
        environment: Mapping[str, str] | None = None,
        python_minor: int = 11,
        threads_per_chunk: int = 4,
        records_per_thread: int = 256,
        freed_per_thread: int = 1024,
        slots_log2: int = 10,
        journal_bytes: int = 65536,
        epoch_slots: int = 16384,
        arch: str = "x86-64",
        page_bytes: int = 4096,
    ) -> None:
        self.arch, self.page_bytes = arch, page_bytes
        self.pid, self.ppid, self.host, self.boot_id = pid, ppid, host, boot_id
        self.created_ns, self.now = created_ns, created_ns
        self.start_ticks = pid * 10 if start_ticks is None else start_ticks
        self.python_minor = python_minor
        self.shape = (threads_per_chunk, records_per_thread, freed_per_thread, slots_log2, journal_bytes, epoch_slots)
        self.state, self.exit_code, self.exit_ns = 1, 0, 0
        self.major, self.minor = 1, 0
        self.step_now, self.step_source = -1, 0
        self.epochs: list[tuple[int, int]] = []
        self.journal = bytearray(8)  # id 0 means unknown: no entry lies at offset 0
        self.threads: list[Thread] = []
        self.lives: dict[int, Life] = {}
        self.busy_keys: list[int] = []
        self.counters: dict[str, int] = {}
        self.collectives: list[bytes] = []
        self.scoped_tensors: list[bytes] = []
        self.crash_regions: dict[int, tuple[int, bytes]] = {}
        self.guard_regions: dict[int, tuple[int, bytes]] = {}
        self.devices = Devices()
        self.interned: dict[Any, By] = {}
        self.sequence_nr = 0
        self._tick()
        self.thread(pid, "python")
        self.argv = tuple(argv)
        variables = dict(environment or {})
        if rank is not None:
            variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world_size), **variables}
        self.variables = variables
        self._process()
        if rank is not None:
            self.rank(rank, world_size)

    def _process(self) -> None:
        self.entry(1, b"\0".join(a.encode() for a in self.argv) + b"\0")
        self.entry(2, b"".join(f"{k}={v}".encode() + b"\0" for k, v in self.variables.items()))

    # Time and identity

    def at(self, ms: float) -> Box:
        """Moves the clock to `ms` after the creation of the recording."""
        self.now = self.created_ns + int(ms * MS)
        return self

    def _tick(self) -> int:
        self.now += 1000
        self.epochs.append((self.now, self.step_now))
        return len(self.epochs)

    @property
    def epoch(self) -> int:
        """The epoch now; the first one is 1."""
        return len(self.epochs)

    def thread(self, tid: int, name: str = "", *, pthread: int | None = None, ended: bool = False) -> Box:
        """Adds a thread; the main one (tid == pid) always exists."""
        self.threads.append(Thread(tid, name, 0x7E00_0000_0000 + tid * 64 if pthread is None else pthread, int(ended)))
        return self

    def _index(self, tid: int | None) -> int:
        tid = self.pid if tid is None else tid
        for i, thread in enumerate(self.threads):
            if thread.tid == tid:
                return i
        self.thread(tid, f"thread-{tid}")
        return len(self.threads) - 1

    def count(self, **counters: int) -> Box:
        """Sets counters of the header: storages_dropped, unknown_frees, hook_errors, journal_dropped ..."""
        self.counters.update(counters)
        return self

    def exit(self, code: int) -> Box:
        """exit() was called."""
        self.state, self.exit_code, self.exit_ns = 3, code, self.now
        return self

    # Journal

    def entry(self, kind: int, payload: bytes, *, published: int = 1) -> int:
        """Appends a journal entry; returns its offset divided by 8, which is a site_id."""
        offset = len(self.journal)
        epoch = self._tick()
        self.journal += struct.pack("<HHIQII", 0x4A45, kind, 24 + len(payload), self.now, epoch, published) + payload
        self.journal += bytes(-len(self.journal) % 8)
        return offset // 8

    def signal_seen(
        self, number: int, sender: int = 0, command: Sequence[str] = (), *, code: int = 0, handled: bool = False
    ) -> Box:
        """SIGNAL_SEEN: the process got a signal from `sender`."""
        words = "".join(word + "\0" for word in command).encode()
        self.entry(41, struct.pack("<iiiIiIII", number, code, sender, 1000, self.pid, handled, len(words), 0) + words)
        return self

    def _json(self, kind: int, value: Any) -> Box:
        self.entry(kind, json.dumps(value).encode())
        return self

    def entry_of_worker(self, number: int, dataset: str | None = None) -> Box:
        """WORKER: a worker of a DataLoader."""
        return self._json(40, {"worker_id": number, "num_workers": 2, "seed": 1, "dataset": dataset})

    def core_note(self, code: int, addr: int = 0, value: int = 0) -> Box:
        """CORE_NOTE."""
        self.entry(5, struct.pack("<IIQQ", code, 0, addr, value))
        return self

    def note(self, text: str) -> Box:
        """NOTE."""
        self.entry(3, text.encode())
        return self

    def wait(self, pid: int, *, exit_code: int | None = None, signal: int | None = None, waitid: bool = False) -> Box:
        """WAIT: this process reaped `pid`."""
        if waitid:
            status, code = (exit_code or 0, 1) if signal is None else (signal, 2)
        else:
            status, code = ((exit_code or 0) << 8 if signal is None else signal), 0
        usage = (1_500_000, 250_000, 81_920, 3) if not waitid else (2**64 - 1,) * 4
        self.entry(4, struct.pack("<iiiIQ4Q", pid, status, code, int(waitid), self.now, *usage))
        return self

    def versions(self, **versions: str | None) -> Box:
        """VERSIONS."""
        return self._json(32, versions)

    def rank(self, rank: int, world_size: int = 2, **more: Any) -> Box:
        """RANK, as written by init_process_group."""
        value = {"rank": rank, "local_rank": rank, "world_size": world_size, "backend": "gloo", "init": "env://"}
        return self._json(33, {**value, **more})

    def rendezvous(self, rank: int, world_size: int = 2, **more: Any) -> Box:
        """RENDEZVOUS: init_process_group() was called; by env:// at node0:29500 unless changed by `more`."""
        caller = {"function": "setup", "file": "/home/user/train.py", "line": 10}
        value = {"rank": rank, "world_size": world_size, "local_rank": rank, "passed": [], "caller": caller}
        return self._json(43, {**value, "master_addr": "node0", "master_port": 29500, **more})

    def module(
        self, name: str, tensors: Iterable[Mapping[str, Any]], wrapper: str = "ddp", cls: str = "Net", **more: Any
    ) -> Box:
        """MODULE; each tensor: fqn, addr, nbytes, and what else is known."""
        filled = []
        for t in tensors:
            extra = {"role": "parameter", "dtype": "float32", "shape": [t["nbytes"] // 4]}
            filled.append({**extra, "storage_addr": t["addr"], "storage_nbytes": t["nbytes"], **t})
        return self._json(34, {"module": name, "class": cls, "wrapper": wrapper, "tensors": filled, **more})

    def buckets(
        self, module: str, buckets: Iterable[Mapping[str, Any]], generation: int = 1, rebuilt: bool = True
    ) -> Box:
        """BUCKETS; each bucket: addr, nbytes, parameters as fqn -> nbytes (laid out in order)."""
        out = []
        for i, b in enumerate(buckets):
            at, parameters = 0, []
            for fqn, nbytes in dict(b.get("parameters", {})).items():
                parameters.append({"fqn": fqn, "offset_bytes": at, "nbytes": nbytes})
                at += nbytes
            out.append({"index": b.get("index", i), "addr": b["addr"], "nbytes": b["nbytes"], "parameters": parameters})
        return self._json(35, {"module": module, "generation": generation, "has_rebuilt": rebuilt, "buckets": out})

    def scope(self, text: str) -> int:
        """A SCOPE entry's id."""
        return self.entry(60, text.encode())

    def unit(self, unit: str, parameters: Iterable[Mapping[str, Any]], **more: Any) -> Box:
        """A UNIT entry: fully_shard over two ranks, unless changed by `more`."""
        about = {"module": "Net", "wrapper": "fully_shard", "world_size": 2, "shard_rank": 1, "generation": 0}
        return self._json(61, {**about, "unit": unit, "parameters": list(parameters), **more})

    def hook(self, module: str, hook: str) -> Box:
        """A HOOK entry."""
        return self._json(62, {"module": module, "hook": hook})

    def scoped(self, role: int, scope: int, tensors: Sequence[tuple[int, int]]) -> Box:
        """Tensors (address, size) that an operator of FSDP's worked on; role 1 parameters, 2 gradients."""
        epoch = self._tick()
        for index, (addr, nbytes) in enumerate(tensors):
            order = len(self.scoped_tensors) + 1
            slot = struct.pack("<IIQQIIIIQ", order, role, addr, nbytes, scope, epoch, index, len(tensors), self.now)
            self.scoped_tensors.append(slot)
        return self

    def exception(
        self, type: str, message: str, stack: Sequence[Frame] = (), thread: str = "MainThread", **more: Any
    ) -> Box:
        """EXCEPTION; `stack` innermost first."""
        frames = [{"function": f, "file": p, "line": n} for f, p, n in stack]
        return self._json(36, {"type": type, "message": message, "thread": thread, "python_stack": frames, **more})

    def kernel_assertion(self, text: str) -> Box:
        """DEVICE_ASSERTION: the driver printed it."""
        self.entry(51, text.encode())
        return self

    def thread_exception(
        self, type: str, message: str, stack: Sequence[Frame] = (), thread: str = "Thread-1 (write)", tid: int = 777
    ) -> Box:
        """THREAD_EXCEPTION; `stack` innermost first."""
        frames = [{"function": f, "file": p, "line": n} for f, p, n in stack]
        return self._json(47, {"type": type, "message": message, "thread": thread, "tid": tid, "python_stack": frames})

    def exit_request(self, status: int, stack: Sequence[Frame], message: str = "", **more: Any) -> Box:
        """EXIT_REQUEST: sys.exit() was called; `stack` innermost first."""
        frames = [{"function": f, "file": p, "line": n} for f, p, n in stack]
        return self._json(49, {"status": status, "message": message, "python_stack": frames, **more})

    def leaves(self, error: tuple[str, str] | None = None, stack: Sequence[Frame] = ()) -> Box:
        """destroy_process_group() is called, perhaps while an exception propagates."""
        if error is not None:
            self.exception(*error, stack, on_its_way="destroy_process_group")
        number, size = int(self.variables.get("RANK", 0)), int(self.variables.get("WORLD_SIZE", 2))
        return self.rank(number, size, left="destroy_process_group")

    def cpp_exception(self, type: str, what: str = "", tid: int | None = None) -> Box:
        """CPP_EXCEPTION: std::terminate() was called."""
        name, text = type.encode(), what.encode()
        self.entry(38, struct.pack("<iIII", tid or self.pid, len(name), len(text), 0) + name + text)
        return self

    def group(
        self,
        name: str | None,
        ranks: Sequence[int],
        backend: str | None = "gloo",
        description: str | None = "",
        caller: tuple[str, str, int] | None = None,
    ) -> Box:
        """GROUP, without name and backend where the process is no member.

        With the (function, file, line) that began to make it, it is preceded by the entry of that.
        """
        if caller is not None:
            place = dict(zip(("function", "file", "line"), caller, strict=True))
            self._json(37, {"begun": True, "ranks": list(ranks), "description": None, "caller": place})
        return self._json(37, {"name": name, "description": description, "backend": backend, "ranks": list(ranks)})

    def code(self, function: str, file: str, line: int, *, torch: bool = False) -> By:
        """CODE. The instruction is at offset 20, three lines below the first one where that is possible."""
        key = (function, file, line)
        if key not in self.interned:
            first = max(1, line - 3)
            name, path, table = function.encode(), file.encode(), line_table_311([0, line - first])
            head = struct.pack(
                "<iHBBIIII", first, self.python_minor, 1, 1, len(name), len(path), len(table), int(torch)
            )
            self.interned[key] = By(self.entry(16, head + name + path + table), 20)
        return self.interned[key]

    def node(self, name: str, sequence_nr: int = 0) -> By:
        """NODE, by class name."""
        if name not in self.interned:
            self.interned[name] = By(self.entry(17, name.encode()), 0)
        return By(self.interned[name].id, sequence_nr)

    def site(
        self, python: Frame | None, caller: Frame | None = None, node: str | None = None, sequence_nr: int = 0
    ) -> By:
        """SITE: innermost frame, first frame outside torch, running node."""
        inner = self.code(*python) if python else NOBODY
        outer = self.code(*caller) if caller else NOBODY
        node_id = self.node(node).id if node else 0
        return By(self.entry(18, struct.pack("<IIIIII", *inner, *outer, node_id, 0)), sequence_nr)

    def stack(self, *places: By, node: By = NOBODY, sequence_nr: int = 0xFFFFFFFF) -> By:
        """The call site of a guarded storage's allocation or release: results of `code`, innermost first."""
        words = [word for place in places for word in place]
        payload = struct.pack(f"<II{len(words)}I", node.id, len(places), *words)
        return By(self.entry(24, payload), sequence_nr)

    def guard(self, pool: tuple[int, int] = GUARD_POOL, mechanism: int = 1, every: int = 1, **counts: int) -> Box:
        """Guard mode was on; `counts` as in GuardRegion, and its other settings."""
        c = dict.fromkeys(GUARD_COUNTS, 0) | {"budget_bytes": 1 << 30, "budget_mappings": 16382, "fallback": 0} | counts
        head = struct.pack("<IIQQIIQQ", 1, mechanism, every, 0, 64, 0, c["budget_bytes"], c["budget_mappings"])
        head += struct.pack("<QQQQ", *pool, pool[1], pool[1] + (1 << 40))
        head += struct.pack(f"<{len(GUARD_COUNTS)}QiI80s", *(c[name] for name in GUARD_COUNTS), c["fallback"], 0, b"")
        assert len(head) == 256
        self.guard_regions[40] = (256, head)
        return self

    def guarded(
        self, base: int, nbytes: int, by: Who = None, freed_by: Who = None, *, freed: bool = False, number: int = 0,
        damage: tuple[int, int, bytes] | None = None,
    ) -> Box:  # fmt: skip
        """A guarded storage in pages of its own; `damage`: side, offset and bytes, which is also a journal entry."""
        low, high = base // 4096 * 4096, -(-(base + nbytes) // 4096) * 4096
        _, records = self.guard_regions.get(41, (128, b""))
        number = number or len(records) // 128 + 1
        side, offset, content = damage or (0, 0, b"")
        times = (self.now - MS, self.now if freed else 0)
        tids = (2 if freed else 1, self.pid, self.pid if freed else 0)
        record = struct.pack("<QQQQQQQIii", base, nbytes, low, high, number, *times, *tids)
        record += struct.pack("<IIIIII", *self._by(by), *self._by(freed_by), self.epoch, self.epoch if freed else 0)
        record += struct.pack("<IqII16s", side, offset, len(content), 0, content)
        assert len(record) == 128
        if damage:
            self.entry(56, record)
        self.guard_regions[41] = (128, records + record)
        return self

    def _by(self, by: Who) -> By:
        if by is None:
            return NOBODY
        if isinstance(by, By):
            return by
        return self.node(by) if isinstance(by, str) else self.code(*by)

    # Storages

    def alloc(self, base: int, nbytes: int, by: Who = None, tid: int | None = None) -> Box:
        """A storage is allocated and lives until `free`."""
        who, index = self._by(by), self._index(tid)
        thread = self.threads[index]
        thread.sequence += 1
        thread.allocs += 1
        self.lives[base] = Life(base, nbytes, index, who, self.epoch, thread.sequence)
        return self

    def free(self, base: int, by: Who = None, tid: int | None = None, *, keep_live: bool = False) -> Box:
        """It is freed. `keep_live`: the writer died after writing the lifetime and before emptying the slot."""
        who, index = self._by(by), self._index(tid)
        thread = self.threads[index]
        thread.sequence += 1
        thread.frees += 1
        life = self.lives[base] if keep_live else self.lives.pop(base)
        life = copy.copy(life)
        life.freed_thread, life.freed_by = index, who
        life.freed_epoch, life.freed_sequence = self.epoch, thread.sequence
        (thread.large if life.nbytes >= LARGE else thread.small).append(life)
        return self

    def live(self, base: int, nbytes: int, by: Who = None, tid: int | None = None) -> Box:
        """The same as `alloc`."""
        return self.alloc(base, nbytes, by, tid)

    def freed(self, base: int, nbytes: int, by: Who = None, freed_by: Who = None, tid: int | None = None) -> Box:
        """`alloc` and `free` at once."""
        return self.alloc(base, nbytes, by, tid).free(base, freed_by, tid)

    def busy(self, base: int) -> Box:
        """A slot whose writer died while filling it."""
        self.busy_keys.append(base | 1)
        return self

    def later(self, ms: float) -> Box:
        """Begins a new epoch `ms` later."""
        self.now += int(ms * MS)
        self._tick()
        return self

    # Records

    def record(self, kind: int, payload: bytes, tid: int | None = None) -> Box:
        """Appends one record to a thread's ring."""
        self.now += 1000
        self.threads[self._index(tid)].records.append((kind, self.now, payload))
        return self

    def mark(self, text: str, tid: int | None = None) -> Box:
        """MARK."""
        return self.record(EVENTS["MARK"], text.encode()[:112].ljust(112, b"\0"), tid)

    def sample(self, text: str) -> Box:
        """SAMPLE: a DataLoader worker begins a batch, or has done it."""
        return self.record(EVENTS["SAMPLE"], text.encode()[:112].ljust(112, b"\0"))

    def doing(self, kind: str, text: str) -> Box:
        """DOING."""
        return self._json(46, {"kind": kind, "text": text})

    def graph_replay(self, graph: int, function: str, file: str, line: int) -> Box:
        """GRAPH_REPLAY."""
        return self._json(63, {"graph": graph, "function": function, "file": file, "line": line})

    def step(self, number: int, source: int = 1) -> Box:
        """STEP, and the step of the header."""
        self.step_now, self.step_source = number, source
        self._tick()
        return self.record(EVENTS["STEP"], struct.pack("<qII", number, source, 0))

    def event(
        self,
        kind: str,
        name: str,
        sequence_nr: int = -1,
        storages: Sequence[int] = (),
        tid: int | None = None,
        stream: tuple[int, int] | None = None,
    ) -> Box:
        """NODE, RANGE_BEGIN, RANGE_END or OP. `stream`: index of the CUDA device, and the thread's stream there."""
        some = (list(storages) + [0] * 5)[:5]
        device, handle = (stream[0] + 1, stream[1]) if stream else (0, 0)
        payload = struct.pack("<48sqIIQ5Q", name.encode()[:48], sequence_nr, len(storages), device, handle, *some)
        return self.record(EVENTS[kind], payload, tid)

    def device_op(
        self,
        name: str,
        by: By,
        storages: Sequence[int] = (),
        *,
        sequence_nr: int = -1,
        stream: int = 0,
        kernel: str | None = None,
        host: Sequence[int] = (),
        asynchronous: bool = False,
    ) -> Box:
        """DEVICE_OP on cuda:0; `kernel`: a mangled name; `host`: those of `storages` that are host memory."""
        storages = [addr | 1 << 63 if addr in host else addr for addr in storages]
        count = len(storages) | (1 << 31 if asynchronous else 0)
        device = 1 | (self.entry(52, kernel.encode()) << 8 if kernel is not None else 0)
        some = (list(storages) + [0] * 5)[:5]
        payload = struct.pack(
            "<40sIIqIIQ5Q", name.encode()[:40], by.id, by.where, sequence_nr, count, device, stream, *some
        )
        return self.record(EVENTS["DEVICE_OP"], payload)

    def stream(self, action: str, stream: int = 0, *, event: int = 0, other: int = 0) -> Box:
        """STREAM on cuda:0; see STREAM_ACTIONS."""
        return self.record(EVENTS["STREAM"], struct.pack("<IIQQQQ", STREAM_ACTIONS[action], 0, stream, event, other, 0))

    def group_seen(
        self, name: str = "0", *, size: int = 2, rank: int = 0, backend: str = "gloo", about: str = ""
    ) -> int:
        """GROUP_SEEN: the group ran something; returns the id that `collective` takes."""
        payload = struct.pack("<iiII8s", size, rank, len(name), len(about), backend.encode())
        return self.entry(39, payload + name.encode() + about.encode())

    def collective(
        self,
        name: str,
        *,
        sequence_nr: int | None = None,
        state: str = "started",
        addr: int = 0,
        storage_addr: int | None = None,
        nbytes: int = 0,
        sizes: Sequence[int] | None = None,
        dtype: str = "Float",
        tid: int | None = None,
        group: int = 0,
        root: int = -1,
        peer: int = -1,
        tag: int = -1,
        reduce_op: int = -1,
        flags: int = 0,
        output: tuple[int, int, int] = (0, 0, 0),
        by: By = NOBODY,
        scope: int = 0,
        output_storage_addr: int | None = None,
        ended_ns: int | None = None,
    ) -> Box:
        """A collective, called now; it starts at once and ends one millisecond later, as far as `state` requires.

        `output`: address, elements, bytes. `group`: what `group_seen()` returned; `scope`: what `scope()` did.
        """
        self.sequence_nr = self.sequence_nr + 1 if sequence_nr is None else sequence_nr
        self._tick()
        dims = list(sizes) if sizes is not None else [nbytes // 4]
        numel = 1
        for n in dims:
            numel *= n
        number = len(self.collectives) + 1
        states = ["", "scheduled", "started", "completed", "failed"]
        began = self.now
        started = began if state != "scheduled" else 0
        if state in ("completed", "failed"):
            self.now += MS
        ended = ended_ns or (self.now if state in ("completed", "failed") else 0)
        slot = struct.pack("<IIQQQQQ", number, states.index(state), number, self.sequence_nr, began, started, ended)
        slot += struct.pack("<Ii32s", group, self.pid if tid is None else tid, name.encode()[:32])
        slot += struct.pack("<iiiiIi", root, peer, tag, reduce_op, flags, -1)
        base = addr if storage_addr is None else storage_addr
        slot += struct.pack("<QQQQII", addr, base, numel, nbytes, 1, len(dims))
        slot += struct.pack("<QQQ16s6I", *output, dtype.encode(), *(dims + [0] * 6)[:6])
        slot += struct.pack("<IIqIIQ", *by, self.step_now, scope, self.epoch, output_storage_addr or output[0])
        self.collectives.append(slot.ljust(256, b"\0"))
        return self

    # Crash

    def crash(
        self,
        signal: int = 11,
        addr: int = 0,
        *,
        code: int = 1,
        state: int = 3,
        tid: int | None = None,
        pc: int | None = None,
        registers: Mapping[str, int] | None = None,
        error_code: int = 4,
        stack: tuple[int, int] = (0, 0),
        code_bytes: bytes = b"",
        sender_pid: int = 0,
        sender_uid: int = 0,
        node: str | None = None,
        node_sequence_nr: int = -1,
        node_is_python: bool = False,
        python: Sequence[Frame] = (),
        python_matched: bool = True,
        other_python: Mapping[int, Sequence[Frame]] | None = None,
        native: Sequence[tuple[str | None, int] | tuple[str | None, int, int]] = (),
        native_total: int | None = None,
        build_ids: Mapping[str, bytes] | None = None,
        record_images: bool = True,
        mappings: Sequence[tuple[int, int, str, int, str]] = (),
        hits: bool = True,
        also: Sequence[tuple[int, int, int, int, int]] = (),
        steps_done: int | None = None,
        steps_faulted: int = 0,
        abort_text: str = "",
        sender_command: Sequence[str] = (),
        memory: Sequence[tuple[str, int, int, bytes]] = (),
        fault_file: tuple[int, int, int] | None = None,
        loaded: Sequence[str] = (),
        threads: Sequence[OtherThread] = (),
        threads_how: int = 0,
        threads_total: int | None = None,
        helper: tuple[int, int] = (0, 0),
        unmapped: tuple[int, int, int, int, By] | None = None,
    ) -> Box:
        """What the handler writes.

        `native`: (image, offset[, found]) innermost first, or (None, pc); an image's bias is `self.bias(image)`. When
        `native_total` is larger than their number, the last 32 are the outermost frames, behind a gap.
        `hits`: look `addr` up among the storages added so far. `also`: (tid, signal, code, pc, addr).
        `record_images=False`: no IMAGES, as when that step did not run. `loaded`: images beside those of the frames.
        `fault_file`: size, room, file system. `memory`: (register, its value, first address, bytes). `helper`: its
        state and error. `unmapped`: address, pages of 4,096 bytes, return address, thread and STACK of a munmap().
        """
        self.state = 4
        self.now += 1000
        index = self._index(tid)
        thread = self.threads[index]
        arena = bytearray(b"\0")  # offset 0 is an ordinary offset, but let it not hide a mistake

        def put(data: bytes) -> tuple[int, int]:
            at = len(arena)
            arena.extend(data)
            return at, len(data)

        python_threads, python_frames = b"", b""
        frame_count = thread_count = 0
        for pthread, frames in [(thread.pthread, python), *(other_python or {}).items()]:
            if not frames:
                continue
            python_threads += struct.pack("<QII", pthread, frame_count, len(frames))
            thread_count += 1
            for function, file, line in frames:
                first = max(1, line - 3)
                table = line_table_311([0, line - first])
                texts_at = (*put(function.encode()), *put(file.encode()), *put(table))
                python_frames += struct.pack("<Qii8IQ", 0xC0DE, 20, first, *texts_at, 1, 1, 0)
                frame_count += 1
        images: list[str] = []
        native_items: list[bytes] = []
        first_pc = 0
        for i, frame in enumerate(native):
            image, offset, found = (*frame, 1 if i else 0)[:3]
            address = self.bias(image) + offset if image else offset
            first_pc = first_pc or address
            if image and image not in images and record_images:
                images.append(image)
            number = images.index(image) + 1 if image and record_images else 0
            native_items.append(struct.pack("<QII", address, number, found))
        image_items = b""
        images += [image for image in loaded if image not in images]
        for image in images:
            build_id = (build_ids or {}).get(image, b"")
            bias = self.bias(image)
            where = put(image.encode())
            image_items += struct.pack("<QQQII20sIQ", bias, bias + 0x100000, bias, *where, build_id, len(build_id), 0)
        found_hits = self._hits(addr) if hits else []
        hit_items = b"".join(struct.pack("<IIQ", kind, life.thread, 0) + life.packed(1) for kind, life in found_hits)
        also_items = b"".join(struct.pack("<iiiIQQQ", t, s, c, 1, p, a, self.now) for t, s, c, p, a in also)
        maps = "".join(f"{a:x}-{b:x} {perm} {off:08x} 08:01 77 {path}\n" for a, b, perm, off, path in mappings).encode()
        total = len(native) if native_total is None else native_total
        native_frames, head_count, tail_count = _native_ring(native_items, total)
        pc = first_pc if pc is None else pc
        sp, trap, names = "rsp", 14, REGISTERS
        values = dict.fromkeys(names, 0) | {"rip": pc, "rsp": stack[0] + 64, "err": error_code, "cr2": addr}
        if self.arch == "aarch64":
            sp, trap, names = "sp", UNKNOWN, AARCH64_REGISTERS
            values = dict.fromkeys(names, 0) | {"pc": pc, "sp": stack[0] + 64}
        values |= dict(registers or {})
        if steps_done is None:
            later = bool(fault_file) << 9 | bool(memory) << 10 | bool(loaded) << 11 | bool(threads) << 12
            steps_done = 0xFF | later if state >= 2 else 0x1
        done = steps_done
        memory_items = pack_memory(memory, names, put)
        stack_items, stack_frames = pack_threads(threads, self.bias)
        texts = (*put(abort_text.encode()), *put("".join(f"{word}\0" for word in sender_command).encode()))
        ends = [self.now + 1000 * (i + 1) if done >> i & 1 else 0 for i in range(16)]
        siginfo = struct.pack("<iiii", signal, 0, code, 0) + struct.pack("<Q", addr)
        head = struct.pack(
            "<IiiiQiIQII", state, thread.tid, signal, code, addr, sender_pid, sender_uid, self.now, done, steps_faulted
        )
        head += struct.pack("<16Q34Q", *ends, *[values[r] for r in names], *[0] * (34 - len(names)))
        head += struct.pack("<QQQQ", pc, values[sp], error_code, trap) + struct.pack("<QQQ", thread.pthread, *stack)
        head += struct.pack("<16siI32sII", thread.name.encode(), index, 1, code_bytes, len(code_bytes), len(also))
        head += struct.pack(
            "<96sqII", (node or "").encode(), node_sequence_nr, int(node_is_python), int(node is not None)
        )
        head += struct.pack("<IIQI", head_count, tail_count, total, 1)
        head += struct.pack("<IIIII", thread_count, frame_count, int(python_matched), 0, len(images))
        head += struct.pack("<IIII128s", len(found_hits), len(arena), len(maps), 0, siginfo)
        head += struct.pack("<I4I", 0, *texts) + struct.pack("<I3Q", len(memory), *(fault_file or [UNKNOWN] * 3))
        total_threads = len(threads) if threads_total is None else threads_total
        head += struct.pack("<IiIIII", *helper, threads_how, total_threads, len(threads), 0x700)
        head += struct.pack("<III40s", 0, 0, self.devices.order, b"")
        at, pages, caller, thread_id, place = unmapped or (0, 0, 0, 0, NOBODY)
        head += struct.pack("<IQQQiI", place.id, at, self.now - 2000, caller, thread_id, pages)
        assert len(head) == 1024, len(head)
        self.crash_regions = {
            16: (1024, head),
            17: (16, native_frames),
            18: (16, python_threads),
            19: (56, python_frames),
            20: (64, image_items),
            21: (80, hit_items),
            22: (40, also_items),
            23: (1, bytes(arena)),
            24: (1, maps),
            25: (32, memory_items),
            26: (384, stack_items),
            27: (1, stack_frames),
        }
        return self

    def bias(self, image: str) -> int:
        """Where this recording maps an image."""
        return 0x7000_0000_0000 + (sum(image.encode()) * 0x100_0000)

    def _hits(self, addr: int) -> list[tuple[int, Life]]:
        freed = [life for t in self.threads for life in t.small + t.large]
        out = []
        for first, lives in ((1, list(self.lives.values())), (4, freed)):
            covering = [s for s in lives if s.base <= addr < s.base + s.nbytes]
            below = [s for s in lives if s.base + s.nbytes <= addr]
            above = [s for s in lives if s.base > addr]
            out += [(first, s) for s in covering]
            out += [(first + 1, s) for s in sorted(below, key=lambda s: -s.base)[:1]]
            out += [(first + 2, s) for s in sorted(above, key=lambda s: s.base)[:1]]
        return out[:16]

    # The file

    def fork(self, pid: int) -> Box:
        """The recording of a forked child: journal and live storages are copied, rings are not."""
        child = copy.deepcopy(self)
        child.pid, child.ppid, child.start_ticks = pid, self.pid, pid * 10
        child.now += 1000
        child.created_ns = child.now
        child.state = 1
        child.crash_regions = {}
        child.threads = [Thread(pid, "python", self.threads[0].pthread)]
        for life in child.lives.values():
            life.thread = 0
        child._process()
        return child

    def _chunks(self) -> Iterable[tuple[int, int, int, bytes]]:
        """(kind, item size, first thread, bytes) of THREADS, RECORDS and FREED_STORAGES."""
        size, records, freed_count, *_ = self.shape
        for first in range(0, len(self.threads), size):
            heads, rings, freed = b"", b"", b""
            for t in (self.threads[first : first + size] + [None] * size)[:size]:
                if t is None:
                    heads, rings, freed = (
                        heads + bytes(128),
                        rings + bytes(128 * records),
                        freed + bytes(64 * freed_count),
                    )
                    continue
                heads += struct.pack("<iIQ16s", t.tid, t.ended, t.pthread, t.name.encode()[:15])
                heads += struct.pack(
                    "<QQQQQII", len(t.records), len(t.small), len(t.large), t.allocs, t.frees, t.sequence, 1
                )
                heads += bytes(48)
                rings += _ring([self._record(n, r) for n, r in enumerate(t.records)], records, 128)
                for lives in (t.small, t.large):
                    freed += _ring([life.packed(n + 1) for n, life in enumerate(lives)], freed_count // 2, 64)
            yield 3, 128, first, heads
            yield 4, 128, first, rings
            yield 5, 64, first, freed

    @staticmethod
    def _record(n: int, record: tuple[int, int, bytes]) -> bytes:
        kind, mono_ns, payload = record
        return (struct.pack("<IHHQ", n + 1, kind, 16 + len(payload), mono_ns) + payload).ljust(128, b"\0")

    def _storages(self) -> bytes:
        slots = bytearray()
        for s in self.lives.values():
            key = (s.sequence & 0xFFFF) << 48 | s.base | 2
            slots += struct.pack("<QQIIII", key, s.thread << 48 | s.nbytes, *s.by, s.epoch, s.sequence)
        for key in self.busy_keys:
            slots += struct.pack("<QQIIII", key, 0, 0, 0, 0, 0)
        return bytes(slots)

    def content(self) -> bytes:
        """The file."""
        *_, slots_log2, journal_bytes, epoch_slots = self.shape
        regions: list[tuple[int, int, int, int, bytes]] = []  # kind, item bytes, first thread, log2, content
        regions.append((1, 1, 0, 0, bytes(self.journal).ljust(journal_bytes, b"\0")))
        slots = [bytes(24)] * epoch_slots
        for i, (mono_ns, step) in enumerate(self.epochs):
            slots[(i + 1) % epoch_slots] = struct.pack("<IIQq", i + 1, 0, mono_ns, step)
        regions.append((2, 24, 0, 0, b"".join(slots)))
        regions += [(kind, item, first, 0, data) for kind, item, first, data in self._chunks()]
        regions.append((6, 32, 0, slots_log2, self._storages().ljust(32 << slots_log2, b"\0")))
        if self.collectives:
            regions.append((7, 256, 0, 0, b"".join(self.collectives).ljust(256 * 64, b"\0")))
        if self.scoped_tensors:
            regions.append((12, 48, 0, 0, b"".join(self.scoped_tensors).ljust(48 * 32, b"\0")))
        fixed = self.crash_regions | self.guard_regions | self.devices.regions()
        regions += [(kind, item, 0, 0, data) for kind, (item, data) in fixed.items()]
        directory, body, offset = b"", b"", 8192
        for kind, item, first, log2, data in regions:
            data += bytes(-len(data) % 64)
            directory += struct.pack("<IIQQQII", kind, item, offset, len(data), len(data) // item, first, log2)
            body += data
            offset += len(data)
        return (self._header(len(regions)) + directory).ljust(8192, b"\0") + body

    def _header(self, region_count: int) -> bytes:
        c = {"storages_dropped": 0, "unknown_frees": 0, "stale_storages": 0, "threads_dropped": 0}
        c |= {
            "faults_repaired": 0,
            "hook_errors": 0,
            "collectives": len(self.collectives),
            "journal_dropped": 0,
        } | self.counters
        head = b"\x89pytrc\r\n" + struct.pack("<HHI", self.major, self.minor, 8192)
        arch = 2 if self.arch == "aarch64" else 1
        head += struct.pack("<IIiiIIQ", self.state, arch, self.pid, self.ppid, 1000, self.page_bytes, self.start_ticks)
        head += struct.pack("<QQQ", self.created_ns, self.created_ns + WALL, self.exit_ns)
        head += struct.pack("<iIQQ", self.exit_code, region_count, len(self.journal), c["journal_dropped"])
        head += struct.pack("<qII", self.step_now, self.step_source, 0)
        head += struct.pack(
            "<QQQQ", c["storages_dropped"], c["unknown_frees"], c["stale_storages"], c["threads_dropped"]
        )
        head += struct.pack("<QQQ", c["faults_repaired"], c["hook_errors"], c["collectives"])
        head += struct.pack("<II40s64s", 1, self.python_minor, self.boot_id.encode(), self.host.encode())
        head += struct.pack("<II32sI88s", len(self.threads), 1, b"", self.epoch, b"")
        head += struct.pack("<I96s", c.get("redacted", 0), b"")
        assert len(head) == 512, len(head)
        return head

    def write(self, path: Path | str) -> Path:
        """Writes the file; returns its path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.content())
        return path


def _native_ring(items: list[bytes], total: int) -> tuple[bytes, int, int]:
    """128 innermost frames in order, then a ring of the 32 outermost ones; and how many of each."""
    if total <= 128:
        return b"".join(items), len(items), 0
    tail = items[128:][-32:]
    ring = [bytes(16)] * 32
    for i, item in enumerate(tail):
        ring[(total - len(tail) + i - 128) % 32] = item
    return b"".join(items[:128] + ring), 128, len(tail)


def _ring(items: list[bytes], slots: int, item_bytes: int) -> bytes:
    ring = [bytes(item_bytes)] * slots
    for n, item in enumerate(items):
        ring[n % slots] = item
    return b"".join(ring)


def write_run(directory: Path, *boxes: Box, launcher: Mapping[str, Any] | None = None) -> Path:
    """A run directory with these recordings, and `run.json` when `launcher` is given (missing fields are filled)."""
    for box in boxes:
        box.write(directory / "boxes" / f"{box.host}.{box.pid}.blackbox")
    if launcher is not None:
        first = boxes[0] if boxes else Box()
        filled = {"schema": "pytracer-run", "version": 1, "pytracer": "0.1.0", "pid": 99, "child_pid": first.pid}
        filled |= {"host": first.host, "boot_id": first.boot_id, "command": ["python", "train.py"], "cwd": "/work"}
        filled |= {"started_wall_ns": first.created_ns + WALL, "started_mono_ns": first.created_ns - 50 * MS}
        filled |= {"ended_mono_ns": None, "exit_code": None, "signal": None}
        (directory / "run.json").write_text(json.dumps({**filled, **launcher}))
    return directory
