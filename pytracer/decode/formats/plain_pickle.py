"""Pickles of plain values only, read without Python's unpickler.

A pickle is a program, and Python's unpickler executes it: it imports, calls and allocates what the file requests. Dumps
of torch's Flight Recorder contain nothing but containers, numbers and text, so this machine implements the opcodes for
these and no others. It cannot import or call anything, and its memory is bounded. A restricted `pickle.Unpickler` would
keep code out as well, but does not bound memory: seven bytes that memoize a value at a high index make it allocate 32
GiB (a test shows both).

Opcodes: the documentation of `pickletools` (Lib/pickletools.py), protocols 0 to 5.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable
from typing import NoReturn

_LONG_BYTES = 16  # torch writes none of more than 8
# A dump of 20,000 entries with whole stacks takes as many. An instruction takes half a microsecond and makes at most a
# short text; a container, or what is remembered of a value, takes up to 240 bytes.
_MOST_STEPS, _MOST_CONTAINERS = 7_000_000, 1_800_000
_MARK = object()


class PickleError(ValueError):
    """The bytes are no pickle of plain values; the message has the place and the reason."""


def load_plain(data: bytes) -> object:
    """The value that a pickle holds: dict, list, tuple, str, bytes, int, float, bool and None, nested.

    Raises:
        PickleError: it holds anything else, is cut off, or is no pickle.
    """
    machine = _Machine(data)
    try:
        return machine.run()
    except (IndexError, struct.error, TypeError, KeyError, ValueError, AttributeError) as error:
        if isinstance(error, PickleError):
            raise
        raise PickleError(f"the pickle is damaged at byte {machine.at}: {type(error).__name__}") from None


class _Machine:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[object] = []
        self.memo: dict[int, object] = {}

    def run(self) -> object:
        data, stack, acts = self.data, self.stack, _ACTS
        left = _MOST_CONTAINERS
        for _ in range(_MOST_STEPS):
            code = data[self.at]
            self.at += 1
            if code == _STOP:
                return stack[-1] if stack[-1] is not _MARK else self.refuse(code)
            act = acts.get(code)
            if act is None:
                self.refuse(code)
            else:
                act(self)
            if code in _LARGE:
                left -= 1
                if left < 0:
                    break
        raise PickleError(f"the pickle has more than {_MOST_STEPS} instructions or {_MOST_CONTAINERS} containers")

    def refuse(self, code: int) -> NoReturn:
        name = next((op.name for op in pickletools.opcodes if op.code == chr(code)), None)
        if name is None:
            raise PickleError(f"this is no pickle: the byte {code:#04x} at {self.at - 1} is no instruction")
        raise PickleError(
            f"the pickle holds the instruction {name} at byte {self.at - 1}, which plain values do not need; "
            "nothing of it was run"
        )

    def take(self, count: int) -> bytes:
        if count < 0 or count > len(self.data) - self.at:
            raise PickleError(f"the pickle ends at byte {len(self.data)}, in the middle of a value")
        part = self.data[self.at : self.at + count]
        self.at += count
        return part

    def number(self, form: str) -> int:
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def real(self) -> float:
        return float(struct.unpack(">d", self.take(8))[0])

    def line(self) -> bytes:
        end = self.data.index(b"\n", self.at)
        part = self.data[self.at : end]
        self.at = end + 1
        return part

    def push(self, value: object) -> None:
        self.stack.append(value)

    def since_mark(self) -> list[object]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise PickleError(f"the pickle is damaged at byte {self.at}: a mark is missing")
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def last(self, count: int) -> tuple[object, ...]:
        items = tuple(self.stack[-count:])
        if len(items) < count or _MARK in items:
            raise PickleError(f"the pickle is damaged at byte {self.at}: values are missing")
        del self.stack[-count:]
        return items

    def extend(self, items: list[object]) -> None:
        target = self.stack[-1]
        if type(target) is not list:
            raise PickleError(f"the pickle is damaged at byte {self.at}: not a list")
        target.extend(items)

    def update(self, items: list[object]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise PickleError(f"the pickle is damaged at byte {self.at}: not a dict")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) not in (str, int, float, bool, bytes, type(None)):  # hashing a deep tuple would recurse
                raise PickleError(f"the pickle has a {type(key).__name__} as a key")
            target[key] = value

    def make_dict(self, items: list[object]) -> None:
        self.push({})
        self.update(items)


def _text(machine: _Machine, form: str) -> None:
    machine.push(machine.take(machine.number(form)).decode("utf-8", "replace"))


def _bytes(machine: _Machine, form: str) -> None:
    machine.push(machine.take(machine.number(form)))


def _long(machine: _Machine, form: str) -> None:
    size = machine.number(form)
    if size > _LONG_BYTES:
        raise PickleError(f"the pickle holds a number of {size} bytes")
    machine.push(int.from_bytes(machine.take(size), "little", signed=True))


def _put(machine: _Machine, key: int) -> None:
    machine.memo[key] = machine.stack[-1]


def _int_line(machine: _Machine) -> None:
    word = machine.line()
    machine.push({b"00": False, b"01": True}[word] if word in (b"00", b"01") else _small_int(word))


def _small_int(word: bytes) -> int:
    if len(word) > 30:
        raise PickleError(f"the pickle holds a number of {len(word)} digits")
    return int(word.rstrip(b"L"))


_STOP = ord(".")
_LARGE = frozenset(b"]}ldqrp\x94")
_ACTS: dict[int, Callable[[_Machine], object]] = {
    ord(code): act
    for code, act in {
        "\x80": lambda m: m.take(1),  # PROTO
        "\x95": lambda m: m.take(8),  # FRAME
        "(": lambda m: m.push(_MARK),
        "0": lambda m: m.stack.pop(),
        "1": lambda m: m.since_mark(),
        "2": lambda m: m.push(m.stack[-1]),
        "N": lambda m: m.push(None),
        "\x88": lambda m: m.push(True),
        "\x89": lambda m: m.push(False),
        "I": _int_line,
        "L": lambda m: m.push(_small_int(m.line())),
        "J": lambda m: m.push(m.number("<i")),
        "K": lambda m: m.push(m.number("<B")),
        "M": lambda m: m.push(m.number("<H")),
        "\x8a": lambda m: _long(m, "<B"),
        "\x8b": lambda m: _long(m, "<i"),
        "F": lambda m: m.push(float(m.line())),
        "G": lambda m: m.push(m.real()),
        "X": lambda m: _text(m, "<I"),
        "\x8c": lambda m: _text(m, "<B"),
        "\x8d": lambda m: _text(m, "<Q"),
        "V": lambda m: m.push(m.line().decode("raw-unicode-escape", "replace")),
        "C": lambda m: _bytes(m, "<B"),
        "B": lambda m: _bytes(m, "<I"),
        "\x8e": lambda m: _bytes(m, "<Q"),
        "]": lambda m: m.push([]),
        "l": lambda m: m.push(m.since_mark()),
        "a": lambda m: m.extend(list(m.last(1))),
        "e": lambda m: m.extend(m.since_mark()),
        "}": lambda m: m.push({}),
        "d": lambda m: m.make_dict(m.since_mark()),
        "s": lambda m: m.update(list(m.last(2))),
        "u": lambda m: m.update(m.since_mark()),
        ")": lambda m: m.push(()),
        "t": lambda m: m.push(tuple(m.since_mark())),
        "\x85": lambda m: m.push(m.last(1)),
        "\x86": lambda m: m.push(m.last(2)),
        "\x87": lambda m: m.push(m.last(3)),
        "q": lambda m: _put(m, m.number("<B")),
        "r": lambda m: _put(m, m.number("<I")),
        "p": lambda m: _put(m, _small_int(m.line())),
        "\x94": lambda m: _put(m, len(m.memo)),
        "h": lambda m: m.push(m.memo[m.number("<B")]),
        "j": lambda m: m.push(m.memo[m.number("<I")]),
        "g": lambda m: m.push(m.memo[_small_int(m.line())]),
    }.items()
}
