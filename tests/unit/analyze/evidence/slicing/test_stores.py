"""The line that put a value where the failing line took it from, of programs that really fail there."""

from __future__ import annotations

import textwrap
import time
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.slicing.stores import store_of
from pytracer.report.job import PythonFrame

GRAPH = """\
class Graph:
    def __init__(self):
        self.edges = {{}}
        for kind in "ah":
            found = [[5, 6], [70, 80]]
            {offset}
            self.edges[kind] = found

def look(index):
    return "abc"[index[0]]

def build(graph):
    for kind, edges in graph.edges.items():
        row, col = edges
        col = sorted(col)
        look(col)

build(Graph())
"""
LOADED = """\
class DataLoader:
    def __init__(self, dataset, batch_size):
        self.it = ((dataset[n]) for n in range(batch_size))
    def __iter__(self):
        return self.it

class Pairs:
    def __init__(self, ids):
        self.x = [1, 2]
        self.ids = [item + 9 for item in ids]
    def __getitem__(self, n):
        return self.x[n], self.ids[n]

for x, y in DataLoader(Pairs([0, 1]), batch_size=2):
    "abc"[y]
"""
LISTED = """\
def batches():
    rows = []
    for part in range(4):
        ids = part
        if part > 2:
            ids = ids * 100
        rows.append({"ids": ids, "n": part})
    return rows

for batch in batches():
    "abc"[batch["ids"]]
"""
TWO = """\
ids = {}
ids["a"] = 9
for key in ("b", "c"):
    ids[key] = 9
for key in ids:
    index = ids[key]
    "abc"[index]
"""
KEYS = """\
ids = {}
ids["a"] = 1
ids["b"] = 9
index = ids["b"]
"abc"[index]
"""
SET = """\
class Data:
    pass

def load(data):
    data.target = [7, 8]

def use(data):
    index = data.target[1]
    "abc"[index]

data = Data()
load(data)
use(data)
"""
HETERO = """\
class Store(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__

class Data:
    def __init__(self):
        self.stores = {}
    def __getitem__(self, key):
        return self.stores.setdefault(key, Store())

def build():
    data = Data()
    data["user", "item"].edges = ([0, 1], [8, 9])
    return data

def use(data, kind):
    index = sorted(data[kind].edges[1])
    "abc"[index[0]]

use(build(), ("user", "item"))
"""
KEY = "ids = {}\nids[9] = 1\nfor index, value in ids.items():\n    'abc'[index]\n"


def stored(folder: Path, source: str, name: str) -> str | None:
    """What is said of a variable of the failing line."""
    file = folder / "train.py"
    file.write_text(textwrap.dedent(source), encoding="utf-8")
    try:
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), {"__name__": "__main__"})  # noqa: S102
    except IndexError as error:
        frames = [item for item in traceback.extract_tb(error.__traceback__)[::-1] if item.filename == str(file)]
    else:
        raise AssertionError("the program did not fail")
    stack = [PythonFrame(function=item.name, file=item.filename, line=item.lineno) for item in frames]
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    found = store_of(snapshot, stack, name)
    return found.words if found is not None else None


@pytest.mark.parametrize(
    ("offset", "change"),
    [
        (
            "if kind != 'h': found[1] = [0, 1]",
            (
                " Line 6 (`if kind != 'h': found[1] = [0, 1]`) changes what line 7 puts there, but only where "
                "`kind != 'h'`."
            ),
        ),
        ("if kind != 'h': found[0] = [0, 1]", ""),
        ("found[1] = [8, 9]", ""),
    ],
    ids=["of that row, not always", "of the other row", "always"],
)
def test_a_change_that_some_values_do_not_go_through_is_told(offset: str, change: str, tmp_path: Path) -> None:
    words = stored(tmp_path, GRAPH.format(offset=offset), "index")
    assert words == f"`graph.edges` is filled at line 7 in Graph.__init__ (`self.edges[kind] = found`).{change}"


@pytest.mark.parametrize(
    ("source", "name", "words"),
    [
        (LOADED, "y", "`self.ids` is set at line 10 in Pairs.__init__ (`self.ids = [item + 9 for item in ids]`)."),
        (
            LISTED,
            'batch["ids"]',
            (
                '`rows` is filled at line 7 in batches (`rows.append({"ids": ids, "n": part})`). Line 6 '
                "(`ids = ids * 100`) changes what line 7 puts there, but only where `part > 2`."
            ),
        ),
        (KEYS, "index", '`ids` is filled at line 3 (`ids["b"] = 9`).'),
        (SET, "index", "`data.target` is set at line 5 in load (`data.target = [7, 8]`)."),
        (
            HETERO,
            "index",
            """`data[kind].edges` is set at line 13 in build (`data["user", "item"].edges = ([0, 1], [8, 9])`).""",
        ),
        (TWO, "index", None),
        (KEY, "index", None),
    ],
    ids=[
        "samples of a dataset",
        "list of dicts",
        "one key of two",
        "set from outside",
        "of a part",
        "two lines",
        "the key itself",
    ],
)
def test_the_only_line_that_fills_a_container_is_told(
    source: str, name: str, words: str | None, tmp_path: Path
) -> None:
    assert stored(tmp_path, source, name) == words
