"""An exception that a pool's task returned, and that its parent could not load: whose it is, and why.

No worker raised it to the pool, which sends such an error back (unmade.py): the task caught or made one, and handed it
over as its result. The parent's message, or the line that failed there, has the class; the source has its constructor.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.behind import Place, places_in
from pytracer.analyze.evidence.exceptions.remaking import CALLED, Remaking
from pytracer.analyze.evidence.exceptions.unmade import NO_WORKER, NotLoaded, UnmadeError, not_loaded, unmade_error
from pytracer.analyze.evidence.slicing.callers import only_function
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.error_classes import ErrorConstructor, error_constructor, is_error_class
from pytracer.analyze.evidence.syntax.names import bare_names, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, class_named, classes_below, own_nodes
from pytracer.analyze.evidence.waits.ended_threads import EndedThread
from pytracer.analyze.evidence.waits.pool_results import GIVE, tasks_given
from pytracer.analyze.evidence.waits.waits import program_stack
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import JobView, ProcessView

_MISSING = Pattern(r"missing (\d+) required positional argument")
_LONGEST = 60
_ANY = frozenset({"Exception", "BaseException"})
_HOLD = ("list", "tuple", "dict", "set")
_FILLS = ("append", "add", "extend", "insert", "setdefault", "update")


class Returned(msgspec.Struct, frozen=True):
    """The function that a pool was given, and the line by which it hands over an exception."""

    task: str
    at: LineWords
    text: str

    @property
    def words(self) -> str:
        """`what the task `convert` returned at line 64`."""
        return f"what the task `{self.task}` returned at {self.at}"


class UnmadeResult(msgspec.Struct, frozen=True):
    """`made`: the constructor of its class. `returned`: by which task, where the source shows that.

    `derived`: whether other classes have that constructor, too.
    """

    failed: NotLoaded
    made: Remaking
    derived: bool
    returned: Returned | None

    def ended(self, thread: EndedThread) -> str:
        """Of the pool's thread: `its thread ..., which takes the results, had died of TypeError: it could not load`."""
        name = f" {thread.report.thread}" if thread.report.thread else ""
        return (
            f"its thread{name}, which takes the results, had died of {self.failed.type}, as it could not load "
            f"{self._words}"
        )

    @property
    def subject(self) -> str:
        """Of a pool that was called broken by that: `no worker had died before: ...`."""
        return f"{NO_WORKER}: its thread that takes results could not load {self._words}"

    @property
    def advice(self) -> str:
        """How to make it picklable, or what to hand over in its place."""
        made = self.made.mend
        if self.returned is None:
            return f"{made} Or let the task hand over text in its place."
        return f"{made} Or let `{self.returned.task}` return text at {self.returned.at} (`{self.returned.text}`)."

    @property
    def places(self) -> tuple[Place, ...]:
        """The constructor's lines, and that of the task."""
        return places_in([self.made.lines, self.returned.at if self.returned is not None else None])

    @property
    def at(self) -> None:
        """No line raised it to the pool."""

    @property
    def evidence(self) -> None:
        """No worker recorded it: that of the thread which died is told beside."""

    @property
    def _words(self) -> str:
        """`what the task `convert` returned at line 64, a RecordingError: __init__() (line 16) takes ...`."""
        what = self.returned.words if self.returned is not None else "what a worker had sent"
        name = self.made.name
        whose = f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
        if self.derived:
            whose = f"an object of {name} or of a class derived from it"
        rest = ", which is all that its pickle has" if self.made.made.passed else ""
        return f"{what}, {whose}: {self.made.why}{rest}"


def unmade_object(job: JobView, view: ProcessView) -> UnmadeError | UnmadeResult | None:
    """What a pool could not load: the error that a task raised, else an exception that one returned."""
    raised = unmade_error(job, view)
    failed = not_loaded(view) if raised is None else None
    return raised if failed is None else _result(view, failed)


def _result(view: ProcessView, failed: NotLoaded) -> UnmadeResult | None:
    stack = program_stack(view)
    files = program_files(view.process.snapshot, stack)
    found = _constructor(files, failed)
    here = stack[0].file if stack else None
    made = Remaking(found[1], found[0], here) if found is not None else None
    if found is None or made is None or made.why is None:
        return None
    owner = class_named(files[found[1].file], found[0])
    derived = owner is not None and bool(classes_below(files.values(), owner))
    return UnmadeResult(failed, made, derived, _returned(view, files, found[0], here))


