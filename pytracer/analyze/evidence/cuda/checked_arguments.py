"""The variable that a kernel's assertion checked: in the launching line, where its values were set, what it was.

A kernel's assertion names its own variables. Which argument of the Python call they are is known for torch's
operators; the expression is read from the launching line's source, if that is as it was, and what was recorded of
variables at the exception counts for frames that are still on its stack.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import list_words
from pytracer.analyze.evidence.cuda.assertions import KernelAssertion
from pytracer.analyze.evidence.cuda.checked_calls import BRACKETS, checked_calls
from pytracer.analyze.evidence.cuda.checked_limits import Allowed, Limit, allowed, limits_of
from pytracer.analyze.evidence.cuda.launches import Suspects
from pytracer.analyze.evidence.cuda.value_sources import ValueSource, value_source
from pytracer.analyze.evidence.cuda.value_steps import Program, kept, unmoved
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import parameters, scope_of
from pytracer.analyze.known.device_assertions import RANGE
from pytracer.analyze.naming import short_file
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence, ExceptionReport, PythonFrame

_FUNCTIONAL = "torch/nn/functional.py"
_MOST = 3
_SOURCES = 2


class CheckedArgument(msgspec.Struct, frozen=True):
    """What a kernel checked.

    `arguments`: expressions of one call, or of several that are alike, of which it was one. `recorded`: what variables
    were at the exception.
    """

    arguments: tuple[str, ...]
    calls: tuple[str, ...]
    frame: PythonFrame
    sources: dict[str, ValueSource]
    recorded: tuple[tuple[str, str], ...]
    limits: tuple[Limit, ...]
    allowed: Allowed
    ask: tuple[str, ...]
    sure: bool
    guessed: bool
    plain: bool
    """Whether the only argument is a variable, or a part of one."""

    @property
    def place(self) -> str:
        """`train.py:33`."""
        return f"{short_file(self.frame.file)}:{self.frame.line}"

    @property
    def named(self) -> str:
        """`` `labels` ``, `` `a` or `b` ``."""
        return list_words([f"`{item}`" for item in self.arguments], _MOST, "or")

    def came(self, *, text: bool) -> list[str]:
        """Where the values of each were set, each line once."""
        told = {item: item.words(argument, text=text) for argument, item in reversed(self.sources.items())}
        return [*reversed(told.values())][:_SOURCES]


def checked_argument(
    view: ProcessView, assertion: KernelAssertion | None, found: Suspects, blocking: bool
) -> CheckedArgument | None:
    """None where it is not known which line launched the kernel, or its source is not here.

    `blocking`: the line that raised the exception launched it.
    """
    meaning = assertion.meaning if assertion is not None else None
    place = _raising(view) if blocking else _launching(found)
    if meaning is None or not meaning.checks or place is None:
        return None
    frame, within, operator = place
    if within is not None and not (within.file or "").endswith(_FUNCTIONAL):
        return None
    at = launching_line(view, frame)
    checks = _of_operator(meaning.checks, operator) if operator is not None else meaning.checks
    calls = checked_calls(at, checks, within.function if within is not None else None) if at is not None else []
    arguments = {source(item): item for call in calls for item in map(_of_values, call.arguments)}
    if at is None or not arguments or len(arguments) > _MOST:
        return None
    stack = view.exception_stack_of_program
    program = Program(at, program_files(view.process.snapshot, [*at.frames, *stack]))
    bound = _bound_inside(at)
    followed = {text: item for text, item in arguments.items() if not bound & {*names_in(item)}}
    sources = {text: told for text, item in followed.items() if (told := value_source(program, _owner(item)))}
    limits = [limit for call in calls for limit in limits_of(at, call) if meaning.ask == RANGE]
    only = limits[0] if len(arguments) == 1 and len(limits) == 1 else None
    return CheckedArgument(
        (*arguments,),
        (*dict.fromkeys(source(call.node) for call in calls),),
        frame,
        sources,
        _recorded(at, [*followed.values()]),
        (*dict.fromkeys(limits),),
        allowed(at, calls[0], only),
        meaning.ask,
        blocking or found.culprit is not None,
        any(call.guessed for call in calls),
        all(variable(kept(item)) is not None for item in arguments.values()),
    )


def _launching(found: Suspects) -> tuple[PythonFrame, PythonFrame | None, str] | None:
    """The only line that may have launched it, the library's function below it, and the operator."""
    frames = {(frame.file, frame.line): frame for item in found.launches if (frame := item.backward or item.python)}
    of_lines = [item for item in found.launches if item.node is None or item.backward is not None]
    if len(frames) != 1 or not of_lines:
        return None
    return next(iter(frames.values())), of_lines[0].within, of_lines[0].operator


def _raising(view: ProcessView) -> tuple[PythonFrame, PythonFrame | None, None] | None:
    frame, inner = view.python_frame, next(iter(view.exception_stack), None)
    return (frame, inner if inner != frame else None, None) if frame is not None else None


def checks_words(found: CheckedArgument | None) -> str:
    """`` , which checks `labels` ``; nothing if it isn't sure which argument it is."""
    sure = found is not None and found.sure and not found.guessed and len(found.arguments) == 1
    return f", which checks {found.named}" if found is not None and sure else ""


