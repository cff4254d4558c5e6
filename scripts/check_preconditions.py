"""Holds what operators are said to take for granted (analyze/known/operators.toml) against torch's own valid calls.

Every call of such an operator below torch's test samples (OpInfo, forward and backward, optimizers, recurrent modules)
must keep all of it: a comparison that a valid call breaks would blame an argument that is right. Names and order of
the arguments must be those of the schema. Needs expecttest beside torch.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from pytracer.analyze.evidence.preconditions.terms import Given, broken  # noqa: E402
from pytracer.analyze.known.operators import preconditions  # noqa: E402
from pytracer.decode.types.snapshot import Argument  # noqa: E402
from scripts.find_operator_crashes import _modules, _optimizers, _run_sample, _sources  # noqa: E402

_SAMPLES = 40  # of one operator


class _Found:
    """Counts valid calls by operator, and those that break a comparison."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.broken: Counter[tuple[str, str]] = Counter()
        self.order: set[str] = set()

    def look(self, name: str, names: list[str], args: Any, kwargs: Any) -> None:
        entry = preconditions()[name]
        passed = {**dict(zip(names, args, strict=False)), **(kwargs or {})}
        given = {argument: item for argument, value in passed.items() if (item := _given(argument, value)) is not None}
        self.calls[name] += 1
        self.broken.update((name, text) for text in entry.must if broken(text, given) is not None)


class _Operators(TorchDispatchMode):  # type: ignore[misc]
    """Looks at calls of aten's operators, whose schemas have names."""

    def __init__(self, found: _Found) -> None:
        super().__init__()
        self._found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))  # first: a call that raises is not valid
        if func.namespace == "aten" and func._opname in preconditions():
            names = [item.name for item in func._schema.arguments]
            stored = preconditions()[func._opname].arguments.split()
            if func._overloadname in ("default", "") and names[: len(stored)] != stored:
                self._found.order.add(func._opname)
            with torch.utils._python_dispatch._disable_current_modes():
                self._found.look(func._opname, names, args, kwargs)
        return result


class _Functions(TorchFunctionMode):  # type: ignore[misc]
    """Looks at calls of torch's functions that are made of several operators."""

    def __init__(self, found: _Found) -> None:
        super().__init__()
        self._found = found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in preconditions() and func is getattr(torch, name, None):
            self._found.look(name, preconditions()[name].arguments.split(), args, kwargs)
        return result


def _given(name: str, value: Any) -> Given | None:
    if isinstance(value, int):
        return Given(name, value=int(value))
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.numel() == 0:
        return None
    whole = value.dtype in (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8)
    tensor = Argument(
        0, 1, value.numel(), 0, tuple(value.shape), value.dim(), str(value.dtype).removeprefix("torch."), "cpu",
        minimum=int(value.min()) if whole else None, maximum=int(value.max()) if whole else None,
        frame=0, outer_frame=0, register=None, how="reference",
    )  # fmt: skip
    return Given(name, tensor, elements=value.numel(), base=1)


def _cells() -> None:
    for kind in (torch.nn.LSTMCell, torch.nn.GRUCell):
        kind(5, 6)(torch.randn(3, 5))
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    with torch.no_grad():
        layer(*[torch.randn(2, 4, 8)] * 3)
    x, row = torch.randn(4, 8), [torch.zeros(4) for _ in range(2)]
    one = torch.ones(1, dtype=torch.int64)
    points = torch.ones(4), torch.zeros(4, dtype=torch.int32)
    torch.fused_moving_avg_obs_fake_quant(x, one, one, *row, *points, 0.1, 0, 255, 0, True, False)
    torch.batch_norm_update_stats(torch.randn(3, 4, 5), *row, 0.1)


def _checked(pattern: str) -> _Found:
    found = _Found()
    for make in (_optimizers, _modules, _cells):
        with _Functions(found), _Operators(found):
            make()
    for info, samples in _sources():
        if re.search(pattern, info.name):
            for sample in _all(samples):
                try:
                    with _Functions(found), _Operators(found):
                        _run_sample(info, sample)
                except Exception:  # samples of errors, and what this build lacks
                    continue
    return found


def _all(samples: Any) -> Iterator[Any]:
    try:
        yield from islice(samples(), _SAMPLES)
    except Exception as error:
        print(f"no more samples: {error}", file=sys.stderr)


def main() -> int:
    """0 where every valid call keeps everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", default="", metavar="PATTERN", help="only samples of operators that match")
    check = _checked(parser.parse_args().k)
    for name, count in sorted(check.calls.items()):
        print(f"{count:6} valid calls of {name}{': other arguments' if name in check.order else ''}")
    for (name, text), count in sorted(check.broken.items()):
        print(f"{count:6} of {check.calls[name]} valid calls of {name} break {text}")
    seldom = sorted(set(preconditions()) - set(check.calls))
    print(f"no valid call of: {', '.join(seldom)}")
    return 1 if check.broken or check.order else 0


if __name__ == "__main__":
    sys.exit(main())
