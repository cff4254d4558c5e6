"""A program that an exception ended, and whose end waits for its children, as multiprocessing joins them.

CPython, multiprocessing/util.py, `_exit_function`: at the end of the interpreter daemons are terminated, and all other
children joined. Such a child may wait for a message that the exception has left out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import shortened, time_words
from pytracer.analyze.deaths.ending import asked_to_end
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans_body
from pytracer.analyze.evidence.waits.pipes import forked_at
from pytracer.analyze.evidence.waits.wait_chain import at_words
from pytracer.analyze.evidence.waits.wait_kinds import WAITED, ProcessWait
from pytracer.analyze.evidence.waits.waits import at_program_end, main_stack, wait_of
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import line_in, names_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import PythonFrame

_LEAST_NS, _TOGETHER_NS = 2_000_000_000, 1_000_000_000
_LONGEST = 60
_ENDS = ("close", "shutdown", "stop", "join", "terminate", "kill", "end", "finish", "quit", "exit")


class JoinedAtExit(msgspec.Struct, frozen=True):
    """`children`: alive then, with the `wait` of the first. `skipped`: a call below the line that raised.

    `started`: the line that starts the children, by their copied frames.
    """

    ns: int
    children: tuple[ProcessView, ...]
    wait: ProcessWait | None
    skipped: tuple[str, PythonFrame] | None
    started: PythonFrame | None
    here: str | None

    @property
    def words(self) -> str:
        """After the exception."""
        names = names_words(self.children)
        many = len(self.children) > 1
        did = f" and {WAITED[self.wait.kind]}{at_words(self.wait)}" if self.wait is not None else ""
        skips = f"; the exception skipped {self._skipped}" if self.skipped is not None else ""
        return (
            f"; its end then stood still for {time_words(self.ns)}, until a signal ended it: it joined "
            f"{names}, {'which are no daemons' if many else 'which is no daemon'}{did}{skips}"
        )

    @property
    def advice(self) -> str:
        """Beside the repair of the exception."""
        started = self.started
        at = f" ({line_in(started.file, started.line, self.here)})" if started is not None else ""
        put = f"put {self._skipped} into a `finally`, or " if self.skipped is not None else ""
        return (
            f"That the program does not end after an exception: {put}start the children{at} with daemon=True, which "
            "the end of the program terminates."
        )

    @property
    def _skipped(self) -> str:
        text, at = self.skipped if self.skipped is not None else ("", PythonFrame())
        return f"`{text}` ({line_in(at.file, at.line, self.here)})"


def joined_at_exit(job: JobView, view: ProcessView) -> JoinedAtExit | None:
    """None where the program ended by itself, or soon, or waited for something else."""
    end, raised = asked_to_end(view.process), view.process.exception_mono_ns
    if not view.raised or view.process.status_kind != "signaled" or end is None or raised is None:
        return None
    if end.mono_ns - raised < _LEAST_NS or not at_program_end([python_frame(item) for item in end.python_stack]):
        return None
    children = [
        item
        for item in children_of(job, view)
        if main_stack(item) and ((ended := item.process.ended_mono_ns) is None or ended >= end.mono_ns - _TOGETHER_NS)
    ]
    if not children or not any((item.function or "").endswith("BaseProcess.join") for item in end.python_stack):
        return None
    started = forked_at(main_stack(children[0]))
    own = view.exception_stack_of_program
    return JoinedAtExit(
        end.mono_ns - raised,
        tuple(children),
        wait_of(children[0]),
        _skipped(view, own),
        started[0] if started is not None else None,
        own[0].file if own else None,
    )


def _skipped(view: ProcessView, own: list[PythonFrame]) -> tuple[str, PythonFrame] | None:
    """`envs.close()` below the line of one of the exception's frames, in the same function; the innermost such.

    Of an object of a class of the program that makes processes: what else is closed there has nothing to do with them.
    """
    files = program_files(view.process.snapshot, own)
    for frame in own:
        tree = syntax_tree(view.process.snapshot, frame)
        if tree is None or frame.line is None or is_library_file(frame.file):
            continue
        for item in own_nodes(scope_of(tree, frame.line)):
            if not isinstance(item, ast.Expr) or not isinstance(item.value, ast.Call) or item.lineno <= frame.line:
                continue
            call = item.value
            named = called_name(call) in _ENDS and isinstance(call.func, ast.Attribute) and not call.args
            named = named and _has_processes(tree, call, files.values())
            if named and not _always_runs(tree, frame.line, item.lineno) and keyword_value(call, "timeout") is None:
                text = shortened(ast.unparse(call), _LONGEST)
                return text, PythonFrame(frame.function, frame.file, item.lineno)
    return None


def _has_processes(tree: ast.Module, call: ast.Call, trees: Iterable[ast.Module]) -> bool:
    """Whether the owner of a method is set to an object of such a class, where its function binds it."""
    name = variable(call.func.value) if isinstance(call.func, ast.Attribute) else None
    bound = lines_that_bind(scope_of(tree, call.lineno), name) if name is not None else []
    made = {called_name(item) for _, item in bound if isinstance(item, ast.Call)}
    return any(
        isinstance(item, ast.ClassDef) and item.name in made and _makes_processes(item)
        for other in trees
        for item in nodes_of(other)
    )


def _makes_processes(owner: ast.ClassDef) -> bool:
    return any(isinstance(item, ast.Call) and called_name(item) == "Process" for item in nodes_of(owner))


def _always_runs(tree: ast.Module, line: int, later: int) -> bool:
    """Whether the later line is in the `finally` of a `try` around the first."""
    return any(
        isinstance(item, ast.Try)
        and item.lineno <= line
        and (spans_body(item.finalbody, later) or any(spans_body(part.body, later) for part in item.handlers))
        for item in own_nodes(scope_of(tree, line))
    )
