"""A flag of the program that a loop asks again and again, and that no line sets where the loop would see it.

`self.ready = True` in a function that runs in a child process sets the child's copy alone. A coroutine that sets it
does not run while another one of its event loop sleeps by time.sleep(), or goes round without an `await`. A thread
that an exception has ended sets nothing any more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer._text import shortened, uncapital
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.changes import names_read
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, classes_below, own_nodes, qualified_name, scope_of
from pytracer.analyze.evidence.syntax.unbounded import Reason
from pytracer.analyze.evidence.waits.ended_threads import ended_words
from pytracer.analyze.evidence.waits.waits import end_of, main_stack, program_stack
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import PythonFrame as SnapshotFrame
from pytracer.report.job import PythonFrame

Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LONGEST, _DEPTH = 50, 3
_SHARED = frozenset(
    {"Namespace", "Manager", "Value", "RawValue", "SyncManager", "SharedMemory", "Array", "RawArray", "mmap"}
)
_STRUCTURES = frozenset({"Structure", "BigEndianStructure", "LittleEndianStructure", "Union"})  # of ctypes
_CHILD = "/multiprocessing/process.py"
_STORES = frozenset({"setattr", "__setattr__", "update", "append", "extend", "add", "appendleft", "put"})
PROCESS, _THREAD = ("Process", "SpawnProcess", "ForkProcess"), ("Thread", "Timer")


class WatchedFlag(msgspec.Struct, frozen=True):
    """`sentence`: why it stays as it is. `places`: the line that sets it, and the one that starts what runs that."""

    sentence: str
    advice: str
    places: tuple[Place, ...]
    sure: bool = True
    of_all: bool = True


class Setter(msgspec.Struct, frozen=True):
    """The only line that sets the flag after its first value, and the function with that line."""

    flag: str
    file: str
    tree: ast.Module
    node: ast.stmt
    function: Function
    wakes: bool = False
    """Whether it ends the wait itself, as of an Event or a queue."""

    @property
    def name(self) -> str:
        """Of that function."""
        return qualified_name(self.tree, self.function)

    def runs_in(self, frame: PythonFrame | SnapshotFrame) -> bool:
        """Whether a frame is of that function, by its name."""
        return frame.file == self.file and (frame.function or "").rpartition(".")[2] == self.function.name

    def words(self, here: str | None) -> LineWords:
        """`line 20 (`self.ready = True`)`."""
        return line_in(self.file, self.node.lineno, here).quoted(shortened(ast.unparse(self.node), _LONGEST))


class Started(msgspec.Struct, frozen=True):
    """The call that makes a process or a thread of a function."""

    file: str
    call: ast.Call


def watched_flag(view: ProcessView, test: ast.expr, at: PythonFrame) -> WatchedFlag | None:
    """Why the condition of a loop stays as it is; None where a line may change it that runs in the same memory."""
    flag = _flag(test)
    if flag is None:
        return None
    own = program_stack(view)
    files = program_files(view.process.snapshot, own)
    if _may_be_shared(files, flag) or _may_change_otherwise(files, flag):
        return None
    setter = _setter(files, flag, at)
    if setter is None:
        return None
    started = started_only(files, setter.tree, setter.function, PROCESS)
    if started is not None:
        in_child = any((frame.file or "").endswith(_CHILD) for frame in main_stack(view))
        return _of_process(setter, started, at) if not in_child else None
    if _runs_beside(files, setter, own):
        return _of_loop(view, files, setter, at)
    return _of_thread(view, files, setter, at)


def flag_reason(view: ProcessView, test: ast.expr, at: PythonFrame) -> Reason | None:
    """The same of a loop that goes round without a pause."""
    found = watched_flag(view, test, at)
    return Reason(uncapital(found.sentence), found.advice, sure=True) if found is not None else None


def setter_of(files: Mapping[str, ast.Module], test: ast.expr, at: PythonFrame) -> Setter | None:
    """Of the only variable that a condition reads."""
    flag = _flag(test)
    return _setter(files, flag, at) if flag is not None else None


def _flag(test: ast.expr) -> str | None:
    """The only variable that a condition reads, without a call."""
    names = names_read(test)
    return names[0] if len(names) == 1 and not any(isinstance(item, ast.Call) for item in nodes_of(test)) else None


def _setter(files: Mapping[str, ast.Module], flag: str, at: PythonFrame) -> Setter | None:
    """None where several functions set it, or the waiting one itself."""
    word, is_attribute = flag.rpartition(".")[2], "." in flag
    found = [
        (file, tree, item, value)
        for file, tree in files.items()
        for item in nodes_of(tree)
        for target, value in set_by(item)
        if isinstance(target, ast.Attribute if is_attribute else ast.Name) and last_name(target) == word
        if is_attribute or file == at.file
    ]
    first = {ast.unparse(value) for _, tree, item, value in found if value is not None and _is_first(tree, item)}
    later = [
        (file, tree, item)
        for file, tree, item, value in found
        if isinstance(item, ast.stmt) and not _is_first(tree, item)
        if value is None or ast.unparse(value) not in first
        if is_attribute or _is_global(tree, item, word)
        if not _is_of_another(files, flag, at, tree, item.lineno)
    ]
    if len(later) != 1:
        return None
    file, tree, node = later[0]
    function = scope_of(tree, node.lineno)
    waits = files.get(at.file or "")
    if not isinstance(function, _FUNCTIONS) or waits is None or function is scope_of(waits, at.line or 0):
        return None
    return Setter(flag, file, tree, node, function)


def _may_be_shared(files: Mapping[str, ast.Module], flag: str) -> bool:
    """Whether it may be of an object that processes share: `Value`, a manager's `Namespace`, a ctypes structure."""
    owner, _, word = flag.rpartition(".")
    if word == "value":
        return True
    calls = {called_name(item) for tree in files.values() for item in nodes_of(tree) if isinstance(item, ast.Call)}
    bases = (base for tree in files.values() for item in nodes_of(tree) if isinstance(item, ast.ClassDef)
             for base in item.bases)  # fmt: skip
    return owner not in ("", "self") and (
        bool(calls & _SHARED) or any(last_name(base) in _STRUCTURES for base in bases)
    )


