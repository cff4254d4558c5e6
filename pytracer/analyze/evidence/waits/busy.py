"""What a process was at when a time limit ended it in mid-work: a loop, or a function of its native code."""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.native.fault_function import NativeFunction, program_function
from pytracer.analyze.evidence.syntax.endless import only_exit
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.evidence.syntax.unbounded import loops_at
from pytracer.analyze.evidence.waits.waits import end_of, main_native, main_stack, wait_of, waiting_frame, was_asleep
from pytracer.analyze.naming import place_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_LONGEST = 60
_IMPORT = "<frozen importlib._bootstrap>"
_FEW = 4
_EXTENSION = Pattern(r"\.(cpython|abi3)[^/]*\.so$")
_STANDARD = Pattern(r"/lib-dynload/(?!_ctypes\.)")  # ctypes only calls what others wrote
_BLOCKING = Pattern(  # glibc
    r"_*(?:GI_+)?(?:libc_)?(?P<name>read|recv|recvfrom|recvmsg|poll|ppoll|select|pselect|epoll_wait|epoll_pwait|accept|accept4"
    r"|connect|write|send|sendto|sendmsg|wait4|waitpid|waitid|futex\w*|pthread_cond_\w*wait\w*|sem_\w*wait\w*"
    r"|new_sem_wait\w*|lll_lock_wait\w*|pthread_\w*join\w*|sigwait\w*|pause)(?:\.constprop\.\d+|_nocancel)?"
)
_OF_STREAMS = ("read", "open")  # which wait for nobody where it is a file
_OF_FILES = Pattern(r"exists|is_file|isfile|is_dir|isdir|listdir|scandir|iterdir|glob")


class Busy(msgspec.Struct, frozen=True):
    """`at`: the innermost line of the program. `function`: of its native code, which that line had called.

    `loop`: the first line and the condition of the innermost `while` around it whose condition may change. `device`: it
    waited for a CUDA device, whose work takes as long.
    """

    at: PythonFrame
    function: NativeFunction | None
    loop: tuple[int, str] | None
    device: bool = False
    call: str | None = None
    """Of the C library, in which it waited."""
    imports: bool = False
    """Whether it was in the code of a module that was being imported."""

    @property
    def words(self) -> str:
        """`it was at train.py:5 in sample, in the loop `while len(chosen) < k` (line 4)`."""
        if self.device:
            return f"it waited for the CUDA device at {place_words(self.at)}"
        if self.call is not None:
            verb = "was" if self.call in _OF_STREAMS else "waited"
            return f"it {verb} in {self.call}(), called at {place_words(self.at)}"
        if self.function is not None:
            return f"it was in {self.function.words}, called at {place_words(self.at)}"
        loop = f", in the loop `while {self.loop[1]}` (line {self.loop[0]})" if self.loop is not None else ""
        return f"{self._then}{loop}"

    @property
    def _then(self) -> str:
        return f"it {'was still importing modules' if self.imports else 'was'} at {place_words(self.at)}"

    @property
    def is_plain(self) -> bool:
        """Whether nothing shows why it took long."""
        return not self.imports and not self.device and self.call is None and self.function is None and not self.loop

    @property
    def advice(self) -> str:
        """Both ways: more time, or a loop without end."""
        if self.device:
            at = place_words(self.at)
            return f"Raise the time limit if the program needs longer; it waited for the CUDA device at {at} then."
        if self.call == "open":
            return (
                f"If it should have been done by then, see what line {self.at.line} opens: a named pipe waits for its "
                "other end, a file on a network disk for its server; a file of this machine for nobody, and a loop "
                "around it may go round for ever. Else raise the time limit."
            )
        if self.call in _OF_STREAMS:
            return (
                f"If it should have been done by then, see what line {self.at.line} reads: a pipe or a device waits "
                f"for its other end; at the end of a file {self.call}() returns nothing at once, and a loop that does "
                "not ask for that goes round for ever. Else raise the time limit."
            )
        if self.call is not None:
            return (
                f"If it should have been done by then, see who should have ended the {self.call}() of line "
                f"{self.at.line}: the process, host or device at its other end. A timeout there makes such a wait an "
                "error. Else raise the time limit."
            )
        if self.function is not None:
            look = (
                f"look at the loops of {self.function.words}, and at the numbers that line {self.at.line} passes to it"
            )
        elif self.loop is not None:
            look = (
                f"find out whether `{self.loop[1]}` (line {self.loop[0]}) can still become false: print what it reads"
            )
        else:
            return f"Raise the time limit if the program needs longer; {self._then} then."
        return f"If it should have been done by then, {look}. Else raise the time limit."


def blocking_call(view: ProcessView) -> str | None:
    """The call of the C library that waits for others in which the end found its main thread: `recv`, `futex`.

    The signal may have met another thread, such as one of a library's pool, which waits for work.
    """
    inner = next((frame.function for frame in main_native(view) if frame.function is not None), None)
    found = _BLOCKING.fullmatch(inner) if inner is not None else None
    return found["name"] if found is not None else None


