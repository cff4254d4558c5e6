"""arithmetic: the processor refused a calculation.

What: SIGFPE. On x86-64 that is an integer division by zero, or one whose quotient does not fit (the smallest integer
divided by -1); the divisor's register is read. Floating-point operations raise it only where traps were enabled.

Why it happens: a size, a stride, a group or a step of 0 reached native code; or feenableexcept() and the like
are on, so that a division by zero or an overflow of floats ends the process.

What to do: check the sizes that the Python line passes; where just one variable of it is 0, that is named, with the
line that made it so; in the program's own C or C++, the expression that divides, by its source, a file or a text of the
program, with the argument, the array or the field of a structure that the divisor was read from. Of a field that an
earlier call of the library counted, such as the images of a list, the line that made the object is named, and what its
loop counts: a function that skips what it cannot open leaves 0 where all paths are wrong. So are a tensor
without rows that an operator, or its backward, was given; the groups of a quantized convolution that are more than its
output channels; the line of the program that sets an attribute of a module, such as its number of heads, which a
library's line passes on: a constructor checks that, an attribute is not checked; and a layer that was made with 0
outputs, with the line that made it and the entry that is empty. Where traps are on, find who enabled them: torch never
does. The function of the program's own C that does is named by its source, with the line that calls it.

How it can be wrong: hardly. When the divisor lies in memory and that was not kept, both kinds of integer division are
named. An attribute whose value was not recorded is only *probably* 0. Where a library has no lines, its division is the
only one in the source of the function whose divisor is not known to be another number: the sentence says so. A library
without source may have enabled traps as well as the function that is named: that is *most likely*.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pytracer._text import hex_addr, list_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.lifetime.variables import line_words, program_frames, tensors_without_memory
from pytracer.analyze.evidence.native.fault_function import fault_function, own_function, runs_torchscript
from pytracer.analyze.evidence.native.native_stack import memory_word
from pytracer.analyze.evidence.operators.compiled_divisor import CompiledDivisor, compiled_divisor
from pytracer.analyze.evidence.operators.conv_groups import ConvGroups, conv_groups
from pytracer.analyze.evidence.operators.empty_operand import EmptyOperand, empty_operand
from pytracer.analyze.evidence.operators.operator import find_operator
from pytracer.analyze.evidence.operators.suspect_argument import suspect_argument
from pytracer.analyze.evidence.own_code.float_traps import float_traps
from pytracer.analyze.evidence.own_code.native_divisor import NativeDivisor, native_divisor
from pytracer.analyze.evidence.own_code.no_outputs import NoOutputs, no_outputs
from pytracer.analyze.evidence.own_code.set_divisor import SetDivisor, set_divisor
from pytracer.analyze.evidence.own_code.zero_divisor import ZeroDivisor, zero_divisor
from pytracer.analyze.evidence.phrases import collective_evidence, in_function, python_evidence
from pytracer.analyze.evidence.preconditions.zero_argument import ZeroArgument, zero_argument
from pytracer.analyze.evidence.syntax.calls import options_passed
from pytracer.analyze.evidence.syntax.lines import names_of_line
from pytracer.analyze.naming import introduction
from pytracer.analyze.platform.division import Division, by_dividend, decode_division
from pytracer.analyze.platform.signals import SIGFPE
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.rules.fault import FaultRule
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Holder
from pytracer.report.job import Evidence

FPE_INTDIV, FPE_INTOVF = 1, 2
_LONG = 8  # bytes
_FLOAT = {
    3: "divided a float by zero",
    4: "had a floating-point overflow",
    5: "had a floating-point underflow",
    6: "had an inexact floating-point result",
    7: "had an invalid floating-point operation",
    8: "used a subscript out of range",
}
_SIZES = (
    "Check the sizes, strides and counts that {} passes to native code: one of them is 0, or is made so by a division."
)
_OWN = (
    "Check what {} passes to {}(): a size or count that is 0 or is made so by a division, or the numbers in an array, "
    "where it divides by one of them or by the difference of two."
)
_SCRIPTED = (
    "Check the divisors of % and // in the scripted code that {} runs: one of them is 0, an argument, an attribute or "
    "a division of its own; TorchScript's interpreter does not check it."
)
_OVERFLOW = (
    "The smallest integer, often a marker for missing values (torch.iinfo(dtype).min), has no quotient by -1: mask or "
    "replace it before the division, or divide in {}."
)
_TRAPS = (
    "Find who enabled floating-point traps (feenableexcept, a compiler flag such as -ffpe-trap): torch does not. In "
    "gdb: `break feenableexcept`."
)
_ON = "floating-point traps are on"

_Zero = NativeDivisor | ZeroDivisor | ConvGroups | SetDivisor | NoOutputs | ZeroArgument


class Arithmetic(FaultRule[Division | None]):
    """Fires for SIGFPE from the processor."""

    id = "arithmetic"
    needs = ("crash",)
    signals = (SIGFPE,)

    def judge(self, view: ProcessView) -> Judgement[Division | None] | None:
        """See FaultRule."""
        return Judgement("arithmetic", "certain", (view,), _division(view))

    def describe(self, job: JobView, judgement: Judgement[Division | None]) -> Description:
        """See FaultRule."""
        view, division = judgement.views[0], judgement.found
        code = view.crash.code if view.crash else 0
        signal = view.signal
        empty = tensors_without_memory(view) if code == FPE_INTDIV else []
        by_zero = _is_by_zero(code, division)
        given = no_outputs(view) or zero_argument(view) or native_divisor(view) if by_zero else None
        zero = given or (_zero(view) if by_zero and not empty else None)
        operand = empty_operand(view) or compiled_divisor(view) if by_zero and zero is None else None
        text = f": {view.instruction.text}" if view.instruction else ""
        traps = float_traps(view) if code in _FLOAT else None
        told = (zero.words, zero.advice) if zero is not None else None
        told = (f"{_ON}, {traps.words}", traps.advice) if traps is not None else told
        told = (operand.summary, operand.advice) if operand is not None else told
        unnamed = told is None or (isinstance(operand, EmptyOperand) and operand.name is None)
        named = (f": {told[0]}" if told is not None else "") + (_empty_words(empty) if unnamed else "")
        named = f": {_ON}" if told is None and code in _FLOAT else named
        return Description(
            f"{introduction(judgement.views)} {_what(code, division)}{in_function(view)}{named}.",
            [
                Evidence(
                    "signal",
                    f"SIGFPE ({signal.code if signal else '?'}){text}",
                    signal="SIGFPE",
                    code=signal.code if signal else None,
                    instruction=view.instruction.text if view.instruction else None,
                ),
                _operand(division),
                _dividend(view, division),
                zero.evidence if isinstance(zero, NativeDivisor) else None,
                traps.evidence if traps is not None else None,
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            told[1] if told is not None else _advice(view, code, division) + _empty_advice(empty),
            ["the divisor"] if code == FPE_INTDIV and (division is None or division.divisor is None) else [],
            explained=isinstance(zero, (NativeDivisor, SetDivisor, NoOutputs, ZeroArgument))
            or operand is not None
            or traps is not None,
            line=zero.frame if isinstance(zero, SetDivisor) else None,
            behind=Behind.of([], traps) if traps is not None else _behind(view, division, zero, operand),
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See FaultRule."""
        return not_found("nothing died of SIGFPE")


