"""An attribute, item or parameter that is not there: what there is in its place, and where the object came from."""

from __future__ import annotations

import ast
import difflib

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.untaken import untaken
from pytracer.analyze.evidence.failing.usage.wrapped_models import model_without, no_wrapper
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import attribute_settings
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.guards import guards_of
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import places_that_bind
from pytracer.analyze.evidence.syntax.scopes import all_parameters, class_named, definitions, qualified_name

_ATTRIBUTE = Pattern(r"'(?P<kind>[\w.]+)' object has no attribute '(?P<name>\w+)'")
_MODULE = Pattern(r"^module '([\w.]+)' has no attribute '(\w+)'")
_KEYWORD = Pattern(r"(?P<function>[\w.<>]+)\(\) got an unexpected keyword argument '(?P<name>\w+)'")
_WRAPPERS = {"DistributedDataParallel": "module", "DataParallel": "module", "OptimizedModule": "_orig_mod"}
_MOVES = ("to", "cuda", "cpu")
_OF_MODULES = ("eval", "train", "parameters", "named_parameters", "forward", "state_dict", "load_state_dict", "modules")
_LIKE = 0.6
_MOST_NAMES = 8
_SEVERAL = {"tuple", "list", "dict"}
_PLAIN = ("int", "float", "bool", "str")


def missing_attribute(at: FailingLine) -> str | None:
    """Of a class of the program or of an object with a name like it."""
    found = _ATTRIBUTE.search(at.message)
    if at.kind != "AttributeError" or found is None or found["kind"] == "NoneType":
        return _of_own_module(at) if at.kind == "AttributeError" else None
    kind, name = found["kind"], found["name"]
    if kind in _WRAPPERS:
        return _of_wrapper(at, kind, name)
    if kind in (*_SEVERAL, *_PLAIN):
        return _several(at, kind, name)
    if kind in ("Namespace", "argparse.Namespace"):
        return _option(at, name)
    owner = class_named(at.tree, kind.rpartition(".")[2])
    settings = attribute_settings(owner) if owner is not None else {}
    if name in settings:
        line, method = settings[name]
        told = _may_have_run(at, owner, name, line, method) if owner is not None else None
        if told is not None:
            return told
        if method == "__init__":
            return (
                f"{kind}.__init__ sets `{name}` at {at.here(line)}, and had not come to it: it is used before, or the "
                "__init__ of a subclass lacks super().__init__()."
            )
        return (
            f"{kind} sets `{name}` only in {method}() ({at.here(line)}), which has not run for this object: call it "
            "before, or set it in __init__."
        )
    bare = no_wrapper(at, kind, name)
    if bare is not None:
        return bare
    near = next((item for item in at.near if item.of == kind and item.names), None)
    like = (near.names or [])[0] if near is not None else _nearest(name, settings)
    if like == name:
        return (
            f"`{name}` is a property of {kind}, whose own code raised an AttributeError, which nn.Module hides: read "
            "its lines for an attribute that is not there."
        )
    if like is None:
        return None
    if like not in settings:
        return f"{kind} has no `{name}`, but `{like}`: line {at.line} misspells it, or means another object."
    where = f" (line {settings[like][0]})"
    return f"{kind} has no `{name}`, but `{like}`{where}: line {at.line} or that one is misspelt."


def _of_own_module(at: FailingLine) -> str | None:
    """A function or class of another file of the program, by a name like it."""
    found = _MODULE.search(at.message)
    ends = f"{found[1].replace('.', '/')}.py" if found is not None else ""
    files = [file for file in at.files if file.endswith(f"/{ends}")] if found is not None else []
    if found is None or len(files) != 1:
        return None
    names = {
        item.name: (item.lineno, "")
        for item in at.files[files[0]].body
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    }
    like = _nearest(found[2], names)
    if like is None or found[2] in names:
        return None
    where = at.in_file(files[0], names[like][0])
    return f"{found[1]} has no `{found[2]}`, but `{like}` ({where}): line {at.line} or that one is misspelt."


