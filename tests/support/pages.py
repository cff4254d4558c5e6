"""Reports whose page is worth looking at, and a page taken apart again."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import Job
from pytracer.report import job as r
from tests.support import scenarios as s
from tests.support.collectives import Ranks, call
from tests.support.hostile import MARK, TEXT, hostile_copy
from tests.support.synth import Box
from tests.support.synth_threads import OtherThread

MIB = 1 << 20
DEVICE = 0x7F60_0000_0000
SCRIPTED = f'<script>document.title="{MARK}"</script><img src="https://x.example/{MARK}" onerror="{MARK}()">'
QUOTES = f'"\'` onfocus={MARK} autofocus x="</title></style></svg>]]>-->&lt;{{{{7*7}}}}{{% for %}}'
ATTACK = f"{SCRIPTED}{QUOTES}{TEXT}"
"""Markup, template syntax, terminal controls, line breaks, text from right to left."""
LONG_ATTACK = ATTACK + "A" * 10_000


def use_after_free(run: Path) -> r.Report:
    """The demo."""
    return build_report(s.use_after_free(run))


def hang(run: Path) -> r.Report:
    """Rank 2 of four never enters an all-reduce; nobody has died."""
    ranks = Ranks(4)
    for number in range(4):
        ranks.boxes[number].step(1)
    ranks.everybody(call(), call())
    for number in (0, 1, 3):
        ranks.calls(number, call(state="started"), first=3)
    return build_report(ranks.job(run))


def desync(run: Path) -> r.Report:
    """Rank 1 of four calls a broadcast where the others reduce."""
    ranks = Ranks(4)
    ranks.everybody(call())
    for number in range(4):
        name = "broadcast_" if number == 1 else "allreduce_"
        ranks.calls(number, call(name, 16, state="started", line=40 + number, root=1 if number == 1 else -1), first=2)
        ranks.raised(number)
    return build_report(ranks.job(run))


def cuda_graph(run: Path) -> r.Report:
    """A CUDA graph was replayed after its input had been freed, and the memory given to another tensor."""
    box = Box(pid=101, ppid=99)
    made, captured = box.code("make_input", s.SCRIPT, 12), box.code("capture", s.SCRIPT, 30)
    dropped, following = box.code("train", s.SCRIPT, 44), box.code("next_batch", s.SCRIPT, 47)
    box.devices.segment(DEVICE, 40 * MIB)
    box.devices.alloc(DEVICE, 8 * MIB, made, box.epoch)
    box.devices.free(DEVICE, dropped, box.epoch)
    box.devices.alloc(DEVICE + MIB, 4 * MIB, following, box.epoch)
    box.devices.graph(1, captured, replays=9, broken=3, captured_ns=box.now)
    box.devices.graph_input(1, DEVICE, 8 * MIB, by=made, freed_by=dropped, taken=(DEVICE + MIB, 4 * MIB, following))
    text = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported"
    box.at(500).exception("torch.AcceleratorError", text, [("step", s.SCRIPT, 40)]).exit(1)
    launcher = {"child_pid": 101, "exit_code": 1, "ended_mono_ns": box.now}
    return build_report(s.load(run, box, launcher=launcher))


def many_ranks(run: Path, count: int, victim: int) -> r.Report:
    """Groups of eight ranks and one of all; the victim dies, and the others wait for it."""
    ranks = Ranks(count)
    for group in range(count // 8):
        ranks.group(str(group + 1), list(range(8 * group, 8 * group + 8)), "mesh_tp")
    for rank, box in enumerate(ranks.boxes):
        for number in range(1, 4):
            box.at(1000 + 100 * number + rank % 7).step(number)
            ranks.calls(rank, call("allreduce_", 1024), group=str(rank // 8 + 1), first=number)
            if rank == victim and number == 3:
                break
            ranks.calls(rank, call("allreduce_", 4096, state="completed" if number < 3 else "started"), first=number)
    ranks.boxes[victim].at(1430).crash(addr=0x18, python=s.BACKWARD, native=s.NATIVE)
    ranks.endings = {rank: {"signal": 11 if rank == victim else 15} for rank in range(count)}
    return build_report(ranks.job(run, ended_at=3000))


def busy_job(run: Path) -> r.Report:
    """Eight ranks that all crash with 40 threads, hundreds of storages, and long histories in three groups."""
    ranks = Ranks(8)
    ranks.group("1", list(range(8)), "mesh_dp")
    ranks.group("2", list(range(8)), "mesh_tp")
    for rank, box in enumerate(ranks.boxes):
        for n in range(300):
            box.alloc(s.BUCKET + n * 8192, 4096, (f"make_{n}", s.SCRIPT, n + 1))
        for group in "012":
            ranks.calls(rank, *[call("allreduce_", 4096) for _ in range(40)], group=group)
        deep = [(s.PYTHON, 0x5000 + 16 * n) for n in range(100)]
        threads = [OtherThread(1000 + n, f"worker-{n}", [(s.LIBC, 0x100 * n), *deep]) for n in range(40)]
        frames = [(f"function_{n}", s.SCRIPT, n + 1) for n in range(100)]
        box.at(3000 + rank).crash(addr=s.BUCKET + 8192 * 100 + 6000, python=frames, native=deep, threads=threads)
        ranks.endings[rank] = {"signal": 11}
    return build_report(ranks.job(run))


def hostile(job: Job, text: str = ATTACK) -> r.Report:
    """The report of a job in which every string that it chose is an attack."""
    return build_report(hostile_copy(job, text=text))


def poisoned(report: r.Report, text: str = ATTACK) -> r.Report:
    """Every string of a report but addresses and kinds with the attack behind it."""

    def changed(value: object, name: str) -> object:
        if isinstance(value, str):
            return value if name in _PLAIN else value + text
        if isinstance(value, list):
            return [changed(item, name) for item in value]
        if isinstance(value, msgspec.Struct):
            fields = {field: changed(getattr(value, field), field) for field in value.__struct_fields__}
            return msgspec.structs.replace(value, **fields)
        return value

    found = changed(report, "")
    assert isinstance(found, r.Report)
    return found


_PLAIN = ("addr", "base", "start", "end", "low", "high", "value", "bytes", "kind", "role", "state", "schema")


class Page(HTMLParser):
    """The elements of a page: their attributes, its text, and the contents of style and script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.raw: dict[str, str] = {}
        self._in = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._in = tag

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in in ("style", "script"):
            self.raw[self._in] = self.raw.get(self._in, "") + data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        """What a reader without styles and scripts sees, blanks made one."""
        return re.sub(r"\s+", " ", " ".join(self.words))

    @property
    def policy(self) -> str:
        """The content security policy."""
        return next(
            attributes["content"] or ""
            for tag, attributes in self.elements
            if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
        )

    def hash_of(self, tag: str) -> str:
        """As a policy names it."""
        return f"'sha256-{base64.b64encode(hashlib.sha256(self.raw[tag].encode()).digest()).decode()}'"
