"""Small files that could take minutes and gigabytes: `pytracer inspect` answers within 5 s of CPU and 512 MiB."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytracer.blackbox import schema
from pytracer.blackbox.codec import layout
from tests.support import elf
from tests.support.cli import clean_environment
from tests.support.synth import Box, write_run

MIB = 1 << 20
CPU_SECONDS = 5 * 2  # this machine may be half as fast as one that does nothing else
MEMORY_BYTES = 512 * MIB
BASE = 0x7F00_0000_0000


def with_regions(*regions: tuple[int, int, bytes, int]) -> bytes:
    """A recording that crashed, with more regions: (kind, bytes of an item, content, first thread)."""
    mappings = [(0x5000, 0x6000, "r-xp", 0, "/x")]
    box = Box(rank=0).crash(
        addr=BASE + 16, python=[("f", "f.py", 9)], native=[("/gone/x.so", 0x1100)], mappings=mappings
    )
    content = bytearray(box.content())
    (count,) = struct.unpack_from("<I", content, 76)
    for kind, item, part, first in regions:
        content += bytes(-len(content) % 4096)
        place = (kind, item, len(content), len(part), len(part) // item, first, 0)
        struct.pack_into("<IIQQQII", content, 512 + 40 * count, *place)
        content += part
        count += 1
    struct.pack_into("<I", content, 76, count)
    return bytes(content)


def storages(nbytes: int) -> bytes:
    slots = (
        struct.pack("<QQIIII", (n & 0xFFFF) << 48 | (BASE + n * 64) | 2, 64, 2, n & 0xFFFF, 1, n)
        for n in range(nbytes // 32)
    )
    return with_regions((6, 32, b"".join(slots), 0))


def freed_storages(nbytes: int) -> bytes:
    some = b"".join(
        struct.pack("<QQIHH8IQ", BASE + n * 64, 64, n + 1, 0, 0, 2, n & 255, 2, n & 255, 1, n, 1, n, 0)
        for n in range(MIB // 64)
    )
    return with_regions(*((5, 64, some, n * 16) for n in range(nbytes // MIB)))


def records(nbytes: int) -> bytes:
    heads = b""
    for n in range(16):
        head, places = bytearray(schema.THREAD.nbytes), layout(schema.THREAD).offsets
        struct.pack_into("<I", head, places["tid"], n + 1)
        struct.pack_into("<I", head, places["record_count"], 256)
        heads += head
    ring = b"".join(struct.pack("<IHHQ", n % 256 + 1, 1, 128, n).ljust(128, b"x") for n in range(16 * 256))
    parts = []
    for first in range(99, 99 + 16 * (nbytes // len(ring)), 16):
        parts += [(3, len(heads) // 16, heads, first), (4, 128, ring, first)]
    return with_regions(*parts)


def region_of_ones(kind: int, item: int) -> Callable[[int], bytes]:
    return lambda nbytes: with_regions((40, 256, b"\1" * 256, 0), (kind, item, b"\1\0\0\0\2\0\0\0" * (nbytes // 8), 0))


def journal(nbytes: int) -> bytes:
    content = bytearray(Box().content())
    content += bytes(-len(content) % 4096)
    entries = (struct.pack("<HHIQII", 0x4A45, 9, 32, 1, 1, 1) + b"12345678") * (nbytes // 32)
    struct.pack_into("<IIQQQII", content, 512, 1, 1, len(content), len(entries), len(entries), 0, 0)
    struct.pack_into("<Q", content, 80, len(entries))
    return bytes(content + entries)


def sparse(nbytes: int) -> bytes:
    """Made 500 MiB long when it is written."""
    return Box().content()


BOXES: dict[str, Callable[[int], bytes]] = {
    "storages": storages, "freed_storages": freed_storages, "records": records, "journal": journal, "sparse": sparse,
    "guarded": region_of_ones(41, 128), "names": region_of_ones(44, 136),
}  # fmt: skip
DUMPS = {  # beginning, what is repeated, end
    "lists": (b"\x80\x04(", b"]", b"l."),
    "memos": (b"\x80\x04(", b"]\x94", b"l."),
    "json lists": (b'{"version":"2.1","entries":[', b"[],", b"0]}"),
    "json strings": (b'{"version":"2.1","entries":["', b"a", b'"]}'),
}
MEASURED = """
import sys
from pytracer.cli import main
status = main(sys.argv[2:])
with open("/proc/self/status") as own, open(sys.argv[1], "w") as file:
    file.write(next(line.split()[1] for line in own if line.startswith("VmHWM")))
