"""Buffers that the program's own C fills up to a number of the same call, and that were made shorter."""

from pathlib import Path

import pytest

from pytracer.decode.types.snapshot import HeldArray, HeldNumber, PythonFrame
from tests.unit.analyze.rules.test_heap_suspects import OWN, advised

SOURCE = '''import ctypes
import numpy as np

C = """
void smooth(const float *x, long n, long width, float *out) {
    long k = 0;
    for (long i = width; i < n; ++i) out[k++] = x[i];
    while (k < n) out[k++] = 0;
}
"""

class Filter:
    def __init__(self, lib):
        self.lib = lib

    def run(self, signal, width):
        out = np.empty(len(signal) - width + 1, dtype=np.float32)
        self.lib.smooth(signal, len(signal), width, out)
        return out
'''


def said(run: Path, *pairs: tuple[str, str]) -> str:
    source = SOURCE
    for old, new in pairs:
        assert old in source
        source = source.replace(old, new)
    return advised(run, OWN, source=source, python=[("Filter.run", str(run / "augment.py"), 17)])


def test_the_number_and_the_size_that_do_not_fit_are_told_with_the_line_of_c(run: Path) -> None:
    assert said(run).startswith(
        "First suspect is smooth() of libecho.so, which line 18 calls: its line 8 (`while (k < n) out[k++] = 0;`) "
        "writes up to `n` elements of `out`. For `n` the call passes `len(signal)`, and line 17 made `out` with "
        "`len(signal) - width + 1`. Make `out` with `len(signal)` elements, or let smooth() stop at its size."
    )


@pytest.mark.parametrize(
    "pairs",
    [
        [("while (k < n) out[k++] = 0;", "for (long j = 0; j < n; ++j) out[j] = 0;")],
        [("signal, len(signal), width, out)", "signal, ctypes.c_long(len(signal)), width, out.ctypes.data)")],
        [("np.empty(len(signal) - width + 1, dtype=np.float32)", "np.zeros((len(signal) // 2,), np.float32)")],
    ],
    ids=["for", "ctypes", "half"],
)
def test_other_ways_to_write_it(pairs: list[tuple[str, str]], run: Path) -> None:
    assert said(run, *pairs).startswith("First suspect is smooth() of libecho.so, which line 18 calls")


@pytest.mark.parametrize(
    "pairs",
    [
        [("np.empty(len(signal) - width + 1,", "np.empty(len(signal),")],
        [("np.empty(len(signal) - width + 1,", "np.empty(len(signal) + width,")],
        [("dtype=np.float32", "dtype=np.float64")],
        [("while (k < n) out[k++] = 0;", "")],
        [("smooth(signal, len(signal), width, out)", "smooth(signal, len(out), width, out)")],
        [("while (k < n) out[k++] = 0;", "while (k < n) total += x[k++];")],
        [("np.empty(len(signal) - width + 1, dtype=np.float32)", "buffer_of(signal, width)")],
    ],
    ids=["as many", "more", "larger elements", "no such loop", "its own number", "only read", "made elsewhere"],
)
def test_what_fits_or_is_not_known_is_no_suspect(pairs: list[tuple[str, str]], run: Path) -> None:
    assert "writes up to" not in said(run, *pairs)


PLANES = '''import ctypes
import numpy as np

C = """
void thin(float *E, const float *E0, int h, int w) {
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            E[y * w + x] = E0[y * w + x];
        }
}
"""

class Solver:
    def __init__(self, lib):
        self.lib, self.out = lib, None

    def run(self, edge):
        h, w = edge.shape
        if self.out is None:
            self.out = np.zeros((h, w), np.float32)
        self.lib.thin(self.out.ctypes.data, edge.ctypes.data, h, w)
        return self.out.copy()
'''


def thinned(run: Path, shape: tuple[int, int], *pairs: tuple[str, str]) -> str:
    source, file = PLANES, str(run / "augment.py")
    for old, new in pairs:
        assert old in source
        source = source.replace(old, new)
    at = PythonFrame("Solver.run", file, 22)
    held = HeldArray("self.out", 0x5592_1442_D150, "float32", shape, (4 * shape[1], 4), at, 0)
    numbers = tuple(HeldNumber(name, value, at, 0) for name, value in (("h", 30), ("w", 40)))
    return advised(run, OWN, source=source, python=[("Solver.run", file, 22)], arrays=(held,), numbers=numbers)


def test_recorded_array_that_is_smaller_than_the_plane_is_told_with_what_makes_it_once(run: Path) -> None:
    told = thinned(run, (10, 12))
    assert told.startswith(
        "First suspect is thin() of libecho.so, which line 21 calls: its line 8 (`E[y * w + x] = E0[y * w + x];`) "
        "writes up to `h * w` elements of `E`. For `h * w` the call passes `h * w` = 1200, and `self.out` [10, 12] has "
        "120: line 20 makes it only where `self.out is None`."
    )


@pytest.mark.parametrize(
    ("shape", "pairs"),
    [((30, 40), ()), ((10, 12), [("E[y * w + x] =", "E[y * s + x] =")]), ((10, 12), [("y < h;", "y < rows;")])],
    ids=["large enough", "another width", "another bound"],
)
def test_planes_that_fit_or_are_not_known_are_no_suspects(
    shape: tuple[int, int], pairs: list[tuple[str, str]], run: Path
) -> None:
    assert "elements of `E`" not in thinned(run, shape, *pairs)
