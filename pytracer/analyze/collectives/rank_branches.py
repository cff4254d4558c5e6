"""What decides whether a rank calls a collective: an `if` around its line, or before it with a return; a decorator."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.collectives.call_sites import stacks_of
from pytracer.analyze.collectives.deciding_tests import SAME
from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.collectives.one_rank_parts import called_there, property_there, writing_lines
from pytracer.analyze.collectives.rank_attributes import RankAttribute, rank_attribute
from pytracer.analyze.collectives.rank_objects import held_values
from pytracer.analyze.collectives.unready_results import unready_words
from pytracer.analyze.collectives.ways import Side, way_to
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.loops import deciding_ifs, last_of
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import asks_if_given, comes_alone, is_for_one_rank, one_rank_words, opposite
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans, spans_body
from pytracer.analyze.naming import line_in, place_words, short_file
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import PythonFrame

_RANK = Pattern(r"rank|is_(?:\w+_)?main|is_master|main_process|global_zero|is_chief|is_primary", re.IGNORECASE)
_RANK_DECIDES = Pattern(
    r"rank\w*(?:\(\))?'?\]?\)* (?:==|!=|in|<|>|<=|>=) |is_(?:\w+_)?main|is_master|main_process", re.IGNORECASE
)
_RESULT = "the printing or saving of its result"
_SETTERS = ("set_model_state_dict", "set_optimizer_state_dict", "set_state_dict")
_SET_BY_ALL = (
    "which is a collective of all ranks: call it on all ranks, with StateDictOptions(full_state_dict=True, "
    "broadcast_from_rank0=True). Only rank 0 needs to read the file; the others pass an empty dict (`{}`)."
)
_BARRIERS = ("barrier", "monitored_barrier")
_DECORATOR = Pattern(
    r"(?:^|\.)(?:rank_(?:zero|0)_only|on_(?:local_|last_)?(?:main_)?process|(?:master|main_process)_only)\b"
    r"|only_on_(?:rank_?0|rank_zero|main|master)|run_on_(?:rank_?0|main|master)"
)
_UNWRAPPED = "call `model.module(...)`"
_NUMBER = Pattern(r"(?<!local rank )\d+")  # which global rank has that local one is not known here
_IMPORTS = (ast.Import, ast.ImportFrom)
_BUILT_IN = frozenset(dir(builtins))
_DDP_FORWARD = "DistributedDataParallel.forward"
_IN_FORWARD = (
    "the forward of DistributedDataParallel communicates: {0} there, or take it out of that branch and call it on all "
    "ranks."
)
_ON_DATA = (
    "see whether that came out differently on the ranks (files, options, this rank's data). Let one rank decide and "
    "broadcast the result, or ask for something that is the same on all."
)


class RankBranch(msgspec.Struct, frozen=True):
    """`train.py:22 in save is below `if rank == 0:` (line 21)`."""

    frame: PythonFrame
    line: int
    text: str
    around: bool
    on_rank: bool
    test: ast.If | None = None
    between: tuple[int, int] | None = None
    """Of a branch that leaves: the first and the last line of what runs between it and the line."""

    attribute: RankAttribute | None = None
    """What it asks for that each object has by the rank, where the condition does not speak of the rank itself."""

    @property
    def decorates(self) -> bool:
        """Whether a decorator decides, for the whole function."""
        return self.test is None

    @property
    def head(self) -> str:
        """`below `if rank == 0:` (train.py:21)`, `behind `if rank != 0: return` (train.py:21)`."""
        return f"{self.head_before} ({short_file(self.frame.file)}:{self.line})"

    @property
    def head_before(self) -> str:
        """The same without the place."""
        if self.otherwise:
            return f"in the `else` of `{self.text}`"
        return f"below `{self.text}`" if self.around else f"behind `{self.text}{self._leaves}`"

    @property
    def otherwise(self) -> bool:
        """Whether the line is in its `else`."""
        return self.around and self.test is not None and not spans_body(self.test.body, self.frame.line or 0)

    @property
    def _leaves(self) -> str:
        """` return`: how its body ends, where that is not in its line."""
        if self.test is None or not self.text.endswith(":"):
            return ""
        return f"{' ...' if self.test.body[1:] else ''} {self._last}"

    @property
    def _last(self) -> str:
        """`return`, `continue`: the last statement of its body."""
        return type(last_of(self.test.body)).__name__.lower() if self.test is not None else ""

    def way_out(self, op: str, rest: str) -> str:
        """What to do with a call of that operation. `rest`: what is said of the lines that one rank alone may run."""
        if self.decorates:
            way = "take it out of that function"
        elif self.around:
            way = "take it out of that branch"
        else:
            way = f"move it before line {self.line}"
        if op not in _BARRIERS:
            return f"{way}, call it on all ranks, and keep only {rest} for one rank."
        if self.test is None or self.between is None:
            return f"{way}, and call it on all ranks."
        first, last = self.between
        lines = f"line {first}" if first == last else f"lines {first} to {last}"
        condition = ast.unparse(opposite(self.test.test))
        return (
            f"put only {lines} below the condition (`if {condition}:` in place of the early `{self._last}`), and call "
            f"{op} after {'it' if first == last else 'them'} on all ranks."
        )

    @property
    def words(self) -> str:
        """As branch_words, with what makes it one on the rank."""
        words = branch_words(self.frame, f"`{self.text}`", self.line, self.around, otherwise=self.otherwise)
        return f"{words[:-1]}; {self.attribute.words})" if self.attribute is not None else words


def branch_words(frame: PythonFrame, text: str, line: int, around: bool, *, otherwise: bool = False) -> str:
    """How a line stands to an `if`: below it, in its `else`, or behind one that leaves. `text`: its head."""
    where = "is in the `else` of" if otherwise else "is below" if around else "comes after"
    leaves = "" if around else ", which leaves"
    return f"{place_words(frame)} {where} {text} (line {line}{leaves})"


def branch_advice(
    view: ProcessView, call: Collective, inside: str | None = None, absent: Side | None = None
) -> str | None:
    """Where the sources show a branch on the rank; else None.

    Args:
        view: a rank that called it.
        call: its own call, of whose lines the innermost is recorded, and the others where the rank ended in it.
        inside: the function of a library that called it.
        absent: a rank that is elsewhere; a branch that it is below, too, is no reason for that.
    """
    some = (item for item in _branches(view, call) if item.on_rank)
    found = next((item for item in some if absent is None or not _has_both(item, absent)), None)
    if found is None:
        return None
    if below_forward(view, call, inside):
        return f"{found.words}, and {_IN_FORWARD.format(_unwrapped(view, call))}"
    if inside is not None and inside.rpartition(".")[2] in _SETTERS:
        return f"{found.words}, so that only some ranks call {inside}(), {_SET_BY_ALL}"
    what = f"{inside}(), which is a collective of all ranks" if inside is not None else "what communicates there"
    what += _led_words(way_to(view, call), found.frame, call) if inside is None else ""
    op = (call.op or "") if found.frame == place_of(call) else ""
    return f"{found.words}, so that only some ranks call {what}: {_way_out(view, call, found, op)}"


def _led_words(way: Sequence[PythonFrame], branch: PythonFrame, call: Collective) -> str:
    """` (the all_gather of line 47, by line 97 and line 52)`: of a call that several functions lead to."""
    inner = way[way.index(branch) + 1 :] if branch in way else ()
    if len(inner) < 2:
        return ""
    *through, last = dict.fromkeys(line_in(frame.file, frame.line or 0, branch.file) for frame in inner)
    if not through:
        return ""
    return f" (the {call.op} of {last}, by {list_words(through)})"


def _way_out(view: ProcessView, call: Collective, branch: RankBranch, op: str) -> str:
    """With the function that the branch calls, and the lines that write a file."""
    snapshot, way = view.process.snapshot, way_to(view, call)
    if branch.test is None or not branch.around or branch.frame not in way:
        return branch.way_out(op, _RESULT)
    inside = way[way.index(branch.frame) + 1 :]
    rest = writing_lines(snapshot, branch.test, branch.frame, inside) or _RESULT
    name = called_there(snapshot, branch.frame, inside)
    if name is None:
        read = property_there(snapshot, branch.frame, inside)
        if read is None:
            return branch.way_out(op, rest)
        return f"read `{read}`, a property that communicates, on all ranks, and keep only {rest} for one rank."
    unready = unready_words(snapshot, inside[-1], branch.frame.file)
    return f"call {name}() on all ranks, and keep only {rest} for one rank.{unready}"


def rank_branch_of(view: ProcessView, frame: PythonFrame, pair: tuple[int, int]) -> RankBranch | None:
    """A branch on the rank that decides about a line, and may lead the first of two ranks alone there."""
    return next((item for item in _in_frames(view, [frame]) if item.on_rank and _leads(item, frame, *pair)), None)


def _leads(branch: RankBranch, frame: PythonFrame, there: int, absent: int) -> bool:
    """Whether the one rank may have come to the line without the other, by the number that the condition names."""
    one = is_for_one_rank(branch.test.test) if branch.test is not None else None
    if branch.test is None or one is None:
        return True
    number = _NUMBER.search(one_rank_words(branch.test.test))
    comes = there if comes_alone(branch.test, frame.line or 0, around=branch.around) else absent
    return number is None or comes == int(number[0])


def below_forward(view: ProcessView, call: Collective, inside: str | None) -> bool:
    """Whether it is the forward of DDP that only some ranks come to, by a branch on the rank."""
    in_forward = inside is not None and inside.endswith(_DDP_FORWARD)
    return in_forward and any(item.on_rank for item in _branches(view, call))


def _unwrapped(view: ProcessView, call: Collective) -> str:
    """`` use `encoder.module` ``: by the name that the line calls, where it calls only one variable."""
    frame = place_of(call)
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or frame.line is None:
        return _UNWRAPPED
    defined = {getattr(item, "name", None) for item in tree.body}
    imported = {
        part.asname or part.name for item in nodes_of(tree) if isinstance(item, _IMPORTS) for part in item.names
    }
    called = {variable(item.func) for item in calls_on(tree, frame.line)} - {None}
    own = called - defined - imported - _BUILT_IN
    return f"use `{own.pop()}.module`" if len(own) == 1 else _UNWRAPPED


def branch_head(view: ProcessView, call: Collective, advice: str) -> str | None:
    """`below `if rank == 0:` (train.py:21)`, for a headline; None where the advice does not speak of it."""
    found = next((item for item in _branches(view, call) if item.on_rank), None)
    return found.head if found is not None and advice.startswith(found.words) else None


def branch_at_end(view: ProcessView) -> RankBranch | None:
    """The closest branch on the rank that a process was below when it ended: `train.py:18 in prepare is below ...`."""
    stack = view.exception_stack if view.raised else view.python_stack or []
    return next((item for item in _in_frames(view, stack) if item.on_rank and item.around), None)


def data_branch_advice(there: Side, absent: Side) -> str | None:
    """Any branch around a line that `absent` never called a collective from, and that it is not below itself."""
    found = (item for item in _branches(there.view, there.call) if item.around and not _has_both(item, absent))
    branch = next((item for item in found if item.test is None or not SAME.search(ast.unparse(item.test.test))), None)
    at = place_of(there.call)
    if branch is None or at is None:
        return None
    what = "it" if branch.frame == at else f"the {there.call.op} of {line_in(at.file, at.line or 0, branch.frame.file)}"
    return f"{branch.words}, and {absent.name} never called {what}: {_ON_DATA}"


def _has_both(branch: RankBranch, other: Side) -> bool:
    """Whether another rank is below the same branch, in the same arm."""
    if branch.test is None:
        return False
    own = (branch.frame.file, branch.frame.function)
    there = [item.line or 0 for item in other.way if (item.file, item.function) == own]
    arms = [spans_body(branch.test.body, line) for line in there if spans(branch.test, line)]
    return (not branch.otherwise) in arms


def _branches(view: ProcessView, call: Collective) -> Iterator[RankBranch]:
    """Of the program's lines, the innermost first."""
    at = place_of(call)
    stacks = stacks_of(view)
    found = next((stack for stack in stacks if at is None or at in stack), [at] if at is not None else [])
    yield from _in_frames(view, found)