def busy_at(view: ProcessView) -> Busy | None:
    """None where it waited or slept, or no line of the program is known."""
    frame, end = waiting_frame(view), end_of(view)
    if frame is None or frame.line is None or end is None or was_asleep(view):
        return None
    wait = wait_of(view)
    if wait is not None and wait.kind != "open":
        return Busy(frame, None, None, device=True) if wait.kind in ("device", "driver") else None
    is_main, loop, call = end.tid == view.process.snapshot.pid, _loop(view, frame, frame.line), blocking_call(view)
    call = "open" if wait is not None else call
    if call is not None and loop is None:
        return Busy(frame, None, None, call=call)
    imports = any(item.function == "_find_and_load" and _IMPORT in (item.file or "") for item in main_stack(view))
    native = program_function(view) if is_main and not _in_standard_library(view) else None
    return Busy(frame, native, None if imports else loop, imports=imports)


def _in_standard_library(view: ProcessView) -> bool:
    """Whether native code of CPython's own modules ran, such as sqlite3's: its loops are not the program's."""
    images = (frame.image or "" for frame in main_native(view))
    first = next((image for image in images if _EXTENSION.search(image)), "")
    return _STANDARD.search(first) is not None


class Polled(msgspec.Struct, frozen=True):
    """A loop that asks again and again, and sleeps in between: `while not path.exists()`."""

    line: int
    condition: str
    exit: tuple[int, str] | None = None
    """Of `while True`: the only `if` that leaves it."""

    @property
    def words(self) -> str:
        """`in the loop `while not path.exists()` (line 23)`."""
        if self.exit is not None:
            only = f"which only `if {self.exit[1]}` (line {self.exit[0]}) leaves"
            return f"in the loop `while {self.condition}` (line {self.line}), {only}"
        return f"in the loop `while {self.condition}` (line {self.line})"

    @property
    def advice(self) -> str:
        """Who should end it."""
        file = (
            " Compare the path with that of whoever writes it: one with the rank or the time in it, a relative one, or "
            "one on another node's disk is another file."
            if _OF_FILES.search(self.exit[1] if self.exit is not None else self.condition)
            else ""
        )
        if self.exit is not None:
            return f"See what should have made `{self.exit[1]}` (line {self.exit[0]}) true: print what it reads.{file}"
        return f"See what should have ended `while {self.condition}` (line {self.line}): print what it reads.{file}"


def polled_test(view: ProcessView, polled: Polled) -> ast.expr | None:
    """The condition that it asks again and again."""
    tree = syntax_tree(view.process.snapshot, waiting_frame(view))
    line = polled.exit[0] if polled.exit is not None else polled.line
    for item in nodes_of(tree) if tree is not None else ():
        if isinstance(item, (ast.If, ast.While)) and item.lineno == line:
            return item.test
    return None


def polled_by(view: ProcessView) -> Polled | None:
    """Where the innermost line of the program slept in such a loop."""
    frame, stack = waiting_frame(view), main_stack(view)
    if frame is None or frame.line is None or not was_asleep(view) or not stack or stack[0] != frame:
        return None
    loop = _loop(view, frame, frame.line)
    if loop is not None:
        return Polled(*loop) if _only_waits(view, frame, loop[0]) else None
    return _until_left(view, frame, frame.line)


def _until_left(view: ProcessView, frame: PythonFrame, line: int) -> Polled | None:
    """`while True` with one `if` that leaves it."""
    tree = syntax_tree(view.process.snapshot, frame)
    loops = loops_at(scope_of(tree, line), line) if tree is not None else []
    only = only_exit(loops[0]) if loops else None
    if only is None or not isinstance(loops[0], ast.While) or not _only_waits(view, frame, loops[0].lineno):
        return None
    return Polled(loops[0].lineno, "True", (only.lineno, shortened(ast.unparse(only.test), _LONGEST)))


def _only_waits(view: ProcessView, frame: PythonFrame, line: int) -> bool:
    """Whether the loop of a line does little more than sleep."""
    tree = syntax_tree(view.process.snapshot, frame)
    found = [item for item in nodes_of(tree) if isinstance(item, ast.While) and item.lineno == line] if tree else []
    return bool(found) and len(found[0].body) <= _FEW and not any(isinstance(item, ast.For) for item in found[0].body)


def _loop(view: ProcessView, frame: PythonFrame, line: int) -> tuple[int, str] | None:
    tree = syntax_tree(view.process.snapshot, frame)
    found = [
        item
        for item in own_nodes(scope_of(tree, line) if tree is not None else ast.Module([], []))
        if isinstance(item, ast.While) and not isinstance(item.test, ast.Constant)
        if item.lineno <= line <= (item.body[-1].end_lineno or 0)
    ]
    last = max(found, key=lambda item: item.lineno, default=None)
    return (last.lineno, shortened(ast.unparse(last.test), _LONGEST)) if last is not None else None
