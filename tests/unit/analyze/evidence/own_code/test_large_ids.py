"""Ids that the program's own C takes for indices of a block with as many elements as a number of the same call."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.large_ids import Ends, _uses
from tests.unit.analyze.rules.test_heap_suspects import OWN, advised

NAMES = ("group", "n", "k")
HEAD = "void f(const long *group, long n, long k) {\n"
CALLOC = "    long *sum = calloc(k, sizeof(long));\n"
LOOP = "    for (long i = 0; i < n; i++) sum[group[i]]++;\n"


@pytest.mark.parametrize(
    "body",
    [
        CALLOC + LOOP,
        "    double *sum = (double *)malloc(2 * k * sizeof(double));\n" + LOOP,
        "    auto *sum = new long[k];\n" + LOOP,
        "    std::vector<long> sum(k, 0);\n" + LOOP,
        CALLOC + "    for (long g = 0; g < k; ++g) sum[g] = 0;\n"
        "    for (long i = 0; i < n; i++) { long g = group[i]; sum[g] += 1; }\n",
        CALLOC + "    for (long i = 0; i < n; i++) sum[*group] += 1;\n",
    ],
)
def test_elements_as_indices_of_a_block_of_a_parameter(body: str) -> None:
    found = [*_uses(f"{HEAD}{body}", NAMES)]
    assert [(item.array, item.block, item.count) for item in found] == [("group", "sum", "k")]
    assert found[0].made == 2


@pytest.mark.parametrize(
    "body",
    [
        CALLOC + "    for (long i = 0; i < n; i++) if (group[i] < k) sum[group[i]]++;\n",
        CALLOC + "    for (long i = 0; i < n; i++) { long g = group[i]; if (g >= k) continue; sum[g]++; }\n",
        CALLOC + "    for (long i = 0; i < n; i++) sum[group[i] % k]++;\n",
        CALLOC + "    for (long i = 0; i < n; i++) sum[i] += group[i];\n",
        CALLOC + "    for (long i = 0; i < n; i++) { long g = group[i]; g -= 1; sum[g]++; }\n",
        "    long *sum = calloc(k + n, sizeof(long));\n" + LOOP,
        "    long *sum = calloc(MOST, sizeof(long));\n" + LOOP,
        "    // long *sum = calloc(k, sizeof(long));\n" + LOOP,
    ],
)
def test_checked_ids_and_other_sizes_are_none(body: str) -> None:
    assert not [*_uses(f"{HEAD}{body}", NAMES)]


class _Numbers:
    """Recorded numbers by their names; every name is where it was made."""

    back = SimpleNamespace(made=lambda node, spot, calls: SimpleNamespace(node=node, spot=spot, through=()))

    def number(self, node: ast.AST, spot: Any) -> int | None:
        try:
            return int(eval(ast.unparse(node), {"n": 32242, "parts": 6000}))
        except (NameError, AttributeError, TypeError):
            return None


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("np.arange(n, dtype=np.int64) // (n // parts)", (0, 6448)),
        ("torch.arange(1, parts)", (1, 5999)),
        ("(np.arange(parts) + 1).astype(np.int32)", (1, 6000)),
        ("np.repeat(3 * np.arange(parts), 6)", (0, 17997)),
        ("np.arange(n) % parts", None),
        ("np.arange(n)[::2]", None),
        ("np.arange(unknown)", None),
        ("rng.integers(0, parts, n)", None),
    ],
)
def test_ends_of_what_a_line_makes(text: str, ends: tuple[int, int] | None) -> None:
    numbers: Any = _Numbers()
    assert Ends(numbers).of(ast.parse(text, mode="eval").body, None) == ends  # type: ignore[arg-type]


NEGATIVE = """import ctypes
import numpy as np

def spread(room, lost):
    mark = np.full(8, -1)
    mark[lost] = 1
    return mark

def augment(library, room{more}):
    values = {made}
    library.echo(values.ctypes.data_as(ctypes.c_void_p), 3)
    return room
"""


@pytest.mark.parametrize(("made", "named"), [("spread(room, 1)", True), ("np.zeros(8)", False)])
def test_negative_numbers_that_the_running_call_is_not_passed_are_none_of_its(
    made: str, named: bool, run: Path
) -> None:
    source = NEGATIVE.replace("{made}", made).replace("{more}", "")
    stack = [("/lib/x86_64-linux-gnu/libc.so.6", "abort"), (OWN, "echo"), ("/usr/lib/libffi.so.8", "ffi_call")]
    text = "double free or corruption (!prev)\n"
    said = advised(run, OWN, stack=stack, source=source, text=text, python=[("augment", str(run / "augment.py"), 11)])
    assert ("makes negative numbers" in said) == named