def _in_frames(view: ProcessView, frames: Sequence[PythonFrame]) -> Iterator[RankBranch]:
    snapshot = view.process.snapshot
    for frame in frames:
        tree = syntax_tree(snapshot, frame) if not is_library_file(frame.file) else None
        if tree is None or frame.line is None:
            continue
        for item, around in deciding_ifs(tree, frame.line):
            if around and _has_counterpart(tree, item, frame.line):
                continue
            head = PythonFrame(file=frame.file, line=item.lineno, function=frame.function)
            text = line_text(snapshot, head)
            if text is not None:
                between = None if around else _between(tree, item, frame.line)
                on_rank = asks_rank(tree, item)
                by = rank_attribute(snapshot, frames, tree, item.test, frame.file) if not on_rank else None
                yield RankBranch(frame, item.lineno, text, around, on_rank or by is not None, item, between, by)
        decorator = _decorator(tree, frame.line)
        if decorator is not None:
            yield RankBranch(frame, decorator.lineno, f"@{ast.unparse(decorator)}", around=True, on_rank=True)


def _between(tree: ast.Module, branch: ast.If, line: int) -> tuple[int, int] | None:
    """The lines of what runs after a branch that leaves, and before a line, in the block that both are in."""
    blocks = [
        block
        for item in nodes_of(tree)
        for name in ("body", "orelse", "finalbody")
        if isinstance(block := getattr(item, name, None), list) and branch in block
    ]
    rest = blocks[0][blocks[0].index(branch) + 1 :] if blocks else []
    at = next((number for number, item in enumerate(rest) if spans(item, line)), 0)
    return (rest[0].lineno, rest[at - 1].end_lineno or rest[at - 1].lineno) if at else None


