"""Arguments that are None: of an operator of torch whose kernel reads them, of the program's own native function.

The schema lets them be None, because the operator needs them only where a flag is set or not set: the running
statistics of a batch norm where it does not train. Some operators do not check that (`needs` in known/operators.toml).
None itself is not recorded: an argument is None where it is written there, or where neither a tensor nor a number was
recorded for it, while the tensors that the call passes beside it were, and the source makes it None, or other tensors
of the object that it is an attribute of were recorded.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import function_words, list_words, shortened
from pytracer.analyze.evidence.lifetime.variables import plain_expression, program_frames, python_frames
from pytracer.analyze.evidence.operators.operator import find_operator, is_of_torch
from pytracer.analyze.evidence.preconditions.call import BoundCall, bound_calls
from pytracer.analyze.evidence.preconditions.violated import may_run
from pytracer.analyze.evidence.slicing.none_values import NoneLine, none_line
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.modes import Mode, mode_before
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.known.operators import preconditions
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_PASSES_ON = "torch/_ops.py"  # what the program passes to torch.ops
_NULL = ("null", "near-null")
_NOT = "not "
_TENSOR = "at::Tensor"
_QUOTED = 70
_MODULE = Pattern(r"(?:parameter|buffer) (.+)\.(\w+)(?: of .+)?$")


class Missing(msgspec.Struct, frozen=True):
    """`texts`: the arguments that are None, as `line` of the program passes them, for `operator`.

    `flag`: the argument of the operator by which it reads them, `passed` for it; `is_set`: whether it reads them where
    that is True. `mode`: the line that chose it. `module`: the one that the arguments are of; `makers`: the lines that
    made them None.
    """

    operator: str
    line: int
    texts: tuple[str, ...]
    flag: str | None
    passed: str | None
    is_set: bool
    mode: Mode | None
    module: str | None
    makers: tuple[NoneLine, ...]
    is_own: bool = False
    """Whether it is a function of the program, of which it is not known what it reads."""

    @property
    def lines(self) -> list[int]:
        """Of the file of the line: those that made them None, and that chose so."""
        chosen = [item.chosen.lineno for item in self.makers if item.chosen is not None]
        return [*(item.line for item in self.makers), *chosen]

    @property
    def _names(self) -> str:
        return list_words([f"`{text}`" for text in dict.fromkeys(self.texts)])

    @property
    def _are(self) -> str:
        return "is" if len(self.texts) == 1 else "are"

    @property
    def summary(self) -> str:
        """`` `self.running_mean` and `self.running_var` of body.norm, which line 18 passes, are None ... ``."""
        of = f" of {self.module}" if self.module is not None else ""
        them = "it" if len(self.texts) == 1 else "them"
        where = f" where `{self.flag}` is {self.is_set}" if self.flag is not None else ""
        if self.is_own and set(self.texts) == {"None"}:
            return f"line {self.line} passes None to {self.operator}(), which takes a tensor there"
        if self.is_own:
            return f"{self._names}{of}, which line {self.line} passes to {self.operator}(), {self._are} None"
        if set(self.texts) == {"None"}:
            return f"line {self.line} passes None, which {self.operator} reads{where}"
        return (
            f"{self._names}{of}, which line {self.line} passes, {self._are} None, and {self.operator} reads "
            f"{them}{where}"
        )

    @property
    def advice(self) -> str:
        """What to pass instead, and what made the arguments None."""
        tensors = "a tensor" if len(self.texts) == 1 else "tensors"
        what = f"Pass {tensors} for {self._names} at line {self.line}"
        if set(self.texts) == {"None"}:
            what = f"Pass {tensors} instead of None at line {self.line}"
        why = [*self._made(), *self._chosen()]
        if self.is_own:
            names = "the argument" if set(self.texts) == {"None"} else self._names
            they, them = ("it", "it") if len(self.texts) == 1 else ("they", "them")
            because = f" ({why[0]})" if why else ""
            return (
                f"Check {names} first, which line {self.line} passes to {self.operator}(): {they} "
                f"{self._are} None{because}. Pass {tensors}, or test {them} there before use (has_value(), defined())."
            )
        return f"{what}{self._other_flag()}{': ' if why else ''}{'; '.join(why)}."

    def _other_flag(self) -> str:
        """`` , or `self.training or self.running_mean is None` for `training` ``: what needs no such argument."""
        plain = [text for text in self.texts if text != "None"]
        if self.flag is None or self.is_set or self.passed is None:
            return ""
        if not plain or self.passed in ("False", "0"):
            return f", or True for `{self.flag}`"
        return f", or `{self.passed} or {plain[0]} is None` for `{self.flag}`"

    def _made(self) -> Iterator[str]:
        for item in self.makers[:1]:
            on_true = isinstance(item.node, ast.IfExp) and isinstance(item.node.body, ast.Constant)
            where = f" where `{item.test}` is {'true' if on_true else 'false'}" if item.test is not None else ""
            if item.by_default:
                where = " where a caller passes nothing"
            chosen = item.chosen
            at = f" (line {chosen.lineno}: `{shortened(ast.unparse(chosen), _QUOTED)}`)" if chosen is not None else ""
            lines = list(dict.fromkeys(str(one.line) for one in self.makers))
            plural = "line" if len(lines) == 1 else "lines"
            makes = "makes" if len(lines) == 1 else "make"
            them = "it" if len(self.texts) == 1 else "them"
            yield f"{plural} {list_words(lines)} {makes} {them} None{where}{at}"

    def _chosen(self) -> Iterator[str]:
        if self.mode is not None and self.passed is not None and not self.is_set:
            yield f"`{self.passed}` is False after `{self.mode.text}` at line {self.mode.line}"


def missing_arguments(view: ProcessView) -> Missing | None:
    """None where the access was not at null, or no argument that the operator needs is None."""
    crash, own = view.crash, next(iter(program_frames(view)), None)
    if view.place is None or view.place.kind not in _NULL or crash is None or crash.holders_truncated:
        return None
    above = itertools.takewhile(lambda item: is_library_file(item.file), python_frames(view))
    if own is None or not all((item.file or "").endswith(_PASSES_ON) for item in above):
        return None  # a library passes them
    operator = find_operator(view)
    if operator is not None and not is_of_torch(operator):
        return _of_own(view, own, operator.name)
    calls = [item for item in bound_calls(view, preconditions()) if item.entry.needs and may_run(view, item)]
    return _missing(view, own, calls[0]) if len(calls) == 1 else None


def _missing(view: ProcessView, frame: PythonFrame, call: BoundCall) -> Missing | None:
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame.line is None:
        return None
    held = _held(view, frame)
    scope = scope_of(tree, frame.line)
    found: dict[str, tuple[str, NoneLine | None]] = {}
    for argument in call.entry.needs:
        text = call.texts.get(argument)
        if text is None or argument in call.given or text in held:
            continue
        maker = none_line(tree, scope, text)
        owner, _, name = text.rpartition(".")
        beside = bool(name) and any(item.rpartition(".")[0] == owner != "" for item in held)
        if text == "None" or (beside or (maker is not None and call.given)):
            found[argument] = (text, maker)
    for condition in dict.fromkeys(call.entry.needs.values()):
        flag, is_set = condition.removeprefix(_NOT) or None, not condition.startswith(_NOT)
        items = [found[name] for name, needed in call.entry.needs.items() if needed == condition and name in found]
        mode = mode_before(view.process.snapshot, program_frames(view))
        if not items or not _applies(call, flag, mode, is_set=is_set):
            continue
        passed = call.texts.get(flag) if flag is not None else None
        of_mode = mode if passed is not None and passed.endswith(".training") else None
        makers = tuple(maker for _, maker in items if maker is not None)
        texts = tuple(text for text, _ in items)
        module = _module(view, frame, texts[0]) if texts[0].startswith("self.") else None
        return Missing(call.operator, call.line, texts, flag, passed, is_set, of_mode, module, makers)
    return None


def _of_own(view: ProcessView, frame: PythonFrame, function: str) -> Missing | None:
    """Of a function of the program's own that takes tensors, or none, by its signature."""
    tree, kinds = syntax_tree(view.process.snapshot, frame), _signature(view, function)
    if tree is None or frame.line is None or kinds is None:
        return None
    name = function.rpartition("::")[2]
    calls = [item for item in calls_on(tree, frame.line) if called_name(item) == name]
    if len(calls) != 1 or calls[0].keywords or len(calls[0].args) != len(kinds):
        return None
    held, scope = _held(view, frame), scope_of(tree, frame.line)
    found: dict[str, NoneLine | None] = {}
    for node, kind in zip(calls[0].args, kinds, strict=True):
        text = ast.unparse(node)
        plain = isinstance(node, (ast.Name, ast.Attribute))
        if _TENSOR not in kind or text in held or (text != "None" and not plain):
            continue
        maker = none_line(tree, scope, text)
        if text != "None" and maker is None:
            return None  # what it held is not known
        found[text] = maker
    if not found or not held:
        return None
    makers = tuple(maker for maker in found.values() if maker is not None)
    texts = tuple(found)
    module = _module(view, frame, texts[0]) if texts[0].startswith("self.") else None
    return Missing(name, calls[0].lineno, texts, None, None, True, None, module, makers, is_own=True)


