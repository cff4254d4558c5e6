"""An archive of TorchScript that could not be written to its end: torch's writer throws that from its destructor.

torch 2.13, caffe2/serialize/inline_container.cc: `~PyTorchStreamWriter()` calls `writeEndOfFile()`, which throws when
what it had written before did not arrive. C++ ends a process whose destructor throws, whatever would catch it.

Python ignores SIGXFSZ, so that a write beyond the limit of a file's size is refused as one to a full disk is. The first
position of the message is where the record began that was not written: whether a parameter of the process would go
beyond the limit from there decides between the two. Where no tensor has a name, any may be one of what is saved.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital, shortened, size_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.limits.ended import FileLimit, file_limit
from pytracer.analyze.evidence.native.aborts import cpp_exception
from pytracer.analyze.evidence.native.native_stack import functions
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import spans_body
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Snapshot

_NOT_WRITTEN = Pattern(r"unexpected pos (\d{1,19}) vs \d+|PytorchStreamWriter failed writing")
_WRITER = "PyTorchStreamWriter"
_SAVES = ("save", "_save_for_lite_interpreter")
_SAVED = ("parameter", "buffer")
_BUFFER_BYTES = 8191  # of std::filebuf in libstdc++: written by count, and not yet to the file
_LONGEST = 60
_SHORT = 24


class CutArchive(msgspec.Struct, frozen=True):
    """`line`, `call`: of the program. `model`, `path`: what it saves, and where to. `caught`: an `except` around it.

    `limit`: of a file's size. `written`: bytes before a record that went beyond that limit, where it probably did.
    `named`: whether that is known of a parameter; else the disk may be full as well.
    """

    line: int | None
    call: str | None
    model: str | None
    path: str | None
    caught: tuple[int, str] | None
    limit: FileLimit | None = None
    written: int | None = None
    named: bool = False

    @property
    def what(self) -> str:
        """Behind `aborted:`."""
        what = f"`{self.call}`" if self.call is not None else "a saved TorchScript model"
        caught = f", which `{self.caught[1]}` (line {self.caught[0]}) cannot catch" if self.caught is not None else ""
        return (
            f"the file of {what} could not be written to its end, most likely because {self._why}; torch throws that "
            f"from a destructor{caught}"
        )

    @property
    def behind(self) -> Behind:
        """The line that sets the limit, or where the path comes from."""
        of_limit = self.limit is not None and self.written is not None
        return Behind.of([], self.limit) if of_limit else Behind.of([self.path])

    @property
    def _why(self) -> str:
        if self.limit is not None and self.written is not None:
            goes = "went beyond that" if self.named else "may go beyond that, or because its file system is full"
            return (
                f"this process may write no more than {self.limit.words}, and the next tensor behind the first "
                f"{size_words(self.written)} {goes}"
            )
        setter = self.limit.setter if self.limit is not None else None
        sets = f", which {setter.place} sets," if setter is not None else ""
        return f"its file system is full, or a quota or the limit of a file's size{sets} is used up"

    @property
    def advice(self) -> str:
        """Raise the limit or make room; and how to have an exception of Python's."""
        return (
            f"{self._room} For an error that can be caught, save to memory: `buffer = io.BytesIO(); "
            f"torch.jit.save({self.model or 'model'}, buffer)`, then "
            f'`open({self.path or "path"}, "wb").write(buffer.getvalue())`, which raises OSError.'
        )

    @property
    def _room(self) -> str:
        if self.limit is not None and self.written is not None:
            room = (
                "" if self.named else " If the file would be smaller than the limit, make room on its disk (`df -h`)."
            )
            return (
                f"{capital(self.limit.change)} above the size of the whole file, or save a smaller model.{room} What "
                "was written until then is cut off: delete it."
            )
        setter = self.limit.setter if self.limit is not None else None
        at = f"where line {self.line} writes" if self.line is not None else "where it is written"
        folder = f"the folder of `{self.path}`" if self.path is not None else "the folder"
        limit = f"the limit that {setter.place} sets (`{setter.text}`)" if setter is not None else "`ulimit -f`"
        return (
            f"Make room {at} (see `df -h`, the quota of {folder}, and {limit}): delete older files there, or write "
            "to a larger disk, and ask shutil.disk_usage() before the save."
        )


def cut_archive(job: JobView, view: ProcessView) -> CutArchive | None:
    """Of a process that std::terminate() ended; None for any other exception, or one that another function threw."""
    exception = cpp_exception(view)
    found = _NOT_WRITTEN.search(exception.what or "") if exception is not None else None
    if found is None or not any(_WRITER in name for name in functions(view)):
        return None
    limit, at = file_limit(job, view), view.python_frame
    position = int(found[1]) if found[1] is not None else None
    written, named = _written(view.process.snapshot, limit, position)
    tree = syntax_tree(view.process.snapshot, at)
    if at is None or at.line is None or tree is None:
        return CutArchive(at.line if at is not None else None, None, None, None, None, limit, written, named)
    calls = [item for item in calls_on(tree, at.line) if called_name(item) in _SAVES]
    call = calls[0] if len(calls) == 1 else None
    model, path = _arguments(call) if call is not None else (None, None)
    text = shortened(ast.unparse(call), _LONGEST) if call is not None else None
    return CutArchive(at.line, text, model, path, _handler(tree, at.line), limit, written, named)


def _written(snapshot: Snapshot, limit: FileLimit | None, position: int | None) -> tuple[int | None, bool]:
    """Where the record began that was not written, if a live tensor that may be saved goes from there beyond the limit.

    With whether that is a parameter or a buffer, by its name.
    """
    if limit is None or limit.limit is None or position is None or position > limit.limit + _BUFFER_BYTES:
        return None, False
    saved = {base for base, items in snapshot.named.items() if any(item.role in _SAVED for item in items)}
    largest = next(
        (item for item in snapshot.storages.by_size() if item.state == "live" and (not saved or item.base in saved)),
        None,
    )
    enough = largest is not None and position + largest.nbytes > limit.limit
    return (position, bool(saved)) if enough else (None, False)


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
