"""The package that a Python command line runs: `python -m package.train`, a console script, a file in site-packages."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Literal, TypeAlias

from pytracer._library_files import installed_package, is_library_file

_Kind: TypeAlias = Literal["module", "text", "script"]
_RUN: dict[str, _Kind] = {"-m": "module", "-c": "text"}
_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")
_STUB_CHARACTERS = 4096  # of a console script: pip's has nine lines
_IMPORTED = re.compile(r"^from[ \t]+([A-Za-z_]\w*)[\w.]*[ \t]+import\b", re.MULTILINE)
_OF_STUBS = ("importlib", "re", "sys")  # what it imports beside its package
_OF_CHILDREN = re.compile(r"from (?:multiprocess(?:ing)?|joblib\.externals\.loky)[.\w]* import ")
# They run somebody else's program: their own lines are not what the reader looks for.
_RUNNERS = frozenset({
    *("pytest", "_pytest", "coverage", "debugpy", "viztracer", "memray", "scalene", "kernprof", "line_profiler"),
    *("torch", "torchrun", "accelerate", "deepspeed", "ray", "lightning", "horovod", "joblib", "loky", "pytracer"),
    *("ipykernel", "ipykernel_launcher", "IPython", "jupyter", "jupyter_client", "notebook", "xdist", "execnet"),
})  # fmt: skip

# What spawn and mp.spawn start a child with, and the server whose children are forked.
_CHILDREN = ("from multiprocessing.spawn import spawn_main", "from multiprocessing.forkserver import main")


def started_package(argv: Sequence[str]) -> str | None:
    """Its top name; None where a file of the user's is run, or a runner of programs. Reads a console script.

    Args:
        argv: The command line, the interpreter first.
    """
    kind, value = _started(argv)
    name = value.partition(".")[0] if kind == "module" else _of_script(value) if kind == "script" else None
    return name if name and name not in _RUNNERS and name not in sys.stdlib_module_names else None


def program_name(argv: Sequence[str]) -> str:
    """The script or module of a Python command line, else the program, without folders."""
    if not argv:
        return ""
    program = argv[0].rsplit("/", 1)[-1]
    if not program.startswith("python"):
        return program
    for position, argument in enumerate(argv[1:], 1):
        if argument == "-m" and position + 1 < len(argv):
            return argv[position + 1]
        if argument == "-c":
            code = argv[position + 1] if position + 1 < len(argv) else ""
            return "multiprocessing child" if any(child in code for child in _CHILDREN) else f"{program} -c"
        if not argument.startswith("-"):
            return argument.rsplit("/", 1)[-1]
    return program


def runs_text(argv: Sequence[str]) -> bool:
    """Whether a command line has the program itself: `python -c "..."`, not what multiprocessing starts so."""
    kind, value = _started(argv)
    return kind == "text" and _OF_CHILDREN.search(value) is None


def text_of(argv: Sequence[str]) -> str | None:
    """The program that a command line has itself, of `python -c "..."`; not what multiprocessing starts so."""
    return _started(argv)[1] if runs_text(argv) else None


def arguments(argv: Sequence[str]) -> Sequence[str]:
    """What the program finds as sys.argv: from its script, module or `-c` on; empty where that is not known."""
    kind, value = _started(argv)
    if kind is None or value not in argv:
        return ()
    return ("-c" if kind == "text" else value, *argv[argv.index(value, 1) + 1 :])


def is_file_of_user(file: str) -> bool:
    """Whether a frame of this file is the user's own. A console script is none: it only starts the package."""
    return file.endswith(".py") and not is_library_file(file)


def _started(argv: Sequence[str]) -> tuple[_Kind | None, str]:
    """The value of -m or -c of a Python command line, or its first word that is no option of the interpreter."""
    program = argv[0].rpartition("/")[2] if argv else ""
    words = iter(argv[1:] if program.startswith("python") else ())
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif word in _RUN:
            return _RUN[word], next(words, "")
        elif not word.startswith("-"):
            return "script", word
    return None, ""


def _of_script(path: str) -> str | None:
    if path.endswith(".py") or not os.path.isabs(path):
        return installed_package(path)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            names = _IMPORTED.findall(file.read(_STUB_CHARACTERS))
    except OSError:
        return None  # of another machine
    return next((name for name in names if name not in _OF_STUBS), None)
