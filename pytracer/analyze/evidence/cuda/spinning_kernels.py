"""Kernels in the program's text with a loop that does nothing but wait: `while (*flag == 0) {}`.

CUDA C in strings, as torch.cuda._compile_kernel, load_inline and CuPy take it, and Triton's functions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import structs

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.cuda.waiting_loops import waiting_loops
from pytracer.analyze.evidence.syntax.calls import keyword_value, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import short_file
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence, PythonFrame

_LONGEST = 60
# A loop that sets what it waits for. atomicCAS(p, 0, 0) only reads.
_TAKEN = Pattern(r"\batomic(?:CAS|Exch)\w*\((?![^)]*,\s*(\w+)\s*,\s*\1\s*\))|\batomic_(?:cas|xchg)\(")


class _Passed(msgspec.Struct, frozen=True):
    """An argument of a launch, and the line that assigns it."""

    text: str
    file: str
    made: tuple[int, str] | None = None

    @property
    def words(self) -> str:
        """``ready` (queue.py:36: `ready = torch.zeros(...)`)`."""
        at = f" ({short_file(self.file)}:{self.made[0]}: `{self.made[1]}`)" if self.made is not None else ""
        return f"`{self.text}`{at}"


class SpinningKernel(msgspec.Struct, frozen=True):
    """`line`: of its loop. `launches`: lines of the program that launch it, by its name.

    `flag`: what the program passes for the parameter that the loop reads, `until`: for the one that it is compared
    with. `written`: what the kernel itself does to the first one, such as `atomicAdd(arrived, 1)`.
    """

    name: str
    file: str
    line: int
    condition: str
    launches: tuple[tuple[int, str], ...] = ()
    flag: _Passed | None = None
    until: _Passed | None = None
    written: str | None = None
    of_extension: bool = False
    """Whether a function of an extension launches it: what `launches` has then are calls of that."""

    @property
    def words(self) -> str:
        """`the kernel drain, which waits in `while (*flag == 0)` (queue.py:12), and is launched at queue.py:27`."""
        launched = f", and is launched at {self._at(self.launches[0][0])}" if self.launches else ""
        return f"the kernel {self.name}, which waits in `{self.condition}` ({self._at(self.line)}){launched},"

    @property
    def advice(self) -> str:
        """Who ends the loop: its own launch, else somebody else."""
        flag = self.flag.words if self.flag is not None else "what it reads"
        if self.written is None:
            return (
                f"See who writes {flag}, which the loop of {self.name} waits for: nothing behind the kernel on its "
                "stream, or on one that waits for that stream, runs before it ends, and nothing that the host does "
                "after this wait. Write it before the launch, from another stream, or from the host before it waits."
            )
        if _TAKEN.search(self.condition):
            return (
                f"The loop of {self.name} takes {flag} as a lock, which `{self.written}` gives back. Threads of a warp "
                "run together: the one that holds it must not wait for the others, by __syncwarp() or by code behind "
                "the loop that all reach together, since they spin for it. Let one thread of a warp or block take it, "
                "or give it back inside of the loop."
            )
        waits, look = f"for {flag}", "see that all the blocks that it waits for are launched, and that"
        if self.until is not None:
            waits = f"until {flag} has reached {self.until.words}"
            look = f"compare that number with the grid of the launch{self._launch_line()}, and see that"
        return (
            f"The loop of {self.name} waits {waits}, which the kernel itself writes by `{self.written}`: {look} all "
            "blocks fit on the device at once. A block that waits makes no room for another: a cooperative launch "
            "checks that; or use two kernels."
        )

    @property
    def evidence(self) -> Evidence:
        """Its loop, and who launches it."""
        launched = "".join(f"; {self._at(line)} has `{text}`" for line, text in self.launches[:2])
        return Evidence(
            "source-line",
            f"the kernel {self.name} has a loop that only waits, `{self.condition}` ({self._at(self.line)}){launched}",
            python=PythonFrame(function=self.name, file=self.file, line=self.line),
        )

    def _launch_line(self) -> str:
        return f" (line {self.launches[0][0]})" if len(self.launches) == 1 else ""

    def _at(self, line: int) -> str:
        return f"{short_file(self.file)}:{line}"


def spinning_kernels(view: ProcessView) -> Iterator[SpinningKernel]:
    """Of the files on the main thread's stack, and of those that allocated."""
    seen = set()
    for frame in _frames(view):
        if frame.file in seen or frame.file is None or is_library_file(frame.file):
            continue
        seen.add(frame.file)
        tree = syntax_tree(view.process.snapshot, frame)
        if tree is not None:
            yield from _in_file(tree, frame.file)


def _frames(view: ProcessView) -> Iterator[PythonFrame]:
    yield from view.python_stack or ()
    for item in view.process.snapshot.storages.on_devices():
        for own in (item.allocated_by.caller, item.allocated_by.python):
            if own is not None:
                yield PythonFrame(function=own.function, file=own.file, line=own.line)