sys.exit(status)
"""


def explained(run: Path) -> dict[str, Any]:
    """The report, whose making kept the bounds."""
    out, peak = run / "out", run / "peak"
    command = [sys.executable, "-c", MEASURED, str(peak), "inspect", str(run), "--json", "-o", str(out)]
    child = subprocess.Popen(command, env=clean_environment())
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    assert used.ru_utime + used.ru_stime < CPU_SECONDS
    assert int(peak.read_text()) * 1024 < MEMORY_BYTES  # not ru_maxrss, which begins with that of this process
    report: dict[str, Any] = json.loads(out.read_bytes())
    return report


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(BOXES))
def test_box_of_64_mib_is_explained_within_the_bounds(kind: str, tmp_path: Path) -> None:
    """Each region as full as possible; what no recorder writes is left out and reported."""
    (tmp_path / "boxes").mkdir()
    path = tmp_path / "boxes" / "h.1.blackbox"
    path.write_bytes(BOXES[kind](60 * MIB))
    if kind == "sparse":
        os.truncate(path, 500 * MIB)
    report = explained(tmp_path)
    assert report["counts"]["processes"] == 1
    cut = [item["what"] for item in report["damage"] if "of which the first" in item["what"]]
    assert bool(cut) == (kind in ("journal", "guarded", "names")), report["damage"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(DUMPS))
def test_dump_of_60_mib_is_refused_within_the_bounds(kind: str, tmp_path: Path) -> None:
    """Two lines of Python create them; the recording beside them is still explained."""
    write_run(tmp_path, Box(rank=0))
    begin, part, end = DUMPS[kind]
    (tmp_path / "trace_rank0").write_bytes(begin + part * (60 * MIB // len(part)) + end)
    report = explained(tmp_path)
    assert report["counts"]["processes"] == 1
    assert report["damage"] or report["flight_recorder"]


@pytest.mark.slow
def test_thousands_of_boxes_are_judged_in_linear_time(tmp_path: Path) -> None:
    """3,000 processes, each the child of the previous one, all without an end."""
    content = bytearray(Box(rank=0).content()[: 8192 + 4096])
    (tmp_path / "boxes").mkdir()
    for number in range(3000):
        struct.pack_into("<ii", content, 24, 1000 + number, 999 + number)
        struct.pack_into("<Q", content, 40, 1000 + number)
        (tmp_path / "boxes" / f"h.{number}.blackbox").write_bytes(content)
    assert explained(tmp_path)["counts"]["processes"] == 3000


def test_sparse_image_of_a_gib_is_not_read(tmp_path: Path) -> None:
    """A recording may name any file as an image; its table of symbols claims 900 MiB."""
    path = tmp_path / "l.so"
    content = bytearray(elf.image([("f", 0x1000, 16)]))
    (table,) = struct.unpack_from("<Q", content, 40)
    struct.pack_into("<Q", content, table + 64 + 32, 900 * MIB)
    path.write_bytes(content)
    os.truncate(path, 1 << 30)
    write_run(tmp_path / "run", Box(rank=0).crash(addr=1, native=[(str(path), 0x1000)]))
    damage = explained(tmp_path / "run")["damage"]
    assert [item["what"] for item in damage] == [f"{path} has more symbols than are looked at: no names"]


@pytest.mark.parametrize("value", [10**18, -(10**18), (1 << 63) - 1, 10**30, 1e300])
def test_impossible_numbers_are_no_loops_and_no_overflows(value: float, tmp_path: Path) -> None:
    """As sizes of the world, ranks, times and sizes, in run.json, the environment and the journal."""
    text = str(value)
    box = Box(environment={"RANK": "0", "WORLD_SIZE": "999999999", "LOCAL_RANK": text})
    box.group_seen(rank=0, size=999_999_999)
    box.rank(0, value).group("0", [0, int(value)])  # type: ignore[arg-type]
    box.module("m", [{"fqn": "w", "addr": value, "nbytes": value}])
    box.collective("gloo:all_reduce", nbytes=4, state="started").crash(addr=BASE)
    witness = {"before": {"mono_ns": value}, "processes": [{"pid": value, "start_ticks": value}]}
    launcher = {"started_wall_ns": value, "started_mono_ns": value, "ended_mono_ns": value, "witness": witness}
    write_run(tmp_path, box, launcher=launcher)
    assert explained(tmp_path)["counts"]["processes"] == 1
