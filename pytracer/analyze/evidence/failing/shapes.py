"""Shapes that do not fit: which operand has which dimension missing, too many, transposed or unequal."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable

from pytracer.analyze.evidence.failing.line import FailingLine, Origin, Shape, names_in, source
from pytracer.analyze.evidence.failing.settings import by_constants, set_by
from pytracer.analyze.evidence.program_syntax import called_name, variable

_FIXED = re.compile(r"nn\.Parameter|register_buffer|zeros|ones|arange|randn|tril|triu")
_MATRICES = re.compile(r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)")
_UNEQUAL = re.compile(
    r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension (-?\d+)"
)
_VIEW = re.compile(r"shape '\[([-\d, ]*)\]' is invalid for input of size (\d+)")
_PAIR = re.compile(
    r"[Tt]arget size \(torch\.Size\((\[[\d, ]*\])\)\) "
    r"(?:must be the same as|that is different to the) input size \(torch\.Size\((\[[\d, ]*\])\)"
)
_BATCH = re.compile(r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)")
_TARGET = re.compile(r"Expected target size (\[[\d, ]*\]), got (\[[\d, ]*\])")
_CHANNELS = re.compile(r"expected input(\[[\d, ]+\]) to have (\d+) channels, but got (\d+) channels")
_STACK = re.compile(
    r"stack expects each tensor to be equal size, but got (\[[\d, ]*\]) at entry 0 and (\[[\d, ]*\]) at entry (\d+)"
)
_RANGE = re.compile(r"index out of range in self|Target (-?\d+) is out of bounds")
_VALUES = re.compile(r", (-?\d+)\.\.(-?\d+)$")
_INDEX = re.compile(r"index (-?\d+) is out of bounds for (?:dimension|axis) (\d+) with size (\d+)")
_MASK = re.compile(r"mask (\[[\d, ]*\]) at index \d+ does not match the shape of the indexed tensor (\[[\d, ]*\])")
_GRADIENT = re.compile(
    r"Mismatch in shape: grad_output\[(\d+)\] has a shape of torch\.Size\((\[[\d, ]*\])\) "
    r"and output\[\d+\] has a shape of torch\.Size\((\[[\d, ]*\])\)"
)
_ASSIGNED = re.compile(
    r"shape mismatch: value tensor of shape (\[[\d, ]*\]) cannot be broadcast to indexing result of shape (\[[\d, ]*\])"
)
_EXPANDED = re.compile(
    r"expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\) at non-singleton dimension (\d+)"
)
_NO_DIMENSION = re.compile(r"Dimension out of range \(expected to be in range of \[-?\d+, (-?\d+)\], but got (-?\d+)\)")
_LAYERS = 4


def sizes_that_differ(at: FailingLine) -> str | None:
    """Of torch's own messages, with the variables that they are about."""
    for expression, explain in _EXPLAINED:
        found = expression.search(at.message)
        if found is not None:
            return explain(at, found)
    return None


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(item) for item in re.findall(r"\d+", text))


def _operands(at: FailingLine) -> tuple[ast.AST, ast.AST] | None:
    """Of `a @ b`, `a + b`, torch.matmul(a, b)."""
    for item in ast.walk(at.node) if at.node is not None else ():
        if isinstance(item, ast.BinOp):
            return item.left, item.right
        if isinstance(item, ast.Compare) and len(item.comparators) == 1:
            return item.left, item.comparators[0]
        if isinstance(item, ast.Call) and len(item.args) == 2 and not isinstance(item.args[0], ast.Starred):
            return item.args[0], item.args[1]
        if isinstance(item, ast.AugAssign):
            return item.target, item.value
    return None