def _may_have_run(at: FailingLine, owner: ast.ClassDef, name: str, line: int, method: str) -> str | None:
    """Of an attribute that is set below an `if`, by several methods, by one that is running, or that is deleted."""
    own = next((item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == method), None)
    sets, removed = set[str](), False
    for item in (item for item in owner.body if isinstance(item, ast.FunctionDef)):
        held = [part for part in nodes_of(item) if isinstance(part, ast.Attribute) and part.attr == name]
        sets |= {item.name for part in held if isinstance(part.ctx, ast.Store)}
        removed = removed or any(isinstance(part.ctx, ast.Del) for part in held)
    if removed or own is None:
        return (
            f"{owner.name} sets `{name}` at {at.here(line)}, and deletes it again: see which came first."
            if removed
            else None
        )
    kinds = (ast.If, ast.For, ast.While, ast.Try)
    around = [
        item for item in nodes_of(own) if isinstance(item, kinds) and item.lineno < line <= (item.end_lineno or 0)
    ]
    leaves = [item for item in nodes_of(own) if isinstance(item, ast.Return) and item.lineno < line]
    running = any(
        frame.file == at.frame.file and own.lineno <= (frame.line or 0) <= (own.end_lineno or 0) for frame in at.frames
    )
    if len(sets) == 1 and (running or not (around or leaves)):
        if not running or method == "__init__":
            return None
        return (
            f"{owner.name} sets `{name}` only in {method}() at {at.here(line)}, and reads it before: set it "
            "in __init__."
        )
    only = _only_below(at, own, name) if len(sets) == 1 else ""
    runs = f": that line runs {only}. Set" if only else ": set"
    if sets == {"__init__"}:
        return (
            f"__init__() of {owner.name} sets `{name}` at {at.here(line)}, and did not come to it{runs} it on each way."
        )
    where = " and ".join(f"{item}()" for item in sorted(sets))
    return (
        f"{owner.name} sets `{name}` only in {where} ({at.here(line)}), which did not come to it{runs} it in __init__."
    )


def _only_below(at: FailingLine, method: ast.FunctionDef, name: str) -> str:
    """``only where `self.mode` is 'a' (line 3), and it is 'b' (line 9)``; nothing where no branch alone decides."""
    guards = guards_of(method, places_that_bind(method, f"self.{name}"), 0)
    if not guards:
        return ""
    why = untaken(at, Spot(at.frame.file, at.tree, method, guards[0].line), guards, "")
    if why is not None and why.by_value:
        return why.words
    return f"only below {list_words([f'`{source(item.test)}` ({at.here(item.line)})' for item in guards])}"


def _of_wrapper(at: FailingLine, kind: str, name: str) -> str | None:
    """An attribute of the model inside."""
    inside = [item for item in nodes_of(at.statement or ast.Pass()) if isinstance(item, ast.Attribute)]
    owners = {source(item.value): item.value for item in inside if item.attr == name}
    if len(owners) != 1:
        return None
    ((owner, node),) = owners.items()
    without = model_without(at, kind, node, name, _WRAPPERS[kind])
    if without is not None:
        return without
    parts = [item for tree in at.files.values() for item in nodes_of(tree)]
    defined = {item.name for item in parts if isinstance(item, ast.FunctionDef)}
    defined |= {item.attr for item in parts if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store)}
    known = "" if name in defined else ", if the model has it"
    loses = "; forward() past the wrapper reduces no gradients" if kind == "DistributedDataParallel" else ""
    return (
        f"{kind} hides what the model inside has: write `{owner}.{_WRAPPERS[kind]}.{name}` at line {at.line}{known}, "
        f"or keep a name for the unwrapped model (`{owner}`{at.came(owner)}){loses}."
    )


def _option(at: FailingLine, name: str) -> str | None:
    """Of the parser that made the options, where it is in the program."""
    node = at.only(ast.Attribute)
    if node is None or node.attr != name:
        inside = nodes_of(at.node) if at.node is not None else ()
        node = next((item for item in inside if isinstance(item, ast.Attribute) and item.attr == name), None)
    found = at.made(node.value) if node is not None else None
    if node is None or found is None or not isinstance(found.node, ast.Call) or "parse" not in source(found.node.func):
        return None
    options = [
        (option, item.lineno)
        for item in nodes_of(found.spot.tree)
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
    named = keyword_value(call, "dest")
    if named is not None:
        return named.value if isinstance(named, ast.Constant) and isinstance(named.value, str) else None
    long = [word for word in words if word.startswith("--")] or words
    return long[0].lstrip("-").replace("-", "_") if long else None


def _nearest(name: str, names: dict[str, tuple[int, str]]) -> str | None:
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=_LIKE)), None)


def _several(at: FailingLine, kind: str, name: str) -> str | None:
    """A tuple, list or dict where one value was expected."""
    node = at.only(ast.Attribute)
    if node is None or node.attr != name:
        inside = [item for item in nodes_of(at.node) if isinstance(item, ast.Attribute)] if at.node is not None else []
        named = [item for item in inside if item.attr == name]
        node = named[0] if len(named) == 1 else None
    owner = source(node.value) if node is not None else None
    value = at.values.get(owner) if owner is not None else None
    if node is None or owner is None or value is None:
        return None
    if kind in _PLAIN:
        return _plain_item(at, owner, kind, name)
    if not value.startswith(f"{kind} of"):
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
        return f"`{owner}`{came} is a dict of {count}, and a dict has no .{name}: {_of_dict(at, owner, name, one)}."
    if not came:
        return None
    made = at.made(node.value, calls=False) if kind == "tuple" and count == "1" else None
    if made is not None and isinstance(made.node, ast.Tuple):
        return (
            f"`{owner}`{came} is a tuple of 1, which the comma at the end of {at.place(made.spot, made.line)} makes: "
            "take that comma away."
        )
    return (
        f"`{owner}`{came} is a {kind} of {count}, and a {kind} has no .{name}: take the item that is meant "
        f"(`{owner}[0]`), or use each in a loop."
    )


