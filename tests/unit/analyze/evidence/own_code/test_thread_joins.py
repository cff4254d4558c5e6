"""A std::thread of the program's library that an exception left: who waited for it, and where it can be caught."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.thread_joins import left_std_thread, thread_join
from pytracer.analyze.evidence.own_code.uncaught import refused_text
from pytracer.report.job import NativeFrame

OWN, OTHER, CPP = "/home/user/reader.so", "/home/user/other.so", "/usr/lib/libstdc++.so.6"
CTYPES = "/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so"
RUNS = "std::thread::_State_impl<std::thread::_Invoker<std::tuple<read::{lambda()#1}> > >::_M_run()"
LINE = SimpleNamespace(function="load", file="/home/user/job.py", line=7, columns=None)


def native(*frames: tuple[str, str]) -> list[Any]:
    return [NativeFrame(function=function, image=image) for function, image in frames]


def crashed(stack: list[Any], *waiting: list[Any], tid: int = 9) -> Any:
    threads = tuple(SimpleNamespace(tid=n + 1, pthread=n, native_stack=item) for n, item in enumerate(waiting))
    crash = SimpleNamespace(tid=tid, python_stack=(), threads=threads, python_threads=((0, (LINE,)),))
    snapshot = SimpleNamespace(pid=1)
    return SimpleNamespace(crash=crash, native_stack=stack, process=SimpleNamespace(snapshot=snapshot))


THROWN = native(("parse(char const*)", OWN), (RUNS, OWN))
JOINING = native(("__pthread_clockjoin_ex", "/usr/lib/libc.so.6"), ("std::thread::join()", CPP), ("read_all", OWN))


def test_who_waits_in_join_is_named_with_its_python_line() -> None:
    join = thread_join(crashed(THROWN, JOINING))
    assert join is not None and not join.by_ctypes
    assert join.clause.startswith(
        "it left a std::thread while read_all() (called at job.py:7 in load) waited in join()"
    )


def test_ctypes_hands_no_exception_on() -> None:
    join = thread_join(crashed(THROWN, [*JOINING, *native(("PyCFuncPtr_call", CTYPES))]))
    assert join is not None and "return an error" in join.hands_on


@pytest.mark.parametrize(
    "view",
    [
        crashed(THROWN),  # nobody waits
        crashed(THROWN, JOINING, JOINING),  # two do: for which, is not known
        crashed(THROWN, [*JOINING[:2], *native(("stop", OTHER))]),  # of another library
        crashed(THROWN, JOINING[2:]),  # not in join()
        crashed(THROWN, JOINING, tid=1),  # the main thread
        crashed(THROWN[:1], JOINING),  # a thread of another kind
        crashed(native(("at::work()", CPP), (RUNS, CPP)), JOINING),  # a library's own
    ],
)
def test_others_are_not_said_to_wait_for_it(view: Any) -> None:
    assert thread_join(view) is None


def test_a_std_thread_is_known_without_who_joins_it() -> None:
    assert left_std_thread(crashed(THROWN)) and not left_std_thread(crashed(THROWN[:1]))


@pytest.mark.parametrize(
    ("name", "message", "words"),
    [
        ("std::invalid_argument", "stof", "a text that is no number"),
        ("std::out_of_range", "stoi", "a number out of range"),
        ("std::invalid_argument", "stof: row 3", None),
        ("std::runtime_error", "stof", None),
    ],
)
def test_a_converter_of_the_standard_library_is_put_into_words(name: str, message: str, words: str | None) -> None:
    assert refused_text(name, message) == words