def _matrices(at: FailingLine, found: re.Match[str]) -> str | None:
    rows, inner, expected, columns = (int(item) for item in found.groups())
    layer = at.layer
    if layer is not None and layer.kind == "Linear" and layer.options.get("in_features") == expected:
        return _linear(at, layer.name, layer.given, expected)
    both = _operands(at)
    if both is None:
        return None
    left, right = source(both[0]), source(both[1])
    one = f"`{left}` has {inner} columns and `{right}` {expected} rows, which must be equal"
    if inner == columns:
        return f"{one}: `{right}` is transposed, write `{right}.T` at line {at.line}{made_words(at, both[1])}."
    if rows == expected:
        return f"{one}: `{left}` is transposed, write `{left}.T` at line {at.line}{made_words(at, both[0])}."
    return f"{one}{made_words(at, both[0])}{made_words(at, both[1])}. Change the one that was made with the wrong size."


def _made_from(at: FailingLine, node: ast.AST) -> tuple[str, Origin] | None:
    """Its only name, and where that came from."""
    inside = names_in(node)
    name = variable(node) or (inside[0] if len(inside) == 1 else None)
    origin = at.came_from(name) if name is not None else None
    return (name, origin) if name is not None and origin is not None else None


def made_words(at: FailingLine, node: ast.AST) -> str:
    """``; `x` is from line 3: `x = f()` ``, or nothing."""
    found = _made_from(at, node)
    return f"; `{found[0]}` is from {found[1].place}: `{found[1].text}`" if found is not None else ""


def _linear(at: FailingLine, name: str, given: Shape | None, expected: int) -> str | None:
    layer = f"`{name}`{at.came(name)} takes {expected} features{set_by(at, name, expected)}"
    if given is None or not given.sizes:
        return None
    last = given.sizes[-1]
    call = next((item for item in ast.walk(at.node) if isinstance(item, ast.Call)), None) if at.node else None
    passed = call.args[0] if call is not None and call.args else None
    what = f"`{source(passed)}`" if passed is not None and at.shape(passed) == given else "its input"
    flat = math.prod(given.sizes[1:])
    has = f"{layer}, and {what} is {given.words}"
    if len(given.sizes) > 2 and flat == expected:
        return f"{has}: it was not flattened. torch.flatten(x, 1) before the layer makes it [{given.sizes[0]}, {flat}]."
    if len(given.sizes) == 2 and given.sizes[0] == expected:
        return f"{has}: it is transposed; pass its .T."
    if last == 1 and given.elements == expected * given.sizes[0]:
        return f"{has}: a dimension of 1 is last; squeeze(-1) it."
    came = at.came(variable(passed) or "") if passed is not None else ""
    flattened = re.search(r"flatten|view\(|reshape\(|\.size\(0\)", came) is not None or "Flatten" in str(at.values)
    if flattened:
        return (
            f"{has}{came}: the flattened size follows from the images' size. Set in_features={last}, resize the "
            "images, or put nn.AdaptiveAvgPool2d before it."
        )
    return f"{has}{came}, so {last}. Make the layer with in_features={last}, or give it what has {expected}."


def _unequal(at: FailingLine, found: re.Match[str]) -> str | None:
    first, second, dimension = (int(item) for item in found.groups())
    both = _operands(at)
    shapes = [at.shape(item) for item in both] if both is not None else []
    if both is None or len(shapes) != 2 or shapes[0] is None or shapes[1] is None:
        return None
    one, other = shapes[0], shapes[1]
    left, right = f"`{source(both[0])}`", f"`{source(both[1])}`"
    if one.sizes == other.sizes[::-1] and len(one.sizes) > 1:
        return f"{left} {one.words} and {right} {other.words} are each other's transpose: transpose one (`.T`)."
    missing = _missing_dimension(one, other, left, right)
    if missing is not None:
        return missing
    made = [made_words(at, item) for item in both]
    place = dimension % max(len(one.sizes), len(other.sizes))
    unequal = f"Dimension {place} is {first} in {left} {one.words} and {second} in {right} {other.words}"
    origins = [_made_from(at, item) for item in both]
    fixed = [n for n, found in enumerate(origins) if found is not None and _FIXED.search(found[1].text)]
    if len(fixed) == 1 and isinstance(both[fixed[0]], ast.Attribute):
        size = (first, second)[fixed[0]]
        return (
            f"{unequal}{made[fixed[0]]}, made for {size}{made_for(at, both[fixed[0]], size)}: cut or pad the input "
            f"to {size}, or make it for {(second, first)[fixed[0]]} and slice it to the input (`[:, :n]`)."
        )
    return f"{unequal}{made[0]}{made[1]}. Only a dimension of 1 is broadcast: correct the one that has the wrong size."


