"""The native libraries that a program brought, and the lines that call them: suspects where a heap was damaged.

The files of the stack are searched, and those beside them that they import: a wrapper is often in a file of its own.

Not those of the system, of Python, of installed packages, nor what torch.compile or Triton made.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from pytracer._library_files import is_installed_program, is_library_file
from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.native.fault_function import is_own_frame
from pytracer.analyze.evidence.native.native_stack import image_name
from pytracer.analyze.evidence.own_code.loaded_functions import called_function, functions_returned, loaded_functions
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import LIBRARY_LOADERS, called_name, passed_values
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.naming import line_in
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import NativeFrame, PythonFrame

_OF_SYSTEM = Pattern(r"^/(usr/(lib|lib64|libexec|bin|local/cuda[^/]*)|lib|lib64|opt|nix|snap|gnu)/|^[^/]+$")
_OF_OTHERS = Pattern(r"/(site|dist)-packages/|/lib-dynload/|torchinductor_|/\.?triton/|\.egg/")
_PYTHON = Pattern(r"^(.+)/(?:bin/python[\d.]*|lib/libpython[\w.]*|lib/python[\d.]+/lib-dynload/.+)$")
_ADDRESSES = ("data_ptr", "byref", "addressof", "c_void_p", "from_buffer", "pointer", "data_as", "untyped_storage")
_NO_LIBRARIES = ("ctypes", "np", "numpy", "torch", "self", "F", "nn")
_OF_TORCH_OPS = Pattern(r"^torch\.ops\.(?!aten\b|prims?\b|torchvision\b|quantized\b|mkldnn\b|c10d\w*\b|profiler\b)\w+$")
_ATTRIBUTE = Pattern(r"self\.\w+")
_SYSTEM_NAME = Pattern(r"^(lib)?(c|m|dl|rt|pthread|cuda|cudart|nvrtc|numa|gomp|omp)\b|^/(usr/)?lib")
_COUNTS = ("len", "int", "float", "bool", "str", "c_int", "c_long", "c_float", "c_double", "c_size_t", "id")
_MOST_LINES, _QUOTED, _MOST_ALLOCATING = 2, 44, 4


class OwnCall(msgspec.Struct, frozen=True):
    """A call of the program's own native code. `passes`: the variables whose memory it is given.

    `variable`: what the program calls, where that is a variable which holds the function: `self.nms`.
    """

    at: PythonFrame
    text: str
    function: str
    passes: tuple[str, ...] = ()
    variable: str | None = None

    def is_made_by(self, node: ast.Call) -> bool:
        """Whether a call of its line is the one."""
        return ast.unparse(node.func) == self.variable if self.variable else called_name(node) == self.function


@dataclass(frozen=True)
class OwnLibraries:
    """`names`: `libecho.so`, of `paths`; `calls`: those of one of them, or that pass it an address."""

    names: tuple[str, ...]
    calls: tuple[OwnCall, ...]
    file: str | None = None
    paths: tuple[str, ...] = ()

    @cached_property
    def words(self) -> str:
        """``libecho.so, which line 48 calls (`library.echo(...)`)``."""
        names, calls = list_words(self.names), self.suspects
        if not 0 < len(calls) <= _MOST_LINES:
            return names
        lines = " and ".join(f"{self.line(call.at)} (`{shortened(call.text, _QUOTED)}`)" for call in calls)
        return f"{names}, which {lines} call{'s' * (len(calls) == 1)}"

    @cached_property
    def suspects(self) -> tuple[OwnCall, ...]:
        """The calls that are given memory; all where none is."""
        return tuple(call for call in self.calls if call.passes) or self.calls

    @property
    def only_call(self) -> OwnCall | None:
        """Where one line gives them memory."""
        return self.suspects[0] if len(self.suspects) == 1 and self.suspects[0].passes else None

    def line(self, at: PythonFrame) -> str:
        """`line 48` of the file that the headline names, `echo.py:48` of another one."""
        return line_in(at.file, at.line, self.file)


def own_libraries(view: ProcessView) -> OwnLibraries | None:
    """None where the program brought none, or the loaded libraries are not known."""
    crash = view.crash
    paths = [item.path for item in crash.images] if crash is not None else []
    prefixes = {match[1] for path in paths if (match := _PYTHON.match(path)) and match[1] != "/usr"}
    own = tuple(
        path
        for path in paths
        if is_own_path(path)
        and not any(path.startswith(f"{prefix}/") for prefix in prefixes)
        and is_own_frame(NativeFrame(image=path))
    )
    if not own:
        return None
    names = tuple(dict.fromkeys(image_name(path) for path in own))
    frames = program_frames(view)
    calls = tuple(_calls(view, frames or allocating_frames(view), {name.split(".")[0] for name in names}))
    return OwnLibraries(names, calls, frames[0].file if frames else None, own)


def allocating_frames(view: ProcessView) -> list[PythonFrame]:
    """A line of each file of the program that allocated a storage: where no Python is running, as at the end."""
    return frames_that_allocated(view.process.snapshot)


def files_of_program(view: ProcessView) -> dict[str, ast.Module]:
    """Its files by path; also where no Python is running."""
    return program_files(view.process.snapshot, program_frames(view) or allocating_frames(view))


def frames_that_allocated(snapshot: Snapshot) -> list[PythonFrame]:
    """The same of a process."""
    found: dict[str, PythonFrame] = {}
    for storage in snapshot.storages:
        site = storage.allocated_by
        frame = site.place
        if frame is not None and frame.file and frame.line and not is_library_file(frame.file):
            found.setdefault(frame.file, python_frame(frame))
            if len(found) == _MOST_ALLOCATING:
                break
    return list(found.values())


def is_own_path(path: str | None) -> bool:
    """A library that is neither of the system nor of an installed package, if this is not the program, by its path."""
    if path is None or ".so" not in path or _OF_SYSTEM.match(path):
        return False
    return not _OF_OTHERS.search(path) or is_installed_program(path)


def _calls(view: ProcessView, frames: list[PythonFrame], stems: set[str]) -> Iterator[OwnCall]:
    """Of the program's files on the stack, and of those that they import; the lines in order, each once."""
    files = program_files(view.process.snapshot, frames)
    loaders = {name for tree in files.values() for name in _loaders(tree)}
    returned = {name: found for tree in files.values() for name, found in functions_returned(tree, _loads_own).items()}
    for file, tree in files.items():
        imported, foreign = _imported(tree)
        modules = {name for name, module in imported.items() if module.rpartition(".")[2] in stems}
        loaded = dict(_loaded(tree, loaders))
        modules |= {name for name, of_system in loaded.items() if not of_system}
        kept = loaded_functions(tree, _loads_own, modules, returned)
        found: dict[int, ast.Call] = {}
        for node in nodes_of(tree):
            if isinstance(node, ast.Call) and called_function(tree, node, kept) is not None:
                found.setdefault(node.lineno, node)
            if not isinstance(node, ast.Call) or loaded.get(ast.unparse(node.func).rpartition(".")[0], False):
                continue
            if _is_foreign(node, modules, foreign=foreign):
                found.setdefault(node.lineno, node)
        for line, node in sorted(found.items()):
            at = PythonFrame(function=None, file=file, line=line)
            held = called_function(tree, node, kept)
            name, written = held or called_name(node) or "", ast.unparse(node.func) if held is not None else None
            text, passes = line_text(view.process.snapshot, at) or "", tuple(dict.fromkeys(passed_by(node)))
            yield OwnCall(at, text, name, passes, written)


