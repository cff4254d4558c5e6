"""A key, attribute or parameter that is not there: what there is in its place, and where the object came from."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Sequence

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.opened import loaded_from
from pytracer.analyze.evidence.syntax.bindings import attribute_settings, is_loop_variable
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import class_named
from pytracer.report.job import NearNamesReport

_ATTRIBUTE = re.compile(r"'(?P<kind>[\w.]+)' object has no attribute '(?P<name>\w+)'")
_KEYWORD = re.compile(r"(?P<function>[\w.<>]+)\(\) got an unexpected keyword argument '(?P<name>\w+)'")
_NO_ITEM = re.compile(
    r" is not in (?:list|tuple|deque)$|^list\.(?:remove|index)\(x\): x not in list|not in (?:list|tuple)$"
)
_LOADED = re.compile(r"\bload\(|state_dict|checkpoint|ckpt")
_OF_TEXT = re.compile(r"(?:json|yaml|toml|tomllib)\.(?:safe_)?loads?$")
_WRAPPERS = {"DistributedDataParallel": "module", "DataParallel": "module", "OptimizedModule": "_orig_mod"}
_LIKE = 0.6
_MOST_NAMES = 8
_FEW = 4
_SEVERAL = {"tuple", "list", "dict"}


def missing_key(at: FailingLine) -> str | None:
    """Of a dict whose keys, or number of keys, are recorded."""
    if at.kind != "KeyError":
        return None
    key = at.message.strip()
    if not at.own:
        return _given_state(at, key) or _of_library(at, key)
    node = at.only(ast.Subscript)
    if node is None:
        return None
    table = source(node.value)
    name = variable(node.value) or table
    known = next((item for item in at.near if item.of == table), None)
    value = at.value(name)
    held = re.match(r"\w+ of (\d+)$", value or "")
    came = at.came(name)
    if known is None:
        if held is None:
            return None
        empty = held[1] == "0"
        there = "is empty" if empty else f"has {held[1]} keys, and {key} is none of them"
        return f"`{table}`{came} {there}: {_filled(empty)}"
    return _of_known(at, key, table, came, known)


def _filled(empty: bool) -> str:
    if empty:
        return "look at what should fill it before this line, or use .get() with a default."
    return "it was built from other data than what is looked up here: use .get() with a default, or build it from all."


def _of_known(at: FailingLine, key: str, table: str, came: str, known: NearNamesReport) -> str:
    names = known.names or []
    if not names:
        return f"`{table}`{came} has no keys at all: look at what should fill it before this line."
    if re.fullmatch(r"-?\d+", key) and _twin(key, names) is None and all(name[:1] in "'\"" for name in names):
        return (
            f"`{table}`{came} is a dict by text ({names[0]}, ...), and line {at.line} asks for number {key}: take the "
            f"items in order (`list({table}.values())[{key}]`), or the key that belongs to it."
        )
    twin = _twin(key, names)
    of_one = is_loop_variable(at.scope, table.partition("[")[0], at.line)
    if twin is not None and not _is_read(at, twin):
        why = "rename it in that item, or read either (`.get()`)" if of_one else "correct the one or the other"
        return f"`{table}`{came} has no {key}, but {twin}: {why}."
    there = ", ".join(names[:_MOST_NAMES])
    more = (known.count or 0) - len(names[:_MOST_NAMES])
    rest = f" and {more} more" if more > 0 else ""
    file = loaded_from(at, table)
    lacks = f"`{table}`{f' of {file}' if file is not None else ''}{came} has the keys {there}{rest}, and no {key}"
    made = at.made(table)
    if made is not None and isinstance(made.node, ast.Call) and _OF_TEXT.match(ast.unparse(made.node.func)):
        return f"{lacks}: it is read from a file ({at.shown(made)}). Add it to that file, or use .get() with a default."
    if _LOADED.search(came) or _LOADED.search(table):
        saved = _saving_line(at, names)
        if saved is not None:
            other = _saved_with(at, key)
            if other is not None:
                return f"{lacks}, as line {saved} saves it. Load a file that line {other} saves: that has {key}."
            return f"{lacks}, as line {saved} saves it. Save {key} there from now on; read older ones with .get()."
        return f"{lacks}: it was saved without it. Load what it has, or save {key} with it from now on."
    if of_one:
        return f"{lacks}: skip or mend such items, or use .get() with a default."
    return f"{lacks}: add it where that is made, or use .get() with a default."


def _is_read(at: FailingLine, key: str) -> bool:
    """Whether the program asks for that key elsewhere, as for one of its own."""
    return any(
        isinstance(item, ast.Subscript) and isinstance(item.slice, ast.Constant) and repr(item.slice.value) == key
        for item in ast.walk(at.tree)
    )


def _saving_line(at: FailingLine, names: Sequence[str]) -> int | None:
    """The one dict of the file with exactly these keys."""
    found = [
        item.lineno
        for item in ast.walk(at.tree)
        if isinstance(item, ast.Dict) and item.keys
        if {repr(part.value) if isinstance(part, ast.Constant) else "" for part in item.keys} == {*names}
    ]
    return found[0] if len(found) == 1 and "torch.save(" in ast.unparse(at.tree) else None


def _saved_with(at: FailingLine, key: str) -> int | None:
    """The one dict with that key that torch.save() is given."""
    found = [
        call.lineno
        for call in ast.walk(at.tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "torch.save" and call.args
        if isinstance(call.args[0], ast.Dict)
        if any(isinstance(part, ast.Constant) and repr(part.value) == key for part in call.args[0].keys)
    ]
    return found[0] if len(found) == 1 else None


def _twin(key: str, names: Sequence[str]) -> str | None:
    """The same as text or number, with a prefix, or misspelt."""
    plain = key.strip("'\"")
    for name in names:
        other = name.strip("'\"")
        if name != key and (other == plain or other.strip().casefold() == plain.strip().casefold()):
            return name
        if other.endswith((f".{plain}", f"_{plain}")) or plain.endswith((f".{other}", f"_{other}")):
            return name
        if other.startswith(f"{plain}_") or plain.startswith(f"{other}_"):
            return name
    like = difflib.get_close_matches(plain, [name.strip("'\"") for name in names], n=1, cutoff=_LIKE)
    return next((name for name in names if like and name.strip("'\"") == like[0]), None)


def _given_state(at: FailingLine, key: str) -> str | None:
    """A state that a library was given lacks what its own have."""
    call = at.only(ast.Call)
    state = next((item for item in at.near if item.of in ("state_dict", "state") and item.names), None)
    if call is None or len(call.args) != 1 or state is None:
        return None
    given, there = source(call.args[0]), ", ".join((state.names or [])[:_MOST_NAMES])
    taken = source(call.func)
    return (
        f"`{given}` has the keys {there}, and {taken}() needs {key}: something else was saved or is passed there. "
        "Compare the line that saves it, and the order of arguments on the way."
    )


def _of_library(at: FailingLine, key: str) -> str | None:
    """Looked up by a function of a library; an optimizer's options may have been replaced by those of a checkpoint."""
    inner, call = at.stack[0], at.only(ast.Call)
    if "/torch/optim/" in (inner.file or "") and call is not None and isinstance(call.func, ast.Attribute):
        owner = source(call.func.value)
        loads = {
            item.lineno: at.in_file(file, item.lineno)
            for file, tree in at.files.items()
            for item in ast.walk(tree)
            if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute)
            if item.func.attr == "load_state_dict" and source(item.func.value) == owner
        }
        if len(loads) == 1:
            (line,) = loads.values()
            return (
                f"`{owner}` has the options of the checkpoint that {line} loads, and these lack {key}: another kind of "
                f"optimizer wrote them than `{owner}`{at.came(owner)} is, or an older version. Make the kind that "
                "wrote it, or begin without its state; load_state_dict() replaces all options."
            )
    return None


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


