"""Searches calls of torch's own operators that kill the process: valid calls with one argument changed.

Each call is captured below torch's OpInfo samples, forward and backward, and written as lines of a program
(tests/generated/call_values.py). It runs once as it is, and then once for each change, in forked children with a limit
of time and address space. What kills two of two children is written; `--select` chooses those to be stored in
tests/generated/operator_calls.jsonl. Needs expecttest beside torch.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import resource
import signal
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from tests.generated.call_values import Change, of_int, of_ints, of_list, of_tensor  # noqa: E402

_SECONDS = 2
_OF_OPERATOR, _OF_KIND = 8, {"no-memory": 14}  # that are stored
_SPACE = 4 << 30  # more than the process has
_SAMPLES = 2  # of one operator
_LITERAL = 24
_OF_NO_MEMORY = 8  # each operator dies of a tensor without memory: one of so many is tried
_LARGE = 1 << 20  # elements of the largest tensor of an enlarged call
_HEAP_WORDS = re.compile(rb"free\(\)|malloc|corrupt|double free|realloc\(\)|munmap_chunk|unsorted")
# They make tensors of any size, or do nothing with their memory.
_LEFT_OUT = re.compile(
    r"^(rand|empty|full|zeros|ones|arange|linspace|logspace|_local_scalar|set_|resize_|detach|alias)"
)


@dataclass
class Argument:
    """One argument: the lines that make it, and the changes that it allows."""

    name: str
    lines: list[str]
    changes: list[Change] = field(default_factory=list)
    keyword: bool = False


@dataclass
class Call:
    """A call of an operator: `aten.NAME.OVERLOAD`."""

    operator: str
    arguments: list[Argument]
    enlarged: bool = False


class NotWritten(Exception):
    """An argument that no line makes: a generator, a quantized tensor."""


# ---- from values to lines ----


class _Writer:
    """Writes the arguments of one call. `factor`: sizes that are multiplied, consistently."""

    def __init__(self, sizes: dict[int, int], largest: int) -> None:
        self.sizes, self.largest = sizes, largest

    def size(self, value: int) -> int:
        return self.sizes.get(value, value)

    def argument(self, name: str, value: Any, keyword: bool) -> Argument:
        if isinstance(value, torch.Tensor):
            made = Argument(name, *self.tensor(value), keyword)
        elif isinstance(value, bool) or value is None or isinstance(value, (float, str, complex)):
            made = Argument(name, [f"{{n}} = {_plain(value)}"], [], keyword)
        elif isinstance(value, int):
            made = Argument(name, [f"{{n}} = {self.size(value)}"], list(of_int(self.size(value))), keyword)
        elif isinstance(value, torch.dtype):
            made = Argument(name, [f"{{n}} = {value}"], [], keyword)
        elif isinstance(value, (list, tuple)):
            made = self.sequence(name, list(value), keyword)
        else:
            raise NotWritten
        return made

    def sequence(self, name: str, values: list[Any], keyword: bool) -> Argument:
        if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
            ints = [self.size(value) for value in values]
            return Argument(name, [f"{{n}} = {ints}"], list(of_ints(ints)), keyword)
        if all(isinstance(value, torch.Tensor) or value is None for value in values):
            parts, changes = [], list(of_list(len(values)))
            for place, value in enumerate(values):
                if value is None:
                    parts.append("None")
                    continue
                lines, wrong = self.tensor(value)
                if len(lines) > 1:
                    raise NotWritten
                parts.append(lines[0].removeprefix("{n} = "))
                if place == len(values) - 1 or place == 0:
                    changes += [Change(w.kind, w.line.replace("{n}", f"{{n}}[{place}]")) for w in wrong]
            return Argument(name, [f"{{n}} = [{', '.join(parts)}]"], changes, keyword)
        return Argument(name, [f"{{n}} = [{', '.join(_plain(value) for value in values)}]"], [], keyword)

    def tensor(self, value: torch.Tensor) -> tuple[list[str], list[Change]]:
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.is_quantized or value.device.type != "cpu":
            raise NotWritten
        if value.layout is torch.sparse_coo:
            return self._coo(value)
        if value.layout in _COMPRESSED:
            return self._compressed(value)
        if value.layout is not torch.strided:
            raise NotWritten
        shape = [self.size(size) for size in value.shape]
        dtype = str(value.dtype).removeprefix("torch.")
        return [f"{{n}} = {_dense(value, shape, dtype)}"], list(of_tensor(shape, dtype, self.largest))

    def _coo(self, value: torch.Tensor) -> tuple[list[str], list[Change]]:
        if self.sizes:
            raise NotWritten
        indices, values = value._indices(), value._values()
        return self._sparse(
            {"indices": indices, "values": values},
            f"torch.sparse_coo_tensor({{n}}_indices, {{n}}_values, {tuple(value.shape)}, check_invariants=False)",
        )

    def _compressed(self, value: torch.Tensor) -> tuple[list[str], list[Change]]:
        if self.sizes:
            raise NotWritten
        make, rows, columns = _COMPRESSED[value.layout]
        first, second = (
            (value.crow_indices(), value.col_indices())
            if rows == "crow"
            else (value.ccol_indices(), value.row_indices())
        )
        return self._sparse(
            {rows: first, columns: second, "values": value.values()},
            f"torch.{make}({{n}}_{rows}, {{n}}_{columns}, {{n}}_values, {tuple(value.shape)}, check_invariants=False)",
        )

    def _sparse(self, parts: dict[str, torch.Tensor], make: str) -> tuple[list[str], list[Change]]:
        lines, changes = [], []
        for name, part in parts.items():
            shape, dtype = list(part.shape), str(part.dtype).removeprefix("torch.")
            lines.append(f"{{n}}_{name} = {_dense(part, shape, dtype)}")
            changes += [
                Change(f"sparse-{wrong.kind}", wrong.line)
                for wrong in of_tensor(shape, dtype, self.largest, f"{{n}}_{name}")
                if wrong.kind.startswith(("index", "not", "short", "narrow"))
            ]
        return [*lines, f"{{n}} = {make}"], changes


_COMPRESSED = {
    torch.sparse_csr: ("sparse_csr_tensor", "crow", "cols"),
    torch.sparse_csc: ("sparse_csc_tensor", "ccol", "rows"),
    torch.sparse_bsr: ("sparse_bsr_tensor", "crow", "cols"),
    torch.sparse_bsc: ("sparse_bsc_tensor", "ccol", "rows"),
}


def _plain(value: Any) -> str:
    if isinstance(value, float) and value != value:
        return 'float("nan")'
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    if not isinstance(value, (bool, int, float, str, complex, type(None))):
        raise NotWritten
    return repr(value)


def _dense(value: torch.Tensor, shape: list[int], dtype: str) -> str:
    literal = value.numel() <= _LITERAL and list(value.shape) == shape
    sizes = ", ".join(str(size) for size in shape)
    if dtype == "bool":
        return f"torch.rand({sizes or '()'}) > 0.5"
    if dtype in ("float32", "float64", "complex64", "complex128", "float16", "bfloat16"):
        words = "" if dtype == "float32" else f", dtype=torch.{dtype}"
        return f"torch.randn({sizes or '()'}{words})"
    if dtype not in ("int64", "int32", "int16", "int8", "uint8"):
        raise NotWritten
    words = "" if dtype == "int64" else f", dtype=torch.{dtype}"
    if literal:
        return (
            f"torch.tensor({value.tolist()}{words})"
            if value.numel()
            else f"torch.zeros({tuple(shape)}{words or ', dtype=torch.int64'})"
        )
    low, high = (int(value.min()), int(value.max())) if value.numel() else (0, 0)
    return f"torch.randint({low}, {high + 1}, {tuple(shape)}{words})"


# ---- capture ----


class _Capture(TorchDispatchMode):  # type: ignore[misc]
    """Keeps the first calls of each operator, of different shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, dict[str, list[Call]]] = defaultdict(dict)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func)
        if func.namespace == "aten" and not _LEFT_OUT.match(func._opname) and len(self.calls[name]) < _SAMPLES:
            with contextlib.suppress(NotWritten, RuntimeError, TypeError):
                self._keep(func, name, args, kwargs)
        return func(*args, **kwargs)

    def _keep(self, func: Any, name: str, args: Any, kwargs: Any) -> None:
        given = []
        for place, argument in enumerate(func._schema.arguments):
            if place < len(args):
                given.append((argument.name, args[place], False))
            elif argument.name in kwargs:
                given.append((argument.name, kwargs[argument.name], True))
        tensors = list(_tensors([value for _, value, _ in given]))
        if not tensors or max(tensor.numel() for tensor in tensors) > 1 << 16:
            return
        shapes = str([(tuple(t.shape), t.dtype, t.layout) for t in tensors])
        if shapes in self.calls[name]:
            return
        with torch.utils._python_dispatch._disable_current_modes():
            self.calls[name][shapes] = list(_written(name, given, tensors))


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _written(name: str, given: list[tuple[str, Any, bool]], tensors: list[torch.Tensor]) -> Iterator[Call]:
    largest = max([1, *(size for tensor in tensors for size in tensor.shape)])
    writer = _Writer({}, largest)
    yield Call(name, [writer.argument(*one) for one in given])
    elements = max(tensor.numel() for tensor in tensors)
    for size in sorted({size for tensor in tensors for size in tensor.shape if size > 1}, reverse=True):
        powers = max(list(tensor.shape).count(size) for tensor in tensors)
        factor = int((_LARGE / elements) ** (1 / powers))
        if factor < 2:
            continue
        try:
            writer = _Writer({size: size * factor}, largest * factor)
            yield Call(name, [writer.argument(*one) for one in given], enlarged=True)
        except NotWritten:
            pass
        return


