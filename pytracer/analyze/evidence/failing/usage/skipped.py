"""A call that the failing line needs and that did not run: where the program has it, and what can have kept it away."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.callers import mentions
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.leaving import Obstacle, obstacles
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of, spans_body
from pytracer.blackbox.environment_names import ENVIRONMENT_NAMES

# What a message asks for: the calls that give it, and the one that takes it away.
_NEEDS = (
    (Pattern(r"Default process group has not been initialized"), "init_process_group", "destroy_process_group"),
    (Pattern(r"RPC has not been initialized|RPC agent is not (?:set|initialized)"), "init_rpc", "shutdown"),
)
_GUARDS = {"init_process_group": "`if dist.is_initialized():`", "init_rpc": "the same condition"}
_OF_RPC = Pattern(r"(?:^|\.)rpc\.shutdown$|^shutdown$")
# Other ways to set a variable of the environment than by an item of a known name.
_SETS = Pattern(r"environ\.(?:update|setdefault)\(|putenv\(|load_dotenv\(|environ \|= |environ\[[^'\"]")
_MOST = 3
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class _Skipped(msgspec.Struct, frozen=True):
    """The only call of that name. `around`: the function that has it, None of a module's own line."""

    name: str
    file: str
    tree: ast.Module
    line: int
    around: ast.FunctionDef | ast.AsyncFunctionDef | None


def skipped_call(at: FailingLine) -> str | None:
    """What keeps it away: a branch, an early return, a handler; or that nothing calls its function."""
    found = _found(at)
    reason = _reason(at, found) if found is not None else None
    if found is None or reason is None:
        return None
    why, then = reason
    where = at.in_file(found.file, found.line)
    return f"{found.name}() ({where}) had not run in this process when line {at.line} needed it: {why}. {then}"


def skipped_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    found = _found(at)
    reason = _reason(at, found) if found is not None else None
    if found is None or reason is None:
        return None
    return f"{found.name}() ({at.in_file(found.file, found.line)}) had not run: {reason[0]}"


def _reason(at: FailingLine, found: _Skipped) -> tuple[str, str] | None:
    """Why it did not run, and what to do."""
    guard = f"or leave out line {at.line} without it ({_GUARDS[found.name]})"
    top = next((frame for frame in at.frames if frame.file == found.file and frame.function == "<module>"), None)
    if (
        found.around is None
        and top is not None
        and found.line > (top.line or 0)
        and not loops_around(found.tree, found.line)
    ):
        return "it comes only after it", "Call it first."
    callers = _callers(at, found) if found.around is not None else []
    if found.around is not None and not callers and not _is_running(at, found):
        return f"no line of these files calls {found.around.name}()", f"Call it before line {at.line}, {guard}."
    reasons = [_words(at, found.file, found.tree, item) for item in obstacles(found.tree, found.line)]
    for file, tree, line in callers[:1]:
        reasons += [_words(at, file, tree, item) for item in obstacles(tree, line)]
    if not 0 < len(reasons) <= _MOST:
        return None
    within = ""
    if found.around is not None and callers:
        called = " and ".join(at.in_file(file, line) for file, _, line in callers[:_MOST])
        within = f"{found.around.name}() is called at {called}. "
    return ", or ".join(reasons), f"{within}See why it went that way, {guard}."


def _found(at: FailingLine) -> _Skipped | None:
    for needed, name, undone in _NEEDS:
        if not needed.search(at.message):
            continue
        calls = [
            (file, tree, item)
            for file, tree in at.files.items()
            for item in nodes_of(tree)
            if isinstance(item, ast.Call) and called_name(item) in (name, undone)
        ]
        gives = [(file, tree, item) for file, tree, item in calls if called_name(item) == name]
        takes = [(file, tree, item) for file, tree, item in calls if called_name(item) == undone]
        if len(gives) != 1 or not all(_comes_later(at, file, tree, item) for file, tree, item in takes):
            return None  # it may have run, and been undone
        file, tree, call = gives[0]
        if _may_have_failed(tree, call.lineno):
            return None
        scope = scope_of(tree, call.lineno)
        around = scope if isinstance(scope, _FUNCTIONS) else None
        return _Skipped(name, file, tree, call.lineno, around)
    return None


