"""RecursionError of a __getattr__ that asks for an attribute of its own."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.failing.expressions import names_in, short, source
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, second_parameter
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, PythonFrame

# What makes objects without their __init__.
_MAKERS = ("/copy.py", "/copyreg.py", "/pickle.py", "/multiprocessing/reduction.py", "/torch/serialization.py")

_MAKES = ("_reconstruct", "load", "_load", "_legacy_load", "load_build")  # these ask the new object


def endless_lookup(at: FailingLine) -> str | None:
    """__getattr__ that asks for an attribute of its own, which is not set."""
    name = getattr(at.scope, "name", "")
    if at.kind != "RecursionError" or name not in ("__getattr__", "__getattribute__") or at.node is None:
        return None
    asked = [item for item in names_in(at.node) if item.startswith("self.")]
    sure = _asks_for_itself(at, asked[0].removeprefix("self.")) if len(asked) == 1 else False
    if sure is False:
        return None
    plain = asked[0].removeprefix("self.")
    begun = _begun(at) if sure else None
    if begun is not None:
        return (
            f"{begun}, and {name}() there asks for `{asked[0]}`, not set yet, so that it calls itself without end. "
            f'Begin it with `if name == "{plain}" or name.startswith("__"): raise AttributeError(name)`.'
        )
    original = _asks_original(at) if sure else None
    if original is not None:
        return (
            f"{name}() asks for `{asked[0]}`, which is not set and leads to {name}() again: {original}, which has "
            f"none yet. Set it first in __init__, and begin {name}() with "
            f'`if name == "{plain}" or name.startswith("__"): raise AttributeError(name)`.'
        )
    first = "which is not set and leads" if sure else "which leads"
    made = "copy and pickle make the object without __init__"
    return (
        f"{name}() asks for `{asked[0]}`, {first} to {name}() again: "
        f"{made if sure else f'it may not be set, as {made}, or hold the next of too many objects of this class'}. "
        f'Begin it with `if name == "{plain}" or name.startswith("__"): raise AttributeError(name)`.'
    )


def endless_subject(at: FailingLine) -> str | None:
    """Where it was begun, and that it calls itself."""
    words = endless_lookup(at)
    return words.partition(", so that")[0] if words is not None and _begun(at) is not None else None


def _begun(at: FailingLine) -> str | None:
    """`` copy.deepcopy(unet) at line 109 makes an object without __init__ ``, where that called the first one."""
    outer = list(at.exception.outermost or ())
    own = next((n for n, item in enumerate(outer) if item.function != at.frame.function and _is_own(item)), None)
    frame = outer[own] if own is not None else None
    between = [item for item in outer[:own] if item.function != at.frame.function]
    tree = at.files.get(frame.file or "") if frame is not None else None
    if frame is None or frame.line is None or tree is None or not between:
        return None
    names = {(item.function or "").rpartition(".")[2] for item in between}
    if not all((item.file or "").endswith(_MAKERS) for item in between):
        return None
    calls = [item for item in calls_on(tree, frame.line) if called_name(item) in names]
    if len(calls) != 1:
        return None
    if between[0].function not in _MAKES:
        return None  # asked of the object itself, whose __init__ may not have set it
    owner = class_around(at.tree, at.scope)
    made = "an object"
    if owner is not None:
        made = f"an object of {owner.name} or a subclass" if _has_subclass(at, owner.name) else f"a {owner.name}"
    return f"{short(source(calls[0]))} at {at.in_file(frame.file, frame.line)} makes {made} without __init__"


def _asks_original(at: FailingLine) -> str | None:
    """`` copy.deepcopy() asks the object itself ``, where no other one was made yet."""
    inner = next((item for item in at.exception.outermost or () if item.function != at.frame.function), None)
    of_copy = inner is not None and (inner.file or "").endswith("/copy.py") and inner.function in ("copy", "deepcopy")
    return f"copy.{inner.function}() asks the object itself" if of_copy and inner is not None else None


def _has_subclass(at: FailingLine, name: str) -> bool:
    classes = (item for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.ClassDef))
    return any(last_name(base) == name for item in classes for base in item.bases)


def _is_own(frame: PythonFrame) -> bool:
    return not is_library_file(frame.file)


def endless_lookup_of(snapshot: Snapshot, stack: Sequence[PythonFrame]) -> str | None:
    """Of any stack that repeats, innermost first."""
    at = failing_line(snapshot, ExceptionReport(type="RecursionError"), stack)
    return endless_lookup(at) if at is not None else None


def _asks_for_itself(at: FailingLine, attribute: str) -> bool | None:
    """Whether the attribute itself is what was looked up: by the expression that failed, or by the length of the name.

    Else the object that it holds has the same __getattr__. None where neither is recorded.
    """
    if isinstance(at.node, ast.expr):
        return isinstance(at.node, ast.Attribute)
    value = at.values.get(second_parameter(at.scope) or "")
    return value == f"str of {len(attribute)}" if value is not None else None
