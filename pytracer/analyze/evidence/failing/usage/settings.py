"""Numbers and names that the program itself chose, where torch refuses them: which line sets each of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_DIVISIBLE = Pattern(r"(?:must|should) be (?:a )?(?:divisible by|multiple of)|not divisible by|is not a multiple of")
_RUNNING = Pattern(r"running_mean should contain (\d+) elements not (\d+)")
_OVERFLOW = Pattern(r"cannot be converted to type (?:c10::|at::)?(\w+) without overflow")
_NO_DEVICE = Pattern(r"not compiled with CUDA enabled|No CUDA GPUs are available|Found no NVIDIA driver")
_LARGEST = {"Half": ("float16", 65504.0)}
_WHOLE = Pattern(r"^(?:u?int\d+|bool)$")
_SAMPLE = Pattern(r"Sample larger than population|Cannot take a larger sample than population")
_TEXT = Pattern(
    r"not supported between instances of '(?:\w+' and 'str'|str' and '\w+')"
    r"|must be (?:real number|(?:an )?int\w*|float).* not str|\b(?:ints?|floats?|numbers?)\b.*but got str"
    r"|'str' object cannot be interpreted as an integer|must be tuple of ints, but found element of type str"
    r"|unsupported operand type\(s\) for .*'str'|can't multiply sequence by non-int"
)
_NO_REPEATS = "Cannot take a larger sample than population when"
_HELD = "text of "  # the recorder's name of a text that reads as a number
_NAMED = (ast.Name, ast.Attribute, ast.Subscript)
_NO_DOT = Pattern(r"^[+-]?\d+[eE]")
_PAIR = 2
_FLOAT_ONLY = Pattern(r"[Oo]nly Tensors of floating point (?:and complex )?dtype can require gradients")
_MOST_DIVISORS = 2
_MOST_CONSTANTS = 2


def whence(at: FailingLine, node: ast.AST | str) -> str:
    """`` (line 6: `heads=12`) ``: what made a value, else the line that the reader's own name comes from."""
    found = at.made(node)
    if found is not None and not isinstance(found.node, (ast.Name, ast.Attribute, ast.Subscript)):
        return f" ({at.shown(found)})" if found.line != at.line or found.spot.file != at.frame.file else ""
    name = node if isinstance(node, str) else variable(node)
    return at.came(name) if name is not None else ""


def number_of(at: FailingLine, node: ast.AST) -> int | None:
    """What an expression of the line was: recorded, or a constant of the program."""
    value = at.values.get(ast.unparse(node)) if isinstance(node, ast.expr) else None
    if value is not None:
        return int(value) if re.fullmatch(r"-?\d+", value) else None
    found = at.made(node)
    last = found.node if found is not None else node
    return last.value if isinstance(last, ast.Constant) and type(last.value) is int else None


def refused_setting(at: FailingLine) -> str | None:
    """The first that fits the message."""
    return next((words for explain in _EXPLAINED if (words := explain(at)) is not None), None)


def _indivisible(at: FailingLine) -> str | None:
    """Of the numbers that a call passes, the two whose division leaves a rest."""
    call = at.only(ast.Call)
    if not _DIVISIBLE.search(at.message) or call is None or at.own:
        return None
    passed = passed_values(call)
    numbers = [(item, number) for item in passed if (number := number_of(at, item)) is not None and number > 1]
    pairs = [
        (large, small)
        for n, large in enumerate(numbers)
        for small in numbers[n + 1 :]
        if large[1] > small[1] and large[1] % small[1]
    ]
    if len(pairs) != 1:
        return None
    (one, large), (other, small) = pairs[0]
    fits = [n for n in range(2, large) if large % n == 0]
    near = sorted(sorted(fits, key=lambda n: abs(n - small))[:_MOST_DIVISORS])
    instead = f" ({' or '.join(map(str, near))} would do)" if near else ""
    return (
        f"`{source(one)}` is {large}{whence(at, one)} and `{source(other)}` {small}{whence(at, other)}, and {large} is "
        f"no multiple of {small}. Change one of them: `{source(other)}` to a divisor of {large}{instead}."
    )


