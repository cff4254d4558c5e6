"""A forked child that numba ended: one of its parallel kernels was called there, and GNU OpenMP had run in the parent.

numba (0.40 to 0.62), np/ufunc/omppool.cpp: a parallel kernel whose threads are GNU OpenMP's compares its process with
that of the first kernel. In another one it prints "Terminating: fork() called from a process already using GNU OpenMP,
this is unsafe." and calls raise(SIGTERM). The compiler makes that a jump, so that the kernel's own code is what calls.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Literal

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import capital, shortened
from pytracer.analyze.evidence.ends.sent_signals import deadly_signal
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.native.numba_functions import DECORATORS
from pytracer.analyze.evidence.native.numba_functions import LIBRARY as NUMBA_LIBRARY
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.waits.pipes import Starter, forked_at
from pytracer.analyze.evidence.waits.used_before_fork import EarlierUse, called_before_fork, used_before_fork
from pytracer.analyze.evidence.waits.waits import main_stack, was_forked
from pytracer.analyze.naming import LineWords, line_in, place_words
from pytracer.analyze.platform.signals import SIGTERM
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_LIBC = Pattern(r"(libc|libpthread)[.-]")
_POOL = "omppool."
_NEAR, _LONGEST = 8, 60
_SPAWN: dict[Starter, str] = {
    "DataLoader": '`multiprocessing_context="spawn"`',
    "ProcessPoolExecutor": '`mp_context=multiprocessing.get_context("spawn")`',
    "Pool": '`multiprocessing.get_context("spawn").Pool(...)`',
    "Process": '`multiprocessing.get_context("spawn").Process(...)`',
}


class Kernel(msgspec.Struct, frozen=True):
    """A function that numba compiles for several threads. `line`: of its decorator, `text`, that has `option`."""

    name: str
    file: str
    line: int
    text: str
    option: str


class ForkedKernel(msgspec.Struct, frozen=True):
    """`at`: the line of the child that called such a kernel. `earlier`: a call that ran one in the parent.

    `forked`: the line of the program that forked, and what it started.
    """

    at: PythonFrame
    kernel: Kernel | None
    earlier: EarlierUse | None
    forked: tuple[PythonFrame, Starter] | None

    @property
    def words(self) -> str:
        """After who it was."""
        called = f"the parallel kernel `{self.kernel.name}`" if self.kernel is not None else "a parallel kernel"
        ran = self.earlier
        by = f" (`{ran.text}` at {place_words(ran.at)})" if ran is not None else ""
        forked = f" at {place_words(self.forked[0])}" if self.forked is not None else ""
        return (
            f"sent SIGTERM to itself: numba's GNU OpenMP ends a forked process that calls {called}, at "
            f"{place_words(self.at)}; it was forked{forked} from its parent, which had run such "
            f"kernels before{by}"
        )

    @property
    def advice(self) -> str:
        """Of the kernel, of how the children start, and of the environment."""
        kernel, starter = self.kernel, self.forked[1] if self.forked is not None else "Process"
        serial = "use kernels without `parallel=True` in the children"
        if kernel is not None:
            at: LineWords = line_in(kernel.file, kernel.line, self.at.file)
            copy = "or call a copy of it without that in the children"
            serial = f"take `{kernel.option}` out of `{kernel.name}` ({at}: `{kernel.text}`), {copy}"
        alone = ", or use num_workers=0" if starter == "DataLoader" else ""
        return (
            f"The threads of GNU OpenMP do not survive a fork. {capital(serial)}; or start them by "
            f"{_SPAWN[starter]}; or set "
            f"NUMBA_THREADING_LAYER=workqueue (or tbb) for the whole program{alone}. Nobody outside sent the signal."
        )


def forked_kernel(view: ProcessView) -> ForkedKernel | None:
    """None where the signal came from elsewhere, such as os.kill() in Python, or from code of another library."""
    sent = deadly_signal(view)
    if sent is None or sent.signal != SIGTERM or sent.sender_pid != view.process.snapshot.pid:
        return None
    raised = _raised_by(view) if was_forked(view) else None
    if raised is None:
        return None
    stack = main_stack(view)
    at = next((frame for frame in stack if not is_library_file(frame.file)), None)
    if at is None:
        return None
    own = [frame for frame in stack if not is_library_file(frame.file)]
    files = program_files(view.process.snapshot, own)
    kernel = _called_kernel(view, at, files)
    if raised == "generated" and kernel is None:
        return None
    return ForkedKernel(at, kernel, _earlier(view, files, kernel), forked_at(stack))


def _raised_by(view: ProcessView) -> Literal["numba", "generated"] | None:
    """Whether code of no image, or of numba's pool, called raise(): below numba's own, or at least generated code."""
    frames = own_frames(view)[:_NEAR]
    place = next((at for at, item in enumerate(frames) if not _LIBC.match(image_name(item.image))), None)
    if not place or not any(item.function == "raise" for item in frames[:place]):
        return None
    if image_name(frames[place].image).startswith(_POOL):
        return "numba"
    caller = next((item for item in frames[place:] if item.image is not None), None)
    if frames[place].image is not None or caller is None:
        return None
    return "numba" if NUMBA_LIBRARY.search(caller.image or "") else "generated"


def _called_kernel(view: ProcessView, at: PythonFrame, files: Mapping[str, ast.Module]) -> Kernel | None:
    """The one parallel kernel that the line calls; the innermost of its calls, which runs first."""
    tree = syntax_tree(view.process.snapshot, at)
    names = [called_name(item) for item in calls_on(tree, at.line)] if tree is not None and at.line else []
    found = [kernel for file, tree in files.items() for kernel in _kernels(file, tree) if kernel.name in names]
    return max(found, key=lambda item: names.index(item.name)) if found else None


def _kernels(file: str, tree: ast.Module) -> list[Kernel]:
    found = []
    for item in nodes_of(tree):
        if not isinstance(item, ast.FunctionDef):
            continue
        for mark in item.decorator_list:
            if isinstance(mark, ast.Call) and called_name(mark) in DECORATORS and (option := _parallel(mark)):
                text = shortened(f"@{ast.unparse(mark)}", _LONGEST)
                found.append(Kernel(item.name, file, mark.lineno, text, option))
    return found


def _parallel(mark: ast.Call) -> str | None:
    """What makes it so."""
    value, target = keyword_value(mark, "parallel"), keyword_value(mark, "target")
    if isinstance(value, ast.Constant) and value.value is True:
        return "parallel=True"
    return 'target="parallel"' if isinstance(target, ast.Constant) and target.value == "parallel" else None


def _earlier(view: ProcessView, files: Mapping[str, ast.Module], kernel: Kernel | None) -> EarlierUse | None:
    """A call above the fork that led to the same kernel, or to another one."""
    stack = main_stack(view)
    if kernel is not None:
        for tree in files.values():
            for item in nodes_of(tree):
                if isinstance(item, ast.FunctionDef) and any(found.name == item.name for found in _kernels("", tree)):
                    earlier = called_before_fork(stack, files, item)
                    if earlier is not None:
                        return earlier
    return used_before_fork(view.process.snapshot, stack, ())
