"""Checks of the program's own, names that no line has set, and calls that do not fit their function."""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.processes.handlers import failed_tries, head_of_handler
from pytracer.analyze.evidence.failing.usage.emptied import is_empty
from pytracer.analyze.evidence.failing.usage.empty_rounds import is_unset, set_by_no_round
from pytracer.analyze.evidence.failing.usage.liveness import asks_for_worker
from pytracer.analyze.evidence.failing.usage.missed_lines import missed
from pytracer.analyze.evidence.failing.usage.settings import whence
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import loops_of
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.ranks import is_for_one_rank
from pytracer.analyze.evidence.syntax.scopes import Function, class_named, function_named, own_nodes, spans, spans_body
from pytracer.analyze.evidence.syntax.tries import hushes

_UNSET = Pattern(r"local variable '(\w+)'|name '(\w+)' is not defined|free variable '(\w+)'")
_ARGUMENTS = Pattern(
    r"^([\w.<>]+)\(\) (?:missing \d+ required (?:positional|keyword-only) arguments?: (?P<names>.+)"
    r"|takes (?:from \d+ to )?\d+ positional arguments? but (?P<given>\d+) (?:was|were) given)"
)
_SEARCHES = ("index", "remove", "count")
_LENGTH = Pattern(r"object of type '(\w+)' has no len\(\)")
_NOT_FINITE = Pattern(r"(?:^|[ .])-?(?:nan|inf)\b")
_MOST = 3


def own_check(at: FailingLine) -> str | None:
    """An assert, or a raise below an `if`: the values that it compared."""
    statement = at.statement
    if isinstance(statement, ast.Assert):
        return _checked(
            at, statement.test, f"The assert of line {at.line}, `{source(statement.test)}`, does not hold", at.line
        )
    if not isinstance(statement, ast.Raise):
        return None
    tests = [
        item
        for item in own_nodes(at.scope)
        if isinstance(item, ast.If) and item.lineno < at.line and any(part is statement for part in item.body)
    ]
    if not tests:
        return _after_tries(at)
    test = tests[-1]
    parts = test.test.values if isinstance(test.test, ast.BoolOp) else [test.test]
    if all(is_for_one_rank(item) is not None for item in parts):
        return None  # it says which rank does it, not what is wrong
    return _checked(
        at,
        test.test,
        f"The program's own check at {at.here(test.lineno)}, `{source(test.test)}`, refuses it",
        test.lineno,
    )


def _after_tries(at: FailingLine) -> str | None:
    """`raise RuntimeError("no sample")`, behind a loop that catches what each try raised."""
    found = failed_tries(at.tree, at.line)
    if found is None or not isinstance(at.statement, ast.Raise) or at.statement.cause is not None:
        return None
    loop, tried, handler = found
    return (
        f"The tries of the loop at {at.here(loop.lineno)} failed, and the `{head_of_handler(handler)}` at line "
        f"{handler.lineno} caught why. Begin with that error, of {_tried(tried)}: print it there, or keep the last one "
        "and raise this one `from` it."
    )


def _tried(item: ast.Try) -> str:
    first, last = item.body[0].lineno, item.body[-1].end_lineno
    return f"line {first} (`{source(item.body[0])}`)" if first == last else f"lines {first} to {last}"


def _checked(at: FailingLine, test: ast.AST, words: str, line: int) -> str | None:
    names = [name for name in names_in(test) if name in at.values][:_MOST]
    if not names or asks_for_worker(test):
        return None
    told = ", ".join(f"`{name}`{at.came(name)} is {_value(at.values[name])}" for name in names)
    if any(_NOT_FINITE.search(at.values[name]) for name in names):
        return (
            f"{words}: {told}. Print it for the steps before. If it grew, lower the learning rate or clip the gradients"
            "; if it came at once, look for a log, root, division or bad sample of this step."
        )
    return f"{words}: {told}. Correct the one that is not what {at.here(line)} expects, where it is made."


def _value(value: str) -> str:
    return (
        f"an empty {value.removesuffix(' of 0')}"
        if value.endswith(" of 0")
        else f"a {value}"
        if " of " in value
        else value
    )