def made_for(at: FailingLine, node: ast.AST, made_for: int) -> str:
    """The constants that the shape of a table was computed from."""
    found = at.made(node, calls=False)
    if found is None:
        return ""
    told = {
        by_constants(at, size, found)
        for item in ast.walk(found.node)
        if isinstance(item, ast.Call)
        for size in item.args
        if not isinstance(size, ast.Constant) and at.evaluated(size, found.spot) == made_for
    }
    return next(iter(told)) if len(told) == 1 else ""


def _gradient(at: FailingLine, found: re.Match[str]) -> str | None:
    """Of torch.autograd.backward(outputs, gradients), output.backward(gradient), torch.autograd.grad()."""
    call = at.only(ast.Call)
    if call is None or not isinstance(call.func, ast.Attribute):
        return None
    own = call.func.attr == "backward" and isinstance(call.func.value, ast.Name) and call.func.value.id != "torch"
    place = 0 if own else 1 if call.func.attr == "backward" else 2
    named = {item.arg: item.value for item in call.keywords}
    given = named.get("gradient") or named.get("grad_tensors") or named.get("grad_outputs")
    given = given if given is not None or place >= len(call.args) else call.args[place]
    if given is None:
        return None
    came = at.came(variable(given) or "")
    which = "its shape" if own else f"the shape of number {found[1]} of it"
    return (
        f"`{source(given)}`{came}: {which} is {found[2]}, and that of the output {found[3]}; they must be equal. "
        "Make it by torch.ones_like(output), or call backward() on the sum of the outputs, without one."
    )


def _assigned(at: FailingLine, found: re.Match[str]) -> str | None:
    """`target[index] = values`."""
    statement = at.statement
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target, value = statement.targets[0], statement.value
    if not isinstance(target, ast.Subscript):
        return None
    index = variable(target.slice)
    by = f", by `{index}`{at.came(index)}" if index is not None and at.came(index) else ""
    return (
        f"`{source(value)}`{at.came(variable(value) or '')} is {found[1]}, and `{source(target)}` takes "
        f"{found[2]}{by}: cut one to the other, or make room for all."
    )


def _without_dimension(at: FailingLine, found: re.Match[str]) -> str | None:
    """What a squeeze() on the way took away."""
    for name, shape in at.shapes.items():
        made = at.made(name) if len(shape.sizes) == int(found[1]) + 1 else None
        for node, spot in (*made.through[1:], (made.node, made.spot)) if made is not None else ():
            squeezed = [
                item
                for item in ast.walk(node)
                if isinstance(item, ast.Call) and called_name(item) == "squeeze" and not item.keywords
                if not item.args or (isinstance(item.func, ast.Attribute) and variable(item.func.value) == "torch")
            ]
            if squeezed and len(squeezed[0].args) < 2:
                place = at.place(spot, squeezed[0].lineno)
                return (
                    f"`{name}` is {shape.words}, without the dimension {found[2]} that line {at.line} asks for: "
                    f"squeeze() at {place} takes away every dimension of 1, also that of a batch of one. Name the "
                    "dimension there (`squeeze(-1)`, flatten(1))."
                )
    return None


