"""An Event or a queue of threads, which the program hands to a child process: the child has a copy of its own."""

from __future__ import annotations

from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.evidence.waits.standing_threads import ThreadReason
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waited_object import waited_object
from pytracer.analyze.evidence.waits.waits import main_stack, program_stack
from pytracer.analyze.evidence.waits.watched_flags import PROCESS, Function, started_only
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import ProcessView

_OF_THREADS = ("/threading.py", "/queue.py")
_NEAR = 5


def copied_object(view: ProcessView, wait: ProcessWait) -> ThreadReason | None:
    """Of a wait for an object of threading or queue that lines of a child process alone end; None of any other."""
    at = wait.at
    if wait.kind not in ("notice", "queue") or at is None or at.file is None:
        return None
    if not any((frame.file or "").endswith(_OF_THREADS) for frame in main_stack(view)[:_NEAR]):
        return None
    thing = waited_object(view, wait)
    files = program_files(view.process.snapshot, program_stack(view))
    tree = files.get(at.file)
    if thing is None or tree is None or not thing.providers:
        return None
    scopes = [scope_of(tree, item.line) for item in thing.providers]
    functions = [item for item in scopes if isinstance(item, Function)]
    found = [started_only(files, tree, item, PROCESS) for item in functions]
    if len(functions) != len(scopes) or None in found or found[0] is None:
        return None
    only, made = thing.providers[0], line_in(found[0].file, found[0].call.lineno, at.file)
    source = "threading" if thing.noun != "queue" else "the module queue"
    instead = f"multiprocessing.{'Queue' if thing.noun == 'queue' else thing.noun}()"
    return ThreadReason(
        f"it is one of {source}, and `{only.call}` (line {only.line} in {only.function}) runs in the process of "
        f"{made}: a process has a copy of its own, so what it does there is not seen here",
        f"Make `{thing.name}` by `{instead}`, before {made}, and pass it to the child. Or run {only.function} in a "
        "thread.",
        ((at.file, only.line), (found[0].file, found[0].call.lineno)),
    )