def _loaders(tree: ast.Module) -> Iterator[str]:
    """Functions of the program that load native code, and return something."""
    for node in nodes_of(tree):
        if isinstance(node, ast.FunctionDef):
            inner = list(own_nodes(node))
            returns = any(isinstance(item, ast.Return) and item.value is not None for item in inner)
            if returns and any(isinstance(item, ast.Call) and _loads(item) for item in inner):
                yield node.name


def _loads(call: ast.Call) -> bool:
    """`load_inline(...)`, and `load(name, sources)` of torch.utils.cpp_extension."""
    name = called_name(call)
    sources = any(word.arg == "sources" for word in call.keywords) or any(
        isinstance(item, ast.List) for item in call.args[1:2]
    )
    return name in LIBRARY_LOADERS or (name == "load" and sources)


def _loaded(tree: ast.Module, loaders: Collection[str]) -> Iterator[tuple[str, bool]]:
    """`ops` of `ops = load_inline(...)`, or of a function that does; each with whether that is the system's."""
    for node in nodes_of(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if not node.value.args and called_name(node.value) in loaders:
            yield from ((ast.unparse(item), False) for item in node.targets)
        elif _loads(node.value):
            of_system = not _loads_own(node.value)
            yield from ((ast.unparse(item), of_system) for item in node.targets)


def _loads_own(call: ast.Call) -> bool:
    """Whether what it loads is not, by its name, the system's."""
    first = call.args[0] if call.args else None
    named = first.value if isinstance(first, ast.Constant) else ""
    return _loads(call) and named is not None and not (isinstance(named, str) and _SYSTEM_NAME.search(named))


def passed_by(call: ast.Call) -> Iterator[str]:
    """Variables whose address, or which as tensors, a call is given."""
    return passed_in(passed_values(call))


def passed_in(given: Sequence[ast.expr]) -> Iterator[str]:
    """The same of some of its arguments."""
    made = [held for item in given for node in nodes_of(item) if (held := _holder_of(node)) is not None]
    yield from made
    if any(_makes_address(node) for item in given for node in nodes_of(item)):
        return
    for item in given:
        helper = isinstance(item, ast.Call) and isinstance(item.func, ast.Name) and len(item.args) == 1
        name = variable(item.args[0] if isinstance(item, ast.Call) and helper else item)
        if name is None and isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute):  # x.contiguous()
            name = _root(item) or ast.unparse(item.func.value)
        if name is not None and not name.isupper() and called_name_or_none(item) not in _COUNTS:
            yield name


