"""What a queue could not send, a Future keeps, or a worker prints is recorded, and is no death by itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytracer.blackbox.schema import ON_PRINT, ON_PUT, ON_TASK
from pytracer.decode.types.journal import UncaughtException
from tests.conditions import needs_native
from tests.support.crash import traced_run
from tests.support.deaths import summary, verdict

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


TASK = """\
import sys
import torch
from concurrent.futures import ThreadPoolExecutor

def load(record):
    return record["label"]

pool = ThreadPoolExecutor(max_workers=1)
task = pool.submit(load, {"x": 1})
pool.shutdown()
sys.excepthook = sys.__excepthook__
if len(sys.argv) > 1:
    task.result()
"""


@pytest.mark.parametrize("asked", [False, True])
def test_exception_that_a_future_keeps_is_recorded(asked: bool, tmp_path: Path) -> None:
    """Where its result is asked for, it reaches the top of the program, and is what ended it."""
    program = tmp_path / "train.py"
    program.write_text(TASK, encoding="utf-8")
    done = traced_run(sys.executable, program, *(["ask"] if asked else []), run=tmp_path / "run")
    seen = [fact.data for box in done.boxes for fact in box.recorded(UncaughtException)]
    assert [item.on_its_way for item in seen] == ([ON_TASK, None] if asked else [ON_TASK])
    assert done.status == int(asked)
    if asked:
        assert verdict(done.report) == ("python-exception", "certain")
        assert "KeyError: 'label'" in summary(done.report)
    else:
        assert not done.report.findings


CALLS_HOOK = """\
import sys, threading
import torch

def serve():
    for n in range(30):
        try:
            raise OSError(24, "Too many open files")
        except OSError:
            sys.excepthook(*sys.exc_info())

thread = threading.Thread(target=serve)
thread.start()
thread.join()
raise ValueError("the end")
"""


def test_thread_that_calls_the_hook_again_and_again_fills_no_recording(tmp_path: Path) -> None:
    """As multiprocessing.resource_sharer does; what ends the process is recorded after it."""
    program = tmp_path / "train.py"
    program.write_text(CALLS_HOOK, encoding="utf-8")
    done = traced_run(sys.executable, program, run=tmp_path / "run")
    seen = [fact.data.type for box in done.boxes for fact in box.recorded(UncaughtException)]
    assert seen == ["OSError"] * 8 + ["ValueError"]
    assert "raised ValueError: the end" in summary(done.report)


PRINTS = """\
import logging
import sys
import traceback
import torch
import torch.multiprocessing as mp

def work(stop, how):
    try:
        raise ValueError("bad row")
    except ValueError:
        if how == "logging":
            logging.exception("worker failed")
        else:
            getattr(traceback, how)()
        stop.set()

if __name__ == "__main__":
    try:
        int("x")
    except ValueError:
        traceback.print_exc()
    stop = mp.get_context("fork").Event()
    worker = mp.get_context("fork").Process(target=work, args=(stop, sys.argv[1]))
    worker.start()
    worker.join()
    if stop.is_set():
        raise RuntimeError("a worker failed")
"""


@pytest.mark.parametrize("how", ["print_exc", "format_exc", "logging"])
def test_exception_that_a_worker_prints_is_recorded(how: str, tmp_path: Path) -> None:
    """It is why the program's check fails; what the program itself prints is not noted."""
    program = tmp_path / "train.py"
    program.write_text(PRINTS, encoding="utf-8")
    done = traced_run(sys.executable, program, how, run=tmp_path / "run")
    seen = [fact.data for box in done.boxes for fact in box.recorded(UncaughtException)]
    assert [item.message for item in seen if item.on_its_way == ON_PRINT] == ["bad row"]
    assert verdict(done.report) == ("python-exception", "certain")
    assert "had failed before with ValueError: bad row at train.py:9 in work" in summary(done.report)