def _signature(view: ProcessView, function: str) -> list[str] | None:
    """The types of the parameters of a function on the native stack."""
    frames = view.crash.native_stack if view.crash is not None else ()
    full = next((item.function for item in frames if item.function and function_words(item.function) == function), None)
    if full is None or ")" not in full:
        return None
    kinds, depth = [""], 0
    for letter in reversed(full[: full.rindex(")")]):
        depth += (letter in ">)") - (letter in "<(")
        if depth < 0:
            break  # the parenthesis that begins the parameters
        if letter == "," and not depth:
            kinds.insert(0, "")
        else:
            kinds[0] = letter + kinds[0]
    return kinds


def _applies(call: BoundCall, flag: str | None, mode: Mode | None, *, is_set: bool) -> bool:
    """Whether the flag may be as it must for the operator to read the arguments."""
    if flag is None:
        return True
    if flag in call.given:
        return bool(call.given[flag].value) == is_set
    if (call.texts.get(flag) or "").endswith(".training") and mode is not None:
        return mode.training == is_set
    return flag in call.texts


def _held(view: ProcessView, frame: PythonFrame) -> dict[str, int]:
    """Expressions of the frame that held a tensor, with the storage, or a number."""
    crash = view.crash
    at = (frame.file, frame.function, frame.line)
    if crash is None:
        return {}
    numbers = {
        plain_expression(item.expression): 0
        for item in crash.numbers
        if (item.frame.file, item.frame.function, item.frame.line) == at
    }
    tensors = [
        item
        for item in crash.holders
        if item.frame is not None and (item.frame.file, item.frame.function, item.frame.line) == at
    ]
    own = [item for item in tensors if item.own]  # other threads may run the same line
    return numbers | {plain_expression(item.expression): item.base for item in own or tensors}


def _module(view: ProcessView, frame: PythonFrame, text: str) -> str | None:
    """`body.norm`: what recorded names call the object that an argument is an attribute of."""
    owner = text.rpartition(".")[0]
    found = set()
    for expression, base in _held(view, frame).items():
        before, _, attribute = expression.rpartition(".")
        storage = view.space.live_around(base) if owner and before == owner and base else None
        names = view.space.uses.named.of_storage(storage, base)[0] if storage is not None else ()
        parts = [_MODULE.match(item.name) for item in names if item.role in ("parameter", "buffer")]
        found |= {part[1] for part in parts if part is not None and part[2] == attribute}
    return found.pop() if len(found) == 1 else None
