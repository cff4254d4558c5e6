"""Temporary folders and files that are gone: by which line, and the near cases in which nothing is said of that."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

SHARDS = """import tempfile, tarfile, os
class Shards:
    def __init__(self, archive):
        {holds}
        tarfile.open(archive).extractall({name})
        self.files = [os.path.join({name}, item) for item in os.listdir({name})]
    def __getitem__(self, n):
        return open(self.files[n])
def main():
    shards = Shards("a.tar")
    {between}
    shards[0]
main()
"""
WAY = [("Shards.__getitem__", 8), ("main", 12), ("<module>", 13)]
DROPPED = "folder = tempfile.TemporaryDirectory(prefix='shards-')"
BLOCK = """import tempfile
from pathlib import Path
def fetch(urls):
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for url in urls:
            found.append(Path(folder) / url)
    {inside}
for path in fetch(["a.pt"]):
    open(path)
"""


def said(folder: Path, source: str, way: list[tuple[str, int]], part: str, file: str = "a.pt") -> Explanation:
    """Of a file below /tmp whose first missing part is `part`."""
    program = folder / "train.py"
    program.write_text(source, encoding="utf-8")
    snapshot: Any = SimpleNamespace(
        created_wall_ns=time.time_ns() + 10**9, rank=None, environment={}, argv=("a",), facts=(), named={}
    )
    path = f"/tmp/{part}/{file}" if file else f"/tmp/{part}"
    values = {"file": path, "file kind": "absent", "file missing part": part, "file folder": "/tmp"}
    error = ExceptionReport(
        type="FileNotFoundError",
        message=f"[Errno 2] No such file or directory: '{path}'",
        variables=[VariableReport(name=name, value=value) for name, value in values.items()],
    )
    return explained(snapshot, error, [PythonFrame(function=name, file=str(program), line=line) for name, line in way])


def shards(holds: str = DROPPED, name: str = "folder.name", between: str = "pass") -> str:
    """The program with these lines."""
    return SHARDS.format(holds=holds, name=name, between=between)


MADE_TWICE = shards("folder = tempfile.TemporaryDirectory()") + "work = tempfile.mkdtemp()\n"


def test_folder_whose_object_nothing_keeps(tmp_path: Path) -> None:
    """It is removed when the function returns that made it; a method can keep it."""
    found = said(tmp_path, shards(), WAY, "shards-a1b2_c3d")
    assert found.subject is not None
    assert found.subject.startswith("the temporary folder of line 4 (")
    assert found.subject.endswith("is removed when Shards.__init__() returns: `folder` alone keeps it")
    assert "write `self.folder = TemporaryDirectory(...)` at line 4" in (found.words or "")


def test_folder_of_which_only_the_name_is_taken(tmp_path: Path) -> None:
    """At once."""
    found = said(tmp_path, shards("folder = tempfile.TemporaryDirectory().name", "folder"), WAY, "tmpa1b2_c3d")
    assert (found.subject or "").endswith("is removed at once, as nothing keeps the object")


def test_folder_that_the_program_cleans_up(tmp_path: Path) -> None:
    """By the only line that does."""
    kept = shards("self.folder = tempfile.TemporaryDirectory()", "self.folder.name")
    cleans = kept.replace("def main", "    def close(self):\n        self.folder.cleanup()\ndef main")
    way = [("Shards.__getitem__", 8), ("main", 14), ("<module>", 15)]
    found = said(tmp_path, cleans, way, "tmpa1b2_c3d")
    assert (found.subject or "").endswith("is removed by line 10 (`self.folder.cleanup()`)")
    assert "is removed" not in (said(tmp_path, kept, WAY, "tmpa1b2_c3d").subject or "")  # the object is kept


@pytest.mark.parametrize(
    ("source", "part"),
    [
        (shards("folder = tempfile.TemporaryDirectory(); self.kept = folder"), "tmpa1b2_c3d"),
        (shards("folder = tempfile.TemporaryDirectory(); keep(folder)"), "tmpa1b2_c3d"),
        (shards("folder = tempfile.mkdtemp()", "folder"), "tmpa1b2_c3d"),  # which nothing removes
        (MADE_TWICE, "tmpa1b2_c3d"),
        (shards(), "tmpa1b2_c3d"),  # another prefix
        (shards(), "shards-old"),  # no random name
        (shards("folder = tempfile.TemporaryDirectory(prefix=prefix())"), "tmpa1b2_c3d"),
    ],
    ids=["kept", "passed", "mkdtemp", "mkdtemp as well", "prefix", "name", "unknown"],
)
def test_other_folders_are_not_laid_to_an_object(source: str, part: str, tmp_path: Path) -> None:
    """The look-alikes."""
    assert "is removed" not in (said(tmp_path, source, WAY, part).subject or "")


def test_folder_of_a_block_that_has_ended(tmp_path: Path) -> None:
    """Not while a frame of the stack is in it: then something else removed the folder."""
    found = said(tmp_path, BLOCK.format(inside="return found"), [("<module>", 10)], "tmpa1b2_c3d")
    assert found.subject == (
        "the temporary folder of line 5 (`tempfile.TemporaryDirectory()`) is removed at the end of its `with` block "
        "(line 7)"
    )
    assert "into the block that begins at line 5" in (found.words or "")
    way = [("<genexpr>", 10), ("fetch", 7), ("<module>", 9)]
    assert said(tmp_path, BLOCK.format(inside="return found"), way, "tmpa1b2_c3d").subject is None


def test_file_of_a_block_that_has_ended(tmp_path: Path) -> None:
    """It is the file itself; with delete=False it stays."""
    source = """import tempfile
with tempfile.NamedTemporaryFile(suffix=".pt"{more}) as file:
    file.write(b"")
open(file.name)
"""
    way = [("<module>", 4)]
    found = said(tmp_path, source.format(more=""), way, "tmpa1b2_c3d.pt", "")
    assert (found.subject or "").startswith("the temporary file of line 2 (")
    assert said(tmp_path, source.format(more=", delete=False"), way, "tmpa1b2_c3d.pt", "").subject is None


FILE = """import json, tempfile
def render(options):
    file = tempfile.NamedTemporaryFile("w")
    {fills}
    file.flush()
    return file.name
open(render({{}}))
"""


@pytest.mark.parametrize(("fills", "named"), [("json.dump(options, file)", True), ("KEPT.append(file)", False)])
def test_file_whose_object_nothing_keeps(fills: str, named: bool, tmp_path: Path) -> None:
    """What only fills it does not keep it."""
    found = said(tmp_path, FILE.format(fills=fills), [("<module>", 7)], "tmpa1b2_c3d", "")
    assert ("is removed when render() returns: `file` alone keeps it" in (found.subject or "")) is named


def test_block_that_failed_at_its_own_end(tmp_path: Path) -> None:
    """What was moved away cannot be removed; and a block around a yield ends with that of the caller."""
    moved = """import tempfile, os
def save(path):
    with tempfile.NamedTemporaryFile() as file:
        os.replace(file.name, path)
save("a.pt")
"""
    assert said(tmp_path, moved, [("save", 3), ("<module>", 5)], "tmpa1b2_c3d", "").subject is None