def _decorator(tree: ast.Module, line: int) -> ast.expr | None:
    """Of its function, by which only one rank runs that: `@rank_zero_only`."""
    scope = scope_of(tree, line)
    decorators = scope.decorator_list if isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) else []
    return next((item for item in decorators if _DECORATOR.search(ast.unparse(item))), None)


def asks_rank(tree: ast.Module, branch: ast.If) -> bool:
    """Itself, by a variable of its function, or by the only function of that name in the file."""
    if _RANK.search(_without_trivial(branch.test)):
        return True
    scope = scope_of(tree, branch.lineno)
    for item in nodes_of(branch.test):
        if isinstance(item, ast.Name):
            bound = [value for line, value in lines_that_bind(scope, item.id) if line < branch.lineno]
            values = [part for value in bound if value is not None for part in _asked(tree, branch.test, item, value)]
            texts = [ast.unparse(value) for value in values]
        elif isinstance(item, ast.Call):
            named = [
                part for part in nodes_of(tree) if isinstance(part, ast.FunctionDef) and part.name == called_name(item)
            ]
            own = [part for part in own_nodes(named[0]) if isinstance(part, ast.Return)] if len(named) == 1 else []
            texts = [ast.unparse(part.value) for part in own if part.value is not None]
        else:
            continue
        if len(texts) == 1 and _RANK_DECIDES.search(texts[0]):
            return True
    return False


