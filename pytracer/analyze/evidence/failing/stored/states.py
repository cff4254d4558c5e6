"""Checkpoints, environment and processes that are not what the program expects: what the message says of them."""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.autograd.carried_states import is_module
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.differing_keys import differing_keys
from pytracer.analyze.evidence.failing.stored.more_layers import more_layers
from pytracer.analyze.evidence.failing.stored.opened import opened
from pytracer.analyze.evidence.failing.stored.saved_keys import other_keys
from pytracer.analyze.evidence.slicing.callers import calls_named
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of

_MISMATCH = Pattern(
    r"size mismatch for ([\w.]+): copying a param with shape torch\.Size\((\[[\d, ]*\])\) from checkpoint, "
    r"the shape in current model is torch\.Size\((\[[\d, ]*\])\)"
)
# torch.optim.Optimizer.load_state_dict
_GROUPS = Pattern(r"loaded state dict (?:contains a parameter group that doesn't match|has a different number of)")
_GLOBAL = Pattern(r"GLOBAL ([\w.]+) was not an allowed global|Unsupported (?:global|class) ([\w.]+)")
_LACKS = Pattern(r"Missing key in checkpoint state_dict: ([\w.\-]+?)\.?\s*$", re.MULTILINE)
_FREEZES = Pattern(r"\.requires_grad = False\b|\.requires_grad_\(False\)")
_PLAIN = Pattern(r"(?:True|False|-?[\d.]+)$")
_NO_CLASS = Pattern(r"Can't get attribute '(\w+)' on <module '([\w.]+)'")
_NO_NUMBER = Pattern(r"invalid literal for int\(\) with base \d+: (.+)|could not convert string to float: (.+)")
_NUMBERS = ("int", "float")


def loaded_state(at: FailingLine) -> str | None:
    """load_state_dict(), with the keys or sizes that differ."""
    if _GROUPS.search(at.message):
        return _other_groups(at)
    if "loading state_dict" not in at.message:
        return None
    model = _owner(at)
    sizes = _MISMATCH.findall(at.message)
    if sizes:
        name, saved, own = sizes[0]
        more = f", and {len(sizes) - 1} more differ" if len(sizes) > 1 else ""
        return (
            f"`{name}` is {saved} in the checkpoint and {own} in {model}{more}. Make the model with the checkpoint's "
            "sizes (classes, vocabulary, width), or take those keys out of the state and load with strict=False."
        )
    return differing_keys(at, model)


def _other_groups(at: FailingLine) -> str:
    saved, own = ([int(value.rpartition(" ")[2]) for name, value in at.compared.items() if name.startswith(kind)]
                  for kind in ("saved_groups[", "groups["))  # fmt: skip
    if not saved or not own:
        return (
            f"{_owner(at)} was made with other parameters than the one whose state was saved: for another model, or "
            "with a part of it frozen or left out. Make it as it was then, or start with a new state."
        )
    call = at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    made = at.made(owner, calls=False) if owner is not None else None
    values = {name: at.value_at(ast.Name(name), made.spot) for name in names_in(made.node)} if made is not None else {}
    plain = {name: value for name, value in values.items() if value is not None and _PLAIN.match(value)}
    told = ", ".join(f"`{name}` is {value}" for name, value in plain.items())
    added = _added_groups(at) if len(saved) > len(own) else None
    if added is not None:
        return f"The saved state has {_groups(saved)}, and {_owner(at)} has {_groups(own)}: {added}"
    return (
        f"The saved state has {_groups(saved)}, and {_owner(at)} has {_groups(own)}{f'; {told}' if told else ''}: "
        f"{_which_part(at, sum(saved), sum(own))}. Make it as it was when it was saved, or start with a new state."
    )


def _added_groups(at: FailingLine) -> str | None:
    """The line that adds one while a run goes on."""
    calls = [*calls_named(at.files, "add_param_group")]
    if len(calls) != 1:
        return None
    file, _, call = calls[0]
    if _is_of_other(at, file, call):
        return None
    place = f"{at.in_file(file, call.lineno)} (`{source(call)}`)"
    return (
        f"{place} adds one while the program runs. Where it had run before the state was saved, run it again before "
        f"line {at.line}."
    )


