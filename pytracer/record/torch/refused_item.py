"""Of torch.load() with weights_only: the key of the file's dict below which the object lies that it refused.

The unpickler is torch's own, in Python: its stack ends with a dict's key when the key's value begins.
"""

from __future__ import annotations

from typing import Any

from pytracer.record.config import records_values
from pytracer.record.torch.near_names import attributes_of

_MODULE = "torch/_weights_only_unpickler.py"
_KEY_CHARACTERS = 40


def refused_item(error: BaseException) -> list[dict[str, str]]:
    """As the variable `key of the refused object`; nothing of an object in a list, or below a key that is no text."""
    before = error.__context__
    trace = before.__traceback__ if before is not None and records_values() else None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith(_MODULE) and trace.tb_frame.f_code.co_name == "load":
            key = _key(attributes_of(trace.tb_frame.f_locals.get("self")))
            return [{"name": "key of the refused object", "value": key}] if key is not None else []
        trace = trace.tb_next
    return []


def _key(own: dict[str, Any]) -> str | None:
    stack, outer = own.get("stack"), own.get("metastack")
    if type(stack) is not list or type(outer) is not list or not stack or type(stack[-1]) is not str:
        return None
    marked = outer[-1] if outer else None
    several = type(marked) is list and bool(marked) and type(marked[-1]) is dict and len(stack) % 2 == 1
    one = len(stack) > 1 and type(stack[-2]) is dict
    key: str = stack[-1]
    return key if (several or one) and len(key) <= _KEY_CHARACTERS and key.isprintable() else None
