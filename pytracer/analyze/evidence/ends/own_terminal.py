"""A terminal that the program itself had made for a child: the kernel sends that SIGHUP when its master end is closed.

The master end of a pseudo-terminal is a descriptor of the parent. The child is hung up when the last one is closed: by
os.close(), by the end of `with os.fdopen(...)`, or with the parent itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import shortened
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.ends.sent_signals import deadly_signal, sent_signals
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, parameters, qualified_name, scope_of, spans
from pytracer.analyze.kin import children_of, parent_of
from pytracer.analyze.naming import LineWords, line_in, place_words
from pytracer.analyze.platform.signals import SI_KERNEL, SIGHUP
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import PythonFrame

_FORKS = ("pty.fork", "os.forkpty")
_MASTER = {**dict.fromkeys(_FORKS, 1), "pty.openpty": 0, "os.openpty": 0}  # its place in what these return
_MAKERS = (*_MASTER, "pty.spawn")
_FILES = ("open", "fdopen", "FileIO")
_WAITS = frozenset({"wait", "waitpid", "waitid", "wait4", "communicate"})
_REAPED_NS = 1_000_000_000  # a killed process is reaped that soon
_LONGEST = 60
_WITHOUT = "Or start it without a terminal: subprocess.Popen(..., start_new_session=True), with its output in a file."
_OWN = "tmux or `setsid` around the program does not help: the terminal is its own."


class OwnTerminal(msgspec.Struct, frozen=True):
    """`call`, `at`: what makes it, where. `closes`: the line that closes its master end, `text`; `block`: a `with`.

    `sure`: the child was forked by that call. `ended`: the parent had ended before.
    """

    call: str
    at: PythonFrame
    parent: int
    sure: bool
    ended: bool
    closes: LineWords | None = None
    text: str = ""
    block: bool = False

    @property
    def behind(self) -> Behind:
        """Both lines."""
        return Behind.of([], self.at, self.closes)

    @property
    def words(self) -> str:
        """After "because its terminal was closed"."""
        perhaps = "" if self.sure else "perhaps "
        return f": {perhaps}the pseudo-terminal of `{self.call}()` at {place_words(self.at)}, {self._closed}"

    @property
    def _closed(self) -> str:
        if self.ended:
            return f"whose master end was closed with process {self.parent}, which had ended before"
        if self.closes is None:
            return f"whose master end process {self.parent} held"
        how = f"at the end of `{self.text}`" if self.block else f"(`{self.text}`)"
        return f"whose master end process {self.parent} held; {self.closes} closes it {how}"

    @property
    def advice(self) -> str:
        """What keeps it open."""
        if self.ended:
            first = "Let the parent wait for the child (os.waitpid()), and read the master end, before it ends."
        elif self.closes is None:
            first = (
                "Keep the master end open, and read it, until the child has ended (os.waitpid()): see what closes it, "
                "such as a file object that is freed."
            )
        elif self.block:
            first = (
                f"Keep the master end open, and read it, until the child has ended (os.waitpid()): pass closefd=False "
                f"at {self.closes}, or wait for the child inside of that block."
            )
        else:
            first = (
                f"Close the master end (`{self.text}`, {self.closes}) only when the child has ended (os.waitpid()), "
                "and read it until then."
            )
        if not self.sure:
            return f"If it was that terminal: {first[0].lower()}{first[1:]} {_WITHOUT}"
        return f"{first} {_WITHOUT} {_OWN}"


def own_terminal(job: JobView, view: ProcessView) -> OwnTerminal | None:
    """Of a process that the kernel hung up; None where it is not known, or its parent was hung up as well."""
    sent = deadly_signal(view)
    if sent is None or sent.signal != SIGHUP or sent.code != SI_KERNEL:
        return None
    parent = parent_of(job, view)
    if parent is not None and sent_signals(parent.process.snapshot, SIGHUP):
        return None
    forks = [*_forks(view)]
    forked = next((place for place, is_child in forks if is_child), None)
    if forked is None and (forks or children_of(job, view)):
        return None  # it made the terminal for another process, or may have
    if forked is not None and parent is not None and any(is_child for _, is_child in _forks(parent)):
        return None  # forked in its turn by the child in the terminal
    snapshot = (parent or view).process.snapshot
    stack = (view.python_stack if forked is not None else _stack(parent)) or ()
    files = program_files(snapshot, [item for item in stack if not is_library_file(item.file)])
    found = forked if forked is not None else _only_maker(files) if parent is not None else None
    if found is None:
        return None
    file, tree, call = found
    scope = scope_of(tree, call.lineno)
    at = PythonFrame(function=qualified_name(tree, scope), file=file, line=call.lineno)
    ended = parent is not None and _had_ended(parent, sent.mono_ns)
    made = OwnTerminal(
        imported_as(tree, call.func) or "", at, view.process.snapshot.ppid, sure=forked is not None, ended=ended
    )
    closing = [*_closing(files, _Master.of(tree, scope, call))] if not ended else []
    if len(closing) != 1:
        return made
    where, node, block = closing[0]
    return msgspec.structs.replace(
        made,
        closes=line_in(where, node.lineno, file),
        text=shortened(f"with {ast.unparse(node)}" if block else ast.unparse(node), _LONGEST),
        block=block,
    )


_Place = tuple[str | None, ast.Module, ast.Call]


def _forks(view: ProcessView) -> Iterator[tuple[_Place, bool]]:
    """Each pty.fork() above the line that a function of the stack ran, and whether only the child runs that line."""
    for frame in view.python_stack or ():
        tree = syntax_tree(view.process.snapshot, frame) if not is_library_file(frame.file) else None
        if tree is None or frame.line is None:
            continue
        calls = (item for item in own_nodes(scope_of(tree, frame.line)) if isinstance(item, ast.Call))
        forks = [item for item in calls if item.lineno <= frame.line and imported_as(tree, item.func) in _FORKS]
        for item in forks:
            yield (frame.file, tree, item), len(forks) == 1 and _is_childs(tree, item, frame.line)


def _is_childs(tree: ast.Module, fork: ast.Call, line: int) -> bool:
    """Below `if pid == 0`, or in the `else` of `if pid`, of the number that only this fork returns."""
    scope = scope_of(tree, fork.lineno)
    name = _number_of(scope, fork)
    stores = [
        item for item in own_nodes(scope)
        if isinstance(item, (ast.Name, ast.Attribute)) and not isinstance(item.ctx, ast.Load)
    ]  # fmt: skip
    if name is None or [ast.unparse(item) for item in stores].count(name) != 1:
        return False
    for item in own_nodes(scope):
        if isinstance(item, ast.If) and item.lineno > fork.lineno:
            zero = ast.unparse(item.test) in (f"{name} == 0", f"not {name}")
            part = item.body if zero else item.orelse if ast.unparse(item.test) == name else []
            if any(spans(one, line) for one in part):
                return True
    return False


def _number_of(scope: Scope, fork: ast.Call) -> str | None:
    """`pid` of `pid, end = pty.fork()`."""
    for item in own_nodes(scope):
        if isinstance(item, ast.Assign) and item.value is fork and len(item.targets) == 1:
            target = item.targets[0]
            if isinstance(target, (ast.Tuple, ast.List)) and len(target.elts) == 2:
                return ast.unparse(target.elts[0])
    return None


def _only_maker(files: Mapping[str, ast.Module]) -> _Place | None:
    """Of the parent's program, for a child that runs another one."""
    found = [
        (file, tree, item)
        for file, tree in files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and imported_as(tree, item.func) in _MAKERS
    ]
    return found[0] if len(found) == 1 else None


