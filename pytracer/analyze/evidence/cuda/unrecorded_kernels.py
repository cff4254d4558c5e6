"""Whether a program may launch kernels that no record has: by what its files import and load.

Recorded are operators that torch dispatches and kernels of Triton, `torch.cuda._compile_kernel` and `cupy.RawKernel`. A
function of an extension, or of a library that ctypes loads, may launch others; so may most packages.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

# Packages whose launches are recorded, or that launch nothing.
_PACKAGES = frozenset({
    "PIL", "attr", "attrs", "click", "cupy", "cupyx", "einops", "matplotlib", "numpy", "pandas", "psutil", "pydantic",
    "pytracer", "rich", "scipy", "sklearn", "torch", "tqdm", "triton", "typing_extensions", "yaml",
})  # fmt: skip
_LOADING = ("ctypes", "cffi", "torch.utils.cpp_extension", "cupy.cuda.compiler")
# `load_library` is not among them: it brings operators, whose calls are recorded.
_LOADS = frozenset({"CDLL", "PyDLL", "LoadLibrary", "dlopen", "load_inline", "load_dynamic", "cpp_extension"})
_OF_CUPY = frozenset({"RawModule", "ElementwiseKernel", "ReductionKernel", "fuse"})


def may_launch_unrecorded(view: ProcessView, frames: Sequence[PythonFrame]) -> bool:
    """Also true where a file cannot be read, or is not as it was.

    Args:
        view: the process.
        frames: of the program, one of each file that is known to have run.
    """
    own = [frame for frame in frames if not is_library_file(frame.file)]
    files = program_files(view.process.snapshot, own)
    if not own or any(frame.file not in files for frame in own):
        return True
    beside = {file.rpartition("/")[2].removesuffix(".py") for file in files}
    return any(_brings_kernels(tree, beside) for tree in files.values())


def _brings_kernels(tree: ast.Module, beside: set[str]) -> bool:
    for module in _modules(tree):
        top = module.partition(".")[0]
        if module.startswith(_LOADING) or not (top in _PACKAGES or top in beside or top in sys.stdlib_module_names):
            return True
    return any(_loads(node) for node in nodes_of(tree))


def _modules(tree: ast.Module) -> Iterator[str]:
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            yield from (item.name for item in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield from (f"{base}.{item.name}".lstrip(".") for item in node.names)


def _loads(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in _LOADS | _OF_CUPY
    if isinstance(node, ast.Call):
        return called_name(node) in _LOADS | _OF_CUPY | {"import_module", "__import__"}
    return isinstance(node, ast.ImportFrom) and any(item.name in _LOADS | _OF_CUPY for item in node.names)
