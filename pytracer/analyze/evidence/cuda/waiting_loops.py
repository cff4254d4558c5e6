"""Loops of CUDA C that do nothing but wait: `while (*flag == 0) {}`, `do { seen = atomicAdd(count, 0); } while (...)`.

What ends such a loop is written by somebody else: a later kernel, the host, or other blocks of the same launch. One
that counts, or that looks at a clock, ends by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.own_code.c_text import without_comments

_FUNCTION = Pattern(
    r"(?P<kind>__global__|__device__)\s(?:[^;{}()]|__launch_bounds__\s*\([^()]*\))*?"
    r"\b(?P<name>\w+)\s*\((?P<parameters>[^(){};]*)\)\s*\{"
)
_HOST = Pattern(r"\b(?P<name>\w+)\s*\((?P<parameters>[^(){};]*)\)\s*\{")
_KEYWORDS = ("if", "for", "while", "switch", "catch")
_STRING = Pattern(r'"(?:[^"\\\n]|\\.)*"')
_LOOP = Pattern(r"\b(?:while|for)\s*\(|\bdo\s*\{")
_CHANGES = Pattern(r"\+\+|--|(?<![=!<>])=(?!=)")
_CLOCK = Pattern(r"\bclock(?:64)?\s*\(|globaltimer|\bclock\d*\b")
_COUNTS = Pattern(
    r"\batomic(?:Add|Sub|Or|And|Xor|Max|Min)\w*\s*\([^;]*,(?!\s*0[uUlLfF.0]*\s*\))|\batomic(?:Inc|Dec)|fetch_\w+"
)
_PAUSE = Pattern(r"(?:__\w+|__builtin_\w+)\s*\([^{}]*\)|continue")
_LOAD = Pattern(r"(?:[\w:]+[\s*&]+)*(?P<into>\w+)\s*=(?!=)(?P<value>[^{}]*)")
_ASSEMBLY = Pattern(r"(?:asm|__asm__)\b(?:\s*(?:volatile|__volatile__))?\s*\(.*\)", re.DOTALL)
_LEAVES = Pattern(r"if\s*(?P<condition>\(.*\))\s*\{?\s*(?:break|return)\s*", re.DOTALL)
_READS = Pattern(r"[*\[]|\batomic|\bload\b|\bld\w*\(|__ld|\bread\w*\(")
_ALIAS = r"(?:\b{0}\s*=(?!=)|[\w>*&]\s+{0}\s*\()\s*(?P<value>[^;]*);"
_READ = Pattern(r"[A-Za-z_]\w*\b(?!\s*\()")
_WRITES = (
    r"\batomic\w+\s*\(\s*&?\s*{0}\b[^;]*"
    r"|(?:\*\s*|\b){0}\s*(?:\[[^\];]*\])?\s*=(?!=)[^;]*"
    r"|\b{0}\b[^;=]*\.(?:store|fetch_\w+)[^;]*"
)
_WORD = Pattern(r"[A-Za-z_]\w*")
_COMPARES = Pattern(r"(?<![-<>])[<>]=?(?![<>])|[!=]=")
_AT = Pattern(r"==\s*(\w+)$")
_FOREVER = ("", "true", "1")


class WaitingLoop(msgspec.Struct, frozen=True):
    """Of a kernel, or of a function that it calls. `at`: its place in the source; `condition`: `while (*flag == 0)`, or
    `until (*flag != 0)` of a loop that is left by a `break`.

    `read`: the parameter of the kernel that the condition reads, and `until`: the one that it is compared with, by
    their positions; of the function `host` where the same source has one that launches the kernel. `written`: what the
    kernel does to what it reads, such as `atomicAdd(arrived, 1)`.
    """

    kernel: str
    at: int
    condition: str
    read: int | None = None
    until: int | None = None
    written: str | None = None
    host: str | None = None


class _Function(msgspec.Struct, frozen=True):
    kernel: bool
    name: str
    parameters: tuple[str, ...]
    start: int
    body: str


def waiting_loops(source: str) -> Iterator[WaitingLoop]:
    """One for each kernel that has one."""
    text = _STRING.sub(_blank_string, without_comments(source))
    functions = list(_functions(text))
    for kernel in functions:
        if not kernel.kernel:
            continue
        found = _of_function(kernel) or next(
            (
                item
                for other in functions
                if not other.kernel and (own := _of_function(other)) is not None
                if (item := _called(kernel, other, own)) is not None
            ),
            None,
        )
        if found is not None:
            yield _from_host(text, structs.replace(found, kernel=kernel.name))


def _blank_string(found: re.Match[str]) -> str:
    return f'"{" " * (len(found[0]) - 2)}"'


def _functions(text: str) -> Iterator[_Function]:
    for found in _FUNCTION.finditer(text):
        names = tuple((_WORD.findall(item) or [""])[-1] for item in found["parameters"].split(","))
        end = _end(text, found.end() - 1)
        yield _Function(
            found["kind"] == "__global__",
            found["name"],
            names,
            found.end(),
            text[found.end() : max(end - 1, found.end())],
        )


def _end(text: str, at: int) -> int:
    """Behind the bracket that closes the one at `at`."""
    depth = 0
    for found in re.finditer(r"[(){}\[\]]", text[at:]):
        depth += 1 if found[0] in "({[" else -1
        if not depth:
            return at + found.end()
    return len(text)


def _of_function(function: _Function) -> WaitingLoop | None:
    body = function.body
    behind = -1  # the `while` that ends a `do`
    for found in _LOOP.finditer(body):
        if found.start() == behind:
            continue
        head = body[found.start() : found.end() - 1].split()[0]
        inside, after = body[found.end() : _end(body, found.end() - 1) - 1], _end(body, found.end() - 1)
        condition: str | None
        if head == "do":
            closing = re.match(r"\s*(while)\s*(?=\()", body[after:])
            if closing is None:
                continue
            behind = after + closing.start(1)
            condition = body[after + closing.end() + 1 : _end(body, after + closing.end()) - 1]
            statements = inside
        else:
            condition, statements = _condition(head, inside), _statement(body, after)
        waited = _waited(condition, statements) if condition is not None else None
        if waited is None:
            continue
        read, until = _compared(body, waited, statements, function.parameters)
        leaves = condition is None or condition.strip() in _FOREVER
        outside = body[: found.start()] + ";" + body[after + len(statements) :]
        return WaitingLoop(
            function.name,
            function.start + found.start(),
            f"{'until' if leaves else 'while'} ({' '.join(waited.split())})",
            read,
            until,
            _written(outside, function.parameters[read], waited) if read is not None else None,
        )
    return None


def _condition(head: str, inside: str) -> str | None:
    """Of a `while`, and of a `for` that neither begins nor counts with anything."""
    if head.startswith("while"):
        return inside
    parts = inside.split(";")
    return parts[1].strip() if len(parts) == 3 and not parts[2].strip() else None


def _statement(body: str, at: int) -> str:
    """What follows a loop's head: without its braces, or up to its semicolon."""
    rest = body[at:]
    blanks = len(rest) - len(rest.lstrip())
    if rest[blanks : blanks + 1] == "{":
        return body[at + blanks + 1 : _end(body, at + blanks) - 1]
    return rest[: rest.find(";")] if ";" in rest else rest