def _sources() -> Iterator[tuple[Any, Any]]:
    """torch's own operators, and what makes their samples."""
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        dtypes = info.supported_dtypes("cpu")
        for dtype in (torch.float32, torch.int64, torch.complex64, torch.bool):
            if dtype in dtypes:
                for gradient in (False, True) if dtype is torch.float32 and info.supports_autograd else (False,):
                    yield info, partial(info.sample_inputs, "cpu", dtype, requires_grad=gradient)
                break
        for layout in (torch.sparse_coo, torch.sparse_csr):
            if getattr(info, f"supports_{str(layout).removeprefix('torch.')}", False):
                yield info, partial(info.sample_inputs_sparse, layout, "cpu", torch.float32, requires_grad=False)


def _run_sample(info: Any, sample: Any) -> None:
    result = info(sample.input, *sample.args, **sample.kwargs)
    total = sum(
        (out.float().abs().sum() if out.dtype is torch.bool else out.abs().sum())
        for out in _tensors(result)
        if out.requires_grad
    )
    if isinstance(total, torch.Tensor):
        total.backward()


def _optimizers() -> None:
    for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad):
        for arguments in ({"fused": True}, {"foreach": True}):
            weight = torch.nn.Parameter(torch.randn(6, 5))
            weight.grad = torch.randn(6, 5)
            extra = {"momentum": 0.9} if kind is torch.optim.SGD else {}
            optimizer = kind([weight], lr=0.1, **arguments, **extra)
            optimizer.step()
            optimizer.step()


