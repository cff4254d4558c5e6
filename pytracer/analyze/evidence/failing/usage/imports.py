"""An import that failed: where the module lies that was not found, and which file was taken for it.

By the files as they are, as far as they are older than the process.
"""

from __future__ import annotations

import ast
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.imported_names import (
    LIKE,
    absent_name,
    circle,
    entries,
    is_older,
    names_in,
    near_name,
)
from pytracer.analyze.evidence.failing.usage.not_installed import not_installed

_NOT_FOUND = Pattern(r"^No module named '(?P<name>[\w.]+)'(?:; '(?P<file>[\w.]+)' is not a package)?$")
_NO_NAME = Pattern(
    r"^cannot import name '(?P<name>\w+)' from (?P<partial>partially initialized module )?'(?P<module>[\w.]+)'"
    r"(?: \(most likely due to a circular import\)| \(consider renaming [^)]*\))? \((?P<path>/[^)]*)\)"
)
_NO_ATTRIBUTE = Pattern(r"^(?:partially initialized )?module '(?P<module>\w+)' has no attribute '(?P<name>\w+)'")
# Packages that many programs have, and that a file of the program is often named after.
_NAMES = """
torch torchvision torchaudio numpy pandas scipy datasets transformers accelerate evaluate wandb yaml tqdm matplotlib
sklearn cv2 PIL lightning pytorch_lightning tensorboard einops timm peft tokenizers requests
"""
_PACKAGES = frozenset(_NAMES.split())
# Imported before the script's folder is on sys.path (the latter by some site-packages), or part of Python itself: no
# file of that name is taken for them.
_EARLY = """
abc codecs genericpath io os posixpath site stat
types importlib importlib.util enum functools collections re typing warnings contextlib operator keyword weakref
threading runpy pkgutil copyreg reprlib ast dis inspect linecache tokenize token struct signal
"""
_BEFORE = frozenset((*sys.builtin_module_names, *_EARLY.split()))
_LEVELS = 3  # folders above the script's


def failed_import(at: FailingLine) -> str | None:
    """Why a module, or a name of one, was not there."""
    hidden = _NO_ATTRIBUTE.match(at.message)
    if hidden is not None and (at.exception.type or "").endswith("AttributeError"):
        return _hidden(at, hidden["module"], None, hidden["name"])
    if not isinstance(at.statement, (ast.Import, ast.ImportFrom)):
        return None
    missing = _NOT_FOUND.match(at.message)
    if missing is not None:
        if missing["file"] is not None:
            return _as_file(at, missing["file"])
        return _elsewhere(at, missing["name"]) or not_installed(at, missing["name"])
    found = _NO_NAME.match(at.message)
    if found is None:
        return None
    name, module, path = found["name"], found["module"], found["path"]
    if found["partial"] is not None:
        return circle(at, name, path) or _hidden(at, module, path)
    # A file of the program's own may well have the name of a package: one letter is wrong more often than the file.
    names = names_in(at, Path(path))
    return near_name(names, name, module) or _hidden(at, module, path) or absent_name(names, name, module, path)


def _folder(at: FailingLine) -> Path | None:
    """What Python put first on sys.path: the script's folder, or the one that `-m` was started in."""
    outermost = at.frames[-1]
    if outermost.function != "<module>" or outermost.file is None or not outermost.file.startswith("/"):
        return None
    script, words = Path(outermost.file), at.snapshot.argv
    module = next((words[n + 1] for n, word in enumerate(words[:-1]) if word == "-m"), "")
    if not module or module.rpartition(".")[2] not in (script.stem, script.parent.name):
        return script.parent
    above = module.count(".") + (script.stem == "__main__")
    return [script.parent, *script.parents[1:]][min(above, len(script.parents) - 1)]


def _module_in(at: FailingLine, folder: Path, name: str) -> Path | None:
    """The file or folder of a module below a folder."""
    place = folder.joinpath(*name.split("."))
    file = place.with_name(f"{place.name}.py")
    if is_older(at.snapshot, file):
        return file
    code = [item for item in entries(place) if item.suffix == ".py"]
    if any(item.name == "setup.py" for item in code):
        return None  # a clone, which is to be installed
    return place if any(is_older(at.snapshot, item) for item in code) else None