def _may_change_otherwise(files: Mapping[str, ast.Module], flag: str) -> bool:
    """Whether it is a property, or something that no assignment changes: a list, a store by name, `+=`, `del`."""
    word = flag.rpartition(".")[2]
    for tree in files.values():
        for item in nodes_of(tree):
            if isinstance(item, _FUNCTIONS) and item.name == word:
                return True
            if isinstance(item, ast.AugAssign) and last_name(item.target) == word:
                return True
            if isinstance(item, ast.Subscript) and not isinstance(item.ctx, ast.Load) and last_name(item.value) == word:
                return True
            if isinstance(item, ast.Call) and called_name(item) in _STORES and _stores(item, word):
                return True
    return False


def _stores(call: ast.Call, word: str) -> bool:
    """`setattr(self, "ready", True)`, `self.__dict__.update(ready=True)`, `results.append(item)`."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    named = any(isinstance(item, ast.Constant) and item.value == word for part in call.args for item in nodes_of(part))
    return named or any(item.arg == word for item in call.keywords) or (owner is not None and last_name(owner) == word)


def threads_as_processes(files: Mapping[str, ast.Module]) -> bool:
    """Whether a name that says Process may be a thread: multiprocessing.dummy, or a name that the program gives."""
    for tree in files.values():
        for item in nodes_of(tree):
            if isinstance(item, ast.ImportFrom):
                names = [f"{item.module}.{one.name}" for one in item.names]
                if any(".dummy" in name for name in names) or any(
                    one.asname in PROCESS and one.name not in PROCESS for one in item.names
                ):
                    return True
            if isinstance(item, ast.Import) and any("multiprocessing.dummy" in one.name for one in item.names):
                return True
            if any(last_name(target) in PROCESS for target, _ in set_by(item)):
                return True
    return False


def _is_of_another(files: Mapping[str, ast.Module], flag: str, at: PythonFrame, tree: ast.Module, line: int) -> bool:
    """Whether `self` is an object of another class at the line that sets it."""
    here = files.get(at.file or "")
    if here is None or flag.rpartition(".")[0] != "self":
        return False
    own, other = class_around(here, scope_of(here, at.line or 0)), class_around(tree, scope_of(tree, line))
    if own is None or other is None or own is other:
        return False
    known = [*files.values()]
    return other not in classes_below(known, own) and own not in classes_below(known, other)


def _is_first(tree: ast.Module, item: ast.AST) -> bool:
    """Whether it is where a value begins: in a constructor, in the body of a class, or of the module."""
    scope = scope_of(tree, item.lineno)  # type: ignore[attr-defined]
    return isinstance(scope, ast.Module) or getattr(scope, "name", "") in ("__init__", "__post_init__", "reset")


def _is_global(tree: ast.Module, item: ast.AST, word: str) -> bool:
    scope = scope_of(tree, item.lineno)  # type: ignore[attr-defined]
    return any(isinstance(one, ast.Global) and word in one.names for one in own_nodes(scope))


def started_only(
    files: Mapping[str, ast.Module], tree: ast.Module, function: Function, kinds: Sequence[str]
) -> Started | None:
    """What starts a function, where nothing else calls it: the call that makes a process or a thread of it."""
    if kinds is PROCESS and threads_as_processes(files):
        return None
    return _started(files, tree, function, kinds, _DEPTH)


def _started(
    files: Mapping[str, ast.Module], tree: ast.Module, function: Function, kinds: Sequence[str], depth: int
) -> Started | None:
    makers = list(_makers(files, tree, function, kinds))
    made = next(iter(makers), None)
    if is_passed_on(files, function.name, [item.call for item in makers]):
        return None
    callers = [
        (other, scope_of(other, item.lineno))
        for other in files.values()
        for item in nodes_of(other)
        if isinstance(item, ast.Call) and called_name(item) == function.name
        if not (isinstance(item.func, ast.Attribute) and ast.unparse(item.func.value) == "super()")
    ]
    found = [made] if made is not None else []
    for other, caller in callers:
        if caller is function:
            continue
        above = _started(files, other, caller, kinds, depth - 1) if depth and isinstance(caller, _FUNCTIONS) else None
        if above is None:
            return None
        found.append(above)
    return found[0] if found else None


def is_passed_on(files: Mapping[str, ast.Module], name: str, makers: Sequence[ast.Call]) -> bool:
    """Whether a line names a function of that name without a call, besides these: it may run there, or later."""
    known = {id(part) for call in makers for part in nodes_of(call)}
    for tree in files.values():
        known |= {id(item.func) for item in nodes_of(tree) if isinstance(item, ast.Call)}
    return any(
        isinstance(item, (ast.Name, ast.Attribute)) and isinstance(item.ctx, ast.Load) and id(item) not in known
        and last_name(item) == name
        for tree in files.values()
        for item in nodes_of(tree)
    )  # fmt: skip


def _makers(
    files: Mapping[str, ast.Module], tree: ast.Module, function: Function, kinds: Sequence[str]
) -> Iterator[Started]:
    """`Process(target=work)`, `mp.spawn(work)`, and the making of a class whose run() it is."""
    owner = class_around(tree, function)
    bases = [last_name(base) or "" for base in owner.bases] if owner is not None else []
    is_run = function.name == "run" and any(base in kinds for base in bases)
    for file, other in files.items():
        for item in nodes_of(other):
            if not isinstance(item, ast.Call):
                continue
            called, target = called_name(item), keyword_value(item, "target")
            spawned = called == "spawn" and PROCESS[0] in kinds and _spawns(files, item)
            if spawned and item.args:
                target = item.args[0]
            handed = called in kinds or spawned
            named = target is not None and last_name(target) == function.name
            if (handed and named) or (is_run and owner is not None and called == owner.name):
                yield Started(file, item)


def _spawns(files: Mapping[str, ast.Module], call: ast.Call) -> bool:
    """Whether it is spawn() of multiprocessing, and not a function of the program, or of a library of green threads."""
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    own = any(
        isinstance(item, _FUNCTIONS) and item.name == "spawn" for tree in files.values() for item in nodes_of(tree)
    )
    return not own and owner.rpartition(".")[2] in ("", "mp", "multiprocessing", "tmp")


def _of_process(setter: Setter, started: Started, at: PythonFrame) -> WatchedFlag:
    sets, made = setter.words(at.file), line_in(started.file, started.call.lineno, at.file)
    call = shortened(ast.unparse(started.call), _LONGEST)
    return WatchedFlag(
        f"Only {sets} in {setter.name} sets `{setter.flag}`, and that runs in the process of {made} (`{call}`): a "
        "process has a copy of its own of all variables, so the loop never sees it",
        f"Make the flag a multiprocessing.Event, and the child its argument ({made}): set() in place of {sets}, and "
        "wait() in place of the loop. What the child computes stays in its own copy, too: send it back by a "
        "multiprocessing Queue or Pipe. Or run it in a thread.",
        ((setter.file, setter.node.lineno), (started.file, started.call.lineno)),
    )


def _runs_beside(files: Mapping[str, ast.Module], setter: Setter, own: Sequence[PythonFrame]) -> bool:
    """Whether a coroutine sets it, and the loop that waits runs in one as well."""
    if not isinstance(setter.function, ast.AsyncFunctionDef):
        return False
    if next(_makers(files, setter.tree, setter.function, (*PROCESS, *_THREAD)), None) is not None:
        return False
    trees = [(files.get(frame.file or ""), frame.line) for frame in own]
    return any(
        tree is not None and line is not None and isinstance(scope_of(tree, line), ast.AsyncFunctionDef)
        for tree, line in trees
    )


def _of_loop(view: ProcessView, files: Mapping[str, ast.Module], setter: Setter, at: PythonFrame) -> WatchedFlag | None:
    """None where threads have loops of their own."""
    threads = any(called_name(item) in _THREAD for tree in files.values() for item in nodes_of(tree)
                  if isinstance(item, ast.Call))  # fmt: skip
    tree = files.get(at.file or "")
    if threads or tree is None or at.line is None:
        return None
    sets = setter.words(at.file)
    scope = scope_of(tree, at.line)
    is_async = isinstance(scope, ast.AsyncFunctionDef)
    here = f"line {at.line}"
    change = (
        f"Wait by `await asyncio.sleep(...)` in place of {here}, or make the flag an asyncio.Event that the one sets "
        "and the other awaits."
        if is_async
        else f"Run the function of {here} in a thread (`await asyncio.to_thread(...)`), or make it a coroutine that "
        "awaits."
    )
    return WatchedFlag(
        f"Only {sets} sets `{setter.flag}`, in the coroutine {setter.name}, which cannot run meanwhile: {here} blocks "
        "the event loop, as it does not await",
        change,
        ((setter.file, setter.node.lineno),),
    )


def _of_thread(
    view: ProcessView, files: Mapping[str, ast.Module], setter: Setter, at: PythonFrame
) -> WatchedFlag | None:
    """The thread of that function has died."""
    started = started_only(files, setter.tree, setter.function, _THREAD)
    died = [item for item in view.thread_exceptions if any(setter.runs_in(frame) for frame in item.python_stack or ())]
    if started is None or not died or _still_runs(view, setter):
        return None
    sets = setter.words(at.file)
    return WatchedFlag(
        f"Only {sets} sets `{setter.flag}`, in {setter.name}, and {ended_words(died[-1])}",
        f"Look at that exception first: it ended the thread before {sets}. Set the flag in a `finally`, keep the error "
        "for whoever waits, and let the loop look at is_alive() of the thread, too.",
        ((setter.file, setter.node.lineno),),
    )


def _still_runs(view: ProcessView, setter: Setter) -> bool:
    """Whether another thread is in that function, which may be the one that is waited for."""
    end = end_of(view)
    stacks = (frames for _, frames in (end.python_threads if end is not None else ()))
    return any(setter.runs_in(frame) for frames in stacks for frame in frames)
