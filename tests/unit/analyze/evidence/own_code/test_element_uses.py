"""What native source does with the elements of an array: count and index by them, or compute with them."""

from __future__ import annotations

import pytest

from pytracer.analyze.evidence.own_code.element_uses import leads_to_memory

HEAD = "void f(const float *x, const int *n, int rows, float *out)\n{\n"


@pytest.mark.parametrize(
    "lines",
    [
        "    for (int t = 0; t < n[b]; t++) out[t] = x[t];",
        "    int length = n[b];\n    for (int t = 0; t < length; t++) out[t] = x[t];",
        "    int length = n[b], s = 2 * length + 1;\n    for (int t = 0; t < s; t++) out[t] = x[t];",
        "    int r = n[i];\n    out[i] = x[r * 16];",
        "    out[i] = x[n[i]];",
        "    const int *at = n;\n    out[i] = x[at[i]];",
        "    for (int t = 0; t < *n; t++) out[t] = x[t];",
        "    int t = 0;\n    while (t < n[0]) out[t++] = 0;",
    ],
)
def test_element_that_counts_or_indexes_is_found(lines: str) -> None:
    assert leads_to_memory(f"{HEAD}{lines}\n}}", "n")


@pytest.mark.parametrize(
    "lines",
    [
        "    for (int i = 0; i < rows; i++) out[i] = x[i] * n[i];",
        "    for (int i = 0; i < rows; i++) out[n[i] & 1023] += 1;",
        "    unsigned h = n[i] * 2654435761u;\n    out[h % 1024] = 1;",
        "    unsigned h = n[i] >> 9;\n    out[h] = 1;",
        "    memcpy(out, n, rows * 4);",
        "    for (int i = 0; i < rows; i++) out[i] = n[i] > 0;",
    ],
    ids=["factor", "mask", "remainder", "shift", "copy", "sign"],
)
def test_element_that_is_only_computed_with_or_cut_is_not(lines: str) -> None:
    assert not leads_to_memory(f"{HEAD}{lines}\n}}", "n")
