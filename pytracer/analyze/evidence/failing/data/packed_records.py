"""Records that struct finds too short by the padding of native alignment, which a format without a prefix has."""

from __future__ import annotations

import ast
import re
import struct

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_SHORT = Pattern(r"requires a buffer of (?:at least )?(\d+) bytes")
_CALLS = ("unpack", "unpack_from", "iter_unpack")
_PREFIXES = "<>=!"


def padded_record(at: FailingLine) -> str | None:
    """The format without padding."""
    subject, call = padded_record_subject(at), _unpacks(at)
    if subject is None or call is None:
        return None
    text = _format(at, call) or ""
    return (
        f"{capital(subject)}. Begin it with the byte order of what wrote the data, which leaves no gaps: "
        f"'<{text.lstrip('@')}' for little-endian records (x86, ARM), and read calcsize() of that."
    )


def padded_record_subject(at: FailingLine) -> str | None:
    """For the headline; nothing where the bytes are known to be too few for the format without padding, too."""
    wanted, call = _SHORT.search(at.message), _unpacks(at)
    text = _format(at, call) if call is not None else None
    if wanted is None or call is None or text is None or text.startswith(tuple(_PREFIXES)):
        return None
    try:
        padded, packed = struct.calcsize(text), struct.calcsize("=" + text.lstrip("@"))
    except struct.error:  # such a type has no size without native alignment
        return None
    there = [item for part in call.args[1:2] if (item := _bytes(at, part)) is not None]
    if padded != int(wanted[1]) or padded == packed or any(item != packed for item in there or _asked(call)):
        return None
    has = f", and `{source(call.args[1])}` has {there[0]}" if there else ""
    return f"the format '{text}' takes {padded} bytes, {padded - packed} of them gaps as C aligns its fields{has}"


def _asked(call: ast.Call) -> list[int]:
    """How many bytes a read() in its place asks for; -1, which no format has, where that is not shown.

    Where it asks for as many as the format takes, the file has ended.
    """
    read = call.args[1] if len(call.args) > 1 else None
    asked = read.args[0] if isinstance(read, ast.Call) and called_name(read) == "read" and read.args else None
    if read is None or (isinstance(read, ast.Name) and asked is None):
        return []
    return [asked.value if isinstance(asked, ast.Constant) and isinstance(asked.value, int) else -1]


def _unpacks(at: FailingLine) -> ast.Call | None:
    found = [item for item in nodes_of(at.node) if isinstance(item, ast.Call)] if at.node is not None else []
    named = [item for item in found if called_name(item) in _CALLS and item.args]
    return named[0] if at.kind == "error" and len(named) == 1 else None


def _format(at: FailingLine, call: ast.Call) -> str | None:
    made = at.made(call.args[0])
    node = made.node if made is not None else call.args[0]
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _bytes(at: FailingLine, node: ast.expr) -> int | None:
    """How many a variable has."""
    value = re.search(r"^bytes of (\d+)", at.value(node) or "")
    return int(value[1]) if value is not None else None
