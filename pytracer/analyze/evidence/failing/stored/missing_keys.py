"""Keys that a dict, a checkpoint or a text file lacks: what is there, and where it came from."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Sequence

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.empty_dicts import empty_dict
from pytracer.analyze.evidence.failing.stored.groups_by_hand import group_by_hand
from pytracer.analyze.evidence.failing.stored.opened import loaded_from
from pytracer.analyze.evidence.failing.stored.other_optimizers import other_optimizer, writer
from pytracer.analyze.evidence.failing.stored.replaced_sections import replaced_section
from pytracer.analyze.evidence.syntax.bindings import is_loop_variable
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.report.job import NearNamesReport

_LOADED = Pattern(r"\bload\(|state_dict|checkpoint|ckpt")
_OF_TEXT = Pattern(r"(?:json|yaml|toml|tomllib)\.(?:safe_)?loads?$")
_OF_LAYERS = frozenset({"weight", "bias", "running_mean", "running_var", "num_batches_tracked"})
_FEW = 4
_LIKE = 0.6
_ENDING = 2  # a plural's
_MOST_NAMES = 8
# What the states of schedulers have, of one kind only (torch 2.13, optim/lr_scheduler.py).
_SCHEDULERS = (
    ("milestones", "MultiStepLR"),
    ("step_size", "StepLR"),
    ("T_0", "CosineAnnealingWarmRestarts"),
    ("T_max", "CosineAnnealingLR"),
    ("pct_start", "OneCycleLR"),
    ("patience", "ReduceLROnPlateau"),
    ("start_factor", "LinearLR"),
    ("lr_lambdas", "LambdaLR"),
    ("gamma", "ExponentialLR"),
)
_OF_PROGRAM = 64  # more keys are data


def missing_key(at: FailingLine) -> str | None:
    """Of a dict whose keys, or number of keys, are recorded."""
    if at.kind != "KeyError":
        return None
    key = at.message.strip()
    if not at.own:
        return other_optimizer(at) or _given_state(at, key) or _of_library(at, key)
    node = at.only(ast.Subscript)
    if node is None:
        return _popped(at, key)
    table = source(node.value)
    name = variable(node.value) or table
    known = next((item for item in at.near if item.of == table), None)
    value = at.value(name)
    held = re.match(r"\w+ of (\d+)$", value or "")
    came = at.came(name)
    if key.startswith("tensor("):
        index = source(node.slice)
        return (
            f"`{index}` is a tensor, and a dict finds a tensor only by the object itself, never by its value: write "
            f"`{table}[{index}.item()]`."
        )
    if known is None:
        if held is None:
            return None
        count = int(held[1])
        there = f"has {count} keys, and {key} is none of them" if count else "is empty"
        if count and re.search(r"torch\.load\(", came):
            return (
                f"`{table}`{came} {there}: print `list({table})[:5]`. Names such as 'fc.weight' are a model's state "
                f"itself: load that as it is; else ask for a name that is there, or by `{table}.get({key})`."
            )
        return f"`{table}`{came} {there}: {_filled(count, table)}"
    return _of_known(at, node, key, came, known)


def _popped(at: FailingLine, key: str) -> str | None:
    """`cfg.pop("name")`, a second time."""
    call = at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    known = next((item for item in at.near if owner is not None and item.of == source(owner)), None)
    if call is None or owner is None or called_name(call) != "pop" or len(call.args) != 1 or known is None:
        return None
    there = ", ".join((known.names or [])[:_MOST_NAMES]) or "no keys"
    there = f"the keys {there}" if known.names else there
    return (
        f"`{source(owner)}`{at.came(owner)} has {there}, and no {key}. If pop() took it out of the "
        f"same dict before, read it by [...], or work on a copy (`dict({source(owner)})`); else add it where that is "
        f"made, or pass a default (`pop({key}, None)`)."
    )


def _filled(count: int, table: str) -> str:
    if not count:
        return "look at what should fill it before this line, or use .get() with a default."
    if count <= _OF_PROGRAM:
        return (
            f"print `list({table})`. Another spelling, a space, another type, or an entry that other data have; read "
            "what may be absent by .get() with a default."
        )
    return "it was built from other data than what is looked up here: use .get() with a default, or build it from all."


def _of_known(at: FailingLine, node: ast.Subscript, key: str, came: str, known: NearNamesReport) -> str:
    names, table = known.names or [], source(node.value)
    empty = empty_dict(at, table) if not names else None
    if empty is not None:
        return f"`{table}`{came} has no keys at all: {empty.words} {empty.change}"
    if not names:
        return f"`{table}`{came} has no keys at all: look at what should fill it before this line."
    if re.fullmatch(r"-?\d+", key) and _twin(key, names) is None and all(name[:1] in "'\"" for name in names):
        return (
            f"`{table}`{came} is a dict by text ({names[0]}, ...), and line {at.line} asks for number {key}: take the "
            f"items in order (`list({table}.values())[{key}]`), or the key that belongs to it."
        )
    numbers = [int(name) for name in names if re.fullmatch(r"\d+", name)]
    if re.fullmatch(r"\d+", key) and len(numbers) == len(names) == known.count and {*numbers} == {*range(len(names))}:
        last = len(numbers) - 1
        return (
            f"`{table}`{came} has the keys 0 to {last}, and no {key}: if what is looked up counts from 1, subtract 1; "
            f"else see what makes a number beyond {last}."
        )
    twin = _twin(key, names, misspelt=not _is_item(at, node))
    of_one = is_loop_variable(at.scope, table.partition("[")[0], at.line)
    longer = twin is not None and _is_longer(key, twin) and not _is_named(at, key, node)
    if twin is not None and key.lstrip("-").isdecimal() and _is_of_json(at, table):
        asked = f"[str({source(node.slice)})]"
        return (
            f"`{table}`{came} has no {key}, but {twin}: JSON makes each key a text. Make numbers of them where it is "
            f"loaded (`{{int(k): v for k, v in json.load(f).items()}}`), or ask for `{table}{asked}`."
        )
    if twin is not None and (longer or not _is_read(at, twin)):
        if twin.strip("'\"").strip("\ufeff ").casefold() == key.strip("'\"").casefold() != twin.strip("'\"").casefold():
            return (
                f"`{table}`{came} has no {key}, but {twin}, with more around it: take that away where the names are "
                "read (`.strip()`; of a file with a BOM `encoding='utf-8-sig'`)."
            )
        why = "rename it in that item, or read either (`.get()`)" if of_one else "correct the one or the other"
        return f"`{table}`{came} has no {key}, but {twin}: {why}."
    there = ", ".join(names[:_MOST_NAMES])
    more = (known.count or 0) - len(names[:_MOST_NAMES])
    if more > 0 and key.lstrip("-").isdecimal():  # ids of data
        return f"`{table}`{came} has {known.count} keys, and {key} is none of them: {_filled(known.count or 0, table)}"
    rest = f" and {more} more" if more > 0 else ""
    file = loaded_from(at, table)
    lacks = f"`{table}`{f' of {file}' if file is not None else ''}{came} has the keys {there}{rest}, and no {key}"
    replaced = replaced_section(at, key, names) if more <= 0 else None
    if replaced is not None:
        return f"{lacks}: {replaced}"
    made = at.made(table)
    if made is not None and isinstance(made.node, ast.Call) and _OF_TEXT.match(ast.unparse(made.node.func)):
        return f"{lacks}: it is read from a file ({at.shown(made)}). Add it to that file, or use .get() with a default."
    if _LOADED.search(came) or _LOADED.search(table):
        whole = _state_itself(at, node, key, names)
        if whole is not None:
            return f"{lacks}: {whole}"
        saved = _saving_line(at, names)
        if saved is not None:
            other = _saved_with(at, key)
            if other is not None:
                return (
                    f"{lacks}, as {at.here(saved)} saves it. Load a file that {at.here(other)} saves: that has {key}."
                )
            return f"{lacks}, as {at.here(saved)} saves it. Save {key} there from now on; read older ones with .get()."
        return f"{lacks}: it was saved without it. Load what it has, or save {key} with it from now on."
    if of_one:
        return f"{lacks}: skip or mend such items, or use .get() with a default."
    listed = _listed(at, names) if more <= 0 else None
    if listed is not None:
        return f"{lacks}: add it to {listed}, correct it in the data where it is misspelt, or leave such items out."
    return f"{lacks}: add it where that is made, or use .get() with a default."


def _state_itself(at: FailingLine, node: ast.Subscript, key: str, names: Sequence[str]) -> str | None:
    """Of a file with nothing but parameters, where one with a key for them is looked for."""
    if not names or not all(name.strip("'\"").rpartition(".")[2] in _OF_LAYERS for name in names):
        return None
    table = source(node.value)
    loads = [
        item
        for item in nodes_of(at.statement)
        if isinstance(item, ast.Call) and called_name(item) == "load_state_dict" and item.args and item.args[0] is node
    ] if at.statement is not None else []  # fmt: skip
    begin = "the file holds a model's state itself, and nothing around it"
    if loads:
        return f"{begin}. Load it whole: `{source(loads[0].func)}({table})`."
    return f"{begin}. Load that as it is, and begin {key} anew; save a dict with both from now on."


def _is_of_json(at: FailingLine, table: str) -> bool:
    """Whether the table is what json.load() gave."""
    made = at.made(table)
    call = made.node if made is not None else None
    return isinstance(call, ast.Call) and ast.unparse(call.func) in ("json.load", "json.loads")


def _listed(at: FailingLine, names: Sequence[str]) -> str | None:
    """`` `CLASSES` (line 13) ``: the only list of the program that has exactly these texts or numbers."""
    found = [
        (file, item)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name)
        if isinstance(item.value, (ast.List, ast.Tuple)) and len(item.value.elts) > 1
        if {repr(part.value) if isinstance(part, ast.Constant) else "" for part in item.value.elts} == {*names}
    ]
    if len(found) != 1:
        return None
    file, item = found[0]
    return f"`{source(item.targets[0])}` ({at.in_file(file, item.lineno)})"


def _is_item(at: FailingLine, node: ast.Subscript) -> bool:
    """Whether a loop over items gives the key: one that looks like it is another item then."""
    names = [item.id for item in nodes_of(node.slice) if isinstance(item, ast.Name)]
    return any(is_loop_variable(at.scope, name, at.line) for name in names)


def _is_read(at: FailingLine, key: str) -> bool:
    """Whether the program asks for that key elsewhere, as for one of its own."""
    return any(
        isinstance(item, ast.Subscript) and isinstance(item.slice, ast.Constant) and repr(item.slice.value) == key
        for item in nodes_of(at.tree)
    )


def _is_longer(key: str, twin: str) -> bool:
    """`'labels'` and `'label'`."""
    one, other = sorted((key.strip("'\""), twin.strip("'\"")), key=len)
    return other.startswith(one) and len(other) - len(one) <= _ENDING


def _is_named(at: FailingLine, key: str, node: ast.Subscript) -> bool:
    """Whether any other line of the program has that key, which is then one of its own."""
    return any(
        isinstance(item, ast.Constant) and repr(item.value) == key and item is not node.slice
        for tree in at.files.values()
        for item in nodes_of(tree)
    )


def _saving_line(at: FailingLine, names: Sequence[str]) -> int | None:
    """The one dict of the file with exactly these keys."""
    found = [
        item.lineno
        for item in nodes_of(at.tree)
        if isinstance(item, ast.Dict) and item.keys
        if {repr(part.value) if isinstance(part, ast.Constant) else "" for part in item.keys} == {*names}
    ]
    return found[0] if len(found) == 1 and "torch.save(" in ast.unparse(at.tree) else None


def _saved_with(at: FailingLine, key: str) -> int | None:
    """The one dict with that key that torch.save() is given."""
    found = [
        call.lineno
        for call in nodes_of(at.tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "torch.save" and call.args
        if isinstance(call.args[0], ast.Dict)
        if any(isinstance(part, ast.Constant) and repr(part.value) == key for part in call.args[0].keys)
    ]
    return found[0] if len(found) == 1 else None


def _twin(key: str, names: Sequence[str], *, misspelt: bool = True) -> str | None:
    """The same as text or number, with a prefix, or misspelt: not by a digit, as `part-7` and `part-8` are."""
    plain = key.strip("'\"")
    for name in names:
        other = name.strip("'\"")
        if name != key and (other == plain or other.strip("\ufeff ").casefold() == plain.strip("\ufeff ").casefold()):
            return name
        if other.endswith((f".{plain}", f"_{plain}")) or plain.endswith((f".{other}", f"_{other}")):
            return name
        if other.startswith(f"{plain}_") or plain.startswith(f"{other}_"):
            return name
    like = difflib.get_close_matches(plain, [name.strip("'\"") for name in names], n=1, cutoff=_LIKE)
    if not misspelt or (like and re.sub(r"\d+", "", like[0]) == re.sub(r"\d+", "", plain)):
        return None
    return next((name for name in names if like and name.strip("'\"") == like[0]), None)


def _given_state(at: FailingLine, key: str) -> str | None:
    """A state that a library was given lacks what its own have."""
    call = at.only(ast.Call)
    state = next((item for item in at.near if item.of in ("state_dict", "state") and item.names), None)
    if call is None or len(call.args) != 1 or state is None:
        return None
    there = state.names or []
    wrote = next((kind for option, kind in _SCHEDULERS if f"'{option}'" in there), None)
    if (
        wrote is not None
        and (at.stack[0].file or "").endswith("/lr_scheduler.py")
        and isinstance(call.func, ast.Attribute)
    ):
        owner = source(call.func.value)
        return (
            f"`{source(call.args[0])}` is the state of a {wrote}, by its keys, and `{owner}`{at.came(owner)}, which "
            f"needs {key}, is another scheduler. Make the {wrote} that was saved, or leave line {at.line} out: "
            f"`{owner}` then begins at step 0."
        )
    given, keys = source(call.args[0]), ", ".join(there[:_MOST_NAMES])
    taken = source(call.func)
    return (
        f"`{given}` has the keys {keys}, and {taken}() needs {key}: something else was saved or is passed there. "
        "Compare the line that saves it, and the order of arguments on the way."
    )


def _of_library(at: FailingLine, key: str) -> str | None:
    """Looked up by a function of a library; an optimizer's options may have been replaced by those of a checkpoint."""
    inner, call = at.stack[0], at.only(ast.Call)
    by_hand = group_by_hand(at, key)
    if by_hand is not None:
        return by_hand
    if "/torch/optim/" in (inner.file or "") and call is not None and isinstance(call.func, ast.Attribute):
        owner = source(call.func.value)
        loads = {
            item.lineno: at.in_file(file, item.lineno)
            for file, tree in at.files.items()
            for item in nodes_of(tree)
            if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute)
            if item.func.attr == "load_state_dict" and source(item.func.value) == owner
        }
        if len(loads) == 1:
            (line,) = loads.values()
            wrote = writer(at)
            kind = f" ({wrote}, by its options)" if wrote is not None else ""
            return (
                f"`{owner}` has the options of the checkpoint that {line} loads, and these lack {key}: another kind of "
                f"optimizer{kind} wrote them than `{owner}`{at.came(owner)} is, or an older version. Make the kind "
                "that wrote it, or begin without its state; load_state_dict() replaces all options."
            )
    return None


def empty_subject(at: FailingLine) -> str | None:
    """Of an empty dict, the line that hands one out, for the headline."""
    node = at.only(ast.Subscript) if at.kind == "KeyError" and at.own else None
    known = next((item for item in at.near if node is not None and item.of == source(node.value)), None)
    if known is None or node is None or known.names or known.count:
        return None
    found = empty_dict(at, source(node.value))
    return f"`{source(node.value)}` is an empty dict, {found.brief}" if found is not None else None


def key_subject(at: FailingLine) -> str | None:
    """Of a loaded file that lacks a key, what the headline says."""
    node = at.only(ast.Subscript) if at.kind == "KeyError" and at.own else None
    table = source(node.value) if node is not None else ""
    known = next((item for item in at.near if item.of == table), None)
    file = loaded_from(at, table) if known is not None and known.names else None
    names = known.names or [] if known is not None else []
    if file is None or not 0 < len(names) <= _FEW or known is None or (known.count or 0) > len(names):
        return f"`{table}`, loaded from {file}, has other keys" if file is not None else None
    return f"`{table}`, loaded from {file}, has only {', '.join(names)}"