def _expanded(at: FailingLine, found: re.Match[str]) -> str | None:
    """`table.expand(count, -1)` of a table that is no [1, ...]."""
    call = at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    shape = at.shape(owner)
    asked, size, place = (int(item) for item in found.groups())
    if call is None or owner is None or shape is None or called_name(call) not in ("expand", "expand_as"):
        return None
    last = place - len(call.args if called_name(call) == "expand" else shape.sizes) + len(shape.sizes)
    if not 0 <= last < len(shape.sizes) or shape.sizes[last] != size:
        return None
    name = variable(owner)
    table = f"`{source(owner)}` {shape.words}{at.came(name or '')}"
    has = f"Dimension {last} of {table} is {size}{made_for(at, owner, size)}"
    asks = call.args[place] if called_name(call) == "expand" and place < len(call.args) else call.args[0]
    by = f"`{source(asks)}`{at.came(variable(asks) or '')}"
    return (
        f"{has}, and {by} asks for {asked}: only a dimension of 1 can be expanded. Make it with {asked}, cut the "
        f"other to {size}, or repeat what is one row (`unsqueeze`, then expand)."
    )


def _missing_dimension(one: Shape, other: Shape, left: str, right: str) -> str | None:
    """`[8, 4]` and `[8]`: one lacks a dimension that the other has."""
    longer, shorter = (one, other) if len(one.sizes) > len(other.sizes) else (other, one)
    if len(longer.sizes) != len(shorter.sizes) + 1 or not shorter.sizes:
        return None
    for place in range(len(longer.sizes)):
        rest = longer.sizes[:place] + longer.sizes[place + 1 :]
        if rest == shorter.sizes and place:
            name, full = (right, left) if longer is one else (left, right)
            return (
                f"{name} {shorter.words} lacks dimension {place} of {full} {longer.words}: write "
                f"`{name.strip('`')}.unsqueeze({place})`."
            )
    return None


def _viewed(at: FailingLine, found: re.Match[str]) -> str | None:
    wanted, size = [int(item) for item in re.findall(r"-?\d+", found[1])], int(found[2])
    call = at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    shape = at.shape(owner)
    product = math.prod(number for number in wanted if number != -1)
    has = f"`{source(owner)}` {shape.words}" if owner is not None and shape is not None else "The tensor"
    text = f"{has} has {size} elements, and [{found[1]}] takes {'a multiple of ' if -1 in wanted else ''}{product}"
    rounded = _rounded_division(at)
    if rounded is not None:
        return f"{text}: {rounded}."
    if shape is not None and wanted and -1 not in wanted and shape.sizes:
        first = product // wanted[0] if wanted[0] else 0
        if first and size % first == 0 and shape.sizes[0] == size // first:
            return (
                f"{text}: the first size is {shape.sizes[0]}, not {wanted[0]}, as in a last batch that is smaller. "
                "Take it from the tensor (`x.size(0)`, or -1), or drop_last=True."
            )
    fixed = _fixed_size(at, call, wanted, size) if call is not None and shape is not None else None
    if fixed is not None:
        return f"{has} has {size} elements, {fixed}"
    made = at.came(variable(owner) or "") if owner is not None else ""
    return f"{text}. Correct the size at line {at.line} that is not the input's{made}, or take it from x.shape."


def _fixed_size(at: FailingLine, call: ast.Call, wanted: list[int], size: int) -> str | None:
    """The first size is a constant of the program, and the others fit."""
    sizes = call.args[0].elts if len(call.args) == 1 and isinstance(call.args[0], (ast.Tuple, ast.List)) else call.args
    rest = math.prod(wanted[1:]) if wanted else 0
    if len(sizes) != len(wanted) or -1 in wanted or rest <= 0 or size % rest:
        return None
    found = at.made(sizes[0])
    constant = sizes[0] if found is None else found.node
    if not isinstance(constant, ast.Constant) or constant.value != wanted[0]:
        return None
    real = size // rest
    whole = f"[{', '.join(map(str, [real, *wanted[1:]]))}]"
    by = f"`{source(sizes[0])}` is the constant {wanted[0]} ({at.place(found.spot, found.line)})" if found else ""
    by = by or f"line {at.line} has the constant {wanted[0]}"
    smaller = "; the last batch of an epoch is often smaller" if real < wanted[0] else ""
    return (
        f"which make {whole}{smaller}; {by}. Take the first size from the data (-1, or x.size(0)), or set "
        "drop_last=True in the DataLoader."
    )


