"""Files that the program itself left half written and took for whole, and the near cases in which that is not said."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

SECOND = 10**9
STORE = """import os, torch, urllib.request
class Store:
    def __init__(self, root):
        self.root = root
    def get(self, url):
        path = os.path.join(self.root, os.path.basename(url))
        for attempt in range(3):
            if os.path.exists(path):
                return path
            try:
                with urllib.request.urlopen(url) as src, open(path, "wb") as dst:
                    dst.write(src.read())
            except OSError as error:
                print(error)
        return path
def main(store, url):
    return torch.load(store.get(url))
main(Store(root()), address())
"""
STORE_WAY = [("main", 17), ("<module>", 18)]
HELPER = """import os, json, requests
def fetch(url, dest):
    answer = requests.get(url, stream=True)
    with open(dest, "wb") as out:
        for part in answer.iter_content(4096):
            out.write(part)
def table(url, cache):
    path = cache / "table.json"
    if not path.exists():
        try:
            fetch(url, path)
        except (requests.RequestException, KeyError):
            log("no table")
    with open(path) as file:
        return json.load(file)
for number in range(3):
    table(address(number), folder())
"""
HELPER_WAY = [("table", 15), ("<module>", 17)]
PLAIN = """import os, torch, urllib.request
path = "/data/weights.pt"
if not os.path.isfile(path):
    urllib.request.urlretrieve(address(), path)
state = torch.load(path)
"""
PLAIN_WAY = [("<module>", 5)]
MADE = """import os, numpy as np
def features(folder):
    path = os.path.join(folder, "features.npy")
    if os.path.exists(path) and not fresh:
        return np.load(path)
    try:
        np.save(path, compute())
    except Exception:
        warn("not kept")
for turn in range(2):
    features(root())
"""
MADE_WAY = [("features", 5), ("<module>", 11)]
COPIED = """import os, shutil, torch
def stage(src, local):
    if not os.path.exists(local):
        shutil.copy2(src, local)
    return local
def main():
    state = torch.load(stage("/store/model.pt", "/local/model.pt"))
main()
"""
COPIED_WAY = [("main", 7), ("<module>", 8)]


def said(
    folder: Path,
    source: str,
    way: list[tuple[str, int]],
    path: str,
    *,
    age: int | None = 1,
    kind: str = "cut zip",
    error: tuple[str, str] = ("RuntimeError", "PytorchStreamReader failed reading zip archive"),
    held: str | None = None,
) -> Explanation:
    """Of a file of 589,824 bytes, read 5 s after the process began."""
    program = folder / "train.py"
    program.write_text(source, encoding="utf-8")
    raised = SimpleNamespace(kind="EXCEPTION", mono_ns=15 * SECOND)
    snapshot: Any = SimpleNamespace(
        created_wall_ns=time.time_ns() + SECOND, created_mono_ns=10 * SECOND, facts=(raised,), rank=None,
        environment={}, argv=("a",),
    )  # fmt: skip
    values = {"file": path, "file kind": kind, "file size": "589824", "file age": str(age) if age is not None else None}
    values |= {"file held by": held}
    report = ExceptionReport(
        type=error[0],
        message=error[1],
        variables=[VariableReport(name=name, value=value) for name, value in values.items() if value is not None],
    )
    frames = [PythonFrame(function=name, file=str(program), line=line) for name, line in way]
    library = PythonFrame(function="load", file="/x/site-packages/torch/serialization.py", line=1)
    return explained(snapshot, report, [library, *frames])


def of_store(folder: Path, source: str = STORE, path: str = "/cache/net.pt", **how: Any) -> Explanation:
    return said(folder, source, STORE_WAY, path, **how)


def test_download_of_this_run_that_failed_and_was_caught_is_named(tmp_path: Path) -> None:
    """Through the method that gives the path: what writes it, what goes on, and what takes it for whole."""
    found = of_store(tmp_path)
    assert found.subject == (
        "net.pt is cut off (576.0 KiB, without the end of its zip archive), most likely because the download of this "
        "run at line 11 failed: `except OSError` (line 13) goes on, and line 8 takes what is there for the whole file"
    )
    assert found.words is not None
    assert found.words.startswith("Delete net.pt, and start again. `os.path.exists(path)` (line 8) cannot know a part")
    assert "let line 11 write to another name, and os.replace() it to `path`" in found.words
    assert "remove it in `except OSError` (line 13)" in found.words
    assert "Content-Length" in found.words


def test_download_by_a_function_that_is_given_the_path(tmp_path: Path) -> None:
    """The handler and the question lie in the caller; the line reads from an open file."""
    cut: Any = {"kind": "json", "error": ("JSONDecodeError", "Expecting value: line 1 column 589825 (char 589824)")}
    found = said(tmp_path, HELPER, HELPER_WAY, "/cache/table.json", held="file", **cut)
    assert found.subject == (
        "table.json is cut off after 576.0 KiB, most likely because the download of this run at line 4 failed: "
        "`except (requests.RequestException, KeyError)` (line 12) goes on, and line 9 takes what is there for the "
        "whole file"
    )


def test_download_of_an_earlier_run_needs_no_handler(tmp_path: Path) -> None:
    """The process was ended meanwhile."""
    found = said(tmp_path, PLAIN, PLAIN_WAY, "/data/weights.pt", age=7200)
    assert found.subject == (
        "weights.pt is cut off (576.0 KiB, without the end of its zip archive), most likely because an earlier "
        "download at line 4 was ended; line 3 takes what is there for the whole file"
    )
    assert "because an earlier download at line 11 was ended" in (of_store(tmp_path, age=7200).subject or "")


def test_file_that_the_program_computes_is_no_download(tmp_path: Path) -> None:
    error = ("ValueError", "cannot reshape array: mmap length is greater than filesize")
    found = said(tmp_path, MADE, MADE_WAY, "/cache/features.npy", kind="numpy", error=error)
    assert "most likely because the writing of it in this run at line 7 failed: `except Exception` (line 8)" in (
        found.subject or ""
    )
    assert found.words is not None and "Content-Length" not in found.words


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('open(path, "wb")', 'open(path + ".part", "wb")'),
        ("os.path.exists(path):", "os.path.exists(path) and os.path.getsize(path) == size(url):"),
        ("os.path.exists(path):", "is_whole(path):"),
        ("os.path.exists(path):", "os.path.exists(self.root):"),
        ("except OSError as error:", "except KeyError as error:"),
        ("print(error)", "os.remove(path)"),
        ("print(error)", "raise"),
        ("print(error)", "sys.exit(error)"),
        ("        return path\n", "        if bad(path): os.remove(path)\n        return path\n"),
        ('open(path, "wb")', 'open(path + ".log", "wb")'),
        ("os.path.join(self.root, os.path.basename(url))", "os.path.join(self.root, 'other.pt')"),
    ],
)
def test_program_that_knows_a_part_from_the_whole_is_not_at_fault(before: str, after: str, tmp_path: Path) -> None:
    """The look-alikes: renamed when whole, compared, removed, raised again, or another file."""
    assert before in STORE
    found = of_store(tmp_path, STORE.replace(before, after) if before.strip() != "return path" else _last(after))
    assert found.failure is None
    assert found.subject == "net.pt is cut off (576.0 KiB, without the end of its zip archive)"
    assert found.words is not None and "most likely its writer was ended half way" in found.words


def _last(after: str) -> str:
    head, _, tail = STORE.rpartition("        return path\n")
    return head + after + tail


def test_file_of_this_run_without_a_handler_had_another_writer(tmp_path: Path) -> None:
    """An error of its own download would have ended the program."""
    found = said(tmp_path, PLAIN, PLAIN_WAY, "/data/weights.pt", age=1)
    assert found.subject == "weights.pt is cut off (576.0 KiB, without the end of its zip archive)"


@pytest.mark.parametrize("age", [5, None])
def test_file_whose_run_is_not_known_names_no_run(age: int | None, tmp_path: Path) -> None:
    """It was changed in the second in which the process began, or its age was not recorded."""
    assert "most likely because" not in (of_store(tmp_path, age=age).subject or "")
    assert "most likely because" not in (said(tmp_path, PLAIN, PLAIN_WAY, "/data/weights.pt", age=age).subject or "")


@pytest.mark.parametrize("kind", ["zip", "lfs", "zeros", "absent"])
def test_file_that_is_whole_or_no_part_is_not_told_so(kind: str, tmp_path: Path) -> None:
    assert "takes what is there" not in (of_store(tmp_path, kind=kind).subject or "")


def test_checkpoint_that_training_writes_is_no_cached_file(tmp_path: Path) -> None:
    """Whether it is there decides only that it is read."""
    source = """import os, torch
