"""The names that were there where one was not: keys, attributes and parameters, for an exception about a missing one.

Names as code writes them, never values: keys that are words, of small dicts; attributes and parameters like the
missing one. Only `__dict__` and dicts of exactly these types are looked at: asking them runs no code of the program.
"""

from __future__ import annotations

import collections
import difflib
import itertools
import re
import sys
from collections.abc import Iterator
from types import FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

from pytracer.record.config import records_values

_MOST_KEYS = 64  # of more, the keys are data
_MOST_NAMES = 12
_MOST_TABLES = 6
_LOOKED_AT = 4096
_NAME_CHARACTERS = 60
_LIKE = 0.6
_WORD = re.compile(r"(?:[\ufeff ]{0,3}[A-Za-z_][\w.\-/]{0,40} {0,3}|\d{1,6})$")  # a header's names have spaces around
_ATTRIBUTE = re.compile(r"'([\w.]+)' object has no attribute '(\w+)'")
_KEYWORD = re.compile(r"^([\w.]+)\(\) got an unexpected keyword argument '(\w+)'")
TABLES = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)


def near_names(error: BaseException, trace: TracebackType | None) -> list[dict[str, object]]:
    """`[{"of": "checkpoint", "names": ["'model'", "'epoch'"]}]`: what there is in place of what is missing."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not records_values():
        return []
    if type(error) is KeyError and len(error.args) == 1 and type(error.args[0]) in (str, int):
        return list(itertools.islice(_tables(trace.tb_frame, error.args[0]), _MOST_TABLES))
    if isinstance(error, AttributeError):
        return _attributes(error, trace.tb_frame)
    if type(error) is TypeError and error.args and type(error.args[0]) is str:
        found = _KEYWORD.match(error.args[0])
        return _parameters(found[1]) if found is not None else []
    return []


def _tables(frame: FrameType, missing: object) -> list[dict[str, object]]:
    """Dicts of the frame and its module, and those inside of them, which lack the key."""
    own = attributes_of(frame.f_locals.get("self"))
    held = [*frame.f_locals.items(), *((f"self.{name}", own[name]) for name in frame.f_code.co_names if name in own)]
    if frame.f_locals is not frame.f_globals:  # those of the module that its code names
        used = (name for name in frame.f_code.co_names if name not in frame.f_locals)
        held += [(name, frame.f_globals[name]) for name in used if name in frame.f_globals]
    inner = [
        (f"{name}[{key!r}]", item)
        for name, table in held
        if type(table) in TABLES and len(table) <= _MOST_KEYS
        for key, item in table.items()
        if type(key) is str and _WORD.match(key) and type(item) in TABLES
    ]
    others = [(f"{name}.{part}", value) for name, item in held for part, value in _read_of(item, frame, name)]
    found = []
    for name, table in [*held, *inner, *others][:_LOOKED_AT]:
        if type(table) not in TABLES or len(table) > _MOST_KEYS or (name.startswith("__") and name.endswith("__")):
            continue
        if any(type(key) is type(missing) and key == missing for key in table):
            continue
        keys = [repr(key) for key in table if (type(key) is str and _WORD.match(key)) or type(key) is int]
        if len(keys) == len(table):
            found.append({"of": name[:_NAME_CHARACTERS], "names": _nearest(repr(missing), keys), "count": len(keys)})
    return found


def _read_of(owner: object, frame: FrameType, name: str) -> Iterator[tuple[str, object]]:
    """Attributes of another object than `self` that the frame's code names."""
    if name == "self" or type(owner) in TABLES or issubclass(type(owner), (type, ModuleType, FunctionType)):
        return
    own = attributes_of(owner)
    yield from ((part, own[part]) for part in frame.f_code.co_names if part in own)


def _nearest(missing: str, names: list[str]) -> list[str]:
    """Those like it first, then the others in their order."""
    plain = {name.strip("'"): name for name in names}
    found = difflib.get_close_matches(missing.strip("'"), plain, n=_MOST_NAMES, cutoff=_LIKE)
    like = [plain[name] for name in found]
    return [*like, *(name for name in names if name not in like)][:_MOST_NAMES]


def _attributes(error: AttributeError, frame: FrameType) -> list[dict[str, object]]:
    """Those like the missing one."""
    found = _ATTRIBUTE.search(str(error.args[0])) if error.args and type(error.args[0]) is str else None
    owner, name = _of_error(error, "obj"), _of_error(error, "name")
    if owner is None or type(name) is not str:  # torch.nn.Module raises its own
        if found is None:
            return []
        held = [frame.f_locals.get("self"), *itertools.islice(frame.f_locals.values(), _LOOKED_AT)]
        owner = next((item for item in held if type(item).__name__ == found[1].rpartition(".")[2]), None)
        name = found[2]
    if owner is None:
        return []
    names = [item for item in _names_of(owner) if not item.startswith("__") and _WORD.match(item)]
    like = difflib.get_close_matches(name, names, n=3, cutoff=_LIKE)
    kind = owner.__name__ if type(owner) is ModuleType else type(owner).__name__
    return [{"of": str(kind)[:_NAME_CHARACTERS], "names": like}] if like else []


def _of_error(error: AttributeError, name: str) -> Any:
    """Python's own attribute, since 3.10; not one that a class of the program has by that name."""
    own = AttributeError.__dict__.get(name)
    return own.__get__(error) if own is not None else None


def _names_of(owner: object) -> set[str]:
    own = attributes_of(owner)
    found = {*own}
    for part in ("_modules", "_parameters", "_buffers"):
        held = own.get(part)
        if type(held) in TABLES:
            found |= {*held}  # type: ignore[misc]
    if type(owner) is not ModuleType:
        for kind in _bases(type(owner)):
            found |= {*type.__getattribute__(kind, "__dict__")}
    return {name for name in itertools.islice(found, _LOOKED_AT) if type(name) is str}


def attributes_of(owner: object) -> dict[str, Any]:
    """Its own, without asking its class."""
    try:
        own = object.__getattribute__(owner, "__dict__")  # no __getattr__ of the program's
    except AttributeError:
        return {}
    return own if type(own) is dict else {}


def _bases(kind: type) -> tuple[type, ...]:
    bases: tuple[type, ...] = type.__getattribute__(kind, "__mro__")
    return bases


def _parameters(function: str) -> list[dict[str, object]]:
    """Of `AdamW.__init__` or `build`, where all modules have one of that name."""
    first, _, method = function.rpartition(".")
    last = first.rpartition(".")[2] or method
    holders = [vars(module).get(last) for module in [*sys.modules.values()] if type(module) is ModuleType]
    found = {id(item): item for item in holders if item is not None}
    wanted = type if first else FunctionType
    found = {key: item for key, item in found.items() if issubclass(type(item), wanted)}
    if len(found) != 1:
        return []
    owner = next(iter(found.values()))
    made = next(filter(None, (kind.__dict__.get(method) for kind in _bases(owner))), None) if first else owner
    while type(made) is FunctionType and type(made.__dict__.get("__wrapped__")) is FunctionType:
        made = made.__dict__["__wrapped__"]
    if type(made) is not FunctionType:
        return []
    code = made.__code__
    names = [*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]]
    return [{"of": f"{function}()"[:_NAME_CHARACTERS], "names": [name for name in names if name != "self"][:32]}]
