"""A std::thread that was destroyed before it was joined. tests/corpus: n106_shards."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import unjoined_threads as module
from pytracer.analyze.evidence.own_code.unjoined_threads import UnjoinedThread, unjoined_thread
from pytracer.report.job import NativeFrame, SourceLine
from tests.support.native_views import native_view

READER = """class Reader {
 public:
  Reader() : worker_([this] { run(); }) {}
  void stop() {
    stopping_ = true;
    worker_.join();
  }
 private:
  std::thread worker_;
};
static std::unique_ptr<Reader> reader;
extern "C" void reader_close() { reader->stop(); }
"""
POOL = """static std::vector<std::thread> threads;
void drain() {
  for (auto &t : threads) t.join();
}
"""


def found(source: str, monkeypatch: pytest.MonkeyPatch, *, at_exit: bool = True) -> UnjoinedThread | None:
    """Of a library of the program, below exit() or not."""
    frame = NativeFrame(image="/job/libreader.so", function="Reader::~Reader()")
    monkeypatch.setattr(module, "own_frames", lambda view: [frame])
    monkeypatch.setattr(module, "is_at_exit", lambda view: at_exit)
    monkeypatch.setattr(
        module, "own_source", lambda item: (SourceLine(file="/job/reader.cpp", line=3), source.split("\n"))
    )
    monkeypatch.setattr(module, "lines_that_call", lambda view, names: ["line 42"] if "reader_close" in names else [])
    monkeypatch.setattr(module, "files_of_program", lambda view: {})
    view: Any = SimpleNamespace()
    return unjoined_thread(view)


def test_function_that_would_have_joined_it_had_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The headline has the member and that function, the next step what the program calls for it."""
    thread = found(READER, monkeypatch)
    assert thread is not None
    assert thread.what == (
        "`worker_` (reader.cpp:9), a std::thread of Reader, was destroyed at the exit of the process before it was "
        "joined: stop() (line 4), which joins it, had not run for it"
    )
    assert thread.advice.startswith("Call reader_close() (line 42 does) on every way out")
    assert thread.advice.endswith("The program's own work was done.")


def test_thread_that_nothing_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not at the exit: then nothing is said of the program's work."""
    thread = found(READER.replace("    worker_.join();\n", ""), monkeypatch, at_exit=False)
    assert thread is not None
    assert thread.what == "`worker_` (reader.cpp:8), a std::thread of Reader, was destroyed before it was joined"
    assert thread.advice == "Stop `worker_` and join it in the destructor of its owner: nothing in that file does."


def test_threads_in_a_vector_are_joined_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several in one variable."""
    thread = found(POOL, monkeypatch)
    assert thread is not None
    assert (thread.name, thread.joiners) == ("threads", ("drain() (line 2)",))


@pytest.mark.parametrize(
    "source",
    [
        READER.replace("std::thread worker_;", "std::thread worker_;\n  std::thread other_;"),
        READER.replace("std::thread worker_;", "std::future<void> worker_;"),
        "void run() {\n  std::thread first(work);\n  std::thread second;\n}\n",
        f"{READER}void once(int n) {{ std::thread t(work, n); if (n < 0) return; t.join(); }}\n",
        f"{READER}void start() {{ reader->worker_ = std::thread(work); }}\n",
        READER.replace("std::thread worker_;", "std::thread worker_, other_;"),
    ],
    ids=["two", "none", "local ones", "a local one beside it", "set again", "two at once"],
)
def test_which_thread_it_was_is_not_guessed(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(source, monkeypatch) is None


@pytest.mark.parametrize(
    ("name", "library", "known"),
    [("reader.cpp", "libreader.so", True), ("reader.cpp", None, False), ("other.cpp", "libreader.so", False)],
)
def test_source_that_the_program_names_is_that_of_its_only_library_which_is_gone(
    name: str, library: str | None, known: bool, tmp_path: Path
) -> None:
    """Not where another library of the program, whose source may be another one, was loaded as well."""
    program = f'build("{name}")\nfor batch in lib:\n    reader_close(batch)\n'
    view = native_view(tmp_path, program, READER, at="reader_close", way=[("exit", "worker_;")], gone=True)
    (tmp_path / "ops.c").rename(tmp_path / "reader.cpp")
    if name == "other.cpp":
        (tmp_path / name).write_text("int rows;\n", encoding="utf-8")
    if library is None:
        view.crash.images = (*view.crash.images, SimpleNamespace(path=str(tmp_path / "libother.so"), start=3, end=4))
    thread = unjoined_thread(view)
    assert (thread is not None) == known
    if thread is not None:
        assert thread.declared == "reader.cpp:9"
        assert [str(item) for item in thread.calls] == ["line 3"]
