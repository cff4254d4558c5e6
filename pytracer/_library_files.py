"""Which Python files belong to a library, and not to the user's program.

An installed package is a library, but for two kinds: one that was installed from a folder of this machine
(`pip install .`), and those that `counted_as_program` was told of, as the program is started from them
(`torchrun -m package.train`). Then its lines are those that the reader knows and can change.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

# torch.compile's files lie in a folder of their own, or are named by a hash (torch 2.13, _inductor/codecache.py). A
# frame of Cython has the path below which its package was built: `_mt19937.pyx`, `pandas/_libs/index.pyx`.
_LIBRARY = re.compile(
    r"/(?:site-packages|dist-packages|lib/python3\.\d+|pytracer/record|torchinductor_[^/]+)/|/c[a-z2-7]{51}\.py$"
    r"|^<frozen|^[^/<].*\.p(?:yx|xd|xi)$"
)
_INSTALLED = re.compile(r"^(.*/(?:site-packages|dist-packages))/([^/]+?)(?:\.py|\.[\w-]+\.so)?(?:/|$)")
# What a training program stands on. Images of vendors build these from folders, too: nobody looks for his error there.
_FOUNDATION = frozenset({
    *("torch", "torchvision", "torchaudio", "triton", "functorch", "torchgen", "numpy", "scipy", "pandas", "pytracer"),
    *("multiprocess", "dill"),  # multiprocessing with another pickle
    *("apex", "flash_attn", "transformer_engine", "xformers", "vllm_flash_attn", "nvidia", "cupy", "mpi4py", "pip"),
})  # fmt: skip

# Of `python -c`, and of code that a library makes while it runs: dataclasses, named tuples, proxies of a manager.
_TEXT = "<string>"

_counted: ContextVar[frozenset[str]] = ContextVar("packages that are the program itself", default=frozenset())
_is_made: ContextVar[bool] = ContextVar("whether code without a file is a library's", default=False)


def of_multiprocessing(*modules: str) -> tuple[str, ...]:
    """How the files of these modules end: the standard library's, and those of its copy with another pickle."""
    return tuple(f"/{package}/{module}.py" for module in modules for package in ("multiprocessing", "multiprocess"))


def is_library_file(file: str | None) -> bool:
    """Whether a Python file belongs to a package, the standard library or torch.compile, not to the user's program."""
    if file == _TEXT:
        return _is_made.get()
    return file is None or (_LIBRARY.search(file) is not None and not is_installed_program(file))


def is_installed_program(file: str) -> bool:
    """Whether a file, also a compiled one, is of an installed package that is the program itself."""
    match = _INSTALLED.match(file)
    if match is None or match[2] in _FOUNDATION:
        return False
    return match[2] in _counted.get() or match[2] in _from_folders(match[1])


def installed_package(file: str | None) -> str | None:
    """The package that a file of site-packages belongs to, by its path; None for others, and what all programs need."""
    match = _INSTALLED.match(file or "")
    return match[2] if match is not None and match[2] not in _FOUNDATION else None


@contextmanager
def counted_as_program(packages: Iterable[str], *, has_files: bool = False) -> Iterator[None]:
    """While it lasts, files of these installed packages are the program's own, beside those already counted.

    Args:
        packages: Their top names.
        has_files: The program was started from files, so code without one was made by a library.
    """
    token, made = _counted.set(_counted.get() | frozenset(packages)), _is_made.set(has_files or _is_made.get())
    try:
        yield
    finally:
        _counted.reset(token)
        _is_made.reset(made)


@lru_cache(maxsize=16)
def _from_folders(site: str) -> frozenset[str]:
    """Packages of a site-packages that pip installed from a folder which is still there (PEP 610).

    Those of conda have such a record of the machine that built them, whose folder is not on this one.
    """
    found: set[str] = set()
    for record in Path(site).glob("*.dist-info/direct_url.json"):
        try:
            origin = json.loads(record.read_bytes())
            url = urlsplit(origin["url"])
            if "dir_info" in origin and url.scheme == "file" and os.path.isdir(unquote(url.path)):
                found |= _top_names(record.with_name("RECORD"))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # another tool's record, or a damaged one: then the package is one like others
    return frozenset(found)


def _top_names(record: Path) -> set[str]:
    """What a distribution has put into site-packages: its packages, and modules without their suffix."""
    with record.open(encoding="utf-8", errors="replace") as lines:
        files = {line.partition(",")[0] for line in lines}
    return {name.partition("/")[0].partition(".")[0] for name in files if not name.startswith((".", "/", '"'))}
