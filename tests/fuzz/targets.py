"""What the fuzzer calls: each target damages valid inputs, and reads them as the command line does.

Reading may refuse an input by InputError; anything else that is raised is a bug.
"""

from __future__ import annotations

import json
import pickle
import random
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pytracer._errors import PytracerError
from pytracer._text import function_words
from pytracer.analyze.engine import build_report
from pytracer.analyze.where import explain_addresses
from pytracer.cli.dump import collect, text
from pytracer.decode.formats.gpu_core import read_gpu_core
from pytracer.decode.formats.name_pattern import NamePattern
from pytracer.decode.job.load import load_runs
from pytracer.decode.job.merge import load_job
from pytracer.decode.recording.reader import read_box
from pytracer.decode.symbols.demangle import demangle, node_name
from pytracer.decode.symbols.image_symbols import imported, place_in_image
from pytracer.decode.symbols.line_table import line_of
from pytracer.decode.symbols.symbolize import symbolize
from pytracer.render.json import render_json
from pytracer.render.text import render_text
from pytracer.render.where import render_where
from tests.fuzz import mutations, seeds
from tests.support.synth import Box


class Target(NamedTuple):
    """`seeds` are valid inputs, `change` damages one, `read` reads the result; `folder` is empty at first."""

    seeds: Callable[[], list[bytes]]
    change: Callable[[random.Random, bytes], bytes]
    read: Callable[[bytes, Path], None]


@cache
def _boxes() -> list[bytes]:
    return [seeds.small_box(), seeds.wide_box()]


@cache
def _box_fields() -> dict[int, list[mutations.Field]]:
    """By the length of the recording: fields stay where they are while nothing is cut or inserted before them."""
    return {len(box): mutations.box_fields(box) for box in _boxes()}


def _change_box(rng: random.Random, content: bytes) -> bytes:
    known = _box_fields()
    return _change_fields(rng, content, known.get(len(content)) or known[len(_boxes()[0])])


def _change_fields(rng: random.Random, content: bytes, fields: list[mutations.Field]) -> bytes:
    if rng.random() < 0.8:
        return mutations.changed_fields(rng, content, fields)
    return mutations.changed_bytes(rng, content)


def _read_box(content: bytes, folder: Path) -> None:
    path = folder / "a.blackbox"
    path.write_bytes(content)
    symbolize([read_box(path)])


def _whole(content: bytes, folder: Path) -> None:
    """Every use of a recording: both ways to read it, report, text, JSON, addresses, dump."""
    path = folder / "a.blackbox"
    path.write_bytes(content)
    read_box(path, light=True)
    _report(path)
    asked = explain_addresses(load_job(path), ["0x7f0000000010", "fault", "pc", "stack+0x18"])
    assert render_where(asked) and render_json(asked)
    assert all(line.isprintable() for line in text(collect(str(path))))


def _report(path: Path) -> None:
    report = build_report(load_runs(path, light=True))
    assert render_json(report)
    for everything in (False, True):
        render_text(report, everything=everything).encode()


def _change_run(rng: random.Random, content: bytes) -> bytes:
    try:
        changed = json.dumps(mutations.changed_json(rng, json.loads(content))).encode()
    except (ValueError, RecursionError):
        return mutations.changed_bytes(rng, content)
    return changed if rng.random() < 0.8 else mutations.changed_bytes(rng, changed)


def _read_run(content: bytes, folder: Path) -> None:
    (folder / "boxes").mkdir()
    (folder / "boxes" / "node0.101.blackbox").write_bytes(_plain_box())
    (folder / "run.json").write_bytes(content)
    try:
        symbols = json.dumps(json.loads(content)["symbols"])
    except (ValueError, KeyError, TypeError, RecursionError):
        symbols = content.decode("latin-1")
    (folder / "symbols.json").write_text(symbols, errors="replace")
    _report(folder)


@cache
def _plain_box() -> bytes:
    box = Box(rank=0, journal_bytes=4096, slots_log2=4)
    return box.collective("nccl:all_reduce", nbytes=64, state="started").content()


def _change_dump(rng: random.Random, content: bytes) -> bytes:
    """A dump as JSON or, half of the time, as a pickle; what is no longer JSON gets other bytes."""
    try:
        value = mutations.changed_json(rng, json.loads(content))
        changed = json.dumps(value).encode() if rng.random() < 0.5 else pickle.dumps(value, rng.choice((0, 1, 2, 4)))
    except (ValueError, RecursionError):
        return mutations.changed_bytes(rng, content)
    return changed if rng.random() < 0.5 else mutations.changed_bytes(rng, changed)


def _read_dump(content: bytes, folder: Path) -> None:
    (folder / "a.blackbox").write_bytes(_plain_box())
    (folder / "nccl_trace_rank_0").write_bytes(content)
    _report(folder)


def _change_core(rng: random.Random, content: bytes) -> bytes:
    return _change_fields(rng, content, _elf_fields(_seed_core()))


def _change_image(rng: random.Random, content: bytes) -> bytes:
    return _change_fields(rng, content, _elf_fields(_seed_image()))


_seed_core, _seed_image, _elf_fields = cache(seeds.gpu_core), cache(seeds.image), cache(mutations.elf_fields)


def _read_core(content: bytes, folder: Path) -> None:
    (folder / "core").write_bytes(content)
    read_gpu_core(folder / "core")


def _read_image(content: bytes, folder: Path) -> None:
    image = folder / "l.so"
    image.write_bytes(content)
    box = Box(journal_bytes=4096, slots_log2=4)
    native = [(str(image), offset) for offset in (0x1000, 0x1044, 0x1310, 0x1808)]
    box.crash(native=native, build_ids={str(image): seeds.BUILD_ID})
    symbolize([read_box(box.write(folder / "a.blackbox"))])
    for addr in (0x1000, 0x1808):
        place_in_image(str(image), seeds.BUILD_ID.hex(), addr)
    imported(str(image), seeds.BUILD_ID.hex(), {"malloc"})


def _read_text(content: bytes, folder: Path) -> None:
    """Names, patterns of file names, line tables."""
    name = content[:4096].replace(b"\0", b"").decode("utf-8", "replace")
    function_words(demangle(name))
    node_name(name)
    NamePattern(name).match(name[::-1][:255])
    for minor in (10, 11):
        line_of(content, minor, 1, len(content))


TARGETS = {
    "box": Target(_boxes, _change_box, _read_box),
    "report": Target(_boxes, _change_box, _whole),
    "run": Target(lambda: [json.dumps(seeds.run_file()).encode()], _change_run, _read_run),
    "flight": Target(lambda: [json.dumps(seeds.flight_dump()).encode()], _change_dump, _read_dump),
    "core": Target(lambda: [_seed_core()], _change_core, _read_core),
    "image": Target(lambda: [_seed_image()], _change_image, _read_image),
    "text": Target(lambda: [name.encode() for name in seeds.NAMES], mutations.changed_bytes, _read_text),
}


def input_of(target: str, number: int) -> bytes:
    """The input with this number; always the same one."""
    rng = random.Random(f"{target}:{number}")
    return TARGETS[target].change(rng, rng.choice(TARGETS[target].seeds()))


def run_one(target: str, content: bytes, folder: Path) -> None:
    """Reads one input in a folder that is emptied afterwards; raises exceptions that reading should not raise."""
    try:
        TARGETS[target].read(content, folder)
    except PytracerError:
        pass
    finally:
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