def unset_name(at: FailingLine) -> str | None:
    """A variable that is only set where the program did not come by."""
    found = _UNSET.search(at.message)
    if at.kind not in ("NameError", "UnboundLocalError") or found is None:
        return None
    name = found[1] or found[2] or found[3]
    raised = [item for item in own_nodes(at.scope) if isinstance(item, ast.AugAssign) and variable(item.target) == name]
    bound = sorted({*(line for line, _ in lines_that_bind(at.scope, name)), *(item.lineno for item in raised)})
    if not bound:
        return None
    if min(bound) >= at.line:
        return (
            f"`{name}` is first set at line {min(bound)}, after its use at line {at.line}, which makes it a local "
            "variable: set it before, or declare it `global` or `nonlocal` if an outer one is meant."
        )
    if len([item for item in bound if item < at.line]) > 1:
        return None
    line = min(bound)
    unrun = set_by_no_round(at, name, line)
    if unrun is not None:
        return unrun
    around = [
        item
        for item in own_nodes(at.scope)
        if (isinstance(item, (ast.For, ast.While, ast.If, ast.Try)) or hushes(item))
        and item.lineno < line <= (item.end_lineno or 0) < at.line
    ]
    if not around:
        return None
    spot = at.slice.spot(0)
    why = missed(at, spot, line, unset=True) if spot is not None else None
    by_rank = _left_to_one_rank(at, name, around[0], line) if len(around) == 1 else None
    if by_rank is not None:
        return by_rank
    words = why.words if why is not None else _not_run(at, around[0], line)
    advice = (why.advice if why is not None else None) or "Set it before, and handle that case."
    return f"`{name}` is set only at {at.here(line)}, and {words}. {advice}"


def _left_to_one_rank(at: FailingLine, name: str, item: ast.stmt, line: int) -> str | None:
    """Of a line below `if rank == 0:` that another rank did not come by."""
    below = isinstance(item, ast.If) and not (item.orelse and item.orelse[0].lineno <= line)
    if not isinstance(item, ast.If) or not below or is_for_one_rank(item.test) is not True:
        return None
    if isinstance(item.test, ast.BoolOp) or is_unset(at.scope, name):
        return None
    return (
        f"`{name}` is set only at {at.here(line)}, below `if {source(item.test)}` ({at.here(item.lineno)}), which did "
        f"not hold on this rank. Set it on every rank, outside of that `if`, or use it on that rank only."
    )


def _not_run(at: FailingLine, item: ast.stmt, line: int) -> str:
    if isinstance(item, ast.For):
        empty = [name for name in names_in(item.iter) if is_empty(at.value(name))]
        why = f" (`{empty[0]}` is empty)" if empty else ""
        tries = [part for part in nodes_of(item) if isinstance(part, ast.Try) and spans_body(part.body, line)]
        if tries and not empty:
            return (
                f"no round of the loop over `{source(item.iter)}` ({at.here(item.lineno)}) set it: there was none, or "
                f"an error in the `try` at {at.here(tries[0].lineno)} kept each from it"
            )
        return f"the loop over `{source(item.iter)}` ({at.here(item.lineno)}) had no round that came to it{why}"
    if isinstance(item, (ast.If, ast.While)):
        return f"`{source(item.test)}` ({at.here(item.lineno)}) did not lead to it"
    return f"what begins at {at.here(item.lineno)} was left before it"


def arguments_that_differ(at: FailingLine) -> str | None:
    """A function of the program that is called with fewer or more arguments than it takes."""
    found = _ARGUMENTS.search(at.message)
    if at.kind != "TypeError" or found is None:
        return None
    first, _, last = found[1].rpartition(".")
    owner = class_named(at.tree, first.rpartition(".")[2]) if first and not first.endswith("<locals>") else None
    own: Function | None = None
    if owner is not None:
        own = next((item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == last), None)
    elif not first or first.endswith("<locals>"):
        own = function_named(at.tree, last)
    if own is None and owner is None and first and found["names"]:
        return _method_lacks(at, first.rpartition(".")[2], last, found["names"])
    if own is None or isinstance(own, ast.Lambda):
        return None
    taken = ", ".join(item.arg for item in [*own.args.args, *own.args.kwonlyargs] if item.arg != "self")
    if owner is not None and found["given"] and _lacks_self(own):
        first_parameter = f"`{own.args.args[0].arg}`" if own.args.args else "no parameter"
        return (
            f"{found[1]}() ({at.here(own.lineno)}) is a method without `self`, so that its object takes the place of "
            f"{first_parameter}: write `def {own.name}(self, ...)`, or put @staticmethod above it."
        )
    given = _given_by_loader(at, own)
    if given is not None:
        takes = f"({taken})" if taken else "nothing"
        return (
            f"{found[1]}() ({at.here(own.lineno)}) takes {takes}, and the DataLoader calls it with {given}: take that "
            "as its only parameter that has no default."
        )
    call = at.only(ast.Call)
    passed = f"`{source(call)}`" if call is not None else f"line {at.line}"
    what = f"lacks {found['names']}" if found["names"] else "passes another number of them"
    takes = f"{found[1]}() ({at.here(own.lineno)}) takes ({taken}), and {passed}"
    if call is not None and found["names"] and owner is not None and not own.decorator_list:
        why = _taken_for_self(call, own, owner.name) or _given_whole(at, call, own)
        if why is not None:
            return f"{takes} {why}"
    return f"{takes} {what}: change the call or the definition."