def called_name_or_none(node: ast.AST) -> str | None:
    """`len` of `len(x)`."""
    return called_name(node) if isinstance(node, ast.Call) else None


def _holder_of(node: ast.AST) -> str | None:
    """`x` of `x.data_ptr()`, `x.ctypes.data` and `byref(x)`."""
    if isinstance(node, ast.Attribute) and node.attr in ("data_ptr", "ctypes"):
        return _root(node.value)
    if isinstance(node, ast.Call) and called_name(node) in ("byref", "addressof", "from_buffer", "cast", "pointer"):
        return _root(node.args[0]) if node.args else None
    return None


def _root(node: ast.expr) -> str | None:
    """`x` of `x.contiguous().cpu()` and `np.ascontiguousarray(x)`."""
    while isinstance(node, ast.Call):
        func = node.func
        if isinstance(func, ast.Attribute) and variable(func.value) not in _NO_LIBRARIES:
            node = func.value
        elif node.args:
            node = node.args[0]
        else:
            return None
    return variable(node)


def _imported(tree: ast.Module) -> tuple[dict[str, str], bool]:
    """Modules by their names in the file, and whether ctypes or cffi is among them."""
    found: dict[str, str] = {}
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            found.update({item.asname or item.name: item.name for item in node.names})
        elif isinstance(node, ast.ImportFrom):
            found.update({item.asname or item.name: f"{node.module or ''}.{item.name}" for item in node.names})
    return found, any(module.split(".")[0] in ("ctypes", "cffi") for module in found.values())


def _is_foreign(call: ast.Call, modules: set[str], *, foreign: bool) -> bool:
    """Whether it calls a function of one of the modules; with `foreign` (ctypes), a method that is given an address.

    Where the modules are known, only of an attribute: `self.lib.power(x.data_ptr())`, of a library that was passed on.
    """
    if not isinstance(call.func, ast.Attribute):
        return False
    owner = ast.unparse(call.func.value)
    if owner in modules or _OF_TORCH_OPS.match(owner):
        return call.func.attr not in LIBRARY_LOADERS
    attribute = _ATTRIBUTE.fullmatch(owner) is not None
    if not foreign or (modules and not attribute) or (owner.split(".")[0] in _NO_LIBRARIES and not attribute):
        return False
    given = [node for item in passed_values(call) for node in nodes_of(item)]
    return any(_makes_address(node) for node in given)


def _makes_address(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
    return name in _ADDRESSES or (isinstance(node, ast.Attribute) and node.attr == "data" and _is_of_numpy(node.value))


def _is_of_numpy(node: ast.expr) -> bool:
    """`array.ctypes`."""
    return isinstance(node, ast.Attribute) and node.attr == "ctypes"
