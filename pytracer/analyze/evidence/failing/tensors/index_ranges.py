"""An index, a class number or a row that is beyond what is indexed."""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.data.counted_lengths import counted_length
from pytracer.analyze.evidence.failing.data.next_samples import behind_the_last, number_of_worker
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.numbers import whole_number
from pytracer.analyze.evidence.failing.stored.misread_ids import misread_ids
from pytracer.analyze.evidence.failing.tensors.chosen_rows import chosen_row
from pytracer.analyze.evidence.failing.tensors.drawn_indices import drawn_index
from pytracer.analyze.evidence.failing.tensors.grown_tables import grown_table
from pytracer.analyze.evidence.failing.tensors.labels import label_beyond
from pytracer.analyze.evidence.failing.tensors.negative_rows import negative_row
from pytracer.analyze.evidence.failing.tensors.other_tables import other_table
from pytracer.analyze.evidence.failing.tensors.positions import too_many_places
from pytracer.analyze.evidence.failing.usage.settings import by_constants
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.bindings import is_loop_variable
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, keyword_value, passed_values
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, second_parameter

_VALUES = Pattern(r", (-?\d+)\.\.(-?\d+)$")
_WORLD = Pattern(r"world_?size", re.IGNORECASE)


def row_beyond(at: FailingLine, found: re.Match[str]) -> str | None:
    """An index beyond the rows of an embedding, or a class number beyond the outputs."""
    if found[1] is not None:
        return label_beyond(at, int(found[1]))
    layer = at.layer
    rows = layer.options.get("num_embeddings") if layer is not None and layer.kind == "Embedding" else None
    if layer is None or rows is None:
        return chosen_row(at)
    values = _VALUES.search(at.values.get(f"input of {layer.name}", ""))
    passed = at.passed("its input")
    table = f"`{layer.name}`{at.came(layer.name)} has {rows} rows, 0 to {rows - 1}"
    if values is None:
        return None
    low, high = int(values[1]), int(values[2])
    if low < 0:
        return f"{table}, and `{passed}` has {low}{negative_row(at, low)}"
    other = other_table(at, layer.name, high)
    if other is not None:
        return f"{table}, and `{passed}` reaches {high}: {other}"
    drawn = drawn_index(at, rows, high)
    if drawn is not None:
        return f"{table}, and `{passed}` reaches {high}{drawn}"
    grown = grown_table(at, layer.name, rows, high)
    if grown is not None:
        return f"{table}, and `{passed}` reaches {high}, as {grown.why(at)}. {grown.advice(at)}"
    misread = misread_ids(at, low, high, rows)
    if misread is not None:
        return f"{misread.words}, so that `{passed}` reaches {high}; {table}. {misread.advice}"
    places = too_many_places(at, rows, high)
    if places is not None:
        return f"`{layer.name}`{at.came(layer.name)}{places}"
    number = f"{_number_of_rows(at, layer.name, rows)} "
    if high == rows:
        return (
            f"{table}, and `{passed}` reaches {high} in this batch, others may reach more.{number}Make it by the "
            f"number of all ids (len(vocab), with those for padding and unknown), {rows + 1} at least, or map what is "
            "beyond it."
        )
    return (
        f"{table}, and `{passed}` reaches {high}.{number}Make the table for the vocabulary or length in use "
        "(len(tokenizer), resize_token_embeddings), or cut or map what is beyond it."
    )


def _number_of_rows(at: FailingLine, layer: str, rows: int) -> str:
    """`` The 900 is a constant, line 17: `'input_size': 900`. ``; nothing where its own line, or none, has it."""
    made = at.made(layer)
    call = made.node if made is not None else None
    count = argument_at(call, 0, "num_embeddings") if isinstance(call, ast.Call) else None
    if made is None or count is None or isinstance(count, ast.Constant):
        return ""
    found = at.constants(count, made.spot)
    if len(found) != 1 or not isinstance(found[0].node, ast.Constant) or found[0].node.value != rows:
        return ""
    return f" The {rows} is a constant ({at.shown(found[0])})."


def index_beyond(at: FailingLine, found: re.Match[str]) -> str | None:
    """`table[index]`, in the words of torch and of NumPy."""
    index, dimension, size = (int(item) for item in found.groups())
    node = at.only(ast.Subscript)
    if node is None and size:
        return _index_of_call(at, index, dimension, size)
    if node is None or size == 0:
        return None
    shape = at.shape(node.value)
    if shape is None or dimension >= len(shape.sizes) or shape.sizes[dimension] != size:
        return None
    by = [name for name in names_in(node.slice) if _holds(at.value(name) or "", index)]
    what = f"`{by[0]}`{at.came(by[0])} is" if len(by) == 1 else "the index is"
    length = counted_length(at, node.value, node.slice, index, size) if dimension == 0 else None
    if length is not None:
        return f"`{source(node.value)}` {shape.words} has {size} rows, and `{source(node.slice)}` is {index}: {length}"
    table = f"`{source(node.value)}` {shape.words} has {size} in dimension {dimension}, 0 to {size - 1}"
    window = _beyond_length(at, node)
    if window is not None:
        return f"{table}, and the index is {index}: {window}"
    if len(by) == 1 and _VALUES.search(at.values[by[0]]):
        what = f"`{by[0]}`{at.came(by[0])} holds"
    end = (
        _beyond_by(at.value(by[0]) if len(by) == 1 else None, index, size)
        or "it was made for another array, or by a wrong count"
    )
    return f"{table}, and {what} {index}: {end}."