def _plain_item(at: FailingLine, owner: str, kind: str, name: str) -> str | None:
    """A number or text among the tensors of a dict."""
    of_dict = _item_of_dict(at, owner)
    if of_dict is None:
        return None
    return (
        f"`{owner}`, an item of `{source(of_dict)}`, is {'an' if kind == 'int' else 'a'} {kind}, and has no .{name}: "
        f"leave items that are no tensors as they are, `{owner}.{name}(...) if torch.is_tensor({owner}) else {owner}`."
    )


def _of_dict(at: FailingLine, owner: str, name: str, one: str) -> str:
    """What to do for an attribute that modules or tensors have."""
    called = {ast.unparse(item.func) for item in nodes_of(at.statement or ast.Pass()) if isinstance(item, ast.Call)}
    if f"{owner}.{name}" not in called:  # `config.train`
        return f"take {one} if it has that key"
    if name in _MOVES:
        return f"move each tensor in it (`{{k: v.{name}(...) for k, v in {owner}.items()}}`), or the item that is meant"
    if name in _OF_MODULES:
        return (
            f"if it is a checkpoint, take the item that is the model; if it holds weights only, build the model and "
            f"pass them to its load_state_dict() (`{owner}.keys()` shows which)"
        )
    return f"take {one} if it has that key"


def _item_of_dict(at: FailingLine, name: str) -> ast.expr | None:
    """`batch` of `for k, v in batch.items()`, also in a comprehension."""
    for item in nodes_of(at.statement or ast.Pass()):
        if isinstance(item, (ast.comprehension, ast.For)) and isinstance(item.iter, ast.Call):
            named = {part.id for part in nodes_of(item.target) if isinstance(part, ast.Name)}
            if name in named and called_name(item.iter) in ("items", "values"):
                return item.iter.func.value if isinstance(item.iter.func, ast.Attribute) else None
    return None


def _declared(at: FailingLine, owner: ast.expr) -> str | None:
    """A field that a class of the program declares as another class, of which `Config(**raw)` makes none."""
    attribute = owner.attr if isinstance(owner, ast.Attribute) else None
    fields = [
        (outer, item)
        for outer in nodes_of(at.tree)
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
        for call in nodes_of(at.tree)
        if isinstance(call, ast.Call) and called_name(call) in (outer.name, "cls")
        if any(given.arg is None for given in call.keywords)
    ]
    kind = ast.unparse(item.annotation)
    by = f", and `{source(spread[0])}` ({at.here(spread[0].lineno)}) converts nothing" if len(spread) == 1 else ""
    return (
        f"where {outer.name} declares `{attribute}: {kind}` ({at.here(item.lineno)}){by}: make it there, by "
        f"`{kind}(**...)` of that part"
    )


def unexpected_keyword(at: FailingLine) -> str | None:
    """With the parameters that there are."""
    found = _KEYWORD.search(at.message)
    if at.kind != "TypeError" or found is None:
        return None
    function, name = found["function"], found["name"]
    names = next((item.names or [] for item in at.near if item.of == f"{function}()"), [])
    own = _own_function(at, function)
    if not names and own is not None:
        names = [item for item in all_parameters(own[1]) if item != "self"]
    if not names or (own is not None and own[1].args.kwarg is not None):
        return None
    call = at.only(ast.Call)
    passed = next((item.value for item in call.keywords if item.arg is None), None) if call is not None else None
    written = call is not None and any(item.arg == name for item in call.keywords)
    passed = None if written else passed
    given = f"`{source(passed)}`{at.came(passed)}" if passed is not None else "the call"
    like = difflib.get_close_matches(name, names, n=1, cutoff=_LIKE)
    if like:
        return f"{function}() has no '{name}', but '{like[0]}': rename it in {given}."
    there = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
    if own is not None:
        place = at.in_file(own[0], own[1].lineno)
        return (
            f"{function}() ({place}) takes {there}, and no '{name}': take it out of {given}, or add that parameter at "
            f"{place}."
        )
    return (
        f"{function}() as installed takes {there}, and no '{name}': take it out of {given}, or see which class or "
        "version has it."
    )


def _own_function(at: FailingLine, qualified: str) -> tuple[str, ast.FunctionDef | ast.AsyncFunctionDef] | None:
    """The only function of the program of that name, as `Trainer.__init__`."""
    found = [
        (file, item)
        for file, tree in at.files.items()
        for item in definitions(tree).get(qualified.rpartition(".")[2], ())
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and qualified_name(tree, item) == qualified
    ]
    return found[0] if len(found) == 1 else None