def _in_file(tree: ast.Module, file: str) -> Iterator[SpinningKernel]:
    for node in nodes_of(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "__global__" in node.value:
            yield from _in_text(tree, file, node.value, node)
        elif isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(item) for item in node.decorator_list):
            yield from _in_triton(tree, file, node)


def _in_text(tree: ast.Module, file: str, source: str, node: ast.Constant) -> Iterator[SpinningKernel]:
    exact = (node.end_lineno or node.lineno) - node.lineno == source.count("\n")
    for loop in waiting_loops(source):
        line = node.lineno + (source.count("\n", 0, loop.at) if exact else 0)
        kernel = SpinningKernel(loop.kernel, file, line, shortened(loop.condition, _LONGEST), written=loop.written)
        yield _made(tree, structs.replace(kernel, of_extension=loop.host is not None), loop.read, loop.until, loop.host)


def _in_triton(tree: ast.Module, file: str, node: ast.FunctionDef) -> Iterator[SpinningKernel]:
    parameters = [item.arg for item in node.args.args]
    for loop in nodes_of(node):
        if isinstance(loop, ast.While) and all(_only_loads(item) for item in loop.body):
            read = next((item.id for item in _names(loop) if item.id in parameters), None)
            shown = shortened(f"while {ast.unparse(loop.test)}", _LONGEST)
            found = SpinningKernel(node.name, file, loop.lineno, shown)
            yield _made(tree, found, parameters.index(read) if read is not None else None, None)
            return


def _only_loads(statement: ast.stmt) -> bool:
    """`pass`, and `seen = tl.load(flag)`."""
    value = statement.value if isinstance(statement, (ast.Assign, ast.Expr)) else None
    called = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
    return isinstance(statement, ast.Pass) or called.endswith((".load", ".atomic_cas", ".debug_barrier"))


def _names(loop: ast.While) -> Iterator[ast.Name]:
    return (item for item in nodes_of(loop) if isinstance(item, ast.Name))


def _made(
    tree: ast.Module, kernel: SpinningKernel, read: int | None, until: int | None, host: str | None = None
) -> SpinningKernel:
    """With its launches, and what they pass; `host`: the function of an extension that launches it."""
    found = _launches(tree, kernel.name) if host is None else _calls_of(tree, host)
    calls = sorted(found, key=lambda item: item.lineno)
    launches = tuple((item.lineno, shortened(ast.unparse(item), _LONGEST)) for item in calls)
    flag, limit = (_passed_by(tree, kernel.file, calls, position) for position in (read, until))
    return structs.replace(kernel, launches=launches, flag=flag, until=limit)


def _passed_by(tree: ast.Module, file: str, calls: list[ast.Call], position: int | None) -> _Passed | None:
    """What all launches pass there, and the only line that assigns it."""
    passed = {ast.unparse(item) for call in calls if (item := _passed(call, position)) is not None}
    if len(passed) != 1:
        return None
    text = passed.pop()
    assigned = [
        (item.lineno, shortened(ast.unparse(item), _LONGEST))
        for item in nodes_of(tree)
        if isinstance(item, ast.Assign) and text in [ast.unparse(to) for to in item.targets]
    ]
    return _Passed(text, file, assigned[0] if len(assigned) == 1 else None)


def _launches(tree: ast.Module, name: str) -> Iterator[ast.Call]:
    """`kernel(...)` of what was made by the kernel's name, and `name[grid](...)`."""
    made = {
        ast.unparse(to)
        for item in nodes_of(tree)
        if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call) and name in _texts(item.value)
        for to in item.targets
    }
    for item in nodes_of(tree):
        if isinstance(item, ast.Call):
            grid = isinstance(item.func, ast.Subscript) and ast.unparse(item.func.value) == name
            if grid or ast.unparse(item.func) in made:
                yield item


def _calls_of(tree: ast.Module, host: str) -> Iterator[ast.Call]:
    """`extension.wait(flag)`."""
    for item in nodes_of(tree):
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == host:
            yield item


def _texts(call: ast.Call) -> Iterable[object]:
    values = passed_values(call)
    return [item.value for item in values if isinstance(item, ast.Constant)]


def _passed(call: ast.Call, position: int | None) -> ast.expr | None:
    """The argument of the kernel in its launch: of a list of them, else one of the call's own."""
    if position is None:
        return None
    listed = keyword_value(call, "args")
    if listed is None and not isinstance(call.func, ast.Subscript):
        listed = next((item for item in reversed(call.args) if isinstance(item, (ast.List, ast.Tuple))), None)
    values = listed.elts if isinstance(listed, (ast.List, ast.Tuple)) else call.args
    return values[position] if position < len(values) else None
