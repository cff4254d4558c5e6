"""Files of a program: also its first one, which the stack of another thread lacks; and what Slice finds there."""

import ast
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pytracer.analyze.evidence.slicing.files import first_file, program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.report.job import PythonFrame

FRAMER = """class Framer:
    def __init__(self, window=400):
        self.window = window

    def frames(self, wave):
        return wave[:: self.window]
"""
LINE = 6  # of the thread
SCRIPT = """import threading

from framing import Framer

threading.Thread(target=Framer({}).frames, args=([],)).start()
"""


def written(folder: Path, script: str, **others: str) -> tuple[Any, list[PythonFrame]]:
    """A thread of it was at the last line of `framing.py`."""
    for name, text in {"train": script, "framing": FRAMER, **others}.items():
        (folder / f"{name}.py").write_text(text)
    argv = ("python", "-u", str(folder / "train.py"))
    snapshot: Any = SimpleNamespace(argv=argv, created_wall_ns=time.time_ns() + 10**9)
    return snapshot, [PythonFrame(file=str(folder / "framing.py"), line=LINE, function="Framer.frames")]


def window(snapshot: Any, frames: list[PythonFrame]) -> str:
    back = Slice(snapshot, frames)
    spot = back.spot(0)
    assert spot is not None
    return ast.unparse(back.made(ast.parse("self.window", mode="eval").body, spot, calls=True).node)


def test_first_file_is_among_them_where_only_a_thread_of_another_file_is_known(tmp_path: Path) -> None:
    snapshot, frames = written(tmp_path, SCRIPT.format(""))
    assert [Path(file).name for file in program_files(snapshot, frames)] == ["framing.py", "train.py"]


def test_first_file_of_a_relative_command_line_lies_above_the_outermost_one(tmp_path: Path) -> None:
    package = tmp_path / "parts"
    package.mkdir()
    (tmp_path / "train.py").write_text("import parts.framing\n")
    snapshot: Any = SimpleNamespace(argv=("python", "train.py"))
    assert first_file(snapshot, [PythonFrame(file=str(package / "framing.py"), line=1)]) == str(tmp_path / "train.py")


def test_first_file_is_the_outermost_one_where_the_command_line_names_none(tmp_path: Path) -> None:
    snapshot: Any = SimpleNamespace(argv=("python", "-m", "parts.train"))
    assert first_file(snapshot, [PythonFrame(file="/a/b.py", line=1), PythonFrame(file="/a/c.py", line=1)]) == "/a/c.py"
    assert first_file(snapshot, []) is None


def test_first_file_is_the_one_whose_top_the_stack_has(tmp_path: Path) -> None:
    """Whatever lies above it by that name."""
    (tmp_path / "train.py").write_text("")
    (tmp_path / "job").mkdir()
    snapshot: Any = SimpleNamespace(argv=("python", "train.py"))
    own = str(tmp_path / "job" / "main.py")
    assert first_file(snapshot, [PythonFrame(file=own, line=1, function="<module>")]) == own
    assert first_file(snapshot, [PythonFrame(file=own, line=1, function="work")]) == str(tmp_path / "train.py")


def test_what_the_first_file_passes_to_a_class_of_another_one_is_followed(tmp_path: Path) -> None:
    assert window(*written(tmp_path, SCRIPT.format("window=250"))) == "250"
    assert window(*written(tmp_path, SCRIPT.format(""))) == "400"


def test_two_constructions_are_not_followed(tmp_path: Path) -> None:
    twice = SCRIPT.format("window=250") + "Framer(window=300)\n"
    assert window(*written(tmp_path, twice)) != "250"


def test_a_construction_of_another_class_of_that_name_is_not_followed(tmp_path: Path) -> None:
    script = "from other import Framer\nimport framing\n\nFramer(window=250)\n"
    assert (
        window(*written(tmp_path, script, other="class Framer:\n    def __init__(self, window):\n        pass\n"))
        != "250"
    )