def _stack(parent: ProcessView | None) -> list[PythonFrame]:
    if parent is None:
        return []
    asked = parent.exit_request
    return parent.python_stack or [*(asked.python_stack or () if asked is not None else ())]


def _had_ended(parent: ProcessView, by_ns: int) -> bool:
    exited, reaped = parent.process.snapshot.exit_mono_ns, parent.process.ended_mono_ns
    if exited is not None:
        return exited <= by_ns
    return reaped is not None and reaped <= by_ns + _REAPED_NS


class _Master(msgspec.Struct, frozen=True):
    """What the program calls the master end: variables of a function, and attributes of any object."""

    scope: Scope
    names: frozenset[str]
    attributes: frozenset[str]

    @classmethod
    def of(cls, tree: ast.Module, scope: Scope, call: ast.Call) -> _Master:
        """By the assignment of what a call returns, and by what that is handed on to."""
        place = _MASTER.get(imported_as(tree, call.func) or "")
        names, attributes = set[str](), set[str]()
        for item in own_nodes(scope):
            if not isinstance(item, ast.Assign):
                continue
            for target in item.targets:
                first = target.elts if isinstance(target, ast.Tuple) and item.value is call else []
                if place is not None and len(first) > place:
                    target = first[place]
                elif not (isinstance(item.value, ast.Name) and item.value.id in names):
                    continue
                if isinstance(target, ast.Name):
                    names.add(target.id)
                elif isinstance(target, ast.Attribute):
                    attributes.add(target.attr)
        return cls(scope, frozenset(names), frozenset(attributes))

    def is_in(self, node: ast.AST, scope: Scope) -> bool:
        """Whether an expression of a function is it."""
        if isinstance(node, ast.Attribute):
            return node.attr in self.attributes
        return isinstance(node, ast.Name) and scope is self.scope and node.id in self.names

    def is_passed(self, files: Mapping[str, ast.Module], node: ast.AST, scope: Scope) -> bool:
        """Whether it is a parameter for which a caller passes it."""
        if not isinstance(node, ast.Name) or node.id not in parameters(scope):
            return False
        if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        for tree in files.values():
            for item in nodes_of(tree):
                called = isinstance(item, ast.Call) and called_name(item) == scope.name
                given = argument_of(item, scope, node.id) if called and isinstance(item, ast.Call) else None
                if given is not None and self.is_in(given, scope_of(tree, given.lineno)):
                    return True
        return False


