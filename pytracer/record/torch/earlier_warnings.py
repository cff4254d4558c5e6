"""What Python has warned of before an exception: each module keeps its warnings, so nothing is hooked for it.

`__warningregistry__` of a module has text, category and line of what it warned of, in order, but for those that a
filter ignores or lets through every time (CPython 3.9 to 3.14, Python/_warnings.c).
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from types import ModuleType

from pytracer._library_files import is_library_file

_MOST_OF_PROGRAM, _MOST_OF_LIBRARIES = 6, 4
_MOST_LOOKED_AT = 64  # of one module
_CHARACTERS = 300
_ABOUT_VERSIONS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning, SyntaxWarning)


def earlier_warnings() -> list[dict[str, object]]:
    """The last ones of the program's modules, then of torch's: `category`, `message`, `file`, `line`."""
    of_program, of_libraries = list[dict[str, object]](), list[dict[str, object]]()
    seen = set[int]()  # a module may have several names
    for name, module in list(sys.modules.items()):
        if not issubclass(type(module), ModuleType):
            continue
        held = ModuleType.__getattribute__(module, "__dict__")
        registry, file = held.get("__warningregistry__"), held.get("__file__")
        if type(registry) is not dict or type(file) is not str or id(registry) in seen:
            continue
        seen.add(id(registry))
        if not is_library_file(file):
            of_program += _warnings(registry, file)
        elif name.partition(".")[0] == "torch":
            of_libraries += _warnings(registry, file)
    return [*of_program[-_MOST_OF_PROGRAM:], *of_libraries[-_MOST_OF_LIBRARIES:]]


def _warnings(registry: dict[object, object], file: str) -> Iterator[dict[str, object]]:
    for key in itertools.islice(list(registry), _MOST_LOOKED_AT):
        if type(key) is not tuple or len(key) != 3:
            continue
        text, category, line = key
        if type(text) is not str or type(line) is not int or not isinstance(category, type):
            continue
        if issubclass(category, Warning) and not issubclass(category, _ABOUT_VERSIONS):
            yield {"category": category.__name__, "message": text[:_CHARACTERS], "file": file, "line": line}
