"""Bugs found by the fuzzer stay fixed, and the fuzzer itself detects each kind of failure."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz import fuzz
from tests.fuzz.targets import TARGETS, input_of
from tests.support.cli import clean_environment

CORPUS = Path(__file__).parent / "corpus"


def test_kept_inputs_are_read_within_the_bounds() -> None:
    """All of them in one process with the fuzzer's limits of memory and time, as `--replay` runs them."""
    inputs = [f"{path.name.partition('-')[0]}:{path}" for path in sorted(CORPUS.iterdir())]
    assert inputs and sum(path.stat().st_size for path in CORPUS.iterdir()) < 1 << 20
    done = subprocess.run(
        [sys.executable, fuzz.__file__, *(word for item in inputs for word in ("--replay", item))],
        capture_output=True, text=True, env=clean_environment(), check=False, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == len(inputs)


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_first_inputs_of_each_target_are_survived(target: str, tmp_path: Path) -> None:
    """A few inputs, so that a broken target is detected here."""
    assert fuzz.fuzz([target], 1, time.monotonic() + 120, 20, tmp_path / "aside") == (20, 0)
    assert input_of(target, 5) == input_of(target, 5)


def _hang(content: bytes, folder: Path) -> None:
    while True:
        pass


def _eat(content: bytes, folder: Path) -> None:
    bytearray(1 << 30)


def _raise(content: bytes, folder: Path) -> None:
    raise KeyError("bug")


def _die(content: bytes, folder: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("read", "words"),
    [(_hang, "more than 5 s"), (_eat, "MemoryError"), (_raise, "KeyError: 'bug' at test_corpus"), (_die, "signal 9")],
)
def test_fuzzer_notices_and_goes_on(
    read: Callable[[bytes, Path], None],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Time, memory, exceptions, deaths: one line each, with the input kept."""
    monkeypatch.setitem(TARGETS, "text", TARGETS["text"]._replace(read=read))
    monkeypatch.setattr(fuzz, "CPU_SECONDS", 0 if read is _hang else 5)
    done, failures = fuzz.fuzz(["text"], 7, time.monotonic() + 120, 2, tmp_path)
    assert (done, failures) == (2, 2)
    told = capfd.readouterr().out
    assert re.search(words if read is not _hang else "more than 0 s", told), told
    assert "--replay text:7" in told
    assert (tmp_path / "text-7.bin").read_bytes() == input_of("text", 7)