def _rounded_division(at: FailingLine) -> str | None:
    """`d // heads` of the failing expression, where it leaves a rest."""
    for item in ast.walk(at.node) if at.node is not None else ():
        if isinstance(item, ast.BinOp) and isinstance(item.op, ast.FloorDiv):
            left, right = _number(at, item.left), _number(at, item.right)
            if left is not None and right and left % right:
                rounds = f"`{source(item)}` rounds {left} / {right} down"
                return f"{rounds}. {left} must be a multiple of {right}: change one of them"
    return None


def _number(at: FailingLine, node: ast.AST) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    value = at.value(node)
    return int(value) if value is not None and re.fullmatch(r"-?\d+", value) else None


def _pair(at: FailingLine, found: re.Match[str]) -> str | None:
    target, given = _sizes(found[1]), _sizes(found[2])
    names = {shape.sizes: name for name, shape in at.shapes.items()}
    goal, output = names.get(target, "the target"), names.get(given, "the output")
    goal, output = (f"`{item}`" if item in at.shapes else item for item in (goal, output))
    has = f"{output} is {found[2]} and {goal} {found[1]}"
    has = has[0].upper() + has[1:] if has[0] != "`" else has
    if given == (*target, 1):
        return f"{has}: the output has a last dimension of 1 too many. Pass `{output.strip('`')}.squeeze(-1)`."
    if target == (*given, 1):
        return f"{has}: the target has a last dimension of 1 too many. Pass `{goal.strip('`')}.squeeze(-1)`."
    if given[:1] == target[:1] and len(given) == len(target) + 1:
        return (
            f"{has}: class numbers where one value for each of {given[-1]} outputs is expected. Use CrossEntropyLoss, "
            f"or F.one_hot({goal.strip('`')}, {given[-1]}).float()."
        )
    if given[:1] != target[:1] and given[1:] == target[1:]:
        return f"{has}: their batches differ{_from_both(at, output, goal)}."
    return f"{has}, and both must be alike{_from_both(at, output, goal)}."


def _from_both(at: FailingLine, *names: str) -> str:
    came = [f"{name}{words}" for name in names if (words := at.came(name.strip("`")))]
    return f": {' and '.join(came)}" if came else ""


def _batches(at: FailingLine, found: re.Match[str]) -> str | None:
    given, target = int(found[1]), int(found[2])
    output = next((name for name, shape in at.shapes.items() if shape.sizes[:1] == (given,)), None)
    goal = next(
        (name for name, shape in at.shapes.items() if shape.elements == target or shape.sizes[:1] == (target,)), None
    )
    if output is None or goal is None or output == goal:
        return None
    one, other = at.shapes[output], at.shapes[goal]
    has = f"`{output}` is {one.words} and `{goal}` {other.words}"
    if target and given % target == 0 and given != target:
        return (
            f"{has}: {given} predictions for {target} targets, {given // target} for each. Another dimension was "
            f"folded into the batch{at.came(output)}: keep the batch first (`x.view(x.size(0), -1)`), or flatten the "
            "target alike."
        )
    return f"{has}: their first sizes must be equal{_from_both(at, f'`{output}`', f'`{goal}`')}."


