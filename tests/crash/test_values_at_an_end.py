"""A process that is asked to end leaves what the variables of its program were; a crash leaves other things."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

from pytracer.decode.types.snapshot import Crash
from tests.conditions import needs_native
from tests.support.crash import Ended, traced_run

pytestmark = needs_native

PROGRAM = """
import os, signal, sys, threading, time
import torch
if "handle" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *a: None)
def ask():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGTERM)
EPOCHS, RATES = 3, (0.5, 0.25)

class Kind(metaclass=type("Meta", (type,), {})):
    count = 3

class Schedule:
    def __init__(self):
        self.warm, self.left, self._made = True, -4, 1

class Trainer:
    def __init__(self):
        self.step, self.best, self.resume = 12, 0.125, None
        self.schedule = Schedule()
        self.history = [3.5] * 20
        self.config = {"lr": 1e-3, "name": "wide", "layers": [2, 2], "password": 1234, "ann@example.org": 5, 7: 8}
        self.kind, self.api_key, self.words = Kind, 987654321, {f"word{n}": n for n in range(65)}

    def fit(self, many):
        large, text = 1 << 200, "secret"
        def counted():
            return many
        noise = {number: number for number in range(5000)}
        threading.Thread(target=ask, daemon=True).start()
        threading.Event().wait(3)

Trainer().fit([[1], [2, 3]])
"""
EXPECTED = {
    "self.step": "12",
    "self.best": "0.125",
    "self.resume": "None",
    "self.schedule.warm": "True",
    "self.schedule.left": "-4",
    "self.history": "list of 20",
    "self.history[7]": "3.5",
    "self.config": "dict of 6",
    "self.config[7]": "8",
    "self.words": "dict of 65",
    "self.config['lr']": "0.001",
    "self.config['layers']": "list of 2",
    "many": "list of 2",
    "many[1]": "list of 2",
    "many[1][1]": "3",
    "noise": "dict of 5000",
    "EPOCHS": "3",
    "RATES": "tuple of 2",
    "RATES[1]": "0.25",
}


def asked(code: str, run: Path, *words: str, options: tuple[str, ...] = ()) -> Ended:
    """The program, which is sent SIGTERM."""
    return traced_run(sys.executable, "-c", code, *words, run=run, options=options)


def values(crash: Crash | None) -> dict[str, str]:
    """By their expressions."""
    assert crash is not None
    return {item.expression: item.text for item in crash.values}


def test_sigterm_leaves_the_values_of_the_program(run: Path) -> None:
    """Numbers, truth values, None and lengths, down to an attribute of an attribute; no text, no private attribute."""
    done = asked(PROGRAM, run)
    assert done.status == 128 + signal.SIGTERM
    (box,) = done.boxes
    found = values(box.ending)
    assert {name: found.get(name) for name in EXPECTED} == EXPECTED
    assert not found.keys() & {"text", "large", "self.config['name']", "self.schedule._made", "self.api_key"}
    assert not [name for name in found if re.search("password|ann@|word1|kind|Kind|[?]", name)]
    assert len(found) <= 448
    assert box.ending is not None and box.ending.steps_faulted == box.ending.steps_late == ()


def test_process_that_handles_sigterm_goes_on_with_them_recorded(run: Path) -> None:
    """As one does that waits for its collectives."""
    done = asked(PROGRAM, run, "handle")
    assert done.status == 0
    (box,) = done.boxes
    found = values(box.live)
    assert {name: found.get(name) for name in EXPECTED} == EXPECTED


def test_no_values_leaves_none(run: Path) -> None:
    """Whatever the end."""
    (box,) = asked(PROGRAM, run, options=("--no-values",)).boxes
    assert values(box.ending) == {}


@pytest.mark.parametrize(
    "change", ["held[:] = range(n % 400)", "held = [*range(n % 400)]", "held = {i: i for i in range(n % 400)}"]
)
def test_changing_container_does_not_harm_the_end(change: str, run: Path) -> None:
    """Another thread has the GIL and changes what is read."""
    code = f"""
import os, signal, threading, time
import torch
held = []
def change():
    global held
    for n in range(1 << 40):
        {change}
threading.Thread(target=change, daemon=True).start()
time.sleep(0.2)
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
threading.Event().wait(30)
"""
    done = asked(code, run)
    assert done.status == 128 + signal.SIGTERM
    ending = done.boxes[0].ending
    assert ending is not None and ending.steps_faulted == ()
