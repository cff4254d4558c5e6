"""Keys that are stored in a copy, which a Manager's dict gives of each of its items."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame

PROGRAM = """import multiprocessing as mp
def train(name, results):
    {stores}
def launch(names):
    manager = {manager}
    results = {made}
    for name in names:
        results[name] = {item}
    workers = [mp.Process(target=train, args=(name, results)) for name in names]
    return {{name: dict(results[name]) for name in names}}
def best(found):
    return {reads}
best(launch(["a"]))
"""


def said(
    folder: Path,
    stores: str = "results[name]['loss'] = 1.0",
    manager: str = "mp.Manager()",
    made: str = "manager.dict()",
    item: str = "{}",
    reads: str = 'found["a"]["loss"]',
) -> Explanation:
    """Of a KeyError of 'loss' at line 12."""
    program = folder / "train.py"
    program.write_text(
        PROGRAM.format(stores=stores, manager=manager, made=made, item=item, reads=reads), encoding="utf-8"
    )
    snapshot: Any = SimpleNamespace(
        created_wall_ns=time.time_ns() + 10**9, rank=None, environment={}, argv=("a",), facts=(), named={}
    )
    stack = [
        PythonFrame(function=name, file=str(program), line=line) for name, line in (("best", 12), ("<module>", 13))
    ]
    return explained(snapshot, ExceptionReport(type="KeyError", message="'loss'"), stack)


def test_store_into_an_item_of_a_managers_dict(tmp_path: Path) -> None:
    """In another process, which was given the proxy."""
    found = said(tmp_path)
    assert found.subject == (
        "line 3 stores 'loss' in a copy: `results` is a dict of a Manager (line 6), which gives a copy of each item"
    )
    assert "`results[name] = item`" in (found.words or "")


@pytest.mark.parametrize(
    "changes",
    [
        {"stores": "results[name] = {'loss': 1.0}"},  # the whole item
        {"item": "manager.dict()"},  # a proxy, too
        {"made": "dict()"},  # no Manager's
        {"manager": "Pool()"},
        {"stores": "results[name]['step'] = 1"},  # another key
        {"reads": 'model(found)["loss"]'},  # of something else
        {"reads": 'json.load(open(found))["a"]["loss"]'},  # of a file
    ],
    ids=str,
)
def test_other_stores_are_not_lost(changes: dict[str, str], tmp_path: Path) -> None:
    """The look-alikes."""
    assert "in a copy" not in (said(tmp_path, **changes).subject or "")
