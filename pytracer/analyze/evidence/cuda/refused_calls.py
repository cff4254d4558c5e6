"""Which call of a line waits for the device, copies from the host or asks the device: none may come in a capture."""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.slicing.bindings import last_binding
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of, spans
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_LONGEST = 70
# Of a tensor on the device: the host needs its value, or how many elements there are.
_READS = frozenset({"item", "tolist", "cpu", "is_nonzero", "equal", "allclose"})
_COUNTS = frozenset({"nonzero", "argwhere", "unique", "unique_consecutive", "masked_select"})
_WAITS = frozenset({"synchronize"})
_UPLOADS = frozenset({"cuda", "pin_memory", "tensor", "as_tensor", "from_numpy", "to"})


class RefusedCall(msgspec.Struct, frozen=True):
    """`words`: the call, quoted; `reason`: a verb phrase behind it, or ""; `advice`: what to do instead."""

    words: str
    reason: str
    advice: str


def refused_call(snapshot: Snapshot, frame: PythonFrame, *, named: bool) -> RefusedCall | None:
    """The call at a line that a capture does not permit, or the line where it is not one; None without its source.

    Args:
        snapshot: The process.
        frame: The program's line.
        named: Whether one of the line's own calls was refused, and not one in a function of a library below it.
    """
    text, tree = line_text(snapshot, frame), syntax_tree(snapshot, frame)
    if text is None or tree is None or frame.line is None:
        return None
    line = frame.line
    calls = calls_on(tree, line) if named else []
    for names, judged in ((_READS, _read), (_COUNTS, _counted), (_WAITS, _waited), (_UPLOADS, _uploaded)):
        found = [item for item in calls if called_name(item) in names]
        if len(found) == 1:
            return judged(line, tree, found[0])
    test = _condition(tree, line)
    if named and test is not None and not calls:
        return _branched(test)
    return RefusedCall(f"`{shortened(text, _LONGEST)}`", "", _general(frame))


def _quoted(node: ast.AST) -> str:
    return f"`{shortened(ast.unparse(node), _LONGEST)}`"


def _read(line: int, tree: ast.Module, call: ast.Call) -> RefusedCall:
    quoted = _quoted(call)
    test = _condition(tree, line)
    within = test is not None and any(item is call for item in nodes_of(test))
    made = _made(tree, line, call)
    of = f" ({made})" if made else ""
    if within:
        instead = (
            f"Take the decision at line {line} on {quoted}{of} out of what is captured: a graph repeats the same "
            "kernels at every replay and cannot branch on a value of the device. Compute both ways and choose with "
            "torch.where(), or capture one graph for each way and choose between them outside."
        )
    else:
        instead = (
            f"Take {quoted}{of} at line {line} out of what is captured: keep the value a tensor on the device there, "
            "and read it after graph.replay(), outside of the capture."
        )
    return RefusedCall(quoted, "waits for the device, which is not permitted", instead)


def _made(tree: ast.Module, line: int, call: ast.Call) -> str | None:
    """`confidence` is made at line 22: what the call is of, and its text."""
    name = variable(call.func.value) if isinstance(call.func, ast.Attribute) else None
    if name is None or "." in name:
        return None
    scope = scope_of(tree, line)
    bound = last_binding(scope, name, line)
    if bound is None or bound[1] is None:
        return None
    return f"`{name}` is made at line {bound[0]}: `{shortened(ast.unparse(bound[1]), _LONGEST)}`"


def _counted(line: int, tree: ast.Module, call: ast.Call) -> RefusedCall:
    return RefusedCall(
        _quoted(call),
        "waits for the device to know how many elements its result has, which is not permitted",
        f"Replace {_quoted(call)} at line {line} by something of a fixed size: a graph cannot hold shapes that "
        "depend on values. Use torch.where(mask, x, y), a multiplication by the mask or topk(), or do that part "
        "outside of the capture.",
    )


def _waited(line: int, tree: ast.Module, call: ast.Call) -> RefusedCall:
    return RefusedCall(
        _quoted(call),
        "waits for the device, which is not permitted",
        f"Remove {_quoted(call)} at line {line} from what is captured (and from the functions that it calls): wait "
        "before the capture and after graph.replay().",
    )


def _uploaded(line: int, tree: ast.Module, call: ast.Call) -> RefusedCall:
    return RefusedCall(
        _quoted(call),
        "was refused",
        f"Do {_quoted(call)} at line {line} before the capture, once, and keep the tensor; new values go into it by "
        "copy_() between the replays. A copy between host and device, or pinning memory, may wait for the device, "
        "which a capture does not permit.",
    )


def _condition(tree: ast.Module, line: int) -> ast.expr | None:
    """The test of an if, while or assert at this line."""
    found = [
        item.test
        for item in nodes_of(tree)
        if isinstance(item, (ast.If, ast.While, ast.Assert, ast.IfExp)) and spans(item.test, line)
    ]
    return found[0] if len(found) == 1 else None


def _branched(test: ast.expr) -> RefusedCall:
    return RefusedCall(
        f"the condition {_quoted(test)}",
        "was refused",
        f"If {_quoted(test)} is a tensor on the device, its value is needed there, for which the host would wait: "
        "compute both ways and choose with torch.where(), or decide before the capture.",
    )


def _general(frame: PythonFrame) -> str:
    return (
        f"Take what line {frame.line} does out of the captured region: a capture permits no wait for the device "
        "(item(), cpu(), nonzero(), indexing with a mask, a condition on a tensor, synchronize()), no copy from or to "
        "unpinned memory, and no first use of a library."
    )
