"""Pure functions that format values: sizes, times, names. Shared by `analyze` and `render`.

They know nothing about recordings or reports and import no other module of the package.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from pytracer._printable import without_styling

SPANS = 4
MESSAGE_CHARACTERS = 160
_SENTENCE = re.compile(r"(?<=[a-z0-9)`\]\"']\.)\s+(?=[A-Z`])")
# TORCH_CHECK with its stack: c10/util/Exception.cpp, c10/util/Backtrace.cpp.
_BACKTRACE = re.compile(r"\s*(?:Exception raised from |C\+\+ CapturedTraceback:|frame #0: )")


def hex_addr(value: int) -> str:
    """`value` as the report writes addresses."""
    return f"{value & 0xFFFF_FFFF_FFFF_FFFF:#x}"


def size_words(nbytes: int) -> str:
    """A size for people: exact below 10 KiB, else with one decimal; sums of wrong indices reach to EiB."""
    if nbytes < 10 * 1024:
        return f"{nbytes} bytes"
    for unit, scale in (("EiB", 1 << 60), ("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20)):
        if nbytes >= scale:
            return f"{nbytes / scale:.1f} {unit}"
    return f"{nbytes / 1024:.1f} KiB"


def capital(words: str) -> str:
    """The first letter large; a place in a file, `parts.py:26`, keeps its name as it is."""
    return words if ".py:" in words.partition(" ")[0] else words[:1].upper() + words[1:]


def uncapital(words: str) -> str:
    """The first letter small."""
    return words[:1].lower() + words[1:]


def origin_phrase(origin: str | None, file: str | None) -> str | None:
    """The kind of memory of a storage; None for torch's usual allocator."""
    words = {
        "default-allocator": "allocated past the registered allocator, as torch.UntypedStorage does",
        "torch-load": "allocated by torch.load",
        "before-enable": "older than the recording: who allocated it is unknown",
        "pinned": "pinned memory, of torch's host allocator for CUDA",
        "shared-memory": "shared memory",
        "mapped-file": "mapped from a file",
        "numpy": "memory of a NumPy array",
        "buffer": "memory of a Python buffer",
        "dlpack": "memory taken over by DLPack",
        "blob": "memory of others, given to from_blob",
    }.get(origin or "")
    if words is None or not file:
        return words
    return f"mapped from {file}" if origin == "mapped-file" else f"{words} {file}"


def time_words(ns: int) -> str:
    """A time since the start of the run, or a span: seconds with ms below 100 s."""
    seconds = ns / 1e9
    if abs(seconds) < 100:
        return f"{seconds:.3f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min {rest:02d} s" if hours else f"{minutes} min {rest:02d} s"