def _norm_of_another_width(at: FailingLine) -> str | None:
    found, layer = _RUNNING.search(at.message), at.layer
    if found is None or layer is None or layer.given is None:
        return None
    got, own = int(found[1]), int(found[2])
    passed, given = at.passed("its input"), layer.given
    has = f"`{layer.name}`{at.came(layer.name)} was made for {own} channels{set_by(at, layer.name, own)}"
    reaches = f"`{passed}` {given.words}{at.came(passed)} has {got} in dimension 1"
    if own in given.sizes[2:]:
        place = given.sizes.index(own, 2)
        return f"{has}, and {reaches}: the {own} are in dimension {place}. Pass `{passed}.transpose(1, {place})`."
    both = re.search(r"bidirectional\s*=\s*True", ast.unparse(at.tree)) is not None and got == 2 * own
    why = " (twice as many: it may be both directions of `bidirectional=True`)" if both else ""
    return f"{has}, and {reaches}{why}. Make the norm for {got}, or give it what has {own}."


def set_by(at: FailingLine, layer: str, size: int) -> str:
    """The constants behind the first argument of the layer, where they give its size."""
    found = at.made(layer, calls=False)
    call = found.node if found is not None else None
    if found is None or not isinstance(call, ast.Call) or not call.args:
        return ""
    return by_constants(at, call.args[0], found) if at.evaluated(call.args[0], found.spot) == size else ""


def by_constants(at: FailingLine, node: ast.AST, found: Made) -> str:
    """`` (line 6: `image_size=224`, `patch=16`) ``: the constants behind an expression; nothing for many."""
    made = at.constants(node, found.spot)
    shown = ", ".join(at.shown(item) for item in made)
    return f" ({shown})" if 0 < len(made) <= _MOST_CONSTANTS else ""


def _too_large(at: FailingLine) -> str | None:
    found = _OVERFLOW.search(at.message)
    dtype, largest = _LARGEST.get(found[1], ("", 0.0)) if found is not None else ("", 0.0)
    if not dtype or at.node is None:
        return None
    numbers = [item for item in nodes_of(at.node) if (held := _plain(item)) is not None and abs(held) > largest]
    outer = [item for item in numbers if not any(item is part for other in numbers if other is not item
                                                 for part in nodes_of(other))]  # fmt: skip
    tensors = [name for name in names_in(at.node) if (shape := at.shape(name)) is not None and shape.dtype == dtype]
    if len(outer) != 1 or not tensors:
        return None
    name = tensors[0]
    half = _only_line(at, r"\.half\(\)|autocast\(|torch\.float16")
    by = (
        f" (by {half})"
        if half and (re.search(rf"\b{re.escape(name)}\b", half) or "autocast" in half)
        else at.came(name)
    )
    low = "min" if (_plain(outer[0]) or 0) < 0 else "max"
    return (
        f"{_plain(outer[0]):g} does not fit into {dtype}, whose numbers end at {largest:g}, and `{name}` is "
        f"{dtype}{by}. Write `torch.finfo({name}.dtype).{low}` instead (bfloat16 has the range of float32)."
    )


def _plain(node: ast.AST) -> float | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _plain(node.operand)
        return -inner if inner is not None else None
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)  # type: ignore[arg-type]
    return None


def _only_line(at: FailingLine, pattern: str) -> str:
    """The one simple statement of the file with it."""
    found = {
        item.lineno: source(item)
        for item in nodes_of(at.tree)
        if isinstance(item, ast.stmt) and not hasattr(item, "body") and re.search(pattern, ast.unparse(item))
    }
    return f"line {next(iter(found))}: `{next(iter(found.values()))}`" if len(found) == 1 else ""


def _scaled_half(at: FailingLine) -> str | None:
    """GradScaler with parameters of float16."""
    if "Attempting to unscale FP16 gradients" not in at.message:
        return None
    found = sorted(
        {item.lineno: source(item) for item in nodes_of(at.tree)
         if isinstance(item, ast.stmt) and not hasattr(item, "body")
         and re.search(r"\.half\(\)|float16", ast.unparse(item))}.items()
    )  # fmt: skip
    lines = (
        " or ".join(f"{at.here(line)} (`{text}`)" for line, text in found) if 0 < len(found) <= _MOST_CONSTANTS else ""
    )
    by = f": {lines} can make them so" if lines else ""
    return (
        f"The parameters are float16{by}. GradScaler needs them in float32: leave the model as it is and run forward() "
        "below torch.autocast, or keep float16 (better bfloat16) and leave the scaler out."
    )