def _taken_for_self(call: ast.Call, own: ast.FunctionDef | ast.AsyncFunctionDef, kind: str) -> str | None:
    """`self.head.forward(x)`, where that is the class: as many as it takes were given, and the first one was `self`."""
    needed = len(own.args.args) - len(own.args.defaults) - 1
    whole = not call.keywords and not any(isinstance(item, ast.Starred) for item in call.args)
    if not whole or len(call.args) != needed or not isinstance(call.func, ast.Attribute) or call.func.attr != own.name:
        return None
    first = f"`{source(call.args[0])}`" if call.args else "the first one"
    return (
        f"passes all of them, of which {first} is taken for `self`: `{source(call.func.value)}` is the class {kind} "
        f"itself, and no object of it. Make one, {kind}(...), where it is set."
    )


def _given_whole(at: FailingLine, call: ast.Call, own: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    """`net(batch)` of a list with as many items as it takes."""
    given = call.args[0] if len(call.args) == 1 and not call.keywords else None
    held = re.match(r"(list|tuple) of (\d+)$", at.value(given) or "") if given is not None else None
    count = len(own.args.args) - 1
    if given is None or held is None or not count - len(own.args.defaults) <= int(held[2]) <= count:
        return None
    text = source(given)
    taken = ", ".join(item.arg for item in own.args.args[1 : int(held[2]) + 1])
    return (
        f"gives it the {held[1]} of {held[2]} `{text}`{whence(at, text)} as one: if its items are ({taken}), pass them "
        f"apart, `{source(call.func)}(*{text})`; else pass the others, too."
    )


def _given_by_loader(at: FailingLine, own: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    """What torch's DataLoader passes to the function, where it is the one that calls."""
    caller = at.stack[0].file or ""
    if caller.endswith("torch/utils/data/_utils/worker.py"):
        return "the worker's number"
    if caller.endswith("torch/utils/data/_utils/fetch.py"):
        return "an index" if own.name == "__getitem__" else "the list of the samples of a batch"
    return None


def _lacks_self(own: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether no parameter takes the object."""
    names = [item.arg for item in own.args.args]
    return not own.decorator_list and names[:1] not in (["self"], ["cls"], ["this"]) and own.args.vararg is None


def _method_lacks(at: FailingLine, kind: str, method: str, names: str) -> str | None:
    """A method of a library's object that the line calls: `sched.step()` of a ReduceLROnPlateau."""
    call = at.only(ast.Call)
    if call is None or not isinstance(call.func, ast.Attribute) or call.func.attr != method or not at.own:
        return None
    made = [item for item in nodes_of(at.tree) if isinstance(item, ast.Call) and called_name(item) == kind]
    where = f" (made at {at.here(made[0].lineno)}: `{source(made[0])}`)" if len(made) == 1 else ""
    return (
        f"`{source(call.func.value)}` is a {kind}{where}, whose {method}() needs {names}, and `{source(call)}` does "
        f"not pass that: pass it at line {at.line}, or call it apart where other kinds take none."
    )


def one_input_only(at: FailingLine) -> str | None:
    """nn.Sequential with a mask."""
    call = at.only(ast.Call)
    if at.kind != "TypeError" or not at.message.startswith("Sequential.forward() takes 2 positional") or call is None:
        return None
    return (
        f"`{source(call.func)}`{at.came(call.func)} is an nn.Sequential, which takes one input and "
        f"passes one on, and line {at.line} gives it {len(call.args)}. Keep the layers in an nn.ModuleList and call "
        "each in a loop with all that it needs."
    )


def tensor_as_condition(at: FailingLine) -> str | None:
    """`losses < best` of several values."""
    if "Tensor with more than one value is ambiguous" not in at.message or at.node is None:
        return None
    statement = at.statement
    test = statement.test if isinstance(statement, (ast.If, ast.While, ast.Assert)) else at.node
    names = [name for name in names_in(test) if (shape := at.shape(name)) is not None and shape.elements > 1]
    if not names or len({at.shape(name) for name in names}) > 1:
        return None
    name = min(names, key=lambda item: item.startswith("self."))
    shape = at.shape(name)
    has = f"{shape.elements} values {shape.words}" if shape is not None else "several values"
    listed = _listed_tensors(at, test, name)
    if listed is not None:
        return (
            f"{listed} compares items by `==`, and `{name}`{whence(at, name)} has {has}, so that the answer is no "
            f"single one. Write `any(other is {name} for other in ...)` for the same object, torch.equal(other, "
            f"{name}) for equal values, or keep keys (names, ids) beside the tensors and compare these."
        )
    return (
        f"`{name}`{whence(at, name)} has {has}, where line {at.line} asks for one answer. Reduce it where it is made "
        "(`.mean()`, `.item()`), or say which is meant here: .any(), .all(), `is None`."
    )


def _listed_tensors(at: FailingLine, test: ast.AST, name: str) -> str | None:
    """``Line 10 (`emb in seen`)``: a search of that tensor in a list or tuple."""
    for item in nodes_of(test):
        if isinstance(item, ast.Compare) and isinstance(item.ops[0], (ast.In, ast.NotIn)):
            held = item.comparators[0]
        elif isinstance(item, ast.Call) and called_name(item) in _SEARCHES and isinstance(item.func, ast.Attribute):
            held = item.func.value
        else:
            continue
        if re.match(r"(?:list|tuple|deque) of \d", at.value(held) or ""):
            return f"Line {at.line} (`{source(item)}`)" if name in names_in(item) else None
    return None


def no_length(at: FailingLine) -> str | None:
    """A class without __len__."""
    found = _LENGTH.search(at.message)
    if at.kind != "TypeError" or found is None:
        return None
    owner = class_named(at.tree, found[1])
    call = at.only(ast.Call)
    asks = f"`{source(call)}`" if call is not None else f"line {at.line}"
    if owner is not None:
        return (
            f"{found[1]} ({at.here(owner.lineno)}) has no __len__, which {asks} asks for: define it, or, for a stream "
            "whose length is not known, pass the number of steps instead of len()."
        )
    return None


_LAYER = Pattern(r"\b(?:nn\.)?[A-Z]\w+\(")
_KIND = Pattern(r"'(str|int|float|list|tuple|dict|bool|Tensor)' object is not (callable|iterable|subscriptable)")


def wrong_kind(at: FailingLine) -> str | None:
    """A str that is called, a number that is indexed."""
    found = _KIND.search(at.message)
    if at.kind != "TypeError" or found is None or not at.own:
        return None
    node: ast.AST | None = None
    if found[2] == "callable":
        node = getattr(at.only(ast.Call), "func", None)
    elif found[2] == "subscriptable":
        node = getattr(at.only(ast.Subscript), "value", None)
    elif isinstance(at.statement, (ast.For, ast.AsyncFor)):
        node = at.statement.iter
    name = variable(node) if node is not None else None
    if name is None:
        return None
    if found[2] == "callable" and isinstance(at.statement, ast.Assign):
        targets = [variable(item) for item in at.statement.targets]
        if name in targets and _may_run_again(at, name):
            return (
                f"Line {at.line} (`{source(at.statement)}`) puts its result into `{name}`, the name of what it calls: "
                f"from the second time on `{name}` is a {found[1]}. Give the result another name."
            )
    verb = {"callable": "calls it", "iterable": "loops over it", "subscriptable": "indexes it"}[found[2]]
    by_name = " Look the function up by its name first (`getattr(torch, name)`, a dict of them)."
    hint = by_name if found[1] == "str" else ""
    return (
        f"`{name}`{at.came(name)} is a {found[1]}, and line {at.line} {verb}.{hint if found[2] == 'callable' else ''}"
    )


def _may_run_again(at: FailingLine, name: str) -> bool:
    """A variable of a function is not the one of an earlier call of it, unless the line is in a loop."""
    return "." in name or isinstance(at.scope, ast.Module) or any(spans(item, at.line) for item in loops_of(at.scope))


def plain_layers(at: FailingLine) -> str | None:
    """Layers in a list or dict, which a module does not know."""
    if "empty parameter list" not in at.message:
        return None
    kinds = (ast.List, ast.ListComp, ast.Dict, ast.DictComp)
    found = [
        (owner.name, item)
        for owner in nodes_of(at.tree)
        if isinstance(owner, ast.ClassDef)
        for item in nodes_of(owner)
        if isinstance(item, ast.Assign) and isinstance(item.value, kinds)
        if (variable(item.targets[0]) or "").startswith("self.") and _LAYER.search(ast.unparse(item.value))
    ]
    if len(found) != 1:
        return None
    name, item = found[0]
    if re.search(rf"(?:\*|ModuleList\(|ModuleDict\(){re.escape(source(item.targets[0]))}\b", ast.unparse(at.tree)):
        return None
    plain, kind = ("dict", "ModuleDict") if isinstance(item.value, kinds[2:]) else ("list", "ModuleList")
    return (
        f"{name} keeps its layers in a plain {plain} at {at.here(item.lineno)} "
        f"(`{source(item)}`), so that parameters() does not have them: put nn.{kind}(...) around it."
    )