def _target(at: FailingLine, found: re.Match[str]) -> str | None:
    wanted, got = _sizes(found[1]), _sizes(found[2])
    output = next((name for name, shape in at.shapes.items() if (shape.sizes[:1] + shape.sizes[2:]) == wanted), None)
    if output is None:
        return None
    shape = at.shapes[output]
    has = f"`{output}` is {shape.words} (batch, classes, ...), so the target must be {found[1]}, and is {found[2]}"
    if len(got) == len(wanted) + 1:
        lacking = [size for size in got if got.count(size) > shape.sizes.count(size)]
        which = f", of size {lacking[0]}," if len(lacking) == 1 else ""
        if len(shape.sizes) == len(got):
            return (
                f"{has}: `{output}` lacks a dimension{which} that the target has{at.came(output)}. Look for a "
                "squeeze(), mean(), max() or [0] in what makes it."
            )
    if shape.sizes[-1:] != got[-1:] and sorted(shape.sizes[1:-1]) == sorted(got[1:]):
        return f"{has}: the classes are last. Pass `{output}.transpose(1, -1)`."
    return f"{has}{at.came(output)}."


def _channels(at: FailingLine, found: re.Match[str]) -> str | None:
    shape, expected, got = _sizes(found[1]), int(found[2]), int(found[3])
    layer = at.layer
    made = re.sub(r"\.\d+$", "", layer.name) if layer is not None else ""
    name = f"`{layer.name}`{at.came(made)}" if layer is not None else "The convolution"
    has = f"{name} takes {expected} channels (dimension 1), and its input is {found[1]}"
    if shape[-1] == expected:
        order = "0, 3, 1, 2" if len(shape) == 4 else "2, 0, 1"
        return f"{has}: the channels are last. Pass x.permute({order}), as images of numpy and PIL need."
    if expected == 3 and got == 1:
        return (
            f'{has}: a grayscale image. Convert the images (`.convert("RGB")`), or make the layer with in_channels=1.'
        )
    if expected == 3 and got == 4:
        return f'{has}: an RGBA image. Convert the images (`.convert("RGB")`), or drop the last channel (x[:, :3]).'
    return f"{has}: make it with in_channels={got}, or correct what the layer before gives."


def _stacked(at: FailingLine, found: re.Match[str]) -> str | None:
    if not any("collate.py" in (item.file or "") for item in at.stack):
        return None
    one, other = _sizes(found[1]), _sizes(found[2])
    if len(one) != len(other):
        what = f"have {len(one)} and {len(other)} dimensions"
        return (
            f"Samples 0 and {found[3]} of the batch {what} ({found[1]}, {found[2]}): return one form from the dataset."
        )
    differ = [n for n, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]]
    if not differ:
        return None
    if differ == [0] and {one[0], other[0]} & {1, 3, 4} and len(one) == 3:
        return (
            f"Samples 0 and {found[3]} of the batch have {one[0]} and {other[0]} channels ({found[1]}, {found[2]}): "
            "convert all "
            'images alike (`.convert("RGB")`) in the dataset.'
        )
    place = f"dimension {differ[0]}" if len(differ) == 1 else f"dimensions {', '.join(map(str, differ))}"
    return (
        f"Samples 0 and {found[3]} of the batch differ in {place} ({found[1]}, {found[2]}): crop, resize or pad them "
        "to one size in the dataset, or give the DataLoader a collate_fn that pads (pad_sequence)."
    )


def _out_of_range(at: FailingLine, found: re.Match[str]) -> str | None:
    if found[1] is not None:
        return _label(at, int(found[1]))
    layer = at.layer
    rows = layer.options.get("num_embeddings") if layer is not None and layer.kind == "Embedding" else None
    if layer is None or rows is None:
        return None
    values = _VALUES.search(at.values.get(f"input of {layer.name}", ""))
    passed = at.passed("its input")
    table = f"`{layer.name}`{at.came(layer.name)} has {rows} rows, 0 to {rows - 1}"
    if values is None:
        return None
    low, high = int(values[1]), int(values[2])
    if low < 0:
        marker = 'a marker for padding or "ignore"'
        return f"{table}, and `{passed}` has {low}: {marker}. Replace it by a real row (padding_idx)."
    if high == rows:
        return (
            f"{table}, and `{passed}` reaches {high}: one row too few. Make it with {rows + 1} (numbers from 1, or a "
            "token for padding or unknown, need one more), or number from 0."
        )
    return (
        f"{table}, and `{passed}` reaches {high}: make the table for the vocabulary or length in use (len(tokenizer), "
        "resize_token_embeddings), or cut or map what is beyond it."
    )


