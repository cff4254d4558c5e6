"""Who can catch an exception that nobody caught: in a parallel region, on a thread, or elsewhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import uncaught as module
from pytracer.analyze.evidence.own_code.own_place import OwnPlace
from pytracer.analyze.evidence.own_code.uncaught import below_words, on_own_thread
from pytracer.report.job import NativeFrame, PythonFrame

OWN, CPP, TORCH = "/home/user/remap.so", "/usr/lib/libstdc++.so.6", "/opt/torch/lib/libtorch_cpu.so"
IN_REGION = NativeFrame(function="Remap::apply(at::Tensor const&) [clone ._omp_fn.0]", image=OWN)


def crashed(monkeypatch: pytest.MonkeyPatch, frame: NativeFrame, *, main: bool, opener: object = None) -> Any:
    at = PythonFrame(function="main", file="/home/user/train.py", line=42)
    monkeypatch.setattr(module, "program_frames", lambda _: [at])
    crash = SimpleNamespace(tid=1 if main else 9, python_stack=(at,) if main else ())
    stack = [NativeFrame(function="__gxx_personality_v0", image=CPP), frame]
    snapshot = SimpleNamespace(pid=1)
    return SimpleNamespace(
        crash=crash, native_stack=stack, region_opener=opener, process=SimpleNamespace(snapshot=snapshot)
    )


def test_the_thread_that_opened_a_region_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told = on_own_thread(crashed(monkeypatch, IN_REGION, main=True))
    assert told is not None and told.startswith("Catch it inside of the parallel region")
    assert "Remap::apply() (train.py:42 in main calls it)" in told


@pytest.mark.parametrize(
    ("opener", "begins"), [(object(), "Catch it inside of the parallel"), (None, "Catch it in the")]
)
def test_a_native_thread_is_told_with_what_the_main_thread_did(
    opener: object, begins: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = NativeFrame(function="Remap::work()", image=OWN)
    told = on_own_thread(crashed(monkeypatch, frame, main=False, opener=opener))
    assert told is not None and told.startswith(begins)
    assert "(the main thread was at train.py:42 in main)" in told


@pytest.mark.parametrize(
    "frame",
    [
        NativeFrame(function="Remap::apply(at::Tensor const&)", image=OWN),
        NativeFrame(function="at::internal::invoke_parallel() [clone ._omp_fn.0]", image=TORCH),
    ],
)
def test_python_shows_others_itself(frame: NativeFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_own_thread(crashed(monkeypatch, frame, main=True)) is None


@pytest.mark.parametrize(
    ("caller", "place", "words"),
    [
        ("Remap::apply", OwnPlace("apply", "ops.cpp:14", "x"), ", below Remap::apply (ops.cpp:14)"),
        ("Remap::other", OwnPlace("apply", "ops.cpp:14", "x"), ", below Remap::other, in apply (ops.cpp:14)"),
        ("Remap::apply", None, ", below Remap::apply"),
        ("std::thread::_State_impl::_M_run", OwnPlace("load", "ops.cpp:9", "x"), ", in a thread of load() (ops.cpp:9)"),
        ("std::thread::_State_impl::_M_run", None, ", in a std::thread"),
    ],
)
def test_whose_function_it_left(
    caller: str, place: OwnPlace | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "own_place", lambda _: place)
    view: Any = SimpleNamespace(crash=None)
    assert below_words(view, caller) == words