def _asked(tree: ast.Module, test: ast.expr, name: ast.Name, made: ast.AST) -> list[ast.AST]:
    """What a variable is made of; of an attribute of an object what that was given for it, and nothing it counts."""
    of_it = [item for item in nodes_of(test) if isinstance(item, ast.Attribute) and item.value is name]
    if not of_it or not isinstance(made, ast.Call):
        return [made]
    return [*held_values(tree, of_it[0], made)]


def _without_trivial(test: ast.expr) -> str:
    """Its text without what is the same on all ranks of a job: `local_rank != -1`, `rank is not None`."""
    text = ast.unparse(test)
    for item in nodes_of(test):
        if asks_if_given(item):
            text = text.replace(ast.unparse(item), "")
    return text


def _has_counterpart(tree: ast.Module, branch: ast.If, line: int) -> bool:
    """Whether the function calls the same beside the branch: `if rank == 0: barrier()` after `if rank != 0: barrier()`.

    The other ranks call it there, then: the branch is no reason why they did not.
    """
    own = {ast.unparse(item.func) for item in calls_on(branch, line)}
    others = [item for item in own_nodes(scope_of(tree, line)) if isinstance(item, ast.Call)]
    inside = range(branch.lineno, (branch.end_lineno or branch.lineno) + 1)
    body = range(branch.body[0].lineno, (branch.body[-1].end_lineno or 0) + 1)
    mine = body if line in body else range((branch.body[-1].end_lineno or 0) + 1, inside.stop)
    return any(
        ast.unparse(item.func) in own
        and item.lineno not in mine
        and (item.lineno in inside or _is_below_if(tree, item))
        for item in others
    )


def _is_below_if(tree: ast.Module, call: ast.Call) -> bool:
    """Whether it stands in another branch on the rank."""
    return any(
        around and _RANK.search(ast.unparse(item.test)) is not None for item, around in deciding_ifs(tree, call.lineno)
    )