def checked_evidence(found: CheckedArgument | None) -> Evidence | None:
    """What is checked, where it came from and what it was."""
    if found is None:
        return None
    of = f" of {list_words([f'`{item}`' for item in found.calls], _MOST)}" if found.calls != found.arguments else ""
    one = "probably " if found.guessed else ""
    one += "one of " if len(found.arguments) > 1 else ""
    if_so = "" if found.sure else "if that line launched it, "
    told = [f"{if_so}what the kernel checks is {one}{found.named}{of} at {found.place}"]
    told += [f"by the source, {words}" for words in found.came(text=True)]
    if found.recorded:
        held = [f"`{name}` was {value}" for name, value in found.recorded]
        told.append(f"at the exception, {list_words(held, _MOST)}")
    told += [item.words for item in found.limits]
    return Evidence("source-line", "; ".join(told), python=found.frame)


def checked_advice(found: CheckedArgument, otherwise: str) -> str:
    """What to print, where, and where to correct it. `otherwise`: general advice, if what is wrong is not known."""
    came = "".join(f" {words[:1].upper()}{words[1:]}." for words in found.came(text=False))
    held = [item for item in found.recorded if item[0] == found.arguments[0].partition("[")[0]]
    beyond = found.allowed.beyond(held) if len(found.arguments) == 1 else None
    if beyond is not None:
        return f"{beyond}{came}"
    written = _written(found)
    if written:
        return f"{written}{came}"
    bound = f": {list_words([item.words for item in found.limits], _MOST)}" if found.limits else ""
    return f"Print {_printed(found)} before {found.place}{bound}.{came} {otherwise}"


def _written(found: CheckedArgument) -> str | None:
    """Which line writes a number that is out of range into the only argument, perhaps into a part that isn't used."""
    if len(found.arguments) > 1 or found.ask != RANGE or not found.plain:
        return None
    for source_of in found.sources.values():
        for line in source_of.lines:
            if line.written is not None and not found.allowed.has(line.written):
                why = found.allowed.refusal(line.written)
                return f"Look first at {line.place}, which writes {line.written} into `{source_of.name}`; {why}."
    return None


def _printed(found: CheckedArgument) -> str:
    """`` `labels.min()` and `labels.max()` ``; of several or of long ones, `min() and max() of ...`."""
    methods = [item.removeprefix("{}.") for item in found.ask if item.startswith("{}.")]
    if len(methods) == len(found.ask) and (len(found.arguments) > 1 or not found.arguments[0].isidentifier()):
        return f"{' and '.join(methods)} of {list_words([f'`{item}`' for item in found.arguments], _MOST)}"
    return list_words([f"`{item.format(text)}`" for text in found.arguments for item in found.ask], 2 * _MOST)


def _of_operator(checks: Sequence[str], operator: str) -> list[str]:
    """Of x[...] and of functions, what the operator is of."""
    by_brackets = operator in ("index", "_index_put_impl_", "index_put_", "index_put", "_unsafe_index")
    return [item for item in checks if (item == BRACKETS or item.startswith("index_put.")) == by_brackets]


def _of_values(node: ast.expr) -> ast.expr:
    """`labels` of `labels.cuda()`."""
    inner = unmoved(node)
    return inner if isinstance(inner, ast.expr) else node


def _owner(node: ast.expr) -> ast.expr:
    """`local` of `local.masked_fill(foreign, 0)`: what the method changes; of an operation its only variable."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    names = names_in(node)
    if isinstance(node, (ast.BinOp, ast.UnaryOp)) and len(names) == 1:
        return ast.parse(names[0], mode="eval").body
    return node


def _bound_inside(at: FailingLine) -> set[str]:
    """Names that comprehensions and lambdas of the statement bind."""
    nodes = [*nodes_of(at.statement)] if at.statement is not None else []
    targets = [item.target for item in nodes if isinstance(item, ast.comprehension)]
    given = {name for item in nodes if isinstance(item, ast.Lambda) for name in parameters(item)}
    return given | {item.id for target in targets for item in nodes_of(target) if isinstance(item, ast.Name)}


def _recorded(at: FailingLine, arguments: Sequence[ast.expr]) -> tuple[tuple[str, str], ...]:
    names = dict.fromkeys(name for item in arguments for name in names_in(item))
    names = {name: None for name in names if not any(line >= at.line for line, _, _ in bindings_of(at.scope, name))}
    return tuple((name, value) for name in names if (value := at.values.get(name)) and value.startswith("["))


def launching_line(view: ProcessView, frame: PythonFrame) -> FailingLine | None:
    """The launching line, as if it had raised the exception."""
    exception, stack = view.exception, view.exception_stack
    if exception is None or is_library_file(frame.file):
        return None
    snapshot = view.process.snapshot
    same = (n for n, item in enumerate(stack) if item.file == frame.file and item.function == frame.function)
    place = next(same, None)
    tree = syntax_tree(snapshot, frame)
    if place is None or tree is None or scope_of(tree, frame.line or 0) is not scope_of(tree, stack[place].line or 0):
        return failing_line(snapshot, ExceptionReport(), [frame])
    inner = next((n for n, item in enumerate(stack) if not is_library_file(item.file)), None)
    outer = exception.outer or []
    around = next((item.variables for item in outer if item.frame == place), None)
    own = exception.variables if place == inner else around
    told = [
        msgspec.structs.replace(item, frame=item.frame - place)
        for item in outer
        if item.frame is not None and item.frame > place
    ]
    raised = ExceptionReport(variables=own, outer=told)
    return failing_line(snapshot, raised, [frame, *stack[place + 1 :]])
