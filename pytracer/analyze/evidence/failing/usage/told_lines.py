"""Lines of the program that a message itself names: what torch.compile, torch.export and TorchScript were reading.

The stack ends where the compiled function was called; the line that cannot be compiled is in the text of the message.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import message_words, shortened
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.bindings import bindings_of, last_binding
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes
from pytracer.analyze.known.exceptions import exception_advice, exception_reason
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.report.job import PythonFrame

_BEGINS = Pattern(r"^(?:from user code:|The following call raised this error:)\s*$", re.MULTILINE)
_FRAME = Pattern(r'^ *File "([^"\n]+)", line (\d+), in (\S+)\n(?: {4}(\S.*)\n(?: {4}( *)(\^+)\n)?)?', re.MULTILINE)
_SCRIPT = Pattern(r'^ *File "([^"\n]+)", line (\d+)\n(?:.*\n)*?.*<--- HERE', re.MULTILINE)
_INTERPRETED = "The following operation failed in the TorchScript interpreter."
_IN_SCRIPT = Pattern(r'^ *File "([^"\n]+)", line (\d+), in (\w+)\n', re.MULTILINE)
_BRANCH = Pattern(r"[Dd]ata-dependent (?:expression|branching|control flow)")
_OWN_ERROR = Pattern(r"got (\w+)\((['\"])(.+?)\2\)$", re.MULTILINE)
_COMPILER_S_ERROR = Pattern(r"no fake impl|torch\.cond\b|Expected cond to be True|carried_inputs")
_EXPLAINED = Pattern(r"^ *Explanation: (.+)$", re.MULTILINE)
_CONTAINER = Pattern(r"Encountering a (\w+) at the output of the tracer")
_GUESSED = Pattern(r"Inferred '(\w+)' to be of type 'Tensor'")
_READS = Pattern(
    r"\.(?:item|tolist|any|all|nonzero|max|min|sum|mean|norm|count_nonzero)\("
    r"|\btorch\.(?:any|all|allclose|equal|isnan|isfinite)\("
)
_BY_COMPILER = frozenset({
    "Unsupported", "UserError", "TorchRuntimeError", "InternalTorchDynamoError", "BackendCompilerFailed",
    "GuardOnDataDependentSymNode", "UncapturedHigherOrderOpError", "InductorError", "LoweringException",
})  # fmt: skip
_BY_SCRIPT = frozenset({"RuntimeError", "NotSupportedError", "UnsupportedNodeError", "FrontendError"})
_TEST, _REASON, _MOST = 60, 130, 2


class _Told(msgspec.Struct, frozen=True):
    """The innermost line of the program that a message names. `expression`: the part of it that is underlined."""

    frame: PythonFrame
    at: FailingLine  # there
    reader: FailingLine  # where the stack ends, whose file needs no name
    text: str
    outer: PythonFrame | None
    expression: ast.AST | None

    @property
    def where(self) -> str:
        """``line 16 of forward() (`if peak > 5.0:`)``."""
        name = f" of {self.frame.function}()" if self.frame.function and self.frame.function != "<module>" else ""
        return f"{self.place}{name} (`{shortened(self.text, _TEST)}`)"

    @property
    def place(self) -> str:
        """`line 16`, with its file where the stack ends in another one."""
        return self.reader.in_file(self.frame.file, self.frame.line or 0)


def told_line(at: FailingLine) -> str | None:
    """What could not be compiled, and where."""
    return _words(at)[0]


def told_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    return _words(at)[1]


def _words(at: FailingLine) -> tuple[str | None, str | None]:
    if at.kind in _BY_COMPILER:
        told = _told(at, [*_frames(at.message)])
        return _compiled(at, told) if told is not None else (None, None)
    return (_interpreted(at) if _INTERPRETED in at.message else _scripted(at)) or (None, None)


def _frames(message: str) -> Iterator[tuple[PythonFrame, ast.AST | None]]:
    """Innermost first, with the expression that is underlined."""
    begin = next((item.end() for item in _BEGINS.finditer(message)), None)
    found = [*_FRAME.finditer(message, begin)] if begin is not None else []
    for item in found[::-1]:
        part = item[4][len(item[5]) : len(item[5]) + len(item[6])] if item[4] and item[6] else ""
        yield PythonFrame(function=item[3], file=item[1], line=int(item[2])), _expression(part)


def _expression(text: str) -> ast.AST | None:
    """dynamo underlines one column too many."""
    for part in filter(None, (text, text[:-1])):
        try:
            return ast.parse(part, mode="eval").body
        except (SyntaxError, ValueError):
            pass
    return None


def _told(at: FailingLine, named: Sequence[tuple[PythonFrame, ast.AST | None]]) -> _Told | None:
    own = [(frame, part) for frame, part in named if not is_library_file(frame.file)]
    tree = syntax_tree(at.snapshot, own[0][0]) if own else None
    text = line_text(at.snapshot, own[0][0]) if own else None
    if tree is None or text is None:
        return None
    inner = [frame for frame, _ in own]
    rest = [frame for frame in at.frames if frame not in inner]
    exception = msgspec.structs.replace(at.exception, variables=None, columns=None, outer=None, near=None)
    there = replace(at, exception=exception, stack=[*inner, *rest], frames=[*inner, *rest], tree=tree)
    outer = inner[1] if len(inner) > 1 else None
    return _Told(inner[0], there, at, text, outer, own[0][1])


def _compiled(at: FailingLine, told: _Told) -> tuple[str, str]:
    own = _OWN_ERROR.search(at.message) if at.kind == "TorchRuntimeError" else None
    if own is not None and _COMPILER_S_ERROR.search(own[3]) is None:
        return _models_own(told, own[1], own[3])
    if _BRANCH.search(at.message):
        return _branch(at, told)
    reason = _EXPLAINED.search(at.message)
    because = f": {shortened(_sentence(reason[1]), _REASON)}" if reason is not None else ""
    called = f", which {_place(told, told.outer)} calls" if told.outer is not None else ""
    call = at.only(ast.Call)
    what = "torch.export" if call is not None and called_name(call) == "export" else "torch.compile"
    known = _known(at)
    if known is not None:
        return f"{what} stopped at {told.where}{called}. {known}", _subject(at, f"{what} stopped at {told.where}")
    return (
        f"{what} stopped at {told.where}{called}{because}. {_instead(at, told)}",
        f"{what} stopped at {told.where}",
    )


def _known(at: FailingLine) -> str | None:
    """What the table of exceptions advises for just this message."""
    return exception_advice(at.kind, at.message, f"line {at.line}", general=False)


def _subject(at: FailingLine, words: str) -> str:
    reason = exception_reason(at.kind, at.message)
    return f"{words}: {reason}" if reason is not None else words


def _instead(at: FailingLine, told: _Told) -> str:
    name = told.frame.function
    whole = _full_graph(at)
    if whole is not None:
        return (
            f"{whole} allows no part outside of the graph: take that line out of what is compiled (call it before or "
            "after), or leave fullgraph out, and it runs uncompiled."
        )
    return (
        "Take that line out of what is compiled"
        f"{f', or put @torch.compiler.disable on {name}()' if name and told.outer is not None else ''}; "
        "TORCH_COMPILE_DISABLE=1 runs all of it uncompiled."
    )


def _full_graph(at: FailingLine) -> str | None:
    """``fullgraph=True (line 25)``, where the program has it once."""
    found = [
        (file, item.value.lineno)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.keyword) and item.arg == "fullgraph"
        if isinstance(item.value, ast.Constant) and item.value.value is True
    ]
    return f"fullgraph=True ({at.in_file(*found[0])})" if len(found) == 1 else None


def _sentence(text: str) -> str:
    return re.split(r"(?<=[a-z`'\])])\. (?=[A-Z])", text.strip(), maxsplit=1)[0].rstrip(".")


def _place(told: _Told, frame: PythonFrame) -> str:
    return told.reader.in_file(frame.file, frame.line or 0)


def _branch(at: FailingLine, told: _Told) -> tuple[str, str]:
    """A condition that depends on the numbers in a tensor."""
    statement = told.at.statement
    test = statement.test if isinstance(statement, (ast.If, ast.While, ast.Assert)) else None
    names = _from_tensors(told, test) if test is not None else []
    of = f", {' and '.join(names)}" if names else ""
    does = "branches on the value of a tensor" if test is not None else "needs a number that only a tensor has"
    whole = _full_graph(at)
    leave = f", or leave out {whole}, so that the graph may break there" if whole is not None else ""
    how = (
        "Compute both ways and choose with torch.where() (clamp() for a limit), or use torch.cond()"
        if test is not None
        else "Keep it a tensor, or state its range by torch._check()"
    )
    line, known = f"{told.where[0].upper()}{told.where[1:]} {does}{of}", _known(at) if test is None else None
    words = f"{line}. {known}" if known is not None else f"{line}, which no graph can hold. {how}{leave}."
    return words, f"{told.place} {does}{of}"


def _from_tensors(told: _Told, test: ast.AST) -> list[str]:
    """`peak` (line 15) and what it was read from, of each name of a condition that was read from a tensor."""
    found = []
    scope, line = told.at.scope, told.at.line
    for name in names_in(test):
        bound = last_binding(scope, name, line)
        if bound is not None and bound[1] is not None and _READS.search(ast.unparse(bound[1])):
            found.append(f"`{name}` ({told.reader.in_file(told.frame.file, bound[0])}: `{source(bound[1])}`)")
    return found


def _models_own(told: _Told, kind: str, message: str) -> tuple[str, str]:
    """An error that the same line raises without compilation."""
    part = told.expression
    layer = _layer(told, part)
    call = part if isinstance(part, ast.Call) else told.at.only(ast.Call)
    named = [item.value for item in call.keywords if item.arg and item.arg in message] if call is not None else []
    given: list[ast.expr] = named or (call.args if call is not None else [])
    made = [words for item in given for name in names_in(item) if (words := _made(told, name)) is not None]
    works = [*layer, *made][:_MOST]
    reason = shortened(message_words(message.rstrip(".")), _REASON)
    line = f"{told.where[0].upper()}{told.where[1:]}"
    on = f" It works on {' and '.join(works)}: correct what does not fit." if works else ""
    return (
        f"{line} raises it, most probably also without torch.compile: {reason}.{on}",
        f"{kind} in {told.where}, {reason}",
    )


def _made(told: _Told, name: str) -> str | None:
    """A variable of that line, and what made it."""
    found = told.at.made(name)
    if found is None or found.line == told.at.line:
        return None
    return f"`{name}` ({told.reader.place(found.spot, found.line)}: `{source(found.node)}`)"


def _layer(told: _Told, part: ast.AST | None) -> list[str]:
    """`self.fuse` (line 9), where the underlined part calls."""
    name = variable(part.func) if isinstance(part, ast.Call) else None
    owner = class_around(told.at.tree, told.at.scope)
    if name is None or not name.startswith("self.") or owner is None:
        return []
    methods = (item for item in owner.body if isinstance(item, ast.FunctionDef))
    bound = [(line, value) for method in methods for line, value, _ in bindings_of(method, name)]
    if len(bound) != 1 or not isinstance(bound[0][1], ast.Call):
        return []
    return [f"`{name}` ({told.reader.in_file(told.frame.file, bound[0][0])}: `{source(bound[0][1])}`)"]


def _interpreted(at: FailingLine) -> tuple[str, str] | None:
    """A line of what torch.jit.script() has compiled, which failed while it ran."""
    named = [
        (PythonFrame(function=item[3], file=item[1], line=int(item[2])), None)
        for item in [*_IN_SCRIPT.finditer(at.message)][::-1]
    ]
    told = _told(at, named) if named else None
    if told is None:
        return None
    reason = shortened(message_words(at.message.strip().splitlines()[-1].partition(": ")[2].rstrip(".")), _REASON)
    call = at.only(ast.Call)
    given = [item for item in call.args if at.value(item) is not None] if call is not None else []
    passed = " and ".join(f"`{source(item)}`, {at.value(item)}" for item in given[:_MOST])
    on = f" Line {at.line} passes {passed}." if passed else ""
    line = f"{told.where[0].upper()}{told.where[1:]}"
    how = "PYTORCH_JIT=0 runs it as Python, where a debugger stops at that line."
    return f"{line} failed in TorchScript: {reason}.{on} {how}", f"it failed in {told.where}"


def _scripted(at: FailingLine) -> tuple[str, str] | None:
    """torch.jit.script() of a line that TorchScript does not have."""
    found = [*_SCRIPT.finditer(at.message)] if at.kind in _BY_SCRIPT else []
    frames = [(PythonFrame(function=None, file=item[1], line=int(item[2])), None) for item in found[:1]]
    told = _told(at, frames) if frames else None
    if told is None:
        return None
    known = _known(at)
    if known is not None:
        cannot = f"cannot compile {told.where}"
        return f"TorchScript {cannot}. {known}", _subject(at, f"it {cannot}")
    reason = " ".join(at.message[: found[0].start()].split()).rstrip(" .:")
    guessed, attribute = _GUESSED.search(at.message), variable(_target(told.at.statement))
    how = (
        f"It was None first, which has no other type then: annotate it on the class (`{attribute[5:]}: "
        "Optional[torch.Tensor]`)."
        if "Expected NoneType but got" in at.message and attribute is not None and attribute.startswith("self.")
        else f"Write the type at the argument: `{guessed[1]}` has none, and stands for a Tensor then."
        if guessed is not None
        else "Write it with tensors, annotated plain types and torch's functions, or move it out of what is scripted."
    )
    return (
        f"TorchScript cannot compile {told.where}: {shortened(message_words(reason), _REASON)}. {how}",
        f"it cannot compile {told.where}",
    )


def _target(statement: ast.stmt | None) -> ast.AST:
    """What an assignment sets."""
    return statement.targets[0] if isinstance(statement, ast.Assign) else ast.Pass()


def traced_container(at: FailingLine) -> str | None:
    """torch.jit.trace() of a forward() that returns a dict or list."""
    found, call = _CONTAINER.search(at.message), at.only(ast.Call)
    spot = at.slice.spot(0)
    if found is None or call is None or not call.args or spot is None:
        return None
    target = at.slice.function(ast.copy_location(ast.Call(call.args[0], [], []), call), spot)
    returns = [item for item in own_nodes(target[0]) if isinstance(item, ast.Return)] if target is not None else []
    where = ""
    if len(returns) == 1 and target is not None and returns[0].value is not None:
        where = f" ({at.in_file(target[1].file, returns[0].lineno)}: `return {source(returns[0].value)}`)"
    return (
        f"What is traced returns a {found[1]}{where}, and a trace has no changing container: return a tuple or a "
        f"NamedTuple there, or pass `strict=False` to trace() at line {at.line} if its keys are always the same."
    )
