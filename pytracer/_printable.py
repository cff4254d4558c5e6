r"""Makes untrusted text printable: the one place for all output, and for shell commands in advice.

Names, messages, paths and command lines are chosen by the author of the job or of the recording. On a terminal they
must not move the cursor, change colours or the title, hide or reorder characters, or begin a line of their own.
Characters that are not plain visible text are shown as Python escapes: `\x1b`, `\n`, `\u202e`.

`printable()` does that for a whole report before it is laid out, so that rows cannot be faked and widths are right. In
JSON the data stays exact: `ascii_json()` writes nothing but ASCII.

Standard library only, and little of it: traced processes import this file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, cast

_Part = TypeVar("_Part")

# Characters that str.isprintable() accepts and that are invisible: Default_Ignorable_Code_Point and blanks that are
# letters (Unicode 15.1, DerivedCoreProperties.txt). All other invisible ones (Cc, Cf, Cs, Co, Cn, Zl, Zp, Zs) it
# rejects.
_UNSEEN = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef"
)  # fmt: skip
_MOST_MARKS = 3  # stacked diacritics; more of them overlap the lines above and below
_SUSPECT = re.compile(f"[{_UNSEEN}]")
_NOT_PLAIN = re.compile(r"[^ -~]")  # in ASCII
_STYLING = re.compile(r"(\x1b\[[0-9;]*m)")
_REPLACEMENT = "\ufffd"


def one_line(text: str) -> str:
    """`text` on one line, with an escape for each invisible character.

    A combining mark stays if it follows a letter, so that it cannot combine with our own text before it.
    """
    if text.isascii():
        return text if text.isprintable() else _NOT_PLAIN.sub(lambda found: _shown(found[0]), text)
    return _without_loose_marks("".join(map(_shown, text)))


def paragraph(text: str) -> str:
    """The same, with line breaks kept, for text that is laid out line by line and indented: messages.

    Colours that a message has for its terminal, and tabs, are no part of what it says.
    """
    return "\n".join(map(one_line, without_styling(text).replace("\r\n", "\n").split("\n")))


def without_styling(text: str) -> str:
    """Without sequences that set colours, and with blanks for tabs. What is left may need `one_line()`."""
    if "\x1b" in text:
        text = _STYLING.sub("", text)
    return text.replace("\t", "    ")


def printable(value: _Part, paragraphs: Collection[str] = ()) -> _Part:
    """A copy of plain data - structs, dataclasses, lists, mappings - in which every string is on one line.

    Args:
        value: stays as it is.
        paragraphs: names of fields in which line breaks stay.
    """
    return cast(_Part, _printable(value, paragraphs, False))


def neutral(text: str, *, styled: bool = False) -> str:
    """The last defence, before writing: U+FFFD for each character that should have been escaped before.

    Line breaks stay, and with `styled` the sequences that set colours: they are ours, `printable` has removed all
    others.
    """
    if not styled:
        return "\n".join(map(_neutral_line, text.split("\n")))
    parts = _STYLING.split(text)  # text, sequence, text, ...
    return "".join(part if at % 2 else neutral(part) for at, part in enumerate(parts))


def shell_word(text: str) -> str:
    """`text` as one word for a shell, on one line and visible; with bash's and zsh's $'...' if needed."""
    if one_line(text) == text:
        import shlex  # imported here: traced processes do not need it

        return shlex.quote(text)
    data = text.encode("utf-8", "surrogateescape" if _is_from_bytes(text) else "replace")
    return "$'" + "".join(_shell_byte(byte) for byte in data) + "'"


def shell_command(*words: str) -> str:
    """A command that can be typed."""
    return " ".join(map(shell_word, words))


def ascii_json(text: str) -> str:
    """JSON with escapes for all that is not printable ASCII, with the same meaning. Line breaks between values stay."""
    return text if text.isascii() and "\x7f" not in text else re.sub(r"[^\n -~]", _json_escape, text)


def _printable(value: object, paragraphs: Collection[str], lines: bool) -> object:
    if isinstance(value, str):
        return paragraph(value) if lines else one_line(value)
    if isinstance(value, Mapping):
        return {
            _printable(key, paragraphs, False): _printable(item, paragraphs, lines or key in paragraphs)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [_printable(item, paragraphs, lines) for item in value]
        kind: Callable[..., object] = type(value)  # a NamedTuple takes its fields one by one
        return kind(*items) if hasattr(value, "_fields") else kind(items)
    names = getattr(value, "__struct_fields__", None) or getattr(value, "__dataclass_fields__", None)
    if names is None or isinstance(value, type):
        return value
    changed = {}
    for name in names:
        old = getattr(value, name)
        if old is None or type(old) is int:  # most fields of a large report
            continue
        new = _printable(old, paragraphs, lines or name in paragraphs)
        if new is not old:
            changed[name] = new
    return _replaced(value, changed) if changed else value


def _replaced(value: Any, changed: dict[str, object]) -> object:
    if hasattr(value, "__struct_fields__"):
        import msgspec  # imported here: traced processes have no structs

        return msgspec.structs.replace(value, **changed)
    from dataclasses import replace  # imported here, likewise

    return replace(value, **changed)


def _shown(char: str) -> str:
    if char.isprintable() and not _SUSPECT.match(char):
        return char
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char) or _escape(ord(char))


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _without_loose_marks(text: str) -> str:
    """Escapes combining marks without a base letter, and those above the third on one letter."""
    import unicodedata  # imported here: a shared library, which most text does not need

    out: list[str] = []
    marks = _MOST_MARKS  # no base letter yet
    for char in text:
        if char.isascii() or not unicodedata.category(char).startswith("M"):
            marks = _MOST_MARKS if char == " " else 0
            out.append(char)
        elif marks < _MOST_MARKS:
            marks += 1
            out.append(char)
        else:
            out.append(_escape(ord(char)))
    return "".join(out)


def _neutral_line(line: str) -> str:
    if line.isprintable() and not _SUSPECT.search(line):
        return line
    return "".join(c if c.isprintable() and not _SUSPECT.match(c) else _REPLACEMENT for c in line)


def _is_from_bytes(text: str) -> bool:
    """Whether all lone surrogates are those of os.fsdecode(), so that the bytes can be restored."""
    return all(0xDC80 <= ord(char) <= 0xDCFF for char in text if 0xD800 <= ord(char) <= 0xDFFF)


def _shell_byte(byte: int) -> str:
    char = chr(byte)
    return f"\\x{byte:02x}" if not 0x20 <= byte < 0x7F else f"\\{char}" if char in "\\'" else char


def _json_escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 | code >> 10:04x}\\u{0xDC00 | code & 0x3FF:04x}"
