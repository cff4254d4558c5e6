"""Programs that call one of torch's operators with one wrong argument: what a search found to kill, stored as lines.

`operator_calls.jsonl` has what scripts/find_operator_crashes.py found in torch's own test samples: nobody here made it
up. A call makes one program, always the same; its truth is the changed argument. Imports no torch.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from tests.generated.generator import Program, Truth

CALLS = Path(__file__).resolve().parent / "operator_calls.jsonl"
_TENSORS: tuple[str, ...] = (
    "node_feats", "user_emb", "patch_maps", "query_states", "gate_logits", "teacher_out", "frame_feats", "spectra",
    "past_grads", "anchor_boxes", "unit_scale", "unit_shift", "hidden_prev", "cell_prev", "mixed_out", "lookup",
    "noise_maps", "masked_sims",
)  # fmt: skip
_INTEGERS: tuple[str, ...] = (
    "edge_ids", "bag_starts", "token_ids", "picked_rows", "class_ids", "pool_slots", "span_ends", "hit_counts",
)  # fmt: skip
_LISTS: tuple[str, ...] = (
    "layer_params", "layer_grads", "avg_moments", "avg_squares", "max_squares", "step_counts", "chunks", "heads",
)  # fmt: skip
_NUMBERS: tuple[str, ...] = (
    "n_groups", "pool_width", "head_count", "depth", "bin_count", "fold_dim", "axis_at", "n_rows",
)  # fmt: skip
_PARTS = "indices|values|crow|cols|ccol|rows"
_SIZES = ("empty", "narrowed", "shortened", "flattened", "dtype-size", "int", "ints", "list")


@dataclass(frozen=True)
class OperatorCall:
    """A stored call. `arguments`: name in the schema, the lines that make it, and whether it is passed by name."""

    operator: str
    arguments: tuple[tuple[str, tuple[str, ...], bool], ...]
    changed: str
    kind: str
    change: str
    signal: str

    @property
    def seed(self) -> int:
        """The same for the same call, whatever else the file holds."""
        return crc32(f"{self.operator} {self.changed} {self.kind}".encode())

    @property
    def family(self) -> str:
        """A few words for many operators."""
        return next((name for name, pattern in _FAMILIES if re.search(pattern, self.operator)), "other")

    def __str__(self) -> str:
        return f"{self.operator} {self.changed} {self.kind}"


_FAMILIES = (
    ("optimizer, foreach", r"_foreach|_fused_(?:adam|sgd|adagrad)"),
    ("embedding", r"embedding"),
    ("pooling", r"pool|unpool"),
    ("recurrent", r"rnn|lstm|gru|packed"),
    ("sparse", r"sparse|coo|csr|bsr|compressed|coalesce|jagged|nested"),
    ("normalisation", r"norm"),
    ("convolution", r"conv|col2im|im2col|unfold|fold"),
    ("resampling", r"upsample|grid|interpolate|affine"),
    ("loss", r"loss|nll|ctc|cross_entropy"),
    ("attention", r"attention|transformer"),
    ("index", r"index|gather|scatter|take|put|select|bincount|bucketize|searchsorted|histc|segment"),
    (
        "linear algebra",
        r"linalg|lu_|ormqr|cholesky|triangular|svd|eig|qr|geqrf|lstsq|addmm|bmm|mv|matmul|mm\b|householder",
    ),
    ("Fourier", r"fft"),
    ("scan, sort", r"cum|sort|topk|kthvalue|median|mode|scan"),
)


@dataclass(frozen=True)
class Culprit:
    """The changed argument. `others`: the other variables that are passed; `line`: where it is changed.

    `size_kind`: whether it does not fit to another argument, and either of both may be named.
    """

    name: str
    others: tuple[str, ...]
    line: int
    size_kind: bool


@dataclass(frozen=True)
class OperatorProgram:
    """A call as a program."""

    call: OperatorCall
    program: Program
    culprit: Culprit


def load(path: Path = CALLS) -> list[OperatorCall]:
    """All stored calls, in the order of the file."""
    return [_call(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _call(item: dict[str, object]) -> OperatorCall:
    arguments = item["arguments"]
    assert isinstance(arguments, list)
    made = tuple((a[0], tuple(a[1]), len(a) > 2) for a in arguments)
    words = [str(item[key]) for key in ("operator", "changed", "kind", "change", "signal")]
    return OperatorCall(words[0], made, *words[1:])


def program_of(call: OperatorCall) -> OperatorProgram:
    """The program of a call, and the truth about it."""
    draw = random.Random(call.seed)
    names = _names(call, draw)
    shape = draw.choice(("script", "module", "loader"))
    prefix = "self." if shape == "module" else ""
    passed = ", ".join(_passed(call, names, prefix))
    operator = f"torch.ops.{call.operator}"
    making = list(_making(call, names, prefix))
    source = list(_SHAPES[shape](operator, passed, making, [names[n] for n in names], draw.choice(_VERBS)))
    changed = f"{prefix}{names[call.changed]}"
    change = call.change.replace("{n}", changed)
    lines = [line.strip() for line in source]
    truth = Truth(
        _classes(call), next(n for n, line in enumerate(lines, 1) if line.startswith("return torch.ops")), "main"
    )
    culprit = Culprit(
        names[call.changed],
        tuple(name for argument, name in names.items() if argument != call.changed),
        lines.index(change) + 1,
        call.kind.removeprefix("sparse-").split("-")[0] in _SIZES or call.kind == "dtype-size",
    )
    axes = (call.kind, call.family, "main", call.operator.removeprefix("aten."), "preload")
    return OperatorProgram(call, Program(call.seed, *axes, "\n".join(source) + "\n", truth), culprit)


_VERBS = ("encode", "refine", "aggregate", "attend", "project", "advance", "readout")


def _names(call: OperatorCall, draw: random.Random) -> dict[str, str]:
    """The variable of each argument that has one: of tensors, and of what is changed."""
    pools = {pool: draw.sample(pool, len(pool)) for pool in (_TENSORS, _INTEGERS, _LISTS, _NUMBERS)}
    names = {}
    for name, lines, _ in call.arguments:
        made = lines[-1].removeprefix("{n} = ")
        if "torch." not in made or (made.count("torch.") == 1 and re.fullmatch(r"torch\.\w+", made)):
            if name != call.changed:
                continue
            pool = _NUMBERS
        elif made.startswith("["):
            pool = _LISTS
        else:
            pool = _INTEGERS if re.match(r"torch\.(tensor|randint|zeros\(\(0,\))", made) else _TENSORS
        left = pools[pool]
        names[name] = left.pop() if left else f"{name}_given"
    return names


def _passed(call: OperatorCall, names: dict[str, str], prefix: str) -> Iterator[str]:
    for name, lines, keyword in call.arguments:
        value = f"{prefix}{names[name]}" if name in names else lines[-1].removeprefix("{n} = ")
        yield f"{name}={value}" if keyword else value


def _making(call: OperatorCall, names: dict[str, str], prefix: str) -> Iterator[str]:
    for name, lines, _ in call.arguments:
        if name not in names:
            continue
        made = list(lines)
        if name == call.changed:
            made.insert(-1 if call.change.startswith("{n}_") else len(made), call.change)
        yield from (line.replace("{n}", f"{prefix}{names[name]}") for line in made)


_LOOP = (
    "for step in range(3):",
    "    out = {call}",
    "    caches = [torch.empty(size) for size in (4, 16, 64, 256, 1024)]",
    '    print("step", step, type(out).__name__, len(caches))',
    "    del out, caches",
)


def _script(operator: str, passed: str, making: Sequence[str], names: Sequence[str], verb: str) -> Iterator[str]:
    yield from ("import torch", "", "torch.manual_seed(0)", "", "")
    yield f"def {verb}({', '.join(names)}):"
    yield from (f"    return {operator}({passed})", "", "")
    yield from making
    yield from (line.format(call=f"{verb}({', '.join(names)})") for line in _LOOP)


def _module(operator: str, passed: str, making: Sequence[str], names: Sequence[str], verb: str) -> Iterator[str]:
    yield from (
        "import torch",
        "",
        "torch.manual_seed(0)",
        "",
        "",
        f"class {verb.title()}r:",
        "    def __init__(self):",
    )
    yield from (f"        {line}" for line in making)
    yield from (
        "",
        f"    def {verb}(self):",
        f"        return {operator}({passed})",
        "",
        "",
        f"layer = {verb.title()}r()",
    )
    yield from (line.format(call=f"layer.{verb}()") for line in _LOOP)


def _loader(operator: str, passed: str, making: Sequence[str], names: Sequence[str], verb: str) -> Iterator[str]:
    yield from ("import torch", "", "torch.manual_seed(0)", "", "", "def read_batch():")
    yield from (f"    {line}" for line in making)
    given = ", ".join(names) + ("," if len(names) == 1 else "")
    yield from (
        f"    return {given}",
        "",
        "",
        f"def {verb}({', '.join(names)}):",
        f"    return {operator}({passed})",
        "",
        "",
    )
    yield "def main():"
    yield f"    {given} = read_batch()"
    yield from (f"    {line}".format(call=f"{verb}({', '.join(names)})") for line in _LOOP)
    yield from ("", "", "main()")


_SHAPES = {"script": _script, "module": _module, "loader": _loader}

# By kind of change, what is true of a SIGSEGV: an index or a size that reaches too far is out of bounds, or an address
# of nothing known; an access to memory that is not there is null.
_OUT = ("out-of-bounds", "wild-pointer")


def _classes(call: OperatorCall) -> tuple[str, ...]:
    kind = call.kind.removeprefix("sparse-")
    if call.signal == "SIGFPE":
        return ("arithmetic",)
    if call.signal == "SIGABRT":
        return ("heap-corruption", *_OUT)  # traced, it may be refused before malloc() notices
    if kind == "no-memory":
        return ("null-dereference",)
    null = ("null-dereference",) if kind in ("empty", "list-empty", "list-shorter", "ints-zero", "int-zero") else ()
    # What was written too far may be found by malloc(), or by whoever follows a pointer that it overwrote.
    return (*_OUT, *null, "heap-corruption")


def named(text: str, name: str) -> bool:
    """Whether a text names a variable, or a part of it."""
    return bool(re.search(rf"\b{name}(?:_(?:{_PARTS}))?\b", text))