def _no_such_device(at: FailingLine) -> str | None:
    if not _NO_DEVICE.search(at.message) or at.node is None:
        return None
    built = "this torch was built without CUDA" if "compiled" in at.message else "there is no usable GPU here"
    calls = _calls(at.node)
    fallback = '`"cuda" if torch.cuda.is_available() else "cpu"`'
    if any(called_name(item) == "cuda" for item in calls):
        return f"Line {at.line} asks for a GPU by .cuda(), and {built}. Use `.to(device)`, with device = {fallback}."
    for item in _passed(calls):
        found = at.made(item)
        last = found.node if found is not None else item
        if isinstance(last, ast.Constant) and isinstance(last.value, str) and last.value.startswith("cuda"):
            by = f" ({at.shown(found)})" if isinstance(found, Made) else ""
            return (
                f"`{source(item)}` is '{last.value}'{by}, and {built}. Choose the device there by {fallback}, or "
                "install a torch for this machine's GPU (pytorch.org has the selector)."
            )
        if isinstance(last, ast.IfExp) and found is not None and _may_be_cuda(last):
            return (
                f"`{source(item)}` asks for a GPU by `{source(last.test)}` alone ({at.shown(found)}), and {built}. Ask "
                "there for `and torch.cuda.is_available()` as well, or turn it off for this machine."
            )
    return None


def _may_be_cuda(choice: ast.IfExp) -> bool:
    """`"cuda" if use_gpu else "cpu"`, by a test that does not look for a GPU."""
    values = [item.value for item in (choice.body, choice.orelse) if isinstance(item, ast.Constant)]
    texts = [item for item in values if isinstance(item, str)]
    return any(item.startswith("cuda") for item in texts) and "available" not in ast.unparse(choice.test)


def _calls(node: ast.AST) -> list[ast.Call]:
    return [item for item in nodes_of(node) if isinstance(item, ast.Call)]


def _passed(calls: Sequence[ast.Call]) -> list[ast.expr]:
    """Their arguments."""
    return [part for item in calls for part in passed_values(item)]


def _larger_sample(at: FailingLine) -> str | None:
    """random.sample() or numpy's choice() of fewer items than are asked for."""
    if at.message.startswith(_NO_REPEATS):
        return _drawn_once(at)
    call = at.only(ast.Call)
    if not _SAMPLE.search(at.message) or call is None or len(call.args) < _PAIR:
        return None
    items, count = call.args[0], number_of(at, call.args[1])
    held = re.match(r"\w+ of (\d+)$", at.value(items) or "")
    if held is None or count is None or count <= int(held[1]):
        return None
    asked = f"`{source(call.args[1])}`{whence(at, call.args[1])} is {count}"
    return (
        f"{asked}, and `{source(items)}` has {held[1]} items so far: wait until there are that many (`if len(...) >= "
        f"{source(call.args[1])}`), or ask for min({source(call.args[1])}, len(...))."
    )


def _drawn_once(at: FailingLine) -> str | None:
    """`np.random.choice(len(points), size, replace=False)`: the message itself says that there are fewer."""
    statement = at.statement
    calls = [item for item in _calls(statement) if called_name(item) == "choice"] if statement is not None else []
    if len(calls) != 1 or not calls[0].args or any(isinstance(item, ast.Starred) for item in calls[0].args):
        return None
    (call,) = calls
    sizes = [*call.args[1:2], *(item.value for item in call.keywords if item.arg == "size")]
    if len(sizes) != 1 or isinstance(sizes[0], (ast.Tuple, ast.List)):
        return None
    items, size = source(call.args[0]), source(sizes[0])
    count, there = number_of(at, sizes[0]), number_of(at, call.args[0])
    inner = call.args[0].args[0] if isinstance(call.args[0], ast.Call) and call.args[0].args else call.args[0]
    is_number = there is not None or (isinstance(call.args[0], ast.Call) and called_name(call.args[0]) == "len")
    told = f", {there}," if there is not None and items != str(there) else ""
    fewer = f"replace={items} < {size}" if is_number else "replace=True"
    return (
        f"`{size}`{whence(at, sizes[0])}{f', {count},' if count is not None and size != str(count) else ''} is more "
        f"than {'' if is_number else 'the entries of '}`{items}`{told.rstrip(',')}{whence(at, inner)}: draw with "
        f"repeats where there are too few ({fewer}), ask for fewer, or leave such inputs out."
    )


