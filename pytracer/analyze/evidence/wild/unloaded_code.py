"""A call into a library that the program had unloaded: by dlclose(), while something still held a function of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pytracer._text import hex_addr, shortened
from pytracer.analyze.evidence.lifetime.deleters import ended_tensor
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames
from pytracer.analyze.evidence.native.jumps import Jump
from pytracer.analyze.evidence.native.native_stack import functions
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, scope_of
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.naming import short_file
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, PythonFrame

_LOADS = ("CDLL", "PyDLL", "LoadLibrary", "dlopen", "load_library")
_UNLOADS = ("dlclose", "FreeLibrary")
_DELETERS = ("deleteInefficientStdFunctionContext", "DLManagedTensor", "fromDLPack", "StorageImpl::release_resources")
_LOW = 1 << 32  # a program that lies at a fixed address has its own code below
_INNER = 3
_QUOTED = 44


@dataclass(frozen=True)
class UnloadedCode(Explanation):
    """`target` lies among the libraries, where none is mapped; `unloads`: the only line of the program that unloads.

    `owner`: the class whose `method` does. `tensor`: whose memory was being given back. `library`: `kernel.so`.
    """

    target: int
    line: str
    text: str
    owner: str | None
    method: str | None
    tensor: str | None
    library: str | None = None

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def access(self, view: ProcessView) -> str | None:
        """See Explanation."""
        what = f"the deleter of {self.tensor}, " if self.tensor is not None else ""
        return f"called {what}code at {hex_addr(self.target)} that is not there any more"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        by = f"{self.owner}.{self.method}() ({self.line})" if self.owner is not None else self.line
        library = f"its library, {self.library}," if self.library is not None else "its library"
        return f": {library} was unloaded, likely by {by}"

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        quoted = f"{self.line} (`{shortened(self.text, _QUOTED)}`)"
        if self.tensor is not None:
            keeps = f"keep the {self.owner} for as long as its tensors" if self.owner is not None else "keep it loaded"
            return (
                f"Do not unload at {quoted} while a tensor lives whose memory the library frees, as {self.tensor} did "
                f"until {line_words(view)}: {keeps}, leave out dlclose(), or clone() that tensor where it is made."
            )
        return (
            f"Do not unload at {quoted} while something still calls the library: a callback, a thread of it, or an "
            "object with one of its functions. Leaving out dlclose() costs only its memory."
        )


def unloaded_code(view: ProcessView, jump: Jump) -> UnloadedCode | None:
    """None where the target is not among the libraries, something is mapped there, or the program unloads nothing."""
    target = jump.target
    if target is None or jump.how != "call" or jump.refused or jump.mapping is not None:
        return None
    crash = view.crash
    images = [
        item
        for item in (crash.images if crash is not None else ())
        if item.start >= _LOW and ".so" in (item.path or "")
    ]
    if not images or not min(item.start for item in images) < target < max(item.end for item in images):
        return None
    frames = program_frames(view)
    found = [
        (file, tree, node)
        for file, tree in program_files(view.process.snapshot, frames).items()
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and called_name(node) in _UNLOADS
    ]
    if len(found) != 1:
        return None
    file, tree, node = found[0]
    scope = scope_of(tree, node.lineno)
    owner = class_around(tree, scope)
    text = line_text(view.process.snapshot, PythonFrame(function=None, file=file, line=node.lineno)) or ""
    here = bool(frames) and frames[0].file == file
    deletes = any(part in name for name in functions(view)[:_INNER] for part in _DELETERS)
    loaded = {part for item in nodes_of(tree) if isinstance(item, ast.Call) for part in _libraries(item)}
    return UnloadedCode(
        target,
        f"line {node.lineno}" if here else f"{short_file(file)}:{node.lineno}",
        text,
        owner.name if owner is not None else None,
        getattr(scope, "name", None),
        (ended_tensor(view) or "a tensor") if deletes else None,
        loaded.pop() if len(loaded) == 1 else None,
    )


def _libraries(call: ast.Call) -> Iterator[str]:
    """`kernel.so` of `ctypes.CDLL(str(folder / "kernel.so"))`."""
    for item in nodes_of(call) if called_name(call) in _LOADS else ():
        if isinstance(item, ast.Constant) and isinstance(item.value, str) and ".so" in item.value:
            yield item.value.rsplit("/", 1)[-1]
