"""A child that waits in a write to its standard output: a pipe that its parent made by subprocess and does not read."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.waits.standing_threads import others_of
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import main_native, main_stack, program_stack, waiting_frame
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

_WRITES = ("write", "__write", "__GI___libc_write", "__libc_write", "_Py_write", "_Py_write_impl")
_LOGGING = Pattern(r"/logging/__init__\.py$")
_STREAMS = ("stdout", "stderr")
_NEAR = 3


def full_output(parent: ProcessView, child: ProcessView) -> ProcessWait | None:
    """Of a child that was writing what it prints or logs when it was ended, where the parent made that a pipe."""
    if not _writes(child) or piped_start(parent) is None:
        return None
    return ProcessWait("full-output", waiting_frame(child))


def full_output_advice(parent: ProcessView) -> str:
    """Who has to read, or where else to."""
    line = piped_start(parent)
    made = f", which {line} makes" if line is not None else ""
    return (
        f"The child's standard output is a pipe{made}: it holds 64 KiB, and then whatever the child prints or logs "
        "waits until somebody reads. Give it a file or subprocess.DEVNULL there, let it inherit the output (leave "
        "stdout= out), or read it all along in a thread."
    )


class UnreadOutput(msgspec.Struct, frozen=True):
    """Of a loop that asks again and again whether a child has ended, whose output is a pipe that nothing reads."""

    made: LineWords
    parent: ProcessView
    sure: bool = False
    of_all: bool = False

    @property
    def sentence(self) -> str:
        """For the headline."""
        return (
            f"The child's output is a pipe, which {self.made} makes and the loop does not read: a child that has "
            "printed 64 KiB waits in its next write"
        )

    @property
    def advice(self) -> str:
        """Who has to read; of a child that prints less, to look at it."""
        return f"{full_output_advice(self.parent)} If it prints less than that, see what it does or waits for itself."


def unread_output(view: ProcessView, test: ast.expr) -> UnreadOutput | None:
    """Of `while process.poll() is None: time.sleep(1)`, where no other thread of the process may read."""
    asks = any(isinstance(item, ast.Call) and called_name(item) == "poll" and not item.args for item in nodes_of(test))
    made = piped_start(view) if asks and not others_of(view) else None
    return UnreadOutput(made, view) if made is not None else None


def piped_start(view: ProcessView) -> LineWords | None:
    """The only Popen() of the program whose output is a pipe."""
    frames = program_stack(view)
    here = frames[0].file if frames else None
    found = [
        line_in(file, node.lineno, here)
        for file, tree in program_files(view.process.snapshot, frames).items()
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and called_name(node) == "Popen" and _is_piped(node)
    ]
    return found[0] if len(found) == 1 else None


def _is_piped(call: ast.Call) -> bool:
    given = [keyword_value(call, name) for name in _STREAMS]
    return any(item is not None and ast.unparse(item).rpartition(".")[2] == "PIPE" for item in given)


def _writes(view: ProcessView) -> bool:
    """By logging, or by print() or write() of a line of its own."""
    stack = main_stack(view)
    if not stack or not _in_write(main_native(view)):
        return False
    inner = stack[0]
    return _LOGGING.search(inner.file or "") is not None or not is_library_file(inner.file)


def _in_write(native: Sequence[NativeFrame]) -> bool:
    names = [(frame.function or "").partition("@")[0] for frame in native[:_NEAR]]
    return bool(names) and names[0] in _WRITES and any(name.startswith("_Py_write") for name in names)