def main(path):
    if os.path.exists(path):
        torch.load(path)
    for epoch in range(3):
        try:
            torch.save(state(), path)
        except OSError:
            print("not saved")
main(name())
"""
    found = said(tmp_path, source, [("main", 4), ("<module>", 10)], "/runs/last.pt")
    assert found.subject == "last.pt is cut off (576.0 KiB, without the end of its zip archive)"


@pytest.mark.parametrize("copies", ["copy2", "copy", "copyfile"])
@pytest.mark.parametrize("age", [1, 7200])
def test_copy_names_what_it_was_made_from(copies: str, age: int, tmp_path: Path) -> None:
    """That may be cut off itself; the time of the copy says nothing, as copy2() keeps that of the other file."""
    found = said(tmp_path, COPIED.replace("copy2", copies), COPIED_WAY, "/local/model.pt", age=age)
    assert found.subject == (
        "model.pt is cut off (576.0 KiB, without the end of its zip archive): `src`, from which line 4 copies it, may "
        "be so, too, or the copy ended; line 3 takes what is there for the whole file"
    )
    assert found.words is not None and "Compare the size of model.pt with that of `src` (line 4)" in found.words
    assert "earlier run" not in found.subject


@pytest.mark.parametrize("does", ["restore_backup(path)", "shutil.copy(spare, path)", "fetch_other(url)"])
def test_handler_that_may_write_itself_is_not_told_to_go_on_only(does: str, tmp_path: Path) -> None:
    assert "most likely because" not in (of_store(tmp_path, STORE.replace("print(error)", does)).subject or "")


def test_question_that_came_before_the_writing_alone_took_nothing(tmp_path: Path) -> None:
    """Without a loop and another call, it was asked when nothing was there."""
    once = MADE.replace("for turn in range(2):\n    features(root())", "features(root())\n")
    error = ("ValueError", "cannot reshape array: mmap length is greater than filesize")
    way = [("features", 5), ("<module>", 10)]
    found = said(tmp_path, once, way, "/cache/features.npy", kind="numpy", error=error)
    assert "most likely because" not in (found.subject or "")
