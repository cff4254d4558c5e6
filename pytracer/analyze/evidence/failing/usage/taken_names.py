"""An import that finds another module of its name: the one that the program has imported before, as `utils`."""

from __future__ import annotations

import ast
import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.usage.earlier_imports import Imported, earlier_imports
from pytracer.analyze.evidence.failing.usage.imported_names import is_older
from pytracer.analyze.naming import short_file
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, PythonFrame

_NO_PACKAGE = Pattern(r"^No module named '(?P<whole>(?P<name>\w+)\.[\w.]+)'; '(?P=name)' is not a package$")
_NO_NAME = Pattern(r"^cannot import name '\w+' from '(?P<whole>(?P<name>\w+)[\w.]*)' \((?P<path>/[^)]*)\)")
_IMPORTS = ("ImportError", "ModuleNotFoundError")
_LEVELS = 4  # folders above the file whose import failed


def taken_name(snapshot: Snapshot, exception: ExceptionReport | None, stack: Sequence[PythonFrame]) -> str | None:
    """Where torch.hub's repository, or a folder of the program that has its own, means another than was imported."""
    if exception is None or (exception.type or "").rpartition(".")[2] not in _IMPORTS or not stack:
        return None
    message, inner = exception.message or "", stack[0]
    found = _NO_PACKAGE.match(message) or _NO_NAME.match(message)
    if found is None or inner.file is None or not inner.file.startswith("/") or is_library_file(inner.file):
        return None
    path = found.groupdict().get("path")
    if path is not None and (is_library_file(path) or inner.file == path):
        return None
    name, root = found["name"], _repository(stack)
    of_hub = root is not None
    root = root or _folder_with(snapshot, inner.file, found["whole"])
    if root is None or (of_hub and not _may_have(root, inner.file, name)):
        return None
    if path is not None and path.startswith(f"{root}/"):
        return None
    own = [item for item in stack if not is_library_file(item.file)]
    before = [item for item in earlier_imports(snapshot, own) if item.surely and item.takes(name)]
    first = next((item for item in before if not item.file.startswith(f"{root}/")), None)
    if first is None and path is None:
        return None
    file = path or _beside(snapshot, own[-1], first, name)
    which, pop = _shown(file) if file is not None else "the module", ""
    if first is not None:
        which = f"{which} that {short_file(first.file)}:{first.statement.lineno} imported"
        line = next((item for item in own if item.file == first.file), None)
        if of_hub and line is not None:
            pop = f", or call `sys.modules.pop('{name}')` before {short_file(line.file)}:{line.line}"
    already, kind = "already " if first is not None else "", "repository" if of_hub else "folder"
    return (
        f"`{name}` is {already}{which}, and the {kind} {os.path.basename(root)}/ means its own: Python keeps one "
        f"module of a name. Rename the program's `{name}` and its imports{pop}."
    )


def _repository(stack: Sequence[PythonFrame]) -> str | None:
    """The folder of the hubconf.py that torch.hub runs."""
    for inner, outer in itertools.pairwise(stack):
        if (outer.file or "").endswith("/torch/hub.py") and (inner.file or "").endswith("/hubconf.py"):
            return os.path.dirname(inner.file or "")
    return None


def _may_have(root: str, file: str, name: str) -> bool:
    """Whether a file is of a repository which has a module of that name; also of one that is not here any more."""
    places = (root, f"{root}/{name}", f"{root}/{name}.py")
    there = [os.path.exists(item) for item in places]
    return file.startswith(f"{root}/") and (not there[0] or any(there[1:]))


def _folder_with(snapshot: Snapshot, file: str, module: str) -> str | None:
    """The nearest folder above a file in which that module lies."""
    for folder in Path(file).parents[:_LEVELS]:
        place = folder.joinpath(*module.split("."))
        if any(is_older(snapshot, item) for item in (place.with_suffix(".py"), place / "__init__.py")):
            return str(folder)
    return None


def _beside(snapshot: Snapshot, script: PythonFrame, by: Imported | None, name: str) -> str | None:
    """The file beside the script that it imported, where the script's folder is the first on sys.path."""
    tree = syntax_tree(snapshot, script)
    if by is None or tree is None or by.file != script.file or "-m" in snapshot.argv or "sys.path" in ast.unparse(tree):
        return None
    file = Path(by.file).with_name(f"{name}.py")
    return str(file) if is_older(snapshot, file) else None


def _shown(file: str) -> str:
    return "/".join(Path(file).parts[-2:])