def _waited(condition: str, statements: str) -> str | None:
    """What holds as long as the loop waits; None of a loop that does more, or ends by itself."""
    text = condition.strip()
    if _CLOCK.search(condition) or _CLOCK.search(statements) or _changes(condition):
        return None
    loads, leaves = [], []
    for item in _split(statements):
        load, left = _LOAD.fullmatch(item), _LEAVES.fullmatch(item)
        if left is not None and not _changes(left["condition"]):
            leaves.append(left["condition"])
        elif load is not None and _is_load(load):
            loads.append(load["into"])
        elif _ASSEMBLY.fullmatch(item):
            loads.append(item)
        elif not _PAUSE.fullmatch(item):
            return None
    if text in _FOREVER:
        return leaves[0][1:-1] if len(leaves) == 1 else None
    return text if not leaves and (loads or _READS.search(text) or "(" in text) else None


def _changes(text: str) -> bool:
    """`while (i++ < n);` and `while (atomicAdd(count, 1) < n);` end by themselves."""
    return _CHANGES.search(text) is not None or _COUNTS.search(text) is not None


def _split(statements: str) -> list[str]:
    """The statements of a body without braces of its own, but those of an `if` that leaves."""
    flat = re.sub(r"\}", ";", statements)
    parts, start, depth = [], 0, 0
    for at, letter in enumerate(flat):
        depth += (letter in "([") - (letter in ")]")
        if letter == ";" and not depth:
            parts.append(flat[start:at].strip())
            start = at + 1
    return [item for item in [*parts, flat[start:].strip()] if item]


