"""A divisor of C that counts what a loop kept, where it kept nothing."""

from __future__ import annotations

import pytest

from pytracer.analyze.evidence.own_code.c_divisions import divisions
from pytracer.analyze.evidence.own_code.c_values import resolved
from pytracer.analyze.evidence.own_code.counted_none import CountedNone, counted_none

SOURCE = """\
void sample(const int *users, int n, const char *seen, int items, int *cand, int *out)
{
    for (int i = 0; i < n; i++) {
        int k = 0;
        for (int j = 0; j < items; j++)
            if (!seen[j])
                cand[k++] = j;
        out[i] = cand[rand() % k];
    }
}
"""


def found(*pairs: tuple[str, str]) -> CountedNone | None:
    source = SOURCE
    for old, new in pairs:
        assert old in source
        source = source.replace(old, new)
    read = divisions(source, "sample")
    assert read is not None and len(read.found) == 1
    return counted_none(resolved(read.found[0].divisor, read.found[0].body)[-1], "ops.c")


def test_test_that_nothing_met_is_named() -> None:
    told = found()
    assert told is not None
    assert told.words == ": `k` counts the rounds in which `!seen[j]` holds (ops.c:7), and there was none"
    assert told.what == "nothing is left that ops.c:7 (`cand[k++] = j;`) could count, as `!seen[j]` holds for none"


def test_counter_without_a_test_counts_rounds() -> None:
    told = found(("            if (!seen[j])\n", ""))
    assert told is not None and told.words == ": `k` counts the rounds of a loop (ops.c:6), and there was none"


@pytest.mark.parametrize(
    "pairs",
    [
        [("rand() % k", "rand() % n")],  # passed
        [("int k = 0;", "int k = users[i];")],
        [("out[i] = cand", "k -= users[i]; out[i] = cand")],
        [("out[i] = cand", "more(&k); out[i] = cand")],
        [("cand[k++] = j;", "{ cand[k++] = j; k++; }")],
    ],
)
def test_nothing_is_said_where_it_may_be_set_otherwise(pairs: list[tuple[str, str]]) -> None:
    assert found(*pairs) is None
