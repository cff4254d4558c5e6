"""The object that a line waits for, and the lines of its file that should end the wait: set(), put(), release() ..."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.leaving import Obstacle, obstacles
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.passing import names_of_object
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, parameters, qualified_name, scope_of, spans
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import called_by_program, end_of, main_stack
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_LONGEST = 50
_LISTED = 2
_LOCKS = ("lock", "forked-lock")


class _Kind(msgspec.Struct, frozen=True):
    """`noun`: of the object. `waits`, `ends`: methods that wait for it, and that end such a wait."""

    noun: str
    waits: tuple[str, ...]
    ends: tuple[str, ...]


_SET = _Kind("Event", ("wait",), ("set",))
_NOTIFY = _Kind("Condition", ("wait", "wait_for"), ("notify", "notify_all"))
_PUT = _Kind("queue", ("get",), ("put", "put_nowait"))
_TAKE = _Kind("queue", ("put",), ("get", "get_nowait"))
_DONE = _Kind("queue", ("join",), ("task_done",))
_RELEASE = _Kind("lock", ("acquire",), ("release",))
# By the function of the library that the line called.
_KINDS = {
    "Event.wait": _SET,
    "Condition.wait": _NOTIFY,
    "Condition.wait_for": _NOTIFY,
    "Queue.get": _PUT,
    "SimpleQueue.get": _PUT,
    "Queue.put": _TAKE,
    "JoinableQueue.put": _TAKE,
    "Queue.join": _DONE,
    "JoinableQueue.join": _DONE,
    "Semaphore.acquire": _Kind("Semaphore", ("acquire",), ("release",)),
    "Barrier.wait": _Kind("Barrier", ("wait",), ()),
}


class Provider(msgspec.Struct, frozen=True):
    """A line that ends such waits: `self.ready.set()`, and what keeps it from being reached, the closest first."""

    call: str
    method: str
    line: int
    function: str
    obstacles: tuple[Obstacle, ...]

    @property
    def leading(self) -> tuple[Obstacle, ...]:
        """Those to name: an `except` that may hide why the line was left out comes before the rest."""
        caught = tuple(item for item in self.obstacles if item.caught)
        return (caught or self.obstacles)[:_LISTED]

    @property
    def place(self) -> str:
        """`line 22 in Prefetcher.fill`."""
        return f"line {self.line}{f' in {self.function}' if self.function else ''}"


class WaitedObject(msgspec.Struct, frozen=True):
    """`name`: as the line has it. `providers`: all of its file. `made`: the line and text of its constructor."""

    name: str
    noun: str
    line: int
    providers: tuple[Provider, ...]
    made: tuple[int, str] | None
    names: frozenset[str]
    """Of the object in the file, as far as that shows."""
    last: str
    method: str = "wait"
    until: str | None = None
    """The condition that its line waits for, in words of the program."""
    for_all: Provider | None = None
    """A notify() behind a line that makes this condition true for good."""

    @property
    def words(self) -> str:
        """`the Event `self.ready``; `, until `len(self.items) > 3``."""
        until = f", until `{self.until}`," if self.until is not None else ""
        return f"the {self.noun} `{self.name}`{until}"

    @property
    def only_words(self) -> str | None:
        """For the headline: the one line that ends such a wait."""
        if self.noun == "Barrier" or len(self.providers) != 1:
            return None
        only = self.providers[0]
        shown = [item for item in only.leading if item.caught] or only.leading[:1]
        caught = next((f", which is {item.words}" for item in shown), "")
        return f"in this file only `{only.call}` at {only.place} ends that{caught}"

    @property
    def limit(self) -> str:
        """How such a wait ends by itself."""
        if self.method == "join":
            return ""
        ends = "raises instead of waiting" if self.noun == "queue" else "does not wait"
        return f"{self.method}(timeout=...) {ends} for ever."

    @property
    def advice(self) -> str | None:
        """What the program does to end the wait, where one line, or a few, do; None where nothing is known."""
        if self.noun == "Barrier" or not self.providers:
            return None
        if len(self.providers) > _LISTED:
            return None
        if self.for_all is not None:
            return (
                f"`{self.for_all.call}` at {self.for_all.place} wakes one of those that wait, and `{self.until}` holds "
                f"for all from then on: call notify_all() there. "
            )
        if len(self.providers) > 1:
            places = list_words([f"`{item.call}` at {item.place}" for item in self.providers])
            last = max(self.providers, key=lambda item: item.line)
            left = " and ".join(item.words for item in last.obstacles[:1] if not item.around and not item.caught)
            if left:
                return (
                    f"It ends by {places}, of which the one at line {last.line} is {left}: see whether it left there. "
                )
            return f"It ends by {places}: find out why none of them was reached (again). "
        only = self.providers[0]
        if not only.obstacles and self.noun == "Condition" and self.until is None:
            return (
                f"In this file only `{only.call}` at {only.place} ends it, and that wakes only who waits at that "
                "moment: one that came before the wait() is lost. Wait for what it announces by "
                "`wait_for(lambda: <condition>)`, which asks before it waits. "
            )
        if not only.obstacles:
            return f"In this file only `{only.call}` at {only.place} ends it: see why that was not reached (again). "
        shown = only.leading
        blocked = " and ".join(item.words for item in shown)
        return (
            f"In this file only `{only.call}` at {only.place} ends it, and that is {blocked}. Call {only.method}() "
            f"{'there, too' if any(not item.around for item in shown) else 'in the other case, too'}"
            f"{', such as in a `finally`' if only.method in ('task_done', 'release', 'set') else ''}. "
        )


def waited_object(view: ProcessView, wait: ProcessWait) -> WaitedObject | None:
    """None where the line of the program is not known, or names more than one object that it may wait for."""
    called = None if wait.kind in _LOCKS else called_by_program(view) or ""
    return object_at(view, wait.at, called) if wait.at is not None else None


class LeftOutPut(msgspec.Struct, frozen=True):
    """The only line that fills a queue, and the branch before it that goes on, or leaves, without it."""

    only: Provider
    before: Obstacle

    @property
    def words(self) -> str:
        """For the headline."""
        return f"in this file only `{self.only.call}` at {self.only.place} fills it, and that is {self.before.words}"

    @property
    def advice(self) -> str:
        """One item for each that is waited for."""
        return (
            f"Where `{self.before.text}` (line {self.before.line}) leaves, put something as well, such as None, which "
            f"the taker of line {self.only.line}'s items drops; or take no more items than were put: let the children "
            "put a mark when they end"
        )


def left_out_put(view: ProcessView, wait: ProcessWait) -> LeftOutPut | None:
    """Of a queue that a function fills on one way only; a test for the end of its own items is no reason."""
    thing = waited_object(view, wait) if wait.kind == "queue" else None
    if thing is None or len(thing.providers) != 1:
        return None
    only = thing.providers[0]
    before = [item for item in only.obstacles if item.asks_for is None]
    return LeftOutPut(only, before[0]) if before else None


def object_at(view: ProcessView, at: PythonFrame, called: str | None) -> WaitedObject | None:
    """What a line of any thread waits for. `called`: the function of the library; None of a line that takes a lock."""
    if at.line is None or is_library_file(at.file):
        return None
    kind = _RELEASE if called is None else _KINDS.get(called)
    tree = syntax_tree(view.process.snapshot, at) if kind is not None else None
    if kind is None or tree is None:
        return None
    named = {ast.unparse(item): item for item in _objects(tree, kind.waits, at.line)}
    if kind is _RELEASE:
        named |= {ast.unparse(item): item for item in _entered(tree, at.line)}
    if len(named) != 1:
        return None
    text, thing = next(iter(named.items()))
    name = last_name(thing)
    if name is None:
        return None
    names = names_of_object(tree, name)
    several = _are_several(tree, names, kind.noun)  # which of them a function's parameter is, is not known
    ends = [item for item in _calls(tree, kind.ends) if (last_name(item.func.value) or "") in names]  # type: ignore[attr-defined]
    ends = [] if several else ends
    providers = tuple(_provider(tree, item, names, at.line if kind is _RELEASE else 0) for item in ends)
    providers = tuple(
        msgspec.structs.replace(item, obstacles=()) if _is_on_its_way(view, at, tree, item.line) else item
        for item in providers
    )
    methods = (item.func.attr for item in _calls(tree, kind.waits) if item.func.value is thing)  # type: ignore[attr-defined]
    method = next(methods, kind.waits[0])
    until = _until(tree, at.line) if kind is _NOTIFY else None
    made = _made(tree, names, kind.noun)
    ever = next((item for item in providers if until is not None and _is_for_all(tree, item, until)), None)
    return WaitedObject(
        shortened(text, _LONGEST), kind.noun, at.line, providers, made, names, name, method, until, ever
    )


def _is_for_all(tree: ast.Module, provider: Provider, until: str) -> bool:
    """Whether its function sets a flag to True that the condition reads: `self.closed = True`, then notify()."""
    scope = scope_of(tree, provider.line)
    return provider.method == "notify" and any(
        isinstance(item, ast.Assign)
        and isinstance(item.value, ast.Constant)
        and item.value.value is True
        and any(ast.unparse(target) in until for target in item.targets)
        for item in own_nodes(scope)
    )


def _is_on_its_way(view: ProcessView, at: PythonFrame, tree: ast.Module, line: int) -> bool:
    """Whether another thread of the process was in the function of a line, above it: nothing kept it from there yet."""
    end = end_of(view)
    for _, frames in end.python_threads if end is not None else ():
        stack = [python_frame(item) for item in frames]
        if any(item.file == at.file and item.line == at.line for item in stack):
            continue
        for inner, frame in zip([None, *stack], stack, strict=False):
            if frame.file != at.file or frame.line is None or scope_of(tree, frame.line) is not scope_of(tree, line):
                continue
            calls_own = inner is not None and not is_library_file(inner.file)
            if frame.line < line or (frame.line == line and calls_own):
                return True
    return False


def ahead_advice(view: ProcessView, wait: ProcessWait, children: Sequence[ProcessView]) -> str | None:
    """Where a child at work was in the function that ends the wait, above the only line that does."""
    thing = waited_object(view, wait)
    if thing is None or wait.at is None or len(thing.providers) != 1:
        return None
    only = thing.providers[0]
    tree = syntax_tree(view.process.snapshot, wait.at)
    frames = [frame for child in children for frame in main_stack(child) if frame.file == wait.at.file]
    above = [frame.line for frame in frames if frame.line is not None and frame.line < only.line]
    if tree is None or not any(scope_of(tree, line) is scope_of(tree, only.line) for line in above):
        return None
    return f"It was above `{only.call}` at {only.place}, which in this file alone ends the wait. {thing.limit}"


def _objects(tree: ast.Module, methods: Sequence[str], line: int) -> Iterator[ast.expr]:
    for item in _calls(tree, methods):
        if item.lineno <= line <= (item.end_lineno or item.lineno):
            yield item.func.value  # type: ignore[attr-defined]


def _entered(tree: ast.Module, line: int) -> Iterator[ast.expr]:
    """What a `with` of that line enters, by name."""
    for item in nodes_of(tree):
        if isinstance(item, ast.With):
            entered = (part.context_expr for part in item.items if part.context_expr.lineno == line)
            yield from (part for part in entered if isinstance(part, (ast.Name, ast.Attribute)))


def _calls(tree: ast.Module, methods: Sequence[str]) -> Iterator[ast.Call]:
    for item in nodes_of(tree):
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in methods:
            yield item


def _provider(tree: ast.Module, call: ast.Call, names: frozenset[str], after: int) -> Provider:
    scope = scope_of(tree, call.lineno)
    function = qualified_name(tree, scope, "")
    method = called_name(call) or ""
    text = f"{shortened(ast.unparse(call.func.value), _LONGEST)}.{method}({'...' if call.args else ''})"  # type: ignore[attr-defined]
    own = _told_apart(tree, scope)
    found = tuple(
        item
        for item in obstacles(tree, call.lineno)
        if item.line > after and not (item.names & own) and not _asks_for_it(item, names)
    )
    return Provider(text, method, call.lineno, function, found)


def _asks_for_it(item: Obstacle, names: frozenset[str]) -> bool:
    """`if queue is None`: whoever is given none cannot end the wait, and is not who should."""
    return item.asks_for is not None and item.asks_for.rpartition(".")[2] in names


def _told_apart(tree: ast.Module, scope: Scope) -> frozenset[str]:
    """The parameters of a function that runs in a process of its own, and that the program calls itself as well.

    A test of one may be what tells the two apart: it says nothing of the way that the other process took.
    """
    if isinstance(scope, (ast.Module, ast.Lambda)):
        return frozenset()
    calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call)]
    handed = any(_last_word(keyword_value(item, "target")) == scope.name and _is_process(item) for item in calls)
    handed |= any(
        called_name(item) == "spawn" and item.args and _last_word(item.args[0]) == scope.name for item in calls
    )
    called = any(called_name(item) == scope.name for item in calls)
    return frozenset(parameters(scope)) - {"self", "cls"} if handed and called else frozenset()


def _is_process(call: ast.Call) -> bool:
    return (called_name(call) or "").endswith("Process")


def _last_word(node: ast.expr | None) -> str | None:
    return last_name(node) if node is not None else None


def _until(tree: ast.Module, line: int) -> str | None:
    """What `wait_for(lambda: ...)` asks, or the `while not ...` around `wait()`."""
    for item in _calls(tree, ("wait_for",)):
        asked = item.args[0] if item.args and spans(item, line) else None
        if isinstance(asked, ast.Lambda):
            return shortened(ast.unparse(asked.body), _LONGEST)
    loops = loops_around(tree, line, (ast.While,))
    test = loops[-1].test if loops else None  # type: ignore[union-attr]
    if test is None or isinstance(test, ast.Constant) or loops[-1].body[0].lineno != line:
        return None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return shortened(ast.unparse(test.operand), _LONGEST)
    return shortened(f"not ({ast.unparse(test)})", _LONGEST)


def _are_several(tree: ast.Module, names: frozenset[str], noun: str) -> bool:
    """Whether the names are those of several objects: `jobs = Queue()` and `results = Queue()`, both passed as `q`."""
    made = {
        last_name(target)
        for item in nodes_of(tree)
        for target, value in set_by(item)
        if isinstance(value, ast.Call) and (called_name(value) or "").lower().endswith(noun.lower())
        if last_name(target) in names
    }
    return len(made) > 1


def _made(tree: ast.Module, names: frozenset[str], noun: str) -> tuple[int, str] | None:
    """The only line that makes such an object and binds one of its names."""
    found = []
    for item in nodes_of(tree):
        value = item.value if isinstance(item, ast.Assign) else None
        bound = item.targets if isinstance(item, ast.Assign) else []
        named = any((last_name(target) or "") in names for target in bound)
        if named and isinstance(value, ast.Call) and called_name(value) == noun:
            found.append((value.lineno, shortened(ast.unparse(value), _LONGEST)))
    return found[0] if len(found) == 1 else None