def missing_attribute(at: FailingLine) -> str | None:
    """Of a class of the program or of an object with a name like it."""
    found = _ATTRIBUTE.search(at.message)
    if at.kind != "AttributeError" or found is None or found["kind"] == "NoneType":
        return None
    kind, name = found["kind"], found["name"]
    if kind in _WRAPPERS:
        return _of_wrapper(at, kind, name)
    if kind in _SEVERAL:
        return _several(at, kind, name)
    if kind in ("Namespace", "argparse.Namespace"):
        return _option(at, name)
    owner = class_named(at.tree, kind.rpartition(".")[2])
    settings = attribute_settings(owner) if owner is not None else {}
    if name in settings:
        line, method = settings[name]
        if method == "__init__":
            return (
                f"{kind}.__init__ sets `{name}` at line {line}, and had not come to it: it is used before, or the "
                "__init__ of a subclass lacks super().__init__()."
            )
        return (
            f"{kind} sets `{name}` only in {method}() (line {line}), which has not run for this object: call it "
            "before, or set it in __init__."
        )
    near = next((item for item in at.near if item.of == kind and item.names), None)
    like = (near.names or [])[0] if near is not None else _nearest(name, settings)
    if like == name:
        return (
            f"`{name}` is a property of {kind}, whose own code raised an AttributeError, which nn.Module hides: read "
            "its lines for an attribute that is not there."
        )
    if like is None:
        return None
    where = f" (line {settings[like][0]})" if like in settings else ""
    return f"{kind} has no `{name}`, but `{like}`{where}: line {at.line} or that one is misspelt."