def _around(folder: Path) -> Iterator[Path]:
    """Folders above, the nearest first, then those inside."""
    yield from (item for item in folder.parents[:_LEVELS] if len(item.parts) > 1)
    yield from sorted(item for item in entries(folder) if item.is_dir() and not item.name.startswith((".", "_")))


def _elsewhere(at: FailingLine, name: str) -> str | None:
    """A module of the program that lies in a folder which is not on sys.path."""
    folder = _folder(at)
    if folder is None or not at.own or is_library_file(at.frame.file) or name.partition(".")[0] in _PACKAGES:
        return None  # a package is rather not installed, whatever lies around
    roots = (item for item in _around(folder) if not is_library_file(f"{item}/x.py"))
    places = [(item, found) for item in roots if (found := _module_in(at, item, name))]
    if not places:
        return _like(at, folder, name)
    root, place = places[0]
    if len(places) > 1 and root.is_relative_to(folder):
        return None  # which of them is meant is not known
    start = f"set PYTHONPATH={root}"
    if folder.is_relative_to(root):
        module = ".".join(Path(at.frames[-1].file or "").relative_to(root).with_suffix("").parts)
        start = f"start it in {root} by `python -m {module}` (torchrun -m {module}), or {start}"
    what = f"`{name}` is a {'file' if place.suffix else 'folder'} of {root.name}/"
    top = name.partition(".")[0]
    if top != name:
        own = _module_in(at, folder, top)
        other = f"{own.name} beside the script" if own is not None else "one that is installed or on PYTHONPATH"
        return f"{what}, but another `{top}` is found before it: {other}. Rename one of them, or {start}."
    way = "inside of" if root.is_relative_to(folder) else "above"
    only = f"only the script's folder {folder.name}/ is, and {root.name}/ lies {way} it"
    return f"{what}, which is not on sys.path: {only}. {start[0].upper()}{start[1:]}."


def _like(at: FailingLine, folder: Path, name: str) -> str | None:
    """A module of the program with nearly that name."""
    package, _, last = name.rpartition(".")
    here = folder.joinpath(*package.split(".")) if package else folder
    names = {item.stem for item in entries(here) if item.suffix == ".py"}
    names |= {item.name for item in entries(here) if item.is_dir() and (item / "__init__.py").is_file()}
    near = difflib.get_close_matches(last, names - {Path(at.frame.file or "").stem}, 1, LIKE)
    said = f"{package}.{near[0]}" if near and package else "".join(near)
    if not said:
        return None
    how = "correct the name" if package else "correct the name, or install what has it if another is meant"
    return f"`{name}` is no module of {here.name}/, but `{said}` is: {how}."


def _as_file(at: FailingLine, name: str) -> str | None:
    """A file that was imported where a package of its name was meant."""
    folder = _folder(at)
    file = folder.joinpath(*name.split(".")).with_suffix(".py") if folder is not None else None
    if file is None or not is_older(at.snapshot, file):
        return None
    if _is_of_others(name):
        return _renamed(name, file)
    return f"`{name}` is the file {file.name} beside the script, no package: rename it, or the folder that was meant."


def _hidden(at: FailingLine, module: str, path: str | None, name: str = "") -> str | None:
    """A file of the program with the name of a library's module; without a path one beside the script."""
    top, folder = module.partition(".")[0], _folder(at)
    if not _is_of_others(top):
        return None
    if path is not None:
        return _renamed(top, Path(path)) if not is_library_file(path) else None
    if folder is None or top in _BEFORE:
        return None
    file = next(
        (item for item in (folder / f"{top}.py", folder / top / "__init__.py") if is_older(at.snapshot, item)), None
    )
    return _renamed(top, file) if file is not None and name not in names_in(at, file).anywhere else None


def _is_of_others(name: str) -> bool:
    return name in _PACKAGES or name in sys.stdlib_module_names


def _renamed(name: str, file: Path) -> str:
    is_folder = file.stem == "__init__"
    shown = f"folder {file.parent.name}/" if is_folder else f"file {file.name}"
    whose = "Python's own" if name in sys.stdlib_module_names else "the package"
    return (
        f"`{name}` is the program's {shown}, and not {whose} `{name}`: libraries that import it get that one as well. "
        "Rename it, and the imports that mean it."
    )
