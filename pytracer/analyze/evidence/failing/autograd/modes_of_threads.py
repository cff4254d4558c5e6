"""A thread of a pool that records a graph, while the code that waits for it has switched gradients off for itself."""

from __future__ import annotations

import ast

from pytracer._library_files import of_multiprocessing
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans

_NUMPY = "Can't call numpy() on Tensor that requires grad"
_INFERENCE = Pattern(r"Inplace update to inference tensor outside|Inference tensors cannot be saved for backward")
# Raised only where gradients are on.
_ON = Pattern(
    r"a (?:view of a )?leaf Variable that requires grad is being used in an in-place operation"
    r"|functions with out=\.\.\. arguments don't support automatic differentiation"
)
_OFF = Pattern(
    r"\bno_grad\b(?:\(\))?$|\binference_mode\b(?:\((?:mode=)?(?:True)?\))?$|grad_enabled\((?:mode=)?False\)$"
)
_POOLS = ("/concurrent/futures/thread.py", *of_multiprocessing("pool"))
_RUN = ("run", "worker")
_PROCESSES = of_multiprocessing("process", "spawn")
_VIEWS = {"cpu", "to", "float", "double", "half", "view", "reshape", "squeeze", "unsqueeze", "flatten", "contiguous"}


def gradients_of_thread(at: FailingLine) -> str | None:
    """The `with` of the thread that waits, and the function of the other one."""
    is_numpy, of_inference = at.message.startswith(_NUMPY), _INFERENCE.search(at.message) is not None
    if at.kind != "RuntimeError" or not (is_numpy or of_inference or _ON.search(at.message)):
        return None
    border = next((n for n, item in enumerate(at.stack) if _is_pool(item.file, item.function)), None)
    if border is None or any((item.file or "").endswith(_PROCESSES) for item in at.stack):
        return None
    inside = {id(item) for item in at.stack[:border]}
    count = sum(id(item) in inside for item in at.frames)
    if not count or any(_switched_off(at, depth) for depth in range(count)):
        return None
    found = next((off for depth in range(count, len(at.frames)) if (off := _switched_off(at, depth))), None)
    if found is None or (of_inference and "inference_mode" not in found[0]) or (is_numpy and not _is_made(at, count)):
        return None
    text, place = found
    name = (at.frames[count - 1].function or "").rpartition(".")[2]
    how = f"`@{text}` on `{name}`" if name.isidentifier() else f"`with {text}:` around what it computes"
    if name == "forward":  # of a model that is trained elsewhere, maybe
        how = f"`with {text}:` around the call of the model"
    other = " (or write .detach() before .numpy())" if is_numpy else ""
    return (
        f"`{text}` of {place} holds only in the thread that entered it, and line {at.line} runs in a thread of the "
        f"pool: each thread begins with gradients on. Enter it in the function that the pool runs: {how}{other}."
    )


def _is_pool(file: str | None, function: str | None) -> bool:
    return (file or "").endswith(_POOLS) and (function or "").rpartition(".")[2] in _RUN


def _switched_off(at: FailingLine, depth: int) -> tuple[str, str] | None:
    """`torch.no_grad()` and its line, where a frame's line is below one, or its function is decorated so."""
    spot = at.slice.spot(depth)
    if spot is None:
        return None
    heads = list(getattr(spot.scope, "decorator_list", []))
    for item in own_nodes(spot.scope):
        if isinstance(item, (ast.With, ast.AsyncWith)) and spans(item, spot.line):
            heads += [part.context_expr for part in item.items]
    texts = [(ast.unparse(item), at.place(spot, item.lineno)) for item in heads]
    return next((found for found in texts if _OFF.search(found[0])), None)


def _is_made(at: FailingLine, count: int) -> bool:
    """Whether the tensor of `.numpy()` is a result of something that the thread ran, and no parameter."""
    call = at.only(ast.Call)
    if call is None or called_name(call) != "numpy" or not isinstance(call.func, ast.Attribute):
        return False
    node = _behind(call.func.value)
    if isinstance(node, ast.Name):
        found = at.made(node, calls=False)
        if found is None or (found.spot.depth or 0) >= count:
            return False
        node = _behind(found.node)
    return isinstance(node, (ast.Call, ast.BinOp))


def _behind(node: ast.AST) -> ast.AST:
    """What is only viewed, or moved."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS:
        node = node.func.value
    return node