def _is_of_other(at: FailingLine, file: str, adds: ast.Call) -> bool:
    """Whether it may be another optimizer's, as the program has several: the names differ, where both are of one."""
    load = at.only(ast.Call)
    made = at.made(load.func.value) if load is not None and isinstance(load.func, ast.Attribute) else None
    if made is not None and _is_run_for(made, file, adds):
        return True  # these groups were counted
    own, other = (
        source(item.func.value) if item is not None and isinstance(item.func, ast.Attribute) else None
        for item in (load, adds)
    )
    loaded = {
        source(item.func.value)
        for tree in at.files.values()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call)
        and isinstance(item.func, ast.Attribute)
        and item.func.attr in ("step", "load_state_dict")
    }
    same = file == at.frame.file and scope_of(at.tree, adds.lineno) is at.scope
    return own != other and (same or other in loaded)


def _is_run_for(made: Made, file: str, adds: ast.Call) -> bool:
    """Whether the function that made the optimizer adds a group behind that."""
    spot = made.spot
    behind = spot.file == file and adds.lineno > made.line and not isinstance(spot.scope, ast.Module)
    return behind and scope_of(spot.tree, adds.lineno) is spot.scope


def _which_part(at: FailingLine, saved: int, own: int) -> str:
    """By the numbers of both, and the lines of the program that freeze parameters."""
    if saved == own:
        return "its parameters were grouped otherwise then"
    if saved < own:
        return "a part was frozen or left out then, or has been added since"
    lines = [
        (file, item)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, (ast.Assign, ast.Expr)) and _FREEZES.search(ast.unparse(item))
    ]
    asked = any(  # frozen parameters stay in, where nobody filters them
        isinstance(item, ast.Attribute) and item.attr == "requires_grad" and isinstance(item.ctx, ast.Load)
        for tree in at.files.values()
        for item in nodes_of(tree)
    )
    by = (
        f" ({at.in_file(lines[0][0], lines[0][1].lineno)}: `{source(lines[0][1])}`)"
        if len(lines) == 1 and asked
        else ""
    )
    return f"a part is frozen{by} or left out now, and was not then"


def _groups(counts: list[int]) -> str:
    """`2 groups (4 and 2 parameters)`."""
    many = f"{counts[0]} parameters" if len(counts) == 1 else f"{' and '.join(map(str, counts))} parameters"
    return f"{len(counts)} group{'s' * (len(counts) != 1)} ({many})"


def _owner(at: FailingLine) -> str:
    call = at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    return f"`{source(owner)}`{at.came(owner)}" if owner is not None else "the model"


def lacking_checkpoint(at: FailingLine) -> str | None:
    """torch.distributed.checkpoint.load() of a state that has more than the files."""
    found, call = _LACKS.search(at.message), at.only(ast.Call)
    if found is None or call is None:
        return None
    state = next((item.value for item in call.keywords if item.arg == "state_dict"), next(iter(call.args), None))
    asks = f", which `{source(state)}`{at.came(state)} asks for" if state is not None else ""
    others = other_keys(at, found[1], state) if state is not None else None
    if others is not None:
        return f"The checkpoint has no `{found[1]}`{asks}, and {others.what}: {others.mends}."
    more = more_layers(at, [found[1]], whole=False)
    why = more.words if more is not None else "it was saved from another model, or without that part"
    asks = asks if more is None else ""
    planned = any(item.arg in (None, "planner") for item in call.keywords)
    partly = "" if planned else (
        "; for the others keep what is there by `planner=DefaultLoadPlanner(allow_partial_load=True)`"
    )  # fmt: skip
    first = "" if more is not None else " Compare its keys first ('module.' may differ)."
    return f"The checkpoint has no `{found[1]}`{asks}: {why}.{first} Load only the keys that both have{partly}."


def refused_global(at: FailingLine) -> str | None:
    """torch.load() with weights_only."""
    found = _GLOBAL.search(at.message) if "Weights only load failed" in at.message else None
    if found is None:
        return None
    name = found[1] or found[2]
    held = f"The file holds an object of {name}{_below(at)}{_put_there(at)}"
    if name.startswith("numpy."):
        plain = "a plain number (`float()`, `.item()`)" if name.endswith("scalar") else "a tensor or list"
        return f"{held}: save {plain} instead. A file of your own is read with weights_only=False at line {at.line}."
    if _is_model(at, name):
        return (
            f"{held}: a whole model, of many classes, was saved. If the file is yours, load it by weights_only=False "
            f"at line {at.line}, and from then on save the model's state_dict(), which needs no class."
        )
    return (
        f"{held}, which is no weights. If the file is yours: "
        f"`torch.serialization.add_safe_globals([{name.removeprefix('__main__.')}])` before "
        f"line {at.line}, or weights_only=False there; or save plain values only."
    )


