"""An archive of TorchScript that could not be written to its end: torch's writer throws that from its destructor.

torch 2.13, caffe2/serialize/inline_container.cc: `~PyTorchStreamWriter()` calls `writeEndOfFile()`, which throws when
what it had written before did not arrive. C++ ends a process whose destructor throws, whatever would catch it.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.native.aborts import cpp_exception
from pytracer.analyze.evidence.native.native_stack import functions
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import spans_body
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_NOT_WRITTEN = Pattern(r"unexpected pos \d+ vs \d+|PytorchStreamWriter failed writing")
_WRITER = "PyTorchStreamWriter"
_SAVES = ("save", "_save_for_lite_interpreter")
_LONGEST = 60
_SHORT = 24


class CutArchive(msgspec.Struct, frozen=True):
    """`line`, `call`: of the program. `model`, `path`: what it saves, and where to. `caught`: an `except` around it."""

    line: int | None
    call: str | None
    model: str | None
    path: str | None
    caught: tuple[int, str] | None

    @property
    def what(self) -> str:
        """Behind `aborted:`."""
        what = f"`{self.call}`" if self.call is not None else "a saved TorchScript model"
        caught = f", which `{self.caught[1]}` (line {self.caught[0]}) cannot catch" if self.caught is not None else ""
        return (
            f"the file of {what} could not be written to its end, most likely because its file system is full, or a "
            f"quota or the limit of a file's size is used up; torch throws that from a destructor{caught}"
        )

    @property
    def advice(self) -> str:
        """Make room; and how to have an exception of Python's."""
        at = f"where line {self.line} writes" if self.line is not None else "where it is written"
        folder = f"the folder of `{self.path}`" if self.path is not None else "the folder"
        return (
            f"Make room {at} (see `df -h`, the quota of {folder}, and `ulimit -f`): delete older files there, or write "
            f"to a larger disk, and ask shutil.disk_usage() before the save. For an error that can be caught, save to "
            f"memory: `buffer = io.BytesIO(); torch.jit.save({self.model or 'model'}, buffer)`, then "
            f'`open({self.path or "path"}, "wb").write(buffer.getvalue())`, which raises OSError.'
        )


def cut_archive(view: ProcessView) -> CutArchive | None:
    """Of a process that std::terminate() ended; None for any other exception, or one that another function threw."""
    exception = cpp_exception(view)
    if exception is None or _NOT_WRITTEN.search(exception.what or "") is None:
        return None
    if not any(_WRITER in name for name in functions(view)):
        return None
    at = view.python_frame
    tree = syntax_tree(view.process.snapshot, at)
    if at is None or at.line is None or tree is None:
        return CutArchive(at.line if at is not None else None, None, None, None, None)
    calls = [item for item in calls_on(tree, at.line) if called_name(item) in _SAVES]
    call = calls[0] if len(calls) == 1 else None
    model, path = _arguments(call) if call is not None else (None, None)
    text = shortened(ast.unparse(call), _LONGEST) if call is not None else None
    return CutArchive(at.line, text, model, path, _handler(tree, at.line))


def _arguments(call: ast.Call) -> tuple[str | None, str | None]:
    """Of `torch.jit.save(model, path)` and of `model.save(path)`, where these are names or short."""
    of_module = isinstance(call.func, ast.Name) or ast.unparse(call.func) == "torch.jit.save"
    model = call.args[0] if of_module and call.args else getattr(call.func, "value", None)
    path = next(iter(call.args[int(of_module) :]), None)
    texts = [ast.unparse(item) if item is not None else None for item in (model, path)]
    shown = [text if text is not None and len(text) <= _SHORT else None for text in texts]
    return shown[0], shown[1]


def _handler(tree: ast.Module, line: int) -> tuple[int, str] | None:
    """The innermost `except` of a `try` whose body has the line."""
    around = [
        item for item in nodes_of(tree) if isinstance(item, ast.Try) and item.handlers and spans_body(item.body, line)
    ]
    if not around:
        return None
    handler = max(around, key=lambda item: item.lineno).handlers[0]
    return handler.lineno, f"except {ast.unparse(handler.type)}" if handler.type is not None else "except"
