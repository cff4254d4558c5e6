"""Functions of modules that a program puts out of use, and a library, or itself, calls."""

from __future__ import annotations

import builtins
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from pytracer.analyze.evidence.failing.explained import explained
from tests.unit.analyze.evidence.test_failing import of_program

FORK = """
import os, multiprocessing
def guard():
    for name in ("kill", "fork", "rmdir"):
        setattr(os, name, None)
def reward(text):
    guard()
    exec(text)
reward('1 + 1')
multiprocessing.get_context("fork").Process(target=print).start()
"""


@pytest.fixture(autouse=True)
def restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the programs take away comes back, before the folder is deleted, which takes os.rmdir()."""
    assert tmp_path.is_dir()
    for module, names in ((os, "kill fork rmdir"), (shutil, "rmtree"), (shlex, "quote"), (builtins, "input")):
        for name in names.split():
            monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.setattr(subprocess, "Popen", subprocess.Popen)


def told(folder: Path, source: str) -> tuple[str, str]:
    """Subject and advice."""

    def subject(*given: Any) -> str | None:
        return explained(*given).subject

    said = of_program(folder, source, subject) or ""
    return said, of_program(folder, source) or ""


def test_function_that_a_loop_sets_to_none_is_named_with_the_line_and_its_caller(tmp_path: Path) -> None:
    """The line of the program that fails has nothing to do with it."""
    subject, advice = told(tmp_path, FORK)
    assert subject.startswith("`os.fork`, which popen_fork.py:")
    assert "calls, is None: line 5 (`setattr(os, name, None)`) in guard() set it so for the whole process" in subject
    assert subject.endswith("called at line 7 in reward")
    assert advice.startswith("Run guard(), and the code that it guards against, in a child process of its own")
    assert "`os.kill` and `os.rmdir` are out of use, too" in advice


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("os.fork = None", "`os.fork = None`"),
        ("os.__dict__['fork'] = None", "`os.__dict__['fork'] = None`"),
        ("[setattr(os, 'fork', None)]", "`setattr(os, 'fork', None)`"),
        ("for f in 'kill fork'.split(): setattr(os, f, None)", "`setattr(os, f, None)`"),
        ("for m, fs in {os: ['fork']}.items():\n    for f in fs: setattr(m, f, None)", "`setattr(m, f, None)`"),
        ("for m, f in ((os, 'kill'), (os, 'fork')): setattr(m, f, None)", "`setattr(m, f, None)`"),
        ("os.fork = 0", "is `0`: line 3"),
    ],
)
def test_ways_to_put_a_function_out_of_use(setting: str, line: str, tmp_path: Path) -> None:
    """By name, by a table, and in loops over what is written down."""
    call = 'multiprocessing.get_context("fork").Process(target=print).start()'
    subject, _ = told(tmp_path, f"\nimport os, multiprocessing\n{setting}\n{call}\n")
    assert subject.startswith("`os.fork`, which popen_fork.py:"), subject
    assert line in subject, subject


def test_function_of_the_library_file_itself_is_known_by_its_module(tmp_path: Path) -> None:
    """shlex.join() calls quote(), a name of its own module."""
    subject, advice = told(tmp_path, "\nimport shlex\nshlex.quote = None\nshlex.join(['a'])\n")
    assert subject.startswith("`shlex.quote`, which shlex.py:")
    assert "what line 3 (`shlex.quote = None`) does" in advice


def test_line_of_the_program_itself_and_a_guard_that_is_entered(tmp_path: Path) -> None:
    """`with Guard():`, which does not put the function back."""
    source = """
import shutil
class Guard:
    def __enter__(self):
        shutil.rmtree = None
    def __exit__(self, *error):
        pass
def score():
    with Guard():
        return 1
score()
shutil.rmtree('x')
"""
    subject, advice = told(tmp_path, source)
    assert subject == (
        "`shutil.rmtree`, which line 12 calls, is None: line 5 (`shutil.rmtree = None`) in Guard.__enter__() set it so "
        "for the whole process, called at line 9 in score"
    )
    assert "put it back in `__exit__`" in advice


def test_builtin_function_and_one_that_is_put_back_too_late(tmp_path: Path) -> None:
    """A line that restores it is named, as it had not run."""
    source = "\nimport builtins\nkept = input\nbuiltins.input = None\ninput()\nbuiltins.input = kept\n"
    subject, _ = told(tmp_path, source)
    assert subject.startswith("`builtins.input`, which line 5 calls, is None: line 4")
    assert subject.endswith("; line 6, which puts it back, had not run since")


def test_guard_of_other_code_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of CPython's own modules is None by itself."""
    monkeypatch.setattr(os, "fork", None)
    subject, advice = told(
        tmp_path, '\nimport multiprocessing as m\nm.get_context("fork").Process(target=print).start()\n'
    )
    assert subject.startswith("`os.fork`, which popen_fork.py:") and "other code has put it out of use" in subject
    assert advice.startswith("Look for the code that sets `os.fork`")


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.kill = None\nclass A:\n    f = None\nA().f()\n",  # the program's own
        "import os\nos.kill = None\ndef g(input=None):\n    return input()\ng()\n",  # a parameter of that name
        "import os, functools\nos.kill = None\nfunctools.reduce(None, [1, 2])\n",  # given to a library
        "import os\nos.rmdir = None\nkey = None\nsorted([2, 1], key=3)\n",
        "import os\ndef a():\n    os.kill = None\ndef b():\n    os.kill = None\na()\nos.kill(0, 0)\n",  # which?
        "class os:\n    kill = None\nos.kill(0, 0)\n",  # no module
    ],
)
def test_other_things_that_are_none_are_not_laid_to_it(source: str, tmp_path: Path) -> None:
    """The look-alikes: something else is None."""
    subject, advice = told(tmp_path, source)
    assert "out of use" not in advice and "for the whole process" not in subject