def _beyond_by(value: str | None, index: int, size: int) -> str | None:
    """Of the index just behind the last one; numbers of which one is 0 do not count from 1."""
    if index != size:
        return None
    span = _VALUES.search(value or "")
    if span is None:
        return "one too many: numbers from 1, or a loop to its length"
    if int(span[1]) < 1:
        return f"one beyond the last. Make one more, or let what makes the numbers end at {size - 1}"
    return "one too many: they count from 1, or one more is needed"


def _of_command_line(at: FailingLine, node: ast.Subscript) -> str | None:
    """`sys.argv[2]`."""
    place = node.slice.value if isinstance(node.slice, ast.Constant) else None
    words = [*at.snapshot.argv]
    script = next((n for n, word in enumerate(words) if word.endswith(".py")), None)
    if type(place) is not int or script is None or place < len(words) - script:
        return None
    given = words[script + 1 :]
    many = f"{len(given)} argument{'s' * (len(given) != 1)}"
    return (
        f"The command line has {many} behind {words[script].rpartition('/')[2]}, and line {at.line} reads number "
        f"{place}: start it with {place}, or read them by argparse, which has defaults and says what is missing."
    )


def _one_ahead(at: FailingLine, node: ast.Subscript, count: int) -> str | None:
    """`items[i + 1]` in a loop to `len(items)`."""
    index = node.slice
    if not isinstance(index, ast.BinOp) or not isinstance(index.op, ast.Add) or not isinstance(index.left, ast.Name):
        return None
    more = index.right.value if isinstance(index.right, ast.Constant) else None
    place = whole_number(at, index.left)
    if type(more) is not int or place is None or not count - more <= place < count:
        return None
    if not is_loop_variable(at.scope, index.left.id, at.line):
        return None
    loop = at.came(index.left.id)
    return (
        f"`{source(index)}` is {place + more}, as `{index.left.id}` goes up to {place}{loop}: let that end {more} "
        f"earlier (`range(len({source(node.value)}) - {more})`), or treat the last one apart."
    )


def _chosen_by(at: FailingLine, index: ast.AST) -> str | None:
    """`` `SubsetRandomSampler(chosen)` (line 30) ``, of the only line that gives a __getitem__ its indices."""
    asked = isinstance(at.scope, ast.FunctionDef) and at.scope.name == "__getitem__"
    if not asked or variable(index) != second_parameter(at.scope):
        return None
    calls = [(file, item) for file, tree in at.files.items() for item in nodes_of(tree) if isinstance(item, ast.Call)]
    found = [
        (file, value)
        for file, item in calls
        if called_name(item) == "DataLoader" and (value := keyword_value(item, "sampler", "batch_sampler")) is not None
    ]
    if sum(called_name(item) == "DataLoader" for _, item in calls) != 1:
        found = []  # which of them asked is not known
    below = any((item.file or "").endswith("utils/data/dataset.py") for item in at.stack)
    found += [(file, item) for file, item in calls if called_name(item) == "Subset" and below]
    return f"`{source(found[0][1])}` ({at.in_file(found[0][0], found[0][1].lineno)})" if len(found) == 1 else None


def _holds(value: str, index: int) -> bool:
    """Of a number, or of the least and greatest of a tensor's."""
    span = _VALUES.search(value)
    return str(index) in span.groups() if span is not None else value == str(index)


def _beyond_length(at: FailingLine, node: ast.Subscript) -> str | None:
    """`series[i + window]` of a __getitem__(i), where __len__() counts all of the series."""
    owner, given = class_around(at.tree, at.scope), second_parameter(at.scope)
    index = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
    if owner is None or given is None or not isinstance(index, ast.BinOp) or not isinstance(index.op, ast.Add):
        return None
    if not isinstance(at.scope, ast.FunctionDef) or at.scope.name != "__getitem__" or given not in names_in(index):
        return None
    added = [item for item in (index.left, index.right) if given not in names_in(item)]
    methods = [item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == "__len__"]
    returns = [item for method in methods for item in own_nodes(method) if isinstance(item, ast.Return) and item.value]
    counted = f"len({source(node.value)})"
    if len(added) != 1 or len(returns) != 1 or returns[0].value is None or source(returns[0].value) != counted:
        return None
    return (
        f"`{source(index)}` of the last items goes beyond it, as __len__() "
        f"({at.here(returns[0].lineno)}) counts all of "
        f"them: return `{counted} - {source(added[0])}` there."
    )


