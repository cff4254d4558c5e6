"""A worker of a multiprocessing pool that could not read its task: what pickle looks for is not in its process.

The loop of such a worker catches that only inside of a task (CPython, multiprocessing/pool.py, `worker`): it ends, the
pool starts another one, and nothing ever answers for the task. A forked worker is a copy of its parent as that was
where the pool was made: a function that is defined further down is not in it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file, of_multiprocessing
from pytracer._patterns import Pattern
from pytracer._text import message_words, shortened
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.evidence.waits.waits import program_stack
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_MISSING = Pattern(r"Can't get attribute '(?P<name>\w+)' on <module '(?P<module>__(?:mp_)?main__)'")
_LOOP, _QUEUES = of_multiprocessing("pool"), of_multiprocessing("queues")
_ABSENT = ("AttributeError", "ModuleNotFoundError", "ImportError")
_FORKED = Pattern(r"\bFork\w*PoolWorker-")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LONGEST = 60


class UnreadTask(msgspec.Struct, frozen=True):
    """`error`: what the worker raised. `name`: what it looked for. `pool`: the line that made the pool too early.

    `defined`: the line that defines `name`, behind that one. `here`: the file of the line that waits.
    """

    error: str
    name: str | None = None
    pool: PythonFrame | None = None
    text: str | None = None
    defined: int | None = None
    here: str | None = None

    @property
    def why(self) -> str:
        """`: the pool was made at line 15, before line 57 defined `band_features``."""
        if self.pool is None:
            return ""
        return f": the pool was made at {self._at}, before line {self.defined} defined `{self.name}`"

    @property
    def advice(self) -> str:
        """The change to make."""
        if self.pool is None and not self.error.startswith(_ABSENT):
            return (
                "See what the arguments of that task need to be made again in the worker, where pickle raised this: "
                "__reduce__(), __setstate__() and constructors of their classes."
            )
        if self.pool is None:
            what = f"`{self.name}`" if self.name is not None else "what the pool runs, and its arguments,"
            return (
                f"Define {what} at the top level of a module that the workers import, above the line that makes the "
                'pool and not below `if __name__ == "__main__":`.'
            )
        made = f" (`{self.text}`)" if self.text is not None else ""
        return (
            f"Make the pool behind line {self.defined}, such as in main(): at {self._at}{made} its workers are copies "
            f"of the program without `{self.name}`."
        )

    @property
    def _at(self) -> str:
        return line_in(self.pool.file, self.pool.line, self.here) if self.pool is not None else ""


def unread_task(worker: ProcessView, parent: ProcessView) -> UnreadTask | None:
    """None where the worker raised something inside of a task, or nothing."""
    exception, stack = worker.exception, worker.python_stack or []
    if not worker.raised or exception is None or any(not is_library_file(frame.file) for frame in stack):
        return None
    if exception.type in ("KeyboardInterrupt", "SystemExit") or not _takes_a_task(stack):
        return None
    message = (exception.message or "").splitlines()
    error = f"{exception.type}: {message_words(message[0])}" if message else str(exception.type)
    missing = _MISSING.match(message[0]) if message else None
    if missing is None:
        return UnreadTask(error)
    error = f"{exception.type}: {missing[0]}>"  # without the script's path
    found = _made_early(worker, parent, missing["name"]) or UnreadTask("", missing["name"])
    return msgspec.structs.replace(found, error=error)


def _takes_a_task(stack: Sequence[PythonFrame]) -> bool:
    """Whether the loop of a pool's worker was in get(): its initializer runs there as well."""
    loop = [place for place, frame in enumerate(stack) if (frame.file or "").endswith(_LOOP)]
    place = next((item for item in loop if (stack[item].function or "") == "worker"), 0)
    getter = stack[place - 1] if place else None
    return getter is not None and (getter.file or "").endswith(_QUEUES) and (getter.function or "").endswith("get")


def _made_early(worker: ProcessView, parent: ProcessView, name: str) -> UnreadTask | None:
    """Where the script makes its only pool at its top level, above the only definition of that name."""
    stack = program_stack(parent)
    script = stack[-1] if stack else None
    tree = syntax_tree(parent.process.snapshot, script)
    if script is None or tree is None or worker.work is None or not _FORKED.search(worker.work.name):
        return None
    pools = [item for item in nodes_of(tree) if isinstance(item, ast.Call) and called_name(item) == "Pool"]
    defined = [item for item in tree.body if isinstance(item, _DEFINITIONS) and item.name == name]
    if len(pools) != 1 or len(defined) != 1:
        return None
    if not any(item is pools[0] for item in own_nodes(tree)) or pools[0].lineno > defined[0].lineno:
        return None
    at = PythonFrame(function=script.function, file=script.file, line=pools[0].lineno)
    here = next((frame.file for frame in stack), None)
    return UnreadTask("", name, at, shortened(ast.unparse(pools[0]), _LONGEST), defined[0].lineno, here)