def _of_wrapper(at: FailingLine, kind: str, name: str) -> str | None:
    """An attribute of the model inside."""
    inside = [item for item in ast.walk(at.statement or ast.Pass()) if isinstance(item, ast.Attribute)]
    owners = {source(item.value) for item in inside if item.attr == name}
    if len(owners) != 1:
        return None
    owner = owners.pop()
    loses = "; forward() past the wrapper reduces no gradients" if kind == "DistributedDataParallel" else ""
    return (
        f"{kind} hides what the model inside has: write `{owner}.{_WRAPPERS[kind]}.{name}` at line {at.line}, or keep "
        f"a name for the unwrapped model (`{owner}`{at.came(owner)}){loses}."
    )


def _option(at: FailingLine, name: str) -> str | None:
    """Of the parser that made the options, where it is in the program."""
    node = at.only(ast.Attribute)
    if node is None or node.attr != name:
        inside = ast.walk(at.node) if at.node is not None else ()
        node = next((item for item in inside if isinstance(item, ast.Attribute) and item.attr == name), None)
    found = at.made(node.value) if node is not None else None
    if node is None or found is None or not isinstance(found.node, ast.Call) or "parse" not in source(found.node.func):
        return None
    options = [
        (option, item.lineno)
        for item in ast.walk(found.spot.tree)
        if isinstance(item, ast.Call) and called_name(item) == "add_argument"
        if (option := _named(item)) is not None
    ]
    if not options or name in (option for option, _ in options):
        return None
    like = _nearest(name, {option: (line, "") for option, line in options})
    initials = [option for option, _ in options if "".join(part[:1] for part in option.split("_")) == name]
    twin = like or (initials[0] if len(initials) == 1 else None)
    if twin is not None:
        line = dict(options)[twin]
        return (
            f"The parser has `{twin}` ({at.place(found.spot, line)}), and no `{name}`: write "
            f"`{source(node.value)}.{twin}`, or rename the option there."
        )
    there = ", ".join(option for option, _ in options[:_MOST_NAMES])
    more = f" and {len(options) - _MOST_NAMES} more" if len(options) > _MOST_NAMES else ""
    return (
        f"The parser at {at.place(found.spot, options[0][1])} has the options {there}{more}, and no `{name}`: add it "
        "there, or read the one that is meant."
    )


def _named(call: ast.Call) -> str | None:
    """`learning_rate` of add_argument("-l", "--learning-rate")."""
    words = [item.value for item in call.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    long = [word for word in words if word.startswith("--")] or words
    return long[0].lstrip("-").replace("-", "_") if long else None


def _nearest(name: str, names: dict[str, tuple[int, str]]) -> str | None:
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=_LIKE)), None)


def _several(at: FailingLine, kind: str, name: str) -> str | None:
    """A tuple, list or dict where one value was expected."""
    node = at.only(ast.Attribute)
    if node is None or node.attr != name:
        inside = [item for item in ast.walk(at.node) if isinstance(item, ast.Attribute)] if at.node is not None else []
        named = [item for item in inside if item.attr == name]
        node = named[0] if len(named) == 1 else None
    owner = source(node.value) if node is not None else None
    value = at.values.get(owner) if owner is not None else None
    if node is None or owner is None or value is None or not value.startswith(f"{kind} of"):
        return None
    came, count = at.came(owner), value.rpartition(" ")[2]
    of_dict = _item_of_dict(at, owner)
    if of_dict is not None and kind != "dict":
        return (
            f"`{owner}` is a {kind} of {count}, an item of `{source(of_dict)}`, and a {kind} has no .{name}: leave "
            f"items that are no tensors as they are, such as texts: `{owner}.{name}(...) if torch.is_tensor({owner}) "
            f"else {owner}`."
        )
    if kind == "dict":
        one = f'`{owner}["{name}"]`'
        declared = _declared(at, node.value)
        if declared is not None:
            return f"`{owner}` is a plain dict of {count}, {declared}; or read {one}."
        return f"`{owner}`{came} is a dict of {count}, and a dict has no .{name}: take {one} if it has that key."
    if not came:
        return None
    return (
        f"`{owner}`{came} is a {kind} of {count}, and a {kind} has no .{name}: take the item that is meant "
        f"(`{owner}[0]`), or use each in a loop."
    )


