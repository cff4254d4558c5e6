"""What a process put into a queue of multiprocessing and its own thread could not send: whoever reads waits for it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from pytracer.analyze.evidence.phrases import error_words
from pytracer.analyze.evidence.wait_chain import children_of
from pytracer.analyze.known.exceptions import exception_advice
from pytracer.analyze.naming import name_words
from pytracer.analyze.parts import exception_report, is_library_file
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.blackbox.schema import ON_FEED
from pytracer.decode.types.journal import UncaughtException
from pytracer.report.job import Evidence, HandledExceptionReport

_TOO_LONG = re.compile(r"AF_UNIX path too long")
_TMPDIR = ("TMPDIR", "TEMP", "TMP")


@dataclass(frozen=True)
class Unsent:
    """The first exception of such a thread. `view`: the process that could not send."""

    view: ProcessView
    report: HandledExceptionReport
    count: int

    @property
    def words(self) -> str:
        """`DataLoader worker 0 (pid 8) could not send what it put there: OSError: AF_UNIX path too long`."""
        return f"{name_words([self.view])} could not send what it had put into its queue: {error_words(self.report)}"

    @property
    def evidence(self) -> Evidence:
        """The same, with the exception."""
        return Evidence(
            "exception",
            self.words,
            pid=self.view.process.snapshot.pid,
            exception=self.report.type,
            text=self.report.message,
        )

    def advice(self, waiting: ProcessView) -> str:
        """By the exception; `waiting`: the process whose program it is."""
        if _TOO_LONG.search(self.report.message or "") is not None:
            return (
                f"multiprocessing makes its sockets in a folder below TMPDIR{_set_at(waiting)}, and a socket's path "
                "may have about 100 characters: use a short one (TMPDIR=/tmp)."
            )
        known = exception_advice(self.report.type, self.report.message, "the put() of that queue")
        return (
            f"The queue's own thread drops what it cannot send, and the reader waits for ever. {known or ''}".rstrip()
        )


def unsent(job: JobView, view: ProcessView) -> Unsent | None:
    """Of the process that waits, or of a child of it."""
    for item in (view, *children_of(job, view)):
        facts = [fact for fact in item.process.snapshot.recorded(UncaughtException) if fact.data.on_its_way == ON_FEED]
        if facts:
            report = exception_report(facts[0].data)
            told = HandledExceptionReport(type=report.type, message=report.message, python_stack=report.python_stack)
            return Unsent(item, told, len(facts))
    return None


def _set_at(view: ProcessView) -> str:
    """`` (line 11 sets it) ``, where one line of the waiting program's file does."""
    frame = next((item for item in view.python_stack or () if item.file and not is_library_file(item.file)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    found = [] if tree is None else [line for node in ast.walk(tree) for line in _sets(node)]
    return f" (set at line {found[0]})" if len(set(found)) == 1 else ""


def _sets(node: ast.AST) -> list[int]:
    """`os.environ["TMPDIR"] = ...`, `tempfile.tempdir = ...`."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [
        node.lineno
        for target in targets
        if isinstance(node, ast.Assign)
        if (
            isinstance(target, ast.Subscript)
            and isinstance(target.slice, ast.Constant)
            and target.slice.value in _TMPDIR
            and ast.unparse(target.value).endswith("environ")
        )
        or ast.unparse(target) == "tempfile.tempdir"
    ]