def _constructor(files: Mapping[str, ast.Module], failed: NotLoaded) -> tuple[str, ErrorConstructor] | None:
    """The class that the message, or the failed line, names; with its constructor, where it fails just like that."""
    called = CALLED.search(failed.message) if failed.type == "TypeError" else None
    name = called[1].rpartition(".")[2] if called is not None and called[1] is not None else _at_line(files, failed)
    if name is None or not is_error_class(files, name):
        return None
    made = error_constructor(files, name)
    if made is None or made.owner != name or _gives_all(made):
        return None
    missing = _MISSING.search(failed.message)
    if missing is None or made.passed is None:
        return name, made
    return (name, made) if len(made.takes) - len(made.by_name) - len(made.passed) == int(missing[1]) else None


def _gives_all(made: ErrorConstructor) -> bool:
    """Whether the base gets just what the constructor takes: then it fails for another reason."""
    return made.passed is not None and [ast.unparse(item) for item in made.passed] == made.takes


def _at_line(files: Mapping[str, ast.Module], failed: NotLoaded) -> str | None:
    """The class whose constructor raised by itself."""
    for frame in failed.frames:
        tree = files.get(frame.file or "")
        for item in nodes_of(tree) if tree is not None else ():
            if not isinstance(item, ast.FunctionDef) or item.name != "__init__" or tree is None:
                continue
            owner = class_around(tree, item)
            if owner is not None and item.lineno <= (frame.line or 0) <= (item.end_lineno or 0):
                return owner.name
    return None


def _returned(view: ProcessView, files: Mapping[str, ast.Module], name: str, here: str | None) -> Returned | None:
    """The only task whose `return` has an object of that class; of those that the waiting lines give, if they do."""
    stack = [frame for frame in program_stack(view) if frame.file in files and frame.line is not None]
    given = [task for frame in stack for task in _given_at(files[frame.file or ""], frame.line or 0)]
    tasks = dict.fromkeys(given or [task for tree in files.values() for task in tasks_given(tree)])
    found = [item for task in tasks for item in _returns(files, task, name, here)]
    return found[0] if len(found) == 1 else None


def _given_at(tree: ast.Module, line: int) -> Iterator[str]:
    for item in calls_on(tree, line):
        first = item.args[0] if item.args else None
        if called_name(item) in GIVE and isinstance(item.func, ast.Attribute) and isinstance(first, ast.Name):
            yield first.id


def _returns(files: Mapping[str, ast.Module], task: str, name: str, here: str | None) -> Iterator[Returned]:
    """The lines of a task that return an exception of a class, or something that holds one."""
    defined = only_function(files, task)
    if defined is None:
        return
    file, function = defined
    held = _holding(function, name)
    for item in own_nodes(function):
        if isinstance(item, ast.Return) and item.value is not None and _holds(item.value, held, name):
            text = shortened(f"return {ast.unparse(item.value)}", _LONGEST)
            yield Returned(task, line_in(file, item.lineno, here), text)


def _holding(function: ast.AST, name: str) -> set[str]:
    """The variables that have such an exception, and those that these are put into."""
    nodes = [*own_nodes(function)]
    held = {item.name for item in nodes if isinstance(item, ast.ExceptHandler) and item.name and _catches(item, name)}
    for item in nodes:
        if isinstance(item, ast.Assign) and _holds(item.value, held, name):
            held |= {name for target in item.targets for name in bare_names(target)}
        elif isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in _FILLS:
            owner = variable(item.func.value)
            if owner is not None and any(_holds(part, held, name) for part in item.args):
                held.add(owner)
    return held


def _catches(handler: ast.ExceptHandler, name: str) -> bool:
    """Whether a handler takes such an exception: by its class, or any."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {ast.unparse(item).rpartition(".")[2] for item in kinds if item is not None}
    return bool(names & {name, *_ANY})


def _holds(node: ast.AST, held: set[str], name: str) -> bool:
    """Whether a value is one, or a tuple, list or dict with one: not what is computed from it, as `str(error)`."""
    if isinstance(node, ast.Name):
        return node.id in held
    if isinstance(node, ast.Call):
        if called_name(node) == name:
            return True
        return called_name(node) in _HOLD and any(_holds(item, held, name) for item in node.args)
    if isinstance(node, (ast.Attribute, ast.Subscript, ast.JoinedStr, ast.Compare, ast.Lambda)):
        return False
    return any(_holds(item, held, name) for item in ast.iter_child_nodes(node))