def _item_of_dict(at: FailingLine, name: str) -> ast.expr | None:
    """`batch` of `for k, v in batch.items()`, also in a comprehension."""
    for item in ast.walk(at.statement or ast.Pass()):
        if isinstance(item, (ast.comprehension, ast.For)) and isinstance(item.iter, ast.Call):
            named = {part.id for part in ast.walk(item.target) if isinstance(part, ast.Name)}
            if name in named and called_name(item.iter) in ("items", "values"):
                return item.iter.func.value if isinstance(item.iter.func, ast.Attribute) else None
    return None


def _declared(at: FailingLine, owner: ast.expr) -> str | None:
    """A field that a class of the program declares as another class, of which `Config(**raw)` makes none."""
    attribute = owner.attr if isinstance(owner, ast.Attribute) else None
    fields = [
        (outer, item)
        for outer in ast.walk(at.tree)
        if isinstance(outer, ast.ClassDef)
        for item in outer.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.target.id == attribute
        if isinstance(item.annotation, ast.Name) and class_named(at.tree, item.annotation.id) is not None
    ]
    if len(fields) != 1:
        return None
    outer, item = fields[0]
    spread = [
        call
        for call in ast.walk(at.tree)
        if isinstance(call, ast.Call) and called_name(call) in (outer.name, "cls")
        if any(given.arg is None for given in call.keywords)
    ]
    kind = ast.unparse(item.annotation)
    by = f", and `{source(spread[0])}` (line {spread[0].lineno}) converts nothing" if len(spread) == 1 else ""
    return (
        f"where {outer.name} declares `{attribute}: {kind}` (line {item.lineno}){by}: make it there, by "
        f"`{kind}(**...)` of that part"
    )


def missing_item(at: FailingLine) -> str | None:
    """`labels.index(name)` of a list, and `names.remove(x)`."""
    call = at.only(ast.Call)
    if at.kind != "ValueError" or not _NO_ITEM.search(at.message) or call is None or not at.own or not call.args:
        return None
    owner = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr in ("index", "remove") else None
    name = variable(owner) if owner is not None else None
    if owner is None or name is None:
        return None
    value = at.value(name)
    made = at.made(owner)
    inner = made is not None and made.line != at.line and not isinstance(made.node, (ast.Name, ast.Attribute))
    where = f" ({at.shown(made)})" if inner and made is not None else at.came(name)
    item = at.message.partition(" is not in ")[0]
    what = f"`{source(call.args[0])}` is {item}" if item != at.message and item[:1] in "'\"-0123456789" else ""
    has = f"`{name}`{where}{f', a {value},' if value is not None else ''} does not have"
    lacks = f"{what}, which {has.replace(' does not have', ' lacks')}" if what else f"{has} `{source(call.args[0])}`"
    return (
        f"{lacks}: it was made from other data. Make it from all, or look for what is not in it before line {at.line}."
    )


def unexpected_keyword(at: FailingLine) -> str | None:
    """With the parameters that there are."""
    found = _KEYWORD.search(at.message)
    if at.kind != "TypeError" or found is None:
        return None
    function, name = found["function"], found["name"]
    names = next((item.names or [] for item in at.near if item.of == f"{function}()"), [])
    if not names:
        return None
    call = at.only(ast.Call)
    passed = next((item.value for item in call.keywords if item.arg is None), None) if call is not None else None
    given = f"`{source(passed)}`{at.came(variable(passed) or '')}" if passed is not None else "the call"
    like = difflib.get_close_matches(name, names, n=1, cutoff=_LIKE)
    if like:
        return f"{function}() has no '{name}', but '{like[0]}': rename it in {given}."
    there = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
    return (
        f"{function}() as installed takes {there}, and no '{name}': take it out of {given}, or install the version "
        "that has it."
    )
