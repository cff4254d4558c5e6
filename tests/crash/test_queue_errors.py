"""What a multiprocessing queue could not send is recorded, and is no death by itself."""

from __future__ import annotations

import sys
from pathlib import Path

from pytracer.blackbox.schema import ON_PUT
from pytracer.decode.types.journal import UncaughtException
from tests.conditions import needs_native
from tests.support.crash import traced_run

pytestmark = needs_native

PROGRAM = """\
import queue
import torch
import torch.multiprocessing as mp

def work(results):
    results.put({"score": lambda: 0})

if __name__ == "__main__":
    results = mp.get_context("fork").Queue()
    worker = mp.get_context("fork").Process(target=work, args=(results,))
    worker.start()
    try:
        results.get(timeout=2)
    except queue.Empty:
        pass
    worker.join()
"""


def test_object_that_was_dropped_is_recorded(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM, encoding="utf-8")
    done = traced_run(sys.executable, program, run=tmp_path / "run")
    assert done.status == 0
    seen = [fact.data for box in done.boxes for fact in box.recorded(UncaughtException)]
    assert [(item.on_its_way, item.variables[-1].name, item.variables[-1].value) for item in seen] == [
        (ON_PUT, "['score']", "a lambda")
    ]
    assert not done.report.findings