def _is_load(load: re.Match[str]) -> bool:
    """`seen = *flag`, and not `i = i + 1`."""
    value = load["value"]
    return not _changes(value) and bool(_READS.search(value)) and load["into"] not in _WORD.findall(value)


def _position(body: str, text: str, parameters: Sequence[str]) -> int | None:
    """Of the parameter that a text reads first, perhaps by another pointer to it."""
    for word in _READ.findall(text):
        if word in parameters:
            return parameters.index(word)
        alias = re.search(_ALIAS.format(word), body)
        for named in _WORD.findall(alias["value"]) if alias is not None else []:
            if named in parameters:
                return parameters.index(named)
    return None


def _compared(body: str, condition: str, statements: str, parameters: Sequence[str]) -> tuple[int | None, int | None]:
    """Positions of the parameter that a condition reads, and of the one that it is compared with."""
    sides = _COMPARES.split(condition)
    sides.sort(key=lambda item: not _READS.search(item))
    for text in (sides[0], statements, *sides[1:]):
        read = _position(body, text, parameters)
        if read is not None:
            break
    untils = [_position(body, item, parameters) for item in sides[1:]] if len(sides) == 2 else []
    return read, next((item for item in untils if item != read), None)


def _written(outside: str, name: str, condition: str) -> str | None:
    """Beside the loop, what writes to a parameter; not what sets it back to what the loop waits at."""
    waits_at = _AT.search(condition)
    for found in re.finditer(_WRITES.format(re.escape(name)), outside):
        sets = re.search(r"[=,]\s*(\w+)\s*\)?$", found[0].strip())
        if waits_at is None or sets is None or sets[1] != waits_at[1]:
            return " ".join(found[0].split())
    return None


def _called(kernel: _Function, other: _Function, loop: WaitingLoop) -> WaitingLoop | None:
    """The loop of a function, in terms of the kernel that calls it."""
    call = re.search(rf"\b{re.escape(other.name)}\s*(?=\()", kernel.body)
    if call is None:
        return None
    end = _end(kernel.body, call.end())
    given = _arguments(kernel.body[call.end() + 1 : end - 1])

    def of_kernel(position: int | None) -> int | None:
        if position is None or position >= len(given):
            return None
        return _position(kernel.body, given[position], kernel.parameters)

    read = of_kernel(loop.read)
    outside = kernel.body[: call.start()] + ";" + kernel.body[end:]
    written = loop.written or (_written(outside, kernel.parameters[read], "") if read is not None else None)
    return structs.replace(loop, read=read, until=of_kernel(loop.until), written=written)


def _from_host(text: str, loop: WaitingLoop) -> WaitingLoop:
    """`wait<<<1, 1, 0, stream>>>(flag.data_ptr<int>())`: in terms of the function that has it, as extensions do."""
    launch = re.search(rf"\b{re.escape(loop.kernel)}\s*(?:<[^<>;]*>)?\s*<<<[^;]*?>>>\s*(?=\()", text)
    heads = list(_HOST.finditer(text, 0, launch.start())) if launch is not None else []
    head = next((item for item in reversed(heads) if item["name"] not in _KEYWORDS), None)
    if launch is None or head is None or _end(text, head.end() - 1) < launch.end():
        return loop
    given = _arguments(text[launch.end() + 1 : _end(text, launch.end()) - 1])
    body = text[head.end() : launch.start()]
    names = tuple((_WORD.findall(item) or [""])[-1] for item in head["parameters"].split(","))
    read, until = (
        _position(body, given[item], names) if item is not None and item < len(given) else None
        for item in (loop.read, loop.until)
    )
    return structs.replace(loop, read=read, until=until, host=head["name"])


def _arguments(text: str) -> list[str]:
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
