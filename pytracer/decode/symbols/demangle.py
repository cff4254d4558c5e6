"""C++ names for people: whole functions, and the short class name of an autograd node."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from pytracer.decode.symbols import bounded_demangler

_LONGEST = 16384  # a mangled name beyond this is left as it is: the demangler's work is not linear in its input
# What the name contains once and refers to repeatedly: substitutions, template parameters, pack expansions. Each of
# them may repeat everything before it, so that 250 bytes become 570 MB; such names are left to another process.
_AGAIN = re.compile(r"S[0-9A-Z]*_|T[0-9A-Z]*_|Dp|sp")
# Expressions in template arguments, conversions, constraints: libstdc++ tries them in several ways, one in the other,
# and takes seconds for 66 bytes.
_TRIED_AGAIN = re.compile(r"X|sr|cv|D[tT]|LZ|L_Z|Q")
_HARMLESS_BYTES = 1 << 22
_HARMLESS_LENGTH = 2048  # older demanglers recurse for each character
_PART = re.compile(r"(\d{1,3})")


@lru_cache(maxsize=4096)
def demangle(name: str) -> str:
    """`_ZN3c106Tensor3addEv` to `c10::Tensor::add()`; a name that is not mangled, or cannot be read, stays.

    Source: `__cxa_demangle` of the C++ library on this machine; without one, names stay mangled.
    """
    return (_demangled(name) if name.startswith(("_Z", "__Z")) else None) or name


@lru_cache(maxsize=4096)
def node_name(mangled: str) -> str:
    """`N5torch8autograd9generated12MulBackward0E` (`typeid().name()`) to `MulBackward0`; other names stay."""
    nested = _last_part(mangled)
    if nested is not None:
        return nested
    if not mangled.startswith("N") or not mangled.endswith("E"):
        return mangled
    full = _demangled(mangled)
    return _without_namespaces(full) if full else mangled


def _demangled(name: str) -> str | None:
    """None when the name cannot be read, or would be too long."""
    demangler = _demangler()
    if demangler is None or len(name) > _LONGEST:
        return None
    full = demangler(name) if _is_harmless(name) else bounded_demangler.demangle(name)
    return full if full is not None and len(full) <= bounded_demangler.LONGEST else None


def _last_part(mangled: str) -> str | None:
    """The last component of a plain nested name; None when it holds anything but components."""
    if not mangled.startswith("N") or not mangled.endswith("E"):
        return None
    i, part = 1, None
    while i < len(mangled) - 1:
        match = _PART.match(mangled, i)
        if match is None:
            return None
        length = int(match[1])
        part = mangled[match.end() : match.end() + length]
        i = match.end() + length
    return part if part and i == len(mangled) - 1 else None


def _without_namespaces(name: str) -> str:
    """`torch::autograd::CppNode<Mine>` to `CppNode<Mine>`."""
    depth = start = 0
    for i, char in enumerate(name):
        depth += (char == "<") - (char == ">")
        if char == ":" and depth == 0:
            start = i + 1
    return name[start:]


def _is_harmless(name: str) -> bool:
    if len(name) > _HARMLESS_LENGTH or _TRIED_AGAIN.search(name):
        return False
    return len(name) << min(64, len(_AGAIN.findall(name))) <= _HARMLESS_BYTES


@lru_cache(maxsize=1)
def _demangler() -> Callable[[str], str | None] | None:
    return bounded_demangler.load()