def _label(at: FailingLine, label: int) -> str | None:
    output = next(
        (name for name, shape in at.shapes.items() if len(shape.sizes) > 1 and not _VALUES.search(at.values[name])),
        None,
    )
    classes = at.shapes[output].sizes[1] if output is not None else None
    goal = next((name for name, value in at.values.items() if name in _read(at) and _VALUES.search(value)), None)
    if output is None or classes is None:
        return None
    values = _VALUES.search(at.values[goal]) if goal is not None else None
    counted = last_layer(at, output)
    has = f"`{output}`{counted} has {classes} classes, 0 to {classes - 1}, and the target has {label}"
    if goal is not None and values is not None:
        told = f"`{goal}`{at.came(goal)} is {values[1]} to {values[2]}"
        has = f"`{output}`{counted} has {classes} classes, 0 to {classes - 1}, and {told}"
        if int(values[1]) >= 1 and int(values[2]) == classes:
            more = f"if class 0 is real, the last layer needs {classes + 1} outputs"
            return f"{has}: if its numbers begin at 1, subtract 1; {more}."
    if label < 0 or label in (255, 254):
        return f'{has}: a marker for "ignore". Pass ignore_index={label} to the loss.'
    return f"{has}: give the last layer {label + 1} outputs, or map the labels to 0 .. {classes - 1}."


def last_layer(at: FailingLine, output: str) -> str:
    """`` (line 26: `model = nn.Linear(8, classes)`) ``, of what gave the output; of nn.Sequential its last layer."""
    found = at.made(output)
    for _ in range(_LAYERS):
        node = found.node if found is not None else None
        if found is None or not isinstance(node, ast.Call):
            return ""
        if re.match(r"(?:torch\.)?nn\.Linear\(", ast.unparse(node)):
            return f" ({at.shown(found)})"
        inner = node.func
        if called_name(node) == "Sequential":
            if not node.args or isinstance(node.args[-1], ast.Starred):
                return ""
            inner = node.args[-1]
        found = at.slice.made(inner, found.spot, calls=True)
    return ""


def _read(at: FailingLine) -> list[str]:
    return names_in(at.node) if at.node is not None else []


def _index(at: FailingLine, found: re.Match[str]) -> str | None:
    index, dimension, size = (int(item) for item in found.groups())
    node = at.only(ast.Subscript)
    if node is None and size:
        return _index_of_call(at, index, dimension, size)
    if node is None or size == 0:
        return None
    shape = at.shape(node.value)
    if shape is None or dimension >= len(shape.sizes) or shape.sizes[dimension] != size:
        return None
    by = [name for name in names_in(node.slice) if re.search(rf"(?<!\d){index}(?!\d)", at.value(name) or "")]
    what = f"`{by[0]}`{at.came(by[0])} is" if len(by) == 1 else "the index is"
    table = f"`{source(node.value)}` {shape.words} has {size} in dimension {dimension}, 0 to {size - 1}"
    if len(by) == 1 and _VALUES.search(at.values[by[0]]):
        what = f"`{by[0]}`{at.came(by[0])} holds"
    end = "one too many: numbers from 1, or a loop to its length" if index == size else "it was made for another array"
    return f"{table}, and {what} {index}: {end}."