def _index_of_call(at: FailingLine, index: int, dimension: int, size: int) -> str | None:
    """`q.gather(1, actions)`."""
    ranges = {name: found for name in at.names if (found := _VALUES.search(at.values.get(name, "")))}
    holding = [name for name, found in ranges.items() if str(index) in found.groups()]
    tables = [name for name, shape in at.shapes.items() if name not in holding and size in shape.sizes]
    call = at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    if len(holding) != 1 or not (tables or isinstance(owner, ast.Call)):
        return None
    name, found = holding[0], ranges[holding[0]]
    what = f"`{tables[0]}` {at.shapes[tables[0]].words}" if tables else f"`{source(owner or ast.Pass())}`"
    table = f"{what} has {size} in dimension {dimension}, 0 to {size - 1}"
    end = _beyond_by(at.values[name], index, size) or "correct it where it is made"
    return f"{table}, and `{name}`{at.came(name)} is {found[1]} to {found[2]}: {end}."


def _fewer_chunks(at: FailingLine, made: Made | None, count: int) -> str | None:
    """Of `x.chunk(world)` that gave fewer parts than it was asked for."""
    call = made.node if made is not None else None
    if made is None or not isinstance(call, ast.Call) or called_name(call) != "chunk":
        return None
    is_function = isinstance(call.func, ast.Name) or source(call.func) == "torch.chunk"
    asked = argument_at(call, int(is_function), "chunks")
    number = at.evaluated(asked, made.spot) if asked is not None else None
    origin = at.slice.made(asked, made.spot, calls=True).node if asked is not None else None
    of_ranks = origin is not None and _WORLD.search(ast.unparse(origin)) is not None
    of_group = isinstance(origin, ast.Call) and passed_values(origin)  # of fewer ranks, perhaps
    rank = at.snapshot.rank
    of_ranks = of_ranks and not of_group and (rank is None or (rank.world_size or 0) > count)
    if asked is None or (number is None and not of_ranks) or (number is not None and number <= count):
        return None
    few = f"`{source(asked)}`" if number is None else str(number)
    return (
        f"it was asked for {few}, and chunk() gives fewer where the entries do not fill all. Pad the tensor first to a "
        "multiple of the number of parts, or use tensor_split(), which gives all of them, some smaller or empty."
    )


def index_of_list(at: FailingLine) -> str | None:
    """`images[current]`, where both are recorded."""
    node = at.only(ast.Subscript)
    if at.kind != "IndexError" or "out of range" not in at.message or node is None or not at.own:
        return None
    if ast.unparse(node.value) == "sys.argv":
        return _of_command_line(at, node)
    held = re.match(r"(?:list|tuple|deque|str) of (\d+)$", at.value(node.value) or "")
    index = whole_number(at, node.slice)
    if isinstance(node.slice, ast.UnaryOp) and isinstance(node.slice.op, ast.USub):
        inner = whole_number(at, node.slice.operand)
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
    table = at.came(node.value)
    ahead = _one_ahead(at, node, count)
    if ahead is not None:
        return f"`{name}`{table} has {many}, 0 to {count - 1}, and {ahead}"
    if isinstance(node.slice, ast.Constant) or index is None:
        why = f"look at why it is shorter than line {at.line} expects, or ask len() first"
        return f"`{name}`{table} has {many}{what}: {why}."
    made = at.made(node.value)
    call = made.node if made is not None else None
    by = by_constants(at, call.args[0], made) if made is not None and isinstance(call, ast.Call) and call.args else ""
    short_of = _fewer_chunks(at, made, count)
    if short_of is not None:
        return f"`{name}`{table} has {many}{what}: {short_of}"
    if source(node.slice).rpartition(".")[2] in ("rank", "local_rank", "world_rank"):
        return (
            f"`{name}`{table} has {many}{by}{what}: each rank needs one of its own. Make as many as there are ranks "
            "(dist.get_world_size()), or start no more ranks than that."
        )
    has = f"`{name}`{table} has {many}{by}{what}{loop}"
    own = behind_the_last(at, node, count) if index == count else None
    own = own or number_of_worker(at, node.slice)
    if own is not None:
        return f"`{name}`{table} has {many}{by}{what}: {own}"
    if re.search(rf"\b(?:range\((?:0, )?len\({re.escape(name)}\)\)|enumerate\({re.escape(name)}\))", loop):
        return (
            f"{has}: it had more when that loop began, and was made shorter since. Build a new list of what is kept, "
            f"or go over a copy (`for item in list({name})`)."
        )
    if f"len({name})" in loop:
        return f"{has}: its last item is number {count - 1}. Correct what that line makes of the length."
    chosen = _chosen_by(at, node.slice)
    if chosen is not None:
        return (
            f"`{name}`{table} has {many}{by}{what}, one of the indices of {chosen}: they were made for more items than "
            f"`{name}` has, as before a filter. Make them from the length of the data set that the loader gets."
        )
    length = counted_length(at, node.value, node.slice, index, count)
    if length is not None:
        return f"`{name}`{table} has {many}{by}{what}: {length}"
    return (
        f"{has}: what sets the index counts something else than `{name}`. Take it "
        f"from len({name}), or look at why `{name}` is shorter here (a last batch or line, a filter)."
    )