def _may_have_failed(tree: ast.Module, line: int) -> bool:
    """Whether it is in a `try` whose handler goes on, or in a function that is called in one."""
    scope = scope_of(tree, line)
    lines = {line, *(
        item.lineno for item in nodes_of(tree)
        if isinstance(item, ast.Call) and isinstance(scope, _FUNCTIONS) and called_name(item) == scope.name
    )}  # fmt: skip
    return any(
        isinstance(item, ast.Try)
        and any(spans_body(item.body, one) for one in lines)
        and any(not isinstance(handler.body[-1], (ast.Raise, ast.Return)) for handler in item.handlers)
        for item in nodes_of(tree)
    )


def _comes_later(at: FailingLine, file: str, tree: ast.Module, call: ast.Call) -> bool:
    """Whether a call stands below the line at which its function is on the stack, and no loop comes back to that."""
    if called_name(call) == "shutdown" and not _OF_RPC.search(ast.unparse(call.func)):
        return True  # an executor's, or a server's
    scope = scope_of(tree, call.lineno)
    return any(
        frame.file == file and (line := frame.line or 0) < call.lineno
        and scope_of(tree, line) is scope and not loops_around(tree, line)
        for frame in at.frames
    )  # fmt: skip


def _callers(at: FailingLine, found: _Skipped) -> list[tuple[str, ast.Module, int]]:
    """Lines that name the function that has the call, other than its own: it may be passed on to spawn()."""
    name = found.around.name if found.around is not None else ""
    named = mentions(at.files, name)
    return [(file, tree, item.lineno) for file, tree, item in named if isinstance(item.ctx, ast.Load)]


def _is_running(at: FailingLine, found: _Skipped) -> bool:
    """Whether the function that has the call is on the stack."""
    names = {(frame.file, (frame.function or "").rpartition(".")[2]) for frame in at.frames}
    return found.around is not None and (found.file, found.around.name) in names


def _words(at: FailingLine, file: str, tree: ast.Module, item: Obstacle) -> str:
    """``it is reached only where `args.distributed` (line 12)``."""
    line = at.in_file(file, item.line)
    if item.around:
        return f"it is reached only where `{item.text}` ({line})"
    handler = next(
        (part for part in nodes_of(tree) if isinstance(part, ast.ExceptHandler) and part.lineno == item.line), None
    )
    if handler is None:
        return f"`{item.text}` ({line}) leaves before it"
    leaves = handler.body[-1]
    told = f"`{source(leaves)}` ({at.in_file(file, leaves.lineno)}) leaves before it, in `{item.text}`"
    read = [*dict.fromkeys(_of_environment(tree, handler, ast.Load))]
    given = {name for other in at.files.values() for name in _of_environment(other, handler, ast.Store)}
    unset = [name for name in read if name in ENVIRONMENT_NAMES and name not in {*given, *at.snapshot.environment}]
    if unset and not any(_SETS.search(ast.unparse(other)) for other in at.files.values()):
        were = "was" if len(unset) == 1 else "were"
        return f"{told}, as {list_words(unset)} {were} not set when the process began"
    known = f", where {list_words(read)} of the environment {'is' if len(read) == 1 else 'are'} read"
    return told + known if read else told


def _of_environment(
    tree: ast.Module, handler: ast.ExceptHandler, how: type[ast.Load] | type[ast.Store]
) -> Iterator[str]:
    """`os.environ["RANK"]` in the `try` of a handler: a KeyError where it is not set; or set by any line."""
    bodies = [item.body for item in nodes_of(tree) if isinstance(item, ast.Try) and handler in item.handlers]
    within = bodies[0] if how is ast.Load else tree.body
    for part in (node for statement in within for node in nodes_of(statement)):
        if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Constant) and isinstance(part.ctx, how):
            yield from [str(part.slice.value)] if ast.unparse(part.value) in ("os.environ", "environ") else []