def _closing(files: Mapping[str, ast.Module], master: _Master) -> Iterator[tuple[str, ast.Call, bool]]:
    """Calls of the parent that close it, or make a file that a `with` closes; none behind a wait for the child."""
    for file, tree in files.items():
        for item in nodes_of(tree):
            calls: list[tuple[ast.Call, Scope, ast.With | None]] = []
            if isinstance(item, ast.With):
                made = [part.context_expr for part in item.items]
                calls = [
                    (part, scope_of(tree, part.lineno), item)
                    for part in made
                    if isinstance(part, ast.Call) and called_name(part) in _FILES and not _is_kept(part)
                ]
            elif isinstance(item, ast.Call) and imported_as(tree, item.func) == "os.close":
                calls = [(item, scope_of(tree, item.lineno), None)]
            for call, scope, block in calls:
                given = call.args[0] if call.args else None
                if given is None or not (master.is_in(given, scope) or master.is_passed(files, given, scope)):
                    continue
                if not _in_child(scope, call) and not _has_waited(scope, call, block):
                    yield file, call, block is not None


def _is_kept(call: ast.Call) -> bool:
    value = keyword_value(call, "closefd")
    return value is not None and not (isinstance(value, ast.Constant) and value.value is True)


def _in_child(scope: Scope, call: ast.Call) -> bool:
    """Below `if pid == 0`, `if not pid`."""
    branches = (item for item in own_nodes(scope) if isinstance(item, ast.If) and _is_zero(item.test))
    return any(part is call for item in branches for one in item.body for part in nodes_of(one))


def _is_zero(test: ast.expr) -> bool:
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
        other = test.comparators[0]
        return isinstance(other, ast.Constant) and other.value == 0
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def _has_waited(scope: Scope, call: ast.Call, block: ast.With | None) -> bool:
    """Whether its function waits for a process above it, or inside of the block."""
    last = (block.end_lineno or block.lineno) if block is not None else call.lineno
    calls = (item for item in own_nodes(scope) if isinstance(item, ast.Call) and item.lineno <= last)
    return any(called_name(item) in _WAITS or _is_join(item) for item in calls)


def _is_join(call: ast.Call) -> bool:
    """Of a thread or a process; str.join() and os.path.join() are given something to join."""
    given = [item for item in call.args if not isinstance(item, ast.Constant) or isinstance(item.value, str)]
    return called_name(call) == "join" and isinstance(call.func, ast.Attribute) and not given