def _zero(view: ProcessView) -> _Zero | None:
    return zero_divisor(view) or conv_groups(view) or set_divisor(view)


def _behind(
    view: ProcessView,
    division: Division | None,
    zero: _Zero | None,
    operand: EmptyOperand | CompiledDivisor | None,
) -> Behind | None:
    """What made the divisor 0, or the operands what they were."""
    if isinstance(zero, ZeroDivisor):
        return Behind.of([] if zero.of_module else [zero.name], zero.origin)
    if isinstance(zero, NativeDivisor):
        made = zero.zero.origin if zero.zero is not None else zero.cut.line if zero.cut is not None else None
        return Behind.of([*zero.names, *(zero.cut.names if zero.cut is not None else ())], made, zero.groups)
    if isinstance(zero, SetDivisor):
        return Behind.of([zero.value], zero.origin)
    if isinstance(zero, NoOutputs):
        return Behind.of([], *zero.made, zero.source)
    if isinstance(zero, ZeroArgument):
        return Behind.of([zero.name])
    if isinstance(zero, ConvGroups):
        return Behind.of([zero.weight.name, *_options(view, "groups")], zero.set_outputs)
    if operand is not None:
        return Behind.of([], operand)
    return Behind.of(_held(view, division)) if division is not None and division.is_minus_one else None


