"""The native libraries that a program brought, and the lines that call them: suspects where a heap was damaged.

Not those of the system, of Python, of installed packages, nor what torch.compile or Triton made.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.fault_function import is_own_frame
from pytracer.analyze.evidence.native_stack import image_name
from pytracer.analyze.evidence.variables import program_frames
from pytracer.analyze.naming import short_file
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame, PythonFrame

_OF_SYSTEM = re.compile(r"^/(usr/(lib|lib64|libexec|bin|local/cuda[^/]*)|lib|lib64|opt|nix|snap|gnu)/|^[^/]")
_OF_OTHERS = re.compile(r"/(site|dist)-packages/|/lib-dynload/|torchinductor_|/\.?triton/|\.egg/")
_PYTHON = re.compile(r"^(.+)/(?:bin/python[\d.]*|lib/libpython[\w.]*|lib/python[\d.]+/lib-dynload/.+)$")
_ADDRESSES = ("data_ptr", "byref", "addressof", "c_void_p", "from_buffer", "pointer", "data_as", "untyped_storage")
_NO_LIBRARIES = ("ctypes", "np", "numpy", "torch", "self", "F", "nn")
_MOST_LINES, _QUOTED = 2, 44


@dataclass(frozen=True)
class OwnLibraries:
    """`names`: `libecho.so`; `calls`: lines that call one of them, or pass it an address, each with its text."""

    names: tuple[str, ...]
    calls: tuple[tuple[PythonFrame, str], ...]
    file: str | None = None

    @cached_property
    def words(self) -> str:
        """``libecho.so, which line 48 calls (`library.echo(...)`)``."""
        names = list_words(self.names)
        if not 0 < len(self.calls) <= _MOST_LINES:
            return names
        lines = " and ".join(f"{self._line(at)} (`{shortened(text, _QUOTED)}`)" for at, text in self.calls)
        return f"{names}, which {lines} call{'s' * (len(self.calls) == 1)}"

    def _line(self, at: PythonFrame) -> str:
        return f"line {at.line}" if at.file == self.file else f"{short_file(at.file)}:{at.line}"


def own_libraries(view: ProcessView) -> OwnLibraries | None:
    """None where the program brought none, or the loaded libraries are not known."""
    crash = view.crash
    paths = [item.path for item in crash.images] if crash is not None else []
    prefixes = {match[1] for path in paths if (match := _PYTHON.match(path)) and match[1] != "/usr"}
    own = tuple(
        path
        for path in paths
        if ".so" in path
        and not _OF_SYSTEM.match(path)
        and not _OF_OTHERS.search(path)
        and not any(path.startswith(f"{prefix}/") for prefix in prefixes)
        and is_own_frame(NativeFrame(image=path))
    )
    if not own:
        return None
    names = tuple(dict.fromkeys(image_name(path) for path in own))
    frames = program_frames(view)
    calls = tuple(_calls(view, frames, {name.split(".")[0] for name in names}))
    return OwnLibraries(names, calls, frames[0].file if frames else None)


def _calls(view: ProcessView, frames: list[PythonFrame], stems: set[str]) -> Iterator[tuple[PythonFrame, str]]:
    """Lines of the program's files on the stack, in order, each once."""
    for frame in {frame.file: frame for frame in frames}.values():
        tree = syntax_tree(view.process.snapshot, frame)
        if tree is None:
            continue
        imported, foreign = _imported(tree)
        modules = {name for name, module in imported.items() if module.rpartition(".")[2] in stems}
        lines = {
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and _is_foreign(node, modules, passes=foreign and not modules)
        }
        for line in sorted(lines):
            at = PythonFrame(function=None, file=frame.file, line=line)
            yield at, line_text(view.process.snapshot, at) or ""


def _imported(tree: ast.Module) -> tuple[dict[str, str], bool]:
    """Modules by their names in the file, and whether ctypes or cffi is among them."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update({item.asname or item.name: item.name for item in node.names})
        elif isinstance(node, ast.ImportFrom):
            found.update({item.asname or item.name: f"{node.module or ''}.{item.name}" for item in node.names})
    return found, any(module.split(".")[0] in ("ctypes", "cffi") for module in found.values())


def _is_foreign(call: ast.Call, modules: set[str], *, passes: bool) -> bool:
    """Whether it calls a function of one of the modules; with `passes`, a method that is given an address."""
    if not isinstance(call.func, ast.Attribute):
        return False
    owner = ast.unparse(call.func.value)
    if owner in modules:
        return True
    if not passes or owner.split(".")[0] in _NO_LIBRARIES:
        return False
    given = [node for item in (*call.args, *(word.value for word in call.keywords)) for node in ast.walk(item)]
    return any(_makes_address(node) for node in given)


def _makes_address(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
    return name in _ADDRESSES or (isinstance(node, ast.Attribute) and node.attr == "data" and _is_of_numpy(node.value))


def _is_of_numpy(node: ast.expr) -> bool:
    """`array.ctypes`."""
    return isinstance(node, ast.Attribute) and node.attr == "ctypes"