def _modules() -> None:
    for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        module = kind(5, 6)
        packed = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(4, 3, 5), [4, 3, 1])
        module(packed)[0].data.sum().backward()
        torch.nn.utils.rnn.pad_packed_sequence(packed)
        module(torch.randn(4, 3, 5))[0].sum().backward()
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    with torch.no_grad():
        layer(torch.randn(2, 4, 8))


def captured(pattern: str) -> list[Call]:
    """All calls, by name."""
    capture = _Capture()
    for make in (_optimizers, _modules):
        with capture:
            try:
                make()
            except Exception as error:
                print(f"{make.__name__}: {error}", file=sys.stderr)
    for info, samples in _sources():
        if not re.search(pattern, info.name):
            continue
        try:
            for sample in islice(samples(), 12):
                try:
                    with capture:
                        _run_sample(info, sample)
                except Exception:
                    continue
        except Exception:
            continue
    return [call for name in sorted(capture.calls) for calls in capture.calls[name].values() for call in calls]


# ---- running ----


@dataclass(frozen=True)
class Trial:
    """A call with one change, or none."""

    call: Call
    argument: str | None = None
    change: Change | None = None


def perform(trial: Trial) -> None:
    """The call, as the program makes it."""
    names: dict[str, Any] = {"torch": torch}
    torch.manual_seed(0)
    for argument in trial.call.arguments:
        lines = list(argument.lines)
        if trial.change is not None and argument.name == trial.argument:
            lines.insert(-1 if trial.change.line.startswith("{n}_") else len(lines), trial.change.line)
        exec("\n".join(lines).replace("{n}", f"a_{argument.name}"), names)  # noqa: S102
    positional = [names[f"a_{argument.name}"] for argument in trial.call.arguments if not argument.keyword]
    keywords = {argument.name: names[f"a_{argument.name}"] for argument in trial.call.arguments if argument.keyword}
    function: Any = torch.ops
    for part in trial.call.operator.split("."):
        function = getattr(function, part)
    for _ in range(2):
        result = function(*positional, **keywords)
        kept = [torch.empty(size) for size in (4, 16, 64, 256, 1024)]
        del result, kept


def run_batch(trials: Sequence[Trial]) -> list[int | str]:
    """How each ended: "" without an error, the error's type, or the number of a signal; one child until one dies."""
    ended: list[int | str] = []
    while len(ended) < len(trials):
        ended += _child(trials[len(ended) :])
    return ended