def _text_as_number(at: FailingLine) -> str | None:
    """A text that reads as a number, where a number is needed: the one that the line, or a call of it, was given."""
    found = _texts_of_line(at)
    if len(found) != 1:
        return None
    name, text = next(iter(found.items()))
    owner = name.rpartition("[")[0] or name
    came = whence(at, name) or (at.came(owner) if owner in at.values else "")
    kind = "int" if text.lstrip("+-").isdecimal() else "float"
    yaml = "YAML takes 1e-4, without a dot, as a text" if _NO_DOT.search(text) else f"argparse: type={kind}"
    return (
        f"`{name}`{came} is the text '{text}', and a number is needed there: write {kind}({name}), or convert "
        f"it where it is read ({yaml})."
    )


def text_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    found = _texts_of_line(at)
    return next((f"`{name}` is the text '{text}'" for name, text in found.items()), None) if len(found) == 1 else None


def _texts_of_line(at: FailingLine) -> dict[str, str]:
    """Those that read as numbers and may be what is refused."""
    if at.kind != "TypeError" or not _TEXT.search(at.message) or at.node is None:
        return {}
    named = {name.removeprefix(_HELD): text for name, text in at.values.items() if name.startswith(_HELD)}
    return _given_texts(at, named) if not at.own else _read_texts(at, named)


def _read_texts(at: FailingLine, named: dict[str, str]) -> dict[str, str]:
    """The only text among the operands of the failing expression itself."""
    node = at.node.value if isinstance(at.node, (ast.Assign, ast.Return, ast.Expr)) else at.node
    operands: list[ast.expr] = []
    if isinstance(node, (ast.BinOp, ast.Compare)):
        operands = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.left, *node.comparators]
    elif isinstance(node, ast.AugAssign):
        operands = [node.target, node.value]
    elif isinstance(node, ast.Call):
        operands = _passed([node])
    texts = {ast.unparse(item) for item in operands if isinstance(item, _NAMED)}
    texts = {name for name in texts if name in named or at.values.get(name, "").startswith("str of")}
    return {name: named[name] for name in texts if name in named} if len(texts) == 1 else {}


def _given_texts(at: FailingLine, named: dict[str, str]) -> dict[str, str]:
    """Of those that the call passed on to the function that raised it, by the name and text of the argument there."""
    call, found = at.only(ast.Call), dict[str, str]()
    refused = {name.removeprefix(_HELD): text for name, text in at.compared.items() if name.startswith(_HELD)}
    for item in call.keywords if call is not None else ():
        within = [f"{ast.unparse(item.value)}[{name!r}]" for name in refused] if item.arg is None else []
        names = [ast.unparse(item.value)] if item.arg in refused else within
        found |= {name: named[name] for name in names if named.get(name) in refused.values()}
    for given in call.args if call is not None else ():
        name = ast.unparse(given)
        if named.get(name) in refused.values():
            found[name] = named[name]
    return found


def _whole_numbers(at: FailingLine) -> str | None:
    if not _FLOAT_ONLY.search(at.message) or at.node is None:
        return None
    names = [name for name in names_in(at.node) if (shape := at.shape(name)) is not None and _WHOLE.match(shape.dtype)]
    if len(names) != 1:
        return None
    name = names[0]
    return (
        f"`{name}`{whence(at, name)} is {at.shapes[name].dtype}, and only tensors of floating point can be trained. "
        "Make it so there (`.float()`, `dtype=torch.float32`); numbers of tokens or classes go through an "
        "nn.Embedding first."
    )


_EXPLAINED: tuple[Callable[[FailingLine], str | None], ...] = (
    _indivisible,
    _norm_of_another_width,
    _too_large,
    _scaled_half,
    _no_such_device,
    _whole_numbers,
    _larger_sample,
    _text_as_number,
)
