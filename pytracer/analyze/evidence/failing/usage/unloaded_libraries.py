"""An extension that is linked to torch's libraries, and imported before torch has loaded them."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.earlier_imports import earlier_imports, tops
from pytracer.analyze.evidence.syntax.scopes import own_nodes

# Each torch brings these, and a loaded one is found by its name: where one is not, no torch was imported.
_OF_EACH = Pattern(r"^lib(?:c10|torch|torch_cpu|torch_python)\.so: cannot open shared object file")
# They import torch themselves, all or a part of them.
_WITH_TORCH = frozenset(("torch", "torchvision", "torchaudio", "lightning", "pytorch_lightning", "accelerate", "timm"))


def torch_not_imported(at: FailingLine) -> str | None:
    """The line that imports an extension, and the one behind it that imports torch."""
    statement = at.statement
    if not isinstance(statement, (ast.Import, ast.ImportFrom)) or not _OF_EACH.match(at.message):
        return None
    if "torch" in tops(statement) or any((item.file or "").endswith("/torch/__init__.py") for item in at.stack):
        return None  # torch itself is incomplete
    if any(_WITH_TORCH.intersection(tops(item.statement)) for item in earlier_imports(at.snapshot, at.stack)):
        return None
    behind = [
        item for item in own_nodes(at.scope)
        if isinstance(item, (ast.Import, ast.ImportFrom)) and item.lineno > at.line and "torch" in tops(item)
    ]  # fmt: skip
    later = min(behind, key=lambda item: item.lineno, default=None)
    place = f" (`{ast.unparse(later)}` is at {at.here(later.lineno)})" if later is not None and _is_short(later) else ""
    if later is not None and not place:
        place = f" ({at.here(later.lineno)} imports it)"
    move = f"move {at.here(later.lineno)} above line {at.line}" if later is not None else "put `import torch` above it"
    return (
        f"torch is not imported yet at line {at.line}{place}: the extension that this line imports is linked to "
        f"torch's libraries, which are found only once torch is imported. Import torch first: {move}."
    )


def _is_short(statement: ast.Import | ast.ImportFrom) -> bool:
    return len(ast.unparse(statement)) <= len("from torch import nn, optim, Tensor")