def _is_model(at: FailingLine, name: str) -> bool:
    """A module of torch's, or of the program."""
    if name.startswith("torch.nn.modules."):
        return True
    last = name.rpartition(".")[2]
    return any(
        isinstance(item, ast.ClassDef) and item.name == last and is_module(at, item)
        for tree in at.files.values()
        for item in nodes_of(tree)
    )


def refused_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    found = _GLOBAL.search(at.message) if "Weights only load failed" in at.message else None
    return f"the file holds an object of {found[1] or found[2]}{_below(at)}" if found is not None else None


def _below(at: FailingLine) -> str:
    """`` under 'best' ``, of what torch.load() refused."""
    key = at.values.get("key of the refused object")
    return f" under '{key}'" if key is not None else ""


def _put_there(at: FailingLine) -> str:
    """The only value that this program gives that key."""
    key = at.values.get("key of the refused object")
    found = [
        value
        for item in nodes_of(at.tree)
        if isinstance(item, ast.Dict)
        for name, value in zip(item.keys, item.values, strict=True)
        if key is not None and isinstance(name, ast.Constant) and name.value == key
    ]
    return f" ({at.here(found[0].lineno)} has `{source(found[0])}` there)" if len(found) == 1 else ""


def environment_variable(at: FailingLine) -> str | None:
    """One that is not set."""
    if at.kind != "KeyError" or not (at.stack[0].file or "").endswith(("os.py", "<frozen os>")):
        return None
    return not_in_environment(at.message.strip("'\""))


def not_in_environment(name: str) -> str:
    """What is said of a variable that the environment lacks."""
    ranks = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE", "GROUP_RANK"}
    by = f"start it by `torchrun --nproc-per-node=N`, which sets {name}" if name in ranks else f"export {name} before"
    default = "0" if "RANK" in name else "..."
    return f'The environment has no {name}: {by}, or read it with a default (`os.environ.get("{name}", "{default}")`).'


def pickled_elsewhere(at: FailingLine) -> str | None:
    """A class or function that the file's writer had in its main script, and the reader has not."""
    found = _NO_CLASS.search(at.message)
    if at.kind != "AttributeError" or found is None:
        return None
    name, module, file = found[1], found[2], opened(at.values)
    what = file.name if file is not None else "What is unpickled"
    if not module.endswith("__main__"):  # `python -m package` names it `package.__main__`
        return (
            f"{what} needs `{name}` of the module {module}, which has none here: it was renamed or moved, or another "
            "version wrote that file. Import it there under that name, or write the file anew."
        )
    return (
        f"{what} needs `{name}`, which was defined in the main script that wrote it, and this main script has none: "
        f"define it in a module that both import and write the file anew, or import `{name}` here first."
    )


def number_of_environment(at: FailingLine) -> str | None:
    """`int(os.environ["RANK"])` of a text that is none."""
    found, call = _NO_NUMBER.search(at.message), at.only(ast.Call)
    if at.kind != "ValueError" or found is None or call is None or not call.args or source(call.func) not in _NUMBERS:
        return None
    made = at.made(call.args[0])
    node = call.args[0] if made is None else made.node
    name: ast.AST | None = None
    if isinstance(node, ast.Subscript) and source(node.value).endswith("environ"):
        name = node.slice
    elif isinstance(node, ast.Call) and source(node.func).endswith(("environ.get", "getenv")) and node.args:
        name = node.args[0]
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
        return None
    text = found[1] or found[2]
    return (
        f"The environment variable {name.value} is {text}, which {source(call.func)}() does not take: see where the "
        f"job script or launcher exports {name.value}, and give it a plain number there."
    )


def environment_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    words = re.match(r"The (environment variable \S+ is .+?), which ", number_of_environment(at) or "")
    return f"the {words[1]}" if words is not None else None