def _child(trials: Sequence[Trial]) -> list[int | str]:
    reading, writing = os.pipe()
    words = os.memfd_create("stderr")
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.dup2(words, 1)
        os.dup2(words, 2)
        warnings.simplefilter("ignore")
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _SPACE, used + _SPACE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for trial in trials:
            signal.alarm(_SECONDS)
            try:
                perform(trial)
                os.write(writing, b"\n")
            except BaseException as error:
                os.write(writing, type(error).__name__.encode() + b"\n")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        ended: list[int | str] = [line.decode().strip() for line in pipe]
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if len(ended) < len(trials):
        number = -status
        if number == signal.SIGABRT and not _HEAP_WORDS.search(os.pread(words, 1 << 16, 0)):
            number = 0
        ended.append(number)
    os.close(words)
    return ended


_DEADLY = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT)


def search(calls: Sequence[Call], each: int) -> Iterator[tuple[Trial, int]]:
    """What kills, twice of two."""
    batch = 40
    valid: list[Call] = []
    for start in range(0, len(calls), batch):
        part = [Trial(call) for call in calls[start : start + batch]]
        valid += [trial.call for trial, end in zip(part, run_batch(part), strict=True) if end == ""]
    print(f"{len(calls)} calls, {len(valid)} of them valid", file=sys.stderr, flush=True)
    found: Counter[tuple[str, str, str]] = Counter()
    done = begun = 0
    last = time.monotonic()
    valid.sort(key=lambda call: (crc32(call.operator.encode()), call.operator, call.enlarged))
    for call in valid:
        trials = [Trial(call, argument.name, change) for argument in call.arguments for change in argument.changes]
        trials = [
            trial
            for trial in trials
            if trial.change
            and found[call.operator, trial.argument or "", trial.change.kind] < each
            and (trial.change.kind != "no-memory" or crc32(call.operator.encode()) % _OF_NO_MEMORY == 0)
        ]
        for trial, end in zip(trials, run_batch(trials), strict=True):
            if end not in _DEADLY or trial.change is None:
                continue
            key = (call.operator, trial.argument or "", trial.change.kind)
            if found[key] >= each or [_child([trial])[0], _child([trial])[0]] != [end, end]:
                continue
            found[key] += 1
            yield trial, int(end)
        done += 1
        begun += len(trials)
        if time.monotonic() - last > 20:
            last = time.monotonic()
            print(
                f"{done} calls, {begun} trials, {sum(found.values())} deaths: {call.operator}",
                file=sys.stderr,
                flush=True,
            )


def stored(trial: Trial, number: int) -> str:
    """One line of the file."""
    assert trial.change is not None
    return json.dumps({
        "operator": trial.call.operator,
        "arguments": [[a.name, a.lines, *([True] if a.keyword else [])] for a in trial.call.arguments],
        "changed": trial.argument,
        "kind": trial.change.kind,
        "change": trial.change.line,
        "signal": signal.Signals(number).name,
    })  # fmt: skip


def selected(files: Sequence[Path]) -> list[str]:
    """A few of what was found: each kind of change of each operator, as far as there is room."""
    items = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    items.sort(key=lambda item: crc32(f"{item['operator']}{item['changed']}{item['kind']}".encode()))
    of_operator: Counter[str] = Counter()
    of_kind: Counter[str] = Counter()
    kept = []
    for item in items:
        name, kind = item["operator"].split(".")[1], item["kind"]
        if of_kind[kind] >= _OF_KIND.get(kind, 80) or of_operator[name] >= _OF_OPERATOR:
            continue
        of_kind[kind] += 1
        of_operator[name] += kind != "no-memory"
        kept.append(item)
    kept.sort(key=lambda item: (item["operator"], item["changed"], item["kind"]))
    return [json.dumps(item) + "\n" for item in kept]


def main() -> int:
    """Searches, and writes what it finds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", default="", metavar="PATTERN", help="samples of these operators only")
    parser.add_argument("-o", type=Path, required=True, metavar="FILE")
    parser.add_argument("--part", default="0/1", metavar="N/OF")
    parser.add_argument("--select", type=Path, nargs="+", metavar="FOUND", help="choose from what was found")
    options = parser.parse_args()
    if options.select:
        options.o.write_text("".join(selected(options.select)), encoding="utf-8")
        return 0
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    random.seed(0)
    calls = captured(options.k)
    part, _, of = options.part.partition("/")
    operators = sorted({call.operator for call in calls})
    chosen = set(operators[int(part) :: int(of)])
    with open(options.o, "w", encoding="utf-8") as file:
        for trial, number in search([call for call in calls if call.operator in chosen], 1):
            file.write(stored(trial, number) + "\n")
            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
