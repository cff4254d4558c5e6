"""C++ names for people: whole functions, and the short class name of an autograd node."""

from __future__ import annotations

import ctypes
import ctypes.util
import re
from collections.abc import Callable
from functools import lru_cache

_LONGEST = 16384  # a mangled name beyond this is left as it is: the demangler's work is not linear in its input
_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1", "libc++abi.dylib", "libc++.1.dylib")
_PART = re.compile(r"(\d{1,3})")


@lru_cache(maxsize=4096)
def demangle(name: str) -> str:
    """`_ZN3c106Tensor3addEv` to `c10::Tensor::add()`; a name that is not mangled, or cannot be read, stays.

    Source: `__cxa_demangle` of the C++ library on this machine; without one, names stay mangled.
    """
    demangler = _demangler() if name.startswith(("_Z", "__Z")) else None
    return (demangler(name) if demangler else None) or name


@lru_cache(maxsize=4096)
def node_name(mangled: str) -> str:
    """`N5torch8autograd9generated12MulBackward0E` (`typeid().name()`) to `MulBackward0`; other names stay."""
    nested = _last_part(mangled)
    if nested is not None:
        return nested
    if not mangled.startswith("N") or not mangled.endswith("E"):
        return mangled
    demangler = _demangler()
    full = demangler(mangled) if demangler else None
    return _without_namespaces(full) if full else mangled


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


@lru_cache(maxsize=1)
def _demangler() -> Callable[[str], str | None] | None:
    for candidate in (*_LIBRARIES, ctypes.util.find_library("stdc++")):
        if candidate is None:
            continue
        try:
            return _bind(ctypes.CDLL(candidate), ctypes.CDLL(None))
        except (OSError, AttributeError):
            continue
    return None


def _bind(library: ctypes.CDLL, c_library: ctypes.CDLL) -> Callable[[str], str | None]:
    cxa, free = library.__cxa_demangle, c_library.free
    cxa.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    cxa.restype = ctypes.c_void_p
    free.argtypes = [ctypes.c_void_p]
    free.restype = None

    def call(name: str) -> str | None:
        if len(name) > _LONGEST:
            return None
        status = ctypes.c_int(1)
        pointer = cxa(name.encode(), None, None, ctypes.byref(status))
        if not pointer:
            return None
        try:
            value = ctypes.string_at(pointer)
        finally:
            free(pointer)
        return value.decode("utf-8", "replace") if status.value == 0 else None

    return call
