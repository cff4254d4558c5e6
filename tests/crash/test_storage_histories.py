"""Random histories of tensors - views, resizes, set_, swaps, sharing: the recording has exactly the live storages."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytracer.decode.recording.reader import read_box
from tests.conditions import needs_core, needs_native, needs_torch
from tests.support.crash import PROGRAMS, environment, preloaded

pytestmark = [needs_core, needs_torch, needs_native]

SLOTS = 6
slots = st.integers(0, SLOTS - 1)
sizes = st.one_of(st.integers(0, 5000), st.integers(100_000, 3_000_000))
words = st.one_of(
    st.tuples(st.just("new"), slots, st.sampled_from(["empty", "untyped", "numpy"]), sizes),
    st.tuples(st.sampled_from(["resize", "resize_tensor"]), slots, st.just(0), sizes),
    st.tuples(st.sampled_from(["view", "set_to", "swap", "share", "drop"]), slots, slots, st.just(0)),
)


class Player:
    """A traced process that plays histories, and its recording, read while it waits."""

    def __init__(self, run: Path, way: str) -> None:
        program = str(PROGRAMS / "storage_histories.py")
        start = [program] if way == "preload" else [str(PROGRAMS / "enabled.py"), str(run), program]
        env = preloaded(run) if way == "preload" else environment()
        self._run = run
        self._process = subprocess.Popen(
            [sys.executable, *start], env=env, cwd=run.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()
        self._before = self.recorded()

    def play(self, history: list[tuple[object, ...]]) -> set[tuple[int, int]]:
        """The live storages after it, by address and size."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(history) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def recorded(self) -> set[tuple[int, int]]:
        """Those that are live in the recording."""
        (path,) = (self._run / "boxes").glob(f"*.{self._process.pid}.blackbox")
        return {(s.base, s.nbytes) for s in read_box(path).storages if s.state == "live"}

    def new(self) -> set[tuple[int, int]]:
        """Those that were not there at the start."""
        return self.recorded() - self._before

    def _answer(self) -> set[tuple[int, int]]:
        assert self._process.stdout is not None
        return {(base, nbytes) for base, nbytes in json.loads(self._process.stdout.readline())}

    def end(self) -> int:
        """Its exit status."""
        self._process.communicate("\n")
        return self._process.returncode


@pytest.fixture(scope="module", params=["preload", "enable"])
def player(request: pytest.FixtureRequest, runs: Callable[[], Path]) -> Iterator[Player]:
    """One process for all histories."""
    one = Player(runs(), request.param)
    yield one
    assert one.end() == 0


@given(history=st.lists(words, max_size=40))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.quick(1)
def test_box_has_the_storages_that_live(player: Player, history: list[tuple[object, ...]]) -> None:
    """After any history, and again when all references were dropped."""
    assert player.play(history) == player.new()
    assert player.play([("drop", slot, 0, 0) for slot in range(SLOTS)]) == set()
    assert player.new() == set()
