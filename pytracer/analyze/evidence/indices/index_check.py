"""The check of an index that inductor writes into a kernel: "index out of bounds: 0 <= tmp10 < 8000L".

It names a variable of generated code. The limit is the size of the tensor that is indexed, and the index is the tensor
of integers of the compiled call that has values outside of it.
"""

from __future__ import annotations

import re

from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.native.aborts import cpp_exception
from pytracer.analyze.evidence.operators.line_tensors import line_tensors
from pytracer.analyze.evidence.operators.operator import shape_words
from pytracer.analyze.view import ProcessView

_CHECK = re.compile(r"index out of bounds: (-?\d+) <= \w+ < (\d+)L?\b")


def failed_check(view: ProcessView) -> tuple[str, str] | None:
    """What failed, in words, and what to do; None where no such check did."""
    exception = cpp_exception(view)
    found = _CHECK.search(exception.what or "") if exception is not None else None
    if found is None:
        return None
    limit = int(found[2])
    tensors = line_tensors(view)
    outside = [
        item
        for item in tensors
        if item.item.is_integer
        and item.item.maximum is not None
        and item.item.minimum is not None
        and (item.item.maximum >= limit or item.item.minimum < -limit)
    ]
    index = outside[0] if len({item.item.base for item in outside}) == 1 else None
    tables = [item for item in tensors if limit in item.item.sizes and item not in outside and item.name]
    table = tables[0] if len({item.item.base for item in tables}) == 1 else None
    named = f"`{index.name}` ({index.item.minimum}..{index.item.maximum})" if index and index.name else "an index"
    size = f", the size of `{table.name}` {shape_words(table.item)}" if table is not None else ""
    what = f"torch.compile's own check of an index failed: {named} must be less than {limit}{size}"
    check = f"the values of {named}" if index is not None else f"the index tensors that {line_words(view)} passes"
    advice = (
        f"Check {check}: min() and max() must lie in 0..{limit - 1}. Without torch.compile "
        "(TORCH_COMPILE_DISABLE=1) the same call raises an IndexError that names the line."
    )
    return what, advice
