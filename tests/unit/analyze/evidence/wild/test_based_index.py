"""Indices that the failing instruction itself has: out of which array of the program's own C, and read from where."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.own_index import own_index
from pytracer.analyze.evidence.wild import based_index as module
from pytracer.analyze.evidence.wild.based_index import based_index
from pytracer.decode.types.snapshot import PythonFrame
from pytracer.report.job import NativeFrame, SourceLine

SOURCE = """#include <stdio.h>
static int *from, *count; static int nodes;
void prepare(int n) { nodes = n; }
int load(const char *folder, int edges) {
    char path[256];
    {allocation}
    from = malloc(edges * sizeof(int));
    snprintf(path, sizeof path, "%s/edges.txt", folder);
    FILE *f = fopen(path, "r");
    for (int i = 0; i < edges; i++) {
        if ({read} != 1) return -1;
        {check}
        {use}
    }
    return 0;
}
"""
PROGRAM = """import os
import numpy as np


def write(folder, pairs):
    {write}


def main(lib, folder):
    lib.load(folder.encode(), 9)


main(1, 2)
"""
WRITE = 'np.savetxt(os.path.join(folder, "edges.txt"), pairs, fmt="%d")'
BASE, INDEX = 0x5581_0000_1000, 31_525_625
HEAP = SimpleNamespace(start=0x5581_0000_0000, end=0x5581_0010_0000, permissions="rw-p", offset=0, path="[heap]")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_operator", lambda view: None)
    monkeypatch.setattr(module, "is_suspicious", lambda view: False)


def view_of(
    folder: Path,
    *,
    allocation: str = "count = calloc(nodes, sizeof(int));",
    read: str = 'fscanf(f, "%d", from + i)',
    check: str = ";",
    use: str = "count[from[i]]++;",
    write: str = WRITE,
    base: int = BASE,
    index: int = INDEX,
    scale: int = 4,
    access: str = "write",
    image: str = "libgraph.so",
) -> Any:
    """A process that died in a C function, at its line `use`."""
    file, library, program = folder / "graph.c", folder / image, folder / "train.py"
    text = SOURCE
    for name, words in (("allocation", allocation), ("read", read), ("check", check), ("use", use)):
        text = text.replace(f"{{{name}}}", words)
    file.write_text(text, encoding="utf-8")
    library.write_bytes(b"")
    program.write_text(PROGRAM.format(write=write), encoding="utf-8")
    os.utime(file, (1000, 1000))
    frame = PythonFrame("main", str(program), 10)
    own = NativeFrame(function="load", image=str(library), lines=[SourceLine(function="load", file=str(file), line=13)])
    crash = SimpleNamespace(
        arrays=(), numbers=(), holders=(), arguments=(), python_stack=(frame,), python_threads=(), native_stack=(),
        registers={"rax": base, "rdx": index}, images=(), mappings=(HEAP,), stack=(1, 2), memory=(),
    )  # fmt: skip
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9))
    addr = (base + index * scale) % (1 << 64)
    instruction = SimpleNamespace(
        text="add dword ptr [rax + rdx*4], 1", base="rax", base_value=base, index="rdx", index_value=index, scale=scale,
        addr=addr, is_lane=False, size=4,
    )  # fmt: skip
    return SimpleNamespace(
        native_stack=[own], crash=crash, process=SimpleNamespace(snapshot=snapshot), python_stack=None,
        region_python=(), place=SimpleNamespace(addr=addr, kind="unmapped"), fault=SimpleNamespace(access=access),
        instruction=instruction, space=SimpleNamespace(live_around=lambda addr: None),
    )  # fmt: skip


def test_index_is_named_with_its_array_and_the_line_that_writes_the_file_it_is_from(tmp_path: Path) -> None:
    view = view_of(tmp_path)
    found = based_index(view)
    assert found is not None
    assert (found.verdict_class, found.confidence(view)) == ("out-of-bounds", "likely")
    assert found.clause(view) == (
        ": index 31525625, which is `from[i]`, leads out of `count`, which graph.c:6 makes with `nodes` elements; "
        "graph.c:11 reads the index from `edges.txt`, which line 6 writes"
    )
    told = found.advice(view)
    assert told.startswith("Number from 0 to `nodes` - 1 what line 6 (`np.savetxt(os.path.join(folder, 'edges.txt')")
    assert "31525625 was read from there, and is used as an index of `count`" in told
    assert told.endswith("Let load() refuse what is below 0 or above `nodes` - 1 before graph.c:13 uses it: nothing "
                         "checks it there.")  # fmt: skip


@pytest.mark.parametrize("index", [INDEX, -INDEX % (1 << 64)])
def test_distance_need_not_be_huge_where_the_instruction_has_both(index: int, tmp_path: Path) -> None:
    assert based_index(view_of(tmp_path, index=index)) is not None


@pytest.mark.parametrize(
    "how",
    [
        {"base": 0x7F00_0000_0000},  # in no mapping: a wild base, and an index that is right
        {"index": 0x5581_0000_2000, "scale": 1},  # both are pointers
        {"index": 7},  # a row of an array, and a small number
        {"image": "libpython3.11.so.1.0"},
    ],
)
def test_number_that_is_no_index_is_none(how: dict[str, Any], tmp_path: Path) -> None:
    assert based_index(view_of(tmp_path, **how)) is None


def test_address_that_is_another_sum_is_no_index(tmp_path: Path) -> None:
    view = view_of(tmp_path)
    view.place.addr += 4096
    assert based_index(view) is None


def test_what_an_operator_or_a_suspicious_argument_explains_is_left_to_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_suspicious", lambda view: True)
    assert based_index(view_of(tmp_path, read="next(f)")) is None  # what the line passes may be the index
    assert based_index(view_of(tmp_path)) is not None  # it is in the file
    monkeypatch.setattr(module, "find_operator", lambda view: object())
    assert based_index(view_of(tmp_path)) is None


@pytest.mark.parametrize(
    ("use", "which"),
    [
        ("count[from[i]]++;", "`from[i]`"),
        ("count[from[i]] += 1; count[to[i]]++;", "`from[i]` or `to[i]`"),
        ("int k = from[i]; count[k] = 1;", "`k`"),
        ("count[from[i] + 1]++;", "`from[i] + 1`"),
    ],
)
def test_index_is_as_the_line_writes_it(use: str, which: str, tmp_path: Path) -> None:
    found = own_index(view_of(tmp_path, use=use))
    assert found is not None and f"which is {which}, leads" in found.summary(5)


@pytest.mark.parametrize(
    "allocation",
    [
        "count = malloc(nodes * sizeof(int));",
        "count = (int *) malloc(sizeof(int) * nodes);",
        "count = malloc(sizeof *count * nodes);",
        "count = realloc(count, nodes * sizeof(*count));",
        "int *count = new int[nodes];",
        "count = NULL; count = calloc(nodes, 4); ",
    ],
)
def test_elements_are_counted_by_each_way_to_make_memory(allocation: str, tmp_path: Path) -> None:
    found = own_index(view_of(tmp_path, allocation=allocation))
    assert found is not None and found.count == "nodes"


@pytest.mark.parametrize(
    "how",
    [
        {"allocation": "count = calloc(9, sizeof(int)); if (edges) count = calloc(nodes, sizeof(int));"},  # which?
        {"allocation": "count = other;"},
        {"allocation": "count = calloc(nodes, sizeof(int)); count += 1;"},
        {"allocation": "int count[64];"},  # on the stack
        {"use": "count[from[i]] = other[from[i]] = 1;"},  # of two arrays
        {"use": "count[i] = 1;"},  # by a counter, which would have failed before
        {"use": "count[width * from[i]]++;"},
    ],
)
def test_array_that_is_not_known_is_not_named(how: dict[str, Any], tmp_path: Path) -> None:
    assert own_index(view_of(tmp_path, **how)) is None


def test_allocation_of_another_function_is_that_of_a_global_only(tmp_path: Path) -> None:
    made = "count = calloc(nodes, sizeof(int));"
    view = view_of(tmp_path, allocation="")
    file = tmp_path / "graph.c"
    for text, known in ((made, True), (f"int *{made}", False)):
        source = SOURCE.replace("nodes = n;", text).replace("{allocation}", "")
        for name, words in (("read", 'fscanf(f, "%d", from + i)'), ("check", ";"), ("use", "count[from[i]]++;")):
            source = source.replace(f"{{{name}}}", words)
        file.write_text(source, encoding="utf-8")
        os.utime(file, (1000, 1000))
        assert (own_index(view) is not None) == known


@pytest.mark.parametrize(
    ("read", "known"),
    [
        ('fscanf(f, "%d", &from[i])', True),
        ("fread(from + i, 4, 1, f)", True),
        ('fscanf(f, "%d", weights + i)', False),
        ("next(f)", False),
    ],
)
def test_file_is_named_where_the_index_is_read_from_it(read: str, known: bool, tmp_path: Path) -> None:
    found = own_index(view_of(tmp_path, read=read))
    assert found is not None and (found.file == "edges.txt") == (found.written is not None) == known
    assert known or found.advice(5).startswith("Check where `from[i]` comes from: it was 5, and `count` has `nodes`")


@pytest.mark.parametrize(
    ("write", "known"),
    [
        ('pairs.tofile(folder + "/edges.txt")', True),
        ('open(f"{folder}/edges.txt", "w").write(pairs)', True),
        ('open(f"{folder}/edges.txt").read()', False),
        ('np.savetxt(folder + "/nodes.txt", pairs)', False),
        (f"{WRITE}; {WRITE}", False),  # which of both?
    ],
)
def test_writing_line_is_the_only_one_that_writes_such_a_file(write: str, known: bool, tmp_path: Path) -> None:
    found = own_index(view_of(tmp_path, write=write))
    assert found is not None and (found.written is not None) == known
    assert known or found.advice(5).startswith("Check the numbers in `edges.txt` that graph.c:11 reads: 5 is one")


def test_number_that_was_changed_behind_the_file_is_not_said_to_be_from_it(tmp_path: Path) -> None:
    found = own_index(view_of(tmp_path, check="from[i] -= 1;"))
    assert found is not None and found.read_at is None


def test_function_that_compares_the_index_is_not_said_to_check_nothing(tmp_path: Path) -> None:
    found = own_index(view_of(tmp_path, check="if (from[i] > nodes) return -1;"))
    assert found is not None and "nothing checks" not in found.advice(5)
