"""Replaces secrets in command lines and variables before they are written, as csrc/crashsafe/text/redact.cpp does.

Both work on bytes and share the tables of `blackbox/secret_words.py`; a test runs both over the same corpus.
Recognized: values of names such as `--api-key=...`, `--password ...`, `WANDB_API_KEY=...`, `+db.password=...`,
`{"token": "..."}`, `Authorization: Bearer ...`; passwords in URLs; tokens of known formats, anywhere; private keys. A
secret is replaced by three asterisks and counted. Where its end is ambiguous, more is replaced.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from pytracer.blackbox.secret_words import (
    BEARER_CHARACTERS,
    HEX_KEY_DIGITS,
    MASK,
    PLAIN_TOKENS,
    PROGRAM_OPTIONS,
    SCHEMES,
    SECRET_ENDS,
    SECRET_KEYS,
    SECRET_PASSES,
    SECRET_WORDS,
    SWITCHES,
    TOKEN_SHAPES,
)

_LOWER = b"abcdefghijklmnopqrstuvwxyz"
_UPPER = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DIGITS = b"0123456789"
_ALNUM = frozenset(_LOWER + _UPPER + _DIGITS)
_NAME = _ALNUM | frozenset(b"_-.")
_BLANKS = frozenset(b" \t\r\n")
_QUOTES = frozenset(b"\"'`")
_ENDS = _BLANKS | _QUOTES | frozenset(b"&,;)}]")
_LEADING = frozenset(b"+~'\"")
_CLOSING = frozenset(b"\\'\"]")
_OPENING = frozenset(b"\\'\"")
_SEPARATORS = frozenset(b"=:")
_HEX = frozenset(b"0123456789abcdefABCDEF")
_BEARER = _ALNUM | frozenset(b"-._~+/=")
_FOLLOWS = {
    "A": _ALNUM,
    "W": _ALNUM | frozenset(b"-_"),
    "S": _ALNUM | frozenset(b"-_"),
    "J": _ALNUM | frozenset(b"-_"),
    "X": frozenset(b"0123456789abcdef"),
    "U": frozenset(_UPPER + _DIGITS),
}
_SHAPES = tuple((prefix.encode(), kind, least) for prefix, kind, least in TOKEN_SHAPES)
_BODY = _ALNUM | frozenset(b"-_.")
_STRETCH = 16
_FAR = 1024  # limit of the search for the end of a secret: the time stays linear
_NO, _YES, _IF_HEX = range(3)
_MASK = MASK.encode()


def redact_words(words: Sequence[str]) -> tuple[list[str], int]:
    """A command line without its secrets, and how many there were."""
    kept, count = redact_bytes([os.fsencode(word) for word in words])
    return [os.fsdecode(word) for word in kept], count


def redact_bytes(words: Sequence[bytes]) -> tuple[list[bytes], int]:
    """The same for bytes, as the core has them."""
    kept: list[bytes] = []
    count, expected, script = 0, _NO, False
    letter = _program_letter(words[0]) if words else 0
    for word in words:
        if expected and word and not word.startswith(b"--") and (expected == _YES or _is_hex_key(word)):
            found = _masked(word)
            kept.append(found)
            count += found != word
            expected, script = _NO, False
            continue
        if letter and len(word) > 2 and word[0] == 0x2D and word[1] == letter:
            found = _masked(word[2:])
            kept.append(word[:2] + found)
            count += found != word[2:]
            expected, script = _NO, False
            continue
        text, found_count = redact_text(word, line=script)
        kept.append(text)
        count += found_count
        expected = _NO if script else _asks_for_secret(word, letter)
        script = _takes_script(word)
    return kept, count


def redact_text(text: bytes, *, line: bool = False) -> tuple[bytes, int]:
    """One word without its secrets, and how many there were; `line`: a whole command, as `sh -c` takes it."""
    out = bytearray()
    at = count = 0
    while at < len(text):
        begin, end = _secret_at(text, at, line)
        out += text[at:begin]
        if end > begin:
            found = _masked(text[begin:end])
            count += found != text[begin:end]
            out += found
        at = end
    return bytes(out), count


def _secret_at(text: bytes, at: int, line: bool) -> tuple[int, int]:
    """Begin and end of the secret announced by a name, a scheme or a format at `at`; empty, one further, for none."""
    none = (at + 1, at + 1)
    if text.startswith(b"://", at):
        return _password_of_url(text, at) or none
    if text.startswith(b"-----BEGIN ", at):
        head = text.find(b"PRIVATE KEY-----", at, at + 48)
        return (head + 16, len(text)) if 0 <= head < len(text) - 16 else none
    before = text[at - 1] if at else 0
    inside = before in _ALNUM
    if before not in _NAME and text[at] in _NAME:
        found = _value_of_name(text, at, line)
        if found is not None:
            return found
    end = _end_of_shape(text, at, inside)
    if end:
        return at, end
    if not inside and _has_word(text, at, b"bearer "):
        begin = at + 7
        end = _run(text, begin, _BEARER)
        return (begin, end) if end - begin >= BEARER_CHARACTERS else none
    return none


def _value_of_name(text: bytes, at: int, line: bool) -> tuple[int, int] | None:
    """The value of the name that begins at `at`, if it is a secret."""
    after = _run(text, at, _NAME)
    name = text[at:after]
    secret = _judge(name)
    if secret == _NO and not (name == b"sig" and at and text[at - 1] in b"?&"):
        return None
    begin = _begin_of_value(text, at, after, line)
    if begin is None or begin >= len(text):
        return None
    if secret == _IF_HEX:
        begin = _run(text, begin, _OPENING)
        end = _run(text, begin, _HEX)
        return (begin, end) if end - begin >= HEX_KEY_DIGITS and _byte(text, end) not in _ALNUM else None
    first = _run(text, 0, _LEADING) >= at
    begin, end = (begin, len(text)) if first and not line else _extent(text, begin)
    return (begin, end) if end > begin else None


def _begin_of_value(text: bytes, at: int, after: int, line: bool) -> int | None:
    """Where the value of a name begins: behind `=`, `:`, or in a line and in a list of words behind the option."""
    to = _run(text, after, _CLOSING)
    spaced = _run(text, to, _BLANKS)
    if spaced < len(text) and text[spaced] in b"=:":
        behind = _run(text, spaced, _SEPARATORS)
        if text[spaced:behind] == b":" and text.startswith(b"//", behind):
            return None  # the scheme of a URL
        return _run(text, behind, _BLANKS)
    if text[at] != 0x2D or _is_switch(text[at:after]):
        return None
    if to > after and spaced < len(text) and text[spaced] == 0x2C:  # "--api-key", "..."
        spaced = _run(text, spaced + 1, _BLANKS)
        return spaced if spaced < len(text) and text[spaced] in _OPENING else None
    if line and to == after and spaced > to and not text.startswith(b"--", spaced):
        return spaced
    return None


def _extent(text: bytes, begin: int) -> tuple[int, int]:
    """Where a value inside a longer text ends: at its closing quote, else at a separator."""
    quote = _run(text, begin, frozenset(b"\\"))
    if quote < len(text) and text[quote] in _QUOTES:
        escaped, end = quote > begin, quote + 1
        while end < len(text) and not (text[end] == text[quote] and (escaped or text[end - 1] != 0x5C)):
            end += 1
        while escaped and end > quote + 1 and text[end - 1] == 0x5C:
            end -= 1
        return _without_scheme(text, quote + 1), end
    if text[begin] in b"[{":
        return begin, len(text)
    begin = _without_scheme(text, begin)
    end = begin
    while end < len(text) and text[end] not in _ENDS:
        end += 1
    return begin, end


def _without_scheme(text: bytes, begin: int) -> int:
    for scheme in SCHEMES:
        if _has_word(text, begin, scheme.encode() + b" "):
            return begin + len(scheme) + 1
    return begin


def _password_of_url(text: bytes, at: int) -> tuple[int, int] | None:
    """The password in `://user:password@host`, which may contain slashes; `://host:80/@x` has none."""
    colon = 0
    last = 0
    position = begin = at + 3
    limit = min(len(text), begin + _FAR)
    while position < limit and text[position] not in _BLANKS and text[position] not in _QUOTES:
        char = text[position]
        if char in b"/?#" and (not colon or _run(text, colon + 1, frozenset(_DIGITS)) == position):
            break
        if char == 0x3A and not colon and text[begin] != 0x5B:
            colon = position
        elif char == 0x40 and colon:
            last = position
        position += 1
    return (colon + 1, last) if last > colon + 1 else None


def _end_of_shape(text: bytes, at: int, inside: bool) -> int:
    """The end of a token of a known format that begins here; 0 for none. Few may begin `inside` a word."""
    for prefix, kind, least in _SHAPES:
        if not text.startswith(prefix, at) or (inside and (len(prefix) < 4 or prefix[-1] not in b"_-")):
            continue
        begin = at + len(prefix)
        end = _run(text, begin, _FOLLOWS[kind], begin + _FAR)
        if end - begin < least or (kind == "S" and not _looks_random(text[begin:end])):
            continue
        if kind == "J" and _byte(text, end) != 0x2E:
            continue
        return _run(text, end, _BODY if kind == "J" else _FOLLOWS[kind])
    return 0


def _looks_random(text: bytes) -> bool:
    """A digit somewhere, and enough letters and digits in a row that it is no name made of words."""
    longest = current = 0
    digit = False
    for char in text:
        digit = digit or char in _DIGITS
        current = current + 1 if char in _ALNUM else 0
        longest = max(longest, current)
    return digit and longest >= _STRETCH


def _judge(name: bytes) -> int:
    """Whether a name is that of a secret, by its last words."""
    end = len(name)
    while end > 0 and (name[end - 1] in _DIGITS or name[end - 1] not in _ALNUM):  # `api_key_2`
        end -= 1
    begin, end = _word_before(name, end)
    last = name[begin:end].lower().decode()
    start, stop = _word_before(name, begin)
    above = name[start:stop].lower().decode()
    if last in SECRET_WORDS or last.endswith(SECRET_ENDS):
        return _YES
    if last == "token":
        return _NO if above in PLAIN_TOKENS else _YES
    if last == "key":
        return _YES if above in SECRET_KEYS else _IF_HEX
    if last == "pass":
        return _YES if not above or above in SECRET_PASSES else _NO
    if last == "pwd":
        return _YES if above else _NO
    return _YES if last == "string" and above == "connection" else _NO


def _word_before(name: bytes, end: int) -> tuple[int, int]:
    """The word that ends before `end`: begins after a character that is no letter or digit, or at camelCase."""
    while end > 0 and name[end - 1] not in _ALNUM:
        end -= 1
    begin = end
    while begin > 0 and name[begin - 1] in _ALNUM:
        if begin < end and name[begin] in _UPPER:
            before, behind = name[begin - 1], name[begin + 1 : begin + 2]
            if before not in _UPPER or (behind and behind[0] in _LOWER):
                break
        begin -= 1
    return begin, end


def _asks_for_secret(word: bytes, letter: int) -> int:
    """Whether the next word is the value of this option."""
    if len(word) < 2 or word[0] != 0x2D:
        return _NO
    if letter and len(word) == 2 and word[1] == letter:
        return _YES
    return _NO if _run(word, 0, _NAME) < len(word) or _is_switch(word) else _judge(word)


def _is_switch(name: bytes) -> bool:
    begin = _run(name, 0, frozenset(b"-"))
    return name[begin : _run(name, begin, _ALNUM)].lower().decode() in SWITCHES


def _takes_script(word: bytes) -> bool:
    """`-c`, `-lc`: the next word is a program."""
    return 2 <= len(word) <= 6 and word[0] == 0x2D and word[-1] == 0x63 and _run(word, 1, _ALNUM) == len(word)


def _program_letter(program: bytes) -> int:
    name = program.rsplit(b"/", 1)[-1].decode("ascii", "replace")
    return next((ord(letter) for known, letter in PROGRAM_OPTIONS if known == name), 0)


def _is_hex_key(value: bytes) -> bool:
    return len(value) >= HEX_KEY_DIGITS and _run(value, 0, _HEX) == len(value)


def _masked(secret: bytes) -> bytes:
    return _MASK[: len(secret)]


def _has_word(text: bytes, at: int, word: bytes) -> bool:
    return text[at : at + len(word)].lower() == word


def _byte(text: bytes, at: int) -> int:
    return text[at] if at < len(text) else 0


def _run(text: bytes, at: int, chars: frozenset[int], limit: int | None = None) -> int:
    end = len(text) if limit is None else min(limit, len(text))
    while at < end and text[at] in chars:
        at += 1
    return at