def _options(view: ProcessView, name: str) -> list[str]:
    """What the line's call passes for an option: the variable, or `**args` where that may have it."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or frame.line is None:
        return []
    return options_passed(tree, frame.line, name)


def _empty_words(empty: Sequence[Holder]) -> str:
    """Tensors of 0 elements: a size that is 0 is what integers are divided by most."""
    if not empty:
        return ""
    names = list_words([f"`{item.expression}`" for item in empty])
    return f"; {names} {'has' if len(empty) == 1 else 'have'} 0 elements" if not any(i.elements for i in empty) else ""


def _empty_advice(empty: Sequence[Holder]) -> str:
    return " A dimension of the empty tensor is the first suspect." if _empty_words(empty) else ""


def _division(view: ProcessView) -> Division | None:
    crash = view.crash
    if crash is None or not view.process.snapshot.arch.startswith("x86"):
        return None
    registers = {name.lower(): value for name, value in crash.registers.items()}
    division = decode_division(crash.code_bytes, registers)
    if division is None or division.divisor is not None:
        return division
    addr = view.instruction.addr if view.instruction is not None else None
    kept = memory_word(crash, addr, division.nbytes) if addr is not None else None
    return by_dividend(replace(division, divisor=kept), registers)


def _what(code: int, division: Division | None) -> str:
    if code in _FLOAT:
        return _FLOAT[code]
    if code == FPE_INTOVF:
        return "had an integer overflow in a division"
    if code != FPE_INTDIV:
        return "had an arithmetic error"
    if division is not None and division.of_smallest:
        return f"divided the smallest integer, {_smallest(division)}, by -1 or by zero"
    if division is None or division.divisor is None:
        return "divided an integer by zero, or the smallest integer by -1"
    if division.divisor == 0:
        return "divided an integer by zero"
    return "divided the smallest integer by -1" if division.is_minus_one else "had a quotient that does not fit"


def _is_by_zero(code: int, division: Division | None) -> bool:
    return code == FPE_INTDIV and division is not None and division.divisor == 0


def _operand(division: Division | None) -> Evidence | None:
    if division is None or division.divisor is None:
        return None
    where = division.register or "in memory"
    if division.inferred:
        return Evidence(
            "register-value",
            f"the divisor ({where}, {division.nbytes} bytes) must have been 0: any other one divides this dividend",
            register=division.register,
            nbytes=division.nbytes,
            value=0,
        )
    return Evidence(
        "register-value",
        f"the divisor ({where}, {division.nbytes} bytes) was {hex_addr(division.divisor)}",
        register=division.register,
        nbytes=division.nbytes,
        value=division.divisor,
    )


def _dividend(view: ProcessView, division: Division | None) -> Evidence | None:
    if view.crash is None or division is None or division.nbytes == 1:
        return None
    registers = {name.lower(): value for name, value in view.crash.registers.items()}
    if "rax" not in registers or "rdx" not in registers:
        return None
    mask = (1 << 8 * division.nbytes) - 1
    high, low = registers["rdx"] & mask, registers["rax"] & mask
    return Evidence(
        "register-value",
        f"the dividend (rdx:rax) was {hex_addr(high)}:{hex_addr(low)}",
        register="rdx:rax",
        nbytes=2 * division.nbytes,
        text=f"{hex_addr(high)}:{hex_addr(low)}",
    )


def _advice(view: ProcessView, code: int, division: Division | None) -> str:
    if code in _FLOAT:
        return _TRAPS
    if _is_by_zero(code, division) and runs_torchscript(view):
        return _SCRIPTED.format(line_words(view))
    if division is not None and division.of_smallest:
        return f"{_passed_smallest(view, division)}{_overflow(division)}"
    if division is None or not division.is_minus_one:
        zero = suspect_argument(view, zero=True) if division is None or division.divisor in (None, 0) else None
        failed = fault_function(view)
        own = own_function(view) if failed is not None and failed.own else None
        general = _SIZES.format(line_words(view)) if own is None else _OWN.format(line_words(view), own.name)
        return f"{zero.advice if zero is not None else ''} {general}".strip()
    return f"{_extremes(view, division)}{_overflow(division)}"


def _overflow(division: Division) -> str:
    wider = "floating point (.double())" if division.nbytes == _LONG else "a wider type (.long(), .double())"
    return _OVERFLOW.format(wider)


def _passed_smallest(view: ProcessView, division: Division) -> str:
    """Which of the arrays that the line passes has it: `` `counts` has -2147483648 ``, or where to look."""
    known = _extremes(view, division) or _held_by_line(view, division)
    if known:
        return known
    own = own_function(view)
    where = f" to {own.name}()" if own is not None else " to native code"
    return f"Look for {_smallest(division)} in what {line_words(view)} passes{where}. "


def _extremes(view: ProcessView, division: Division) -> str:
    """`` `stamps` has -2147483648, `step` has -1. ``: tensors of the operator that hold the two."""
    values = (_smallest(division), -1)
    known = [f"`{name}` has {value}" for name, value in zip(_held(view, division), values, strict=True) if name]
    return f"{' and '.join(known)}. " if known else ""


def _held_by_line(view: ProcessView, division: Division) -> str:
    """The same of arrays that the line passes to native code of the program."""
    crash, frame = view.crash, next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if crash is None or tree is None or frame is None or frame.line is None:
        return ""
    passed = set(names_of_line(tree, frame.line))
    names = {item.base: item.expression for item in crash.holders if item.own and item.expression in passed}
    values = (_smallest(division), -1)
    known = {
        f"`{names[item.base]}` has {value}"
        for item in crash.arguments
        for value in values
        if item.base in names and value in (item.minimum, item.maximum)
    }
    return f"{' and '.join(sorted(known))}. " if known else ""


def _smallest(division: Division) -> int:
    return -(1 << (8 * division.nbytes - 1))


def _held(view: ProcessView, division: Division) -> list[str | None]:
    """Names of the operator's tensors that have the smallest integer, and -1."""
    operator = find_operator(view)
    tensors = [item for item in (operator.tensors if operator is not None else ()) if item.passed and item.name]
    return [
        next((item.name for item in tensors if value in (item.item.minimum, item.item.maximum)), None)
        for value in (_smallest(division), -1)
    ]
