"""A call of an operator whose Library was collected before: by its line, and by what the program's files hold."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.lifetime.variables import python_frames
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.dropped_operators import DroppedOperators, dropped_operators
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_CALLS = "/torch/_ops.py"  # OpOverload, OpOverloadPacket, _OpNamespace
_NAMESPACE = Pattern(r"\btorch\.ops\.(\w+)")
_LOOKS_UP = Pattern(r"_get_operation_for_overload|\bc10::OperatorName\b|\bOperatorHandle::|findSchema")
_KERNELS = ("at::", "void at::", "torch::autograd::VariableType")
_NEAR = 10  # frames


def deregistered(snapshot: Snapshot, stack: Sequence[PythonFrame]) -> DroppedOperators | None:
    """None where the program's line called no operator of torch.ops, or something holds each Library."""
    own = [frame for frame in stack if not is_library_file(frame.file)]
    at = stack.index(own[0]) if own else 0
    if not at or not (stack[at - 1].file or "").endswith(_CALLS):
        return None
    found = dropped_operators(program_files(snapshot, own), own[0].file)
    called = _NAMESPACE.findall(line_text(snapshot, own[0]) or "")
    other = found is not None and found.namespace is not None and bool(called) and found.namespace not in called
    return None if other else found


def deregistered_at_crash(view: ProcessView) -> DroppedOperators | None:
    """By the Python stack of the crash, where the dispatcher was looking the operator up: no kernel had begun."""
    names = [frame.function or "" for frame in own_frames(view)[:_NEAR]]
    at = next((place for place, name in enumerate(names) if _LOOKS_UP.search(name)), None)
    if at is None or any(name.startswith(_KERNELS) for name in names[:at]):
        return None
    return deregistered(view.process.snapshot, [python_frame(item) for item in python_frames(view)])
