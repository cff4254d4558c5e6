"""Allocations that are too small for what the function does with them, and those that only look so."""

from __future__ import annotations

import pytest

from pytracer.analyze.evidence.own_code.short_allocations import ShortAllocation, short_allocations

LOOP = "for (int i = 0; i < n; i++) p[i] = x[i];"


def found(*lines: str) -> list[ShortAllocation]:
    """In a function of these lines, the first of which is line 2."""
    body = "\n".join(f"    {line}" for line in lines)
    return [*short_allocations(f'extern "C" void scale(const float *x, int n, int m) {{\n{body}\n}}\n')]


@pytest.mark.parametrize(
    ("lines", "makes", "used", "instead"),
    [
        (["float* p = new float(n);", LOOP], "one float, of the value `n`", "as an array", "`new float[n]`, freed by"),
        (["float* p = new float;", "memcpy(p, x, n * 4);"], "one float", "as an array", "`new float[n]`"),
        (["double *p; p = new double(n * m);", "f(p + n);"], "one double, of the value", "as an array", "[n * m]`"),
        (["auto p = std::make_unique<int>(n);", "p.get()[m] = 1;"], "one int, of", "as an array", "vector<int>(n)`"),
        (["float *p = malloc(n);", LOOP], "`n` bytes, not for `n` elements of float", "`n` el", "(n * sizeof(float))`"),
        (["auto p = (int*)calloc(n, 1);", LOOP], "`n` bytes, not for `n` elements of int", "`n`", "(n * sizeof(int))`"),
        (["size_t k = n;", "float *p = malloc(k);", LOOP], "`k` bytes, not", "`n` elements", "`malloc(k * "),
        (["float *p = malloc(sizeof(p));", LOOP], "a pointer, 8 bytes", "`n` elements", "`malloc(n * sizeof(*p))`"),
        (["float *p = malloc(sizeof(float *));", LOOP], "a pointer, 8 bytes", "`n` elements", "`malloc(n * "),
        (["float *p = malloc(sizeof *p);", LOOP], "room for one float", "`n` elements", "`malloc(n * sizeof(*p))`"),
        (["int* p = new int[n];", LOOP.replace("<", "<=")], "`n` elements", "uses index `n`, too", "`i < n` in that"),
        (["int* p = new int[n - 1];", LOOP], "`n - 1` elements", "`n` elements", "`n` as its count"),
        (["int *p = malloc(sizeof(int) * n);", LOOP.replace("<", "<=")], "`n` elements", "index `n`, too", "`i < n`"),
        (["char *p = malloc(n);", "p[n] = 0;"], "room for `n` bytes", "writes `p[n]`, too", "`malloc(n + 1)`"),
        (
            ["std::vector<float> p;", "p.reserve(n / 2);", LOOP],
            "`n / 2` elements", "`n` elements", "`p.resize(...)`",
        ),
    ],
)  # fmt: skip
def test_allocation_that_is_too_small_is_found(lines: list[str], makes: str, used: str, instead: str) -> None:
    items = found(*lines)
    assert [item.function for item in items] == ["scale"]
    assert makes in items[0].makes and used in items[0].used and instead in items[0].instead
    assert items[0].line == len(lines) and items[0].use == len(lines) + 1
    assert items[0].text == lines[-2].strip()


@pytest.mark.parametrize(
    "lines",
    [
        ["float* p = new float[n];", LOOP],
        ["float* p = new float(0.5f);", "*p *= x[0]; p[0] += 1; use(p);"],  # one number
        ["Image* p = new Image(n);", LOOP],  # of a class, which may have operator[]
        ["float *p = malloc(n * sizeof(float));", LOOP],
        ["float *p = malloc(n * 4);", LOOP],
        ["float *p = malloc(n << 2);", LOOP],
        ["float *p = malloc(nbytes);", LOOP],  # in other words than the loop
        ["size_t k = n * sizeof(*p);", "float *p = malloc(k);", LOOP],
        ["char *p = malloc(n);", LOOP],
        ["char *p = malloc(n + 1);", "p[n] = 0;"],
        ["char *p = malloc(n);", "n--; p[n] = 0;"],
        ["char *p = malloc(n);", "p = realloc(p, n + 1); p[n] = 0;"],
        ["char *p = malloc(n);", "take(x, p, &n); p[n] = 0;"],
        ["char *p = malloc(n);", "if (n < 4) p[n] = 0;"],
        ["float *p = calloc(n, sizeof(float));", LOOP],
        ["float **p = malloc(n * sizeof(float *));", LOOP],
        ["struct node *p = malloc(sizeof(*p));", "p->next = 0;"],
        ["int* p = new int[n + 1];", LOOP.replace("<", "<=")],
        ["int* p = new int[n];", "for (int i = 1; i <= n; i++) p[i - 1] = 0;"],
        ["int* p = new int[n];", "for (int i = 0; i <= n; i++) q[i] = 0;"],
        ["std::vector<float> p;", "p.reserve(n);", LOOP],
        ["std::vector<float> p;", "p.reserve(n / 2);", "p.resize(n);", LOOP],
        ["// float* p = new float(n);", "p[1] = 0;"],
        ["float* p = new float(n);", "p = buffer;", LOOP],  # another memory
    ],
)
def test_allocation_that_fits_is_no_suspect(lines: list[str]) -> None:
    """The look-alikes."""
    assert found(*lines) == []