def _index_of_call(at: FailingLine, index: int, dimension: int, size: int) -> str | None:
    """`q.gather(1, actions)`."""
    ranges = {name: found for name in _read(at) if (found := _VALUES.search(at.values.get(name, "")))}
    holding = [name for name, found in ranges.items() if str(index) in found.groups()]
    tables = [name for name, shape in at.shapes.items() if name not in holding and size in shape.sizes]
    if len(holding) != 1 or not tables:
        return None
    name, found = holding[0], ranges[holding[0]]
    table = f"`{tables[0]}` {at.shapes[tables[0]].words} has {size} in dimension {dimension}, 0 to {size - 1}"
    end = "one too many: they count from 1, or one more is needed" if index == size else "correct it where it is made"
    return f"{table}, and `{name}`{at.came(name)} is {found[1]} to {found[2]}: {end}."


def _masked(at: FailingLine, found: re.Match[str]) -> str | None:
    node = at.only(ast.Subscript)
    if node is None:
        return None
    table, mask = source(node.value), source(node.slice)
    return (
        f"The mask `{mask}` {found[1]}{at.came(variable(node.slice) or '')} was not made for `{table}` {found[2]}"
        f"{at.came(variable(node.value) or '')}: make it of the same tensor, before or after both are filtered."
    )


_EXPLAINED: tuple[tuple[re.Pattern[str], Callable[[FailingLine, re.Match[str]], str | None]], ...] = (
    (_MATRICES, _matrices),
    (_UNEQUAL, _unequal),
    (_VIEW, _viewed),
    (_PAIR, _pair),
    (_BATCH, _batches),
    (_TARGET, _target),
    (_CHANNELS, _channels),
    (_STACK, _stacked),
    (_RANGE, _out_of_range),
    (_INDEX, _index),
    (_MASK, _masked),
    (_GRADIENT, _gradient),
    (_ASSIGNED, _assigned),
    (_NO_DIMENSION, _without_dimension),
    (_EXPANDED, _expanded),
)


def index_of_list(at: FailingLine) -> str | None:
    """`images[current]`, where both are recorded."""
    node = at.only(ast.Subscript)
    if at.kind != "IndexError" or "out of range" not in at.message or node is None or not at.own:
        return None
    held = re.match(r"(?:list|tuple|deque|str) of (\d+)$", at.value(node.value) or "")
    index = _number(at, node.slice)
    if isinstance(node.slice, ast.UnaryOp) and isinstance(node.slice.op, ast.USub):
        inner = _number(at, node.slice.operand)
        index = -inner if inner is not None else None
    if held is None or held[1] == "0":
        return None
    name, count = source(node.value), int(held[1])
    many = f"{count} item{'s' * (count != 1)}"
    what = (
        f", and `{source(node.slice)}` is {index}"
        if index is not None and not isinstance(node.slice, ast.Constant)
        else ""
    )
    what = what or f", and index {source(node.slice)} is beyond"
    loop = at.came(source(node.slice)) if variable(node.slice) is not None else ""
    table = at.came(variable(node.value) or "")
    if isinstance(node.slice, ast.Constant) or index is None:
        why = f"look at why it is shorter than line {at.line} expects, or ask len() first"
        return f"`{name}`{table} has {many}{what}: {why}."
    made = at.made(node.value)
    call = made.node if made is not None else None
    by = by_constants(at, call.args[0], made) if made is not None and isinstance(call, ast.Call) and call.args else ""
    if source(node.slice).rpartition(".")[2] in ("rank", "local_rank", "world_rank"):
        return (
            f"`{name}`{table} has {many}{by}{what}: each rank needs one of its own. Make as many as there are ranks "
            "(dist.get_world_size()), or start no more ranks than that."
        )
    return (
        f"`{name}`{table} has {many}{by}{what}{loop}: what sets the index counts something else than `{name}`. Take it "
        f"from len({name}), or look at why `{name}` is shorter here (a last batch or line, a filter)."
    )