def message_words(message: str, limit: int = MESSAGE_CHARACTERS) -> str:
    """An exception's message on one line: without torch's C++ backtrace, cut between words, without the full stop."""
    text = " ".join(without_styling(_BACKTRACE.split(message, maxsplit=1)[0]).split())
    if len(text) <= limit:
        return text.rstrip(".")
    kept = text[: limit - 3]
    whole = kept if text[limit - 3] == " " else kept.rpartition(" ")[0]
    return (whole if len(whole) >= limit // 2 else kept).rstrip(" .,;:(") + "..."


def shortened(text: str, limit: int) -> str:
    """Cut at any character, with dots: for lines of programs."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def first_sentences(text: str, lines: int, columns: int) -> str:
    """As many whole sentences as fit into that room, and at least one."""
    kept = ""
    for sentence in _SENTENCE.split(text):
        longer = f"{kept} {sentence}".strip()
        if kept and len(textwrap.wrap(longer, columns)) > lines:
            break
        kept = longer
    return kept


def count_words(count: int, noun: str) -> str:
    """`1 parameter`, `2 parameters`, `3 processes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{'es' if noun.endswith('s') else 's'}"


def list_words(items: Sequence[str], limit: int = 3, conjunction: str = "and") -> str:
    """`a, b, c and 4 more`. `conjunction`: of the last two, where all are shown."""
    if len(items) <= limit:
        return items[0] if len(items) == 1 else ", ".join(items[:-1]) + (f" {conjunction} {items[-1]}" if items else "")
    return f"{', '.join(items[:limit])} and {len(items) - limit} more"


def ranks_words(ranks: Sequence[int]) -> str:
    """`rank 1`, `ranks 0 and 1`, `ranks 0, 1, 2 and 5 more`."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {list_words([str(rank) for rank in ranks], 4)}"


def span_words(ranks: Iterable[int]) -> str:
    """`rank 7`, `ranks 0-6`, `ranks 0, 2-5 and 9`; many intervals are cut with a count."""
    items = sorted(set(ranks))
    if not items:
        return "no rank"
    spans: list[list[int]] = []
    for rank in items:
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    parts: list[str] = []
    for low, high in spans:
        parts += [str(low)] if low == high else [str(low), str(high)] if high == low + 1 else [f"{low}-{high}"]
    if len(parts) > SPANS:
        shown = spans[: SPANS - 1]
        words = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in shown)
        return f"ranks {words} and {len(items) - sum(high - low + 1 for low, high in shown)} more"
    joined = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"rank{'s' * (len(items) != 1)} {joined}"


# Functions that run what a template argument names: the kernel is a lambda in it.
_RUNNERS = ("at::internal::invoke_parallel", "at::parallel_for", "c10::function_ref::callback_fn")
_LOOPS = ("parallel_for", "for_each", "VectorizedLoop2d", "function_ref", "invoke_parallel", "callback_fn")
_CALLEE = re.compile(r"(?<![\w:)])(?:(?:\w+|\(anonymous namespace\))::)+(\w+)(?:<[^<>()]*>)?\(")
_LENGTH = re.compile(r"[1-9]\d{0,2}")  # of a part of a mangled name
_UNTELLING = (
    "at",
    "internal",
    "native",
    "c10",
    "std",
    "torch",
    "invoke_parallel",
    "parallel_for",
    "DEFAULT",
    "AVX2",
    "AVX512",
)
_SEARCHED_CHARACTERS = 4096


def function_words(name: str) -> str:
    """A demangled C++ function without arguments and template arguments: `c10d::Logger::set_env_variables`.

    Of a function that only runs another one, the template argument that names it stays:
    `at::internal::invoke_parallel<cpu_adaptive_max_pool2d_backward>`.
    """
    if name.startswith("_Z"):
        return _of_mangled(name)
    words = _plain_function_words(name)
    if words.startswith("__pyx_"):
        return _of_cython(words)
    if words not in _RUNNERS:
        return words
    inside = name.partition("<")[2][:_SEARCHED_CHARACTERS]
    kernel = next((found[1] for found in _CALLEE.finditer(inside) if found[1] not in _LOOPS), None)
    return f"{words}<{kernel}>" if kernel else words


def _of_cython(name: str) -> str:
    """`pyarrow.lib.Array.to_pylist` of `__pyx_pw_7pyarrow_3lib_5Array_74to_pylist`: the last part has a number."""
    text, parts = re.sub(r"^__pyx_[a-z]+_", "", name), []
    while (found := re.match(r"[1-9]\d*", text)) is not None:
        part, end = text[found.end() : found.end() + int(found[0])], found.end() + int(found[0])
        if not part.isidentifier() or text[end : end + 1] != "_" or len(part) < int(found[0]):
            break
        parts.append(part)
        text = text[end + 1 :]
    rest = re.sub(r"^\d+|__pyx_\w+$", "", text)
    return ".".join([*parts, rest]) if parts and rest else name


def _of_mangled(name: str) -> str:
    """The first telling part of a name that the demangler refused: lambdas of templates, from GCC."""
    text, at = name[:_SEARCHED_CHARACTERS], 0
    while (found := _LENGTH.search(text, at)) is not None:
        end = found.end() + int(found[0])
        part = text[found.end() : end]
        at = end if part.isidentifier() and end <= len(text) else found.end()
        if at == end and part not in _UNTELLING and not part.startswith("_GLOBAL_"):
            return part
    return name


def _plain_function_words(name: str) -> str:
    if not any(mark in name for mark in "(<") or re.search(r"operator\s*[<>-]", name):
        return name
    text = name.replace("(anonymous namespace)", "{anonymous}").replace("operator()", "operator{call}")
    text = _without_brackets(text)
    text = text.split("(", 1)[0] if not text.startswith("(") else text
    text = text.replace("{anonymous}", "(anonymous)").replace("operator{call}", "operator()")
    parts = text.strip().split(" ")
    return parts[-1] if parts[-1] and "operator" not in text else text.strip()


def _without_brackets(text: str) -> str:
    """Without `<...>` and its contents; an unmatched bracket stays. One pass, because names may be very long."""
    kept: list[str] = []
    opened: list[int] = []
    for part in re.split("([<>])", text):
        if part == ">" and opened:
            del kept[opened.pop() :]
            continue
        if part == "<":
            opened.append(len(kept))
        kept.append(part)
    return "".join(kept)
