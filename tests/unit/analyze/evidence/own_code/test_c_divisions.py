"""Integer divisions in the source of C functions: which are found, and what they divide by."""

from __future__ import annotations

import pytest

from pytracer.analyze.evidence.own_code.c_divisions import divisions, is_tested
from pytracer.analyze.evidence.own_code.c_types import kind_of
from pytracer.analyze.evidence.own_code.c_values import Term, elements, number_of, resolved

SAMPLE = """#include <stdlib.h>
#define STEP 4
static int below(int end) { return rand() % end; } /* a / b */
void draw(const long *offsets, int *out, long users, float *rates, int all) {
    int per = all / users;  // x / y
    float mean = rates[0] / all;
    for (long u = 0; u < users; u++) {
        int n = (int)(offsets[u + 1] - offsets[u]);
        out[u] = below(n) / STEP + per + (int)(mean * 0.5f / n);
        puts("a / b");
    }
}
"""


def test_divisions_of_a_function_and_of_those_that_it_calls() -> None:
    """Not those in comments and texts, nor those of floats."""
    found = divisions(SAMPLE, "draw")
    assert found is not None
    assert [(item.text, item.divisor, item.line) for item in found.found] == [
        ("all / users", "users", 5),
        ("below(n) / STEP", "STEP", 9),
        ("rand() % end", "end", 3),
    ]
    assert [item.spans for item in found.found] == [((5, 5),), ((9, 9),), ((9, 9), (3, 3))]


def test_templates_are_called_as_functions_are() -> None:
    source = (
        "template <typename T> static T up(T a, T b) { return (a + b - 1) / b; }\n"
        'extern "C" void loads(const long *n, long *out, int e) { out[0] = up<long>(n[0], n[e]); }'
    )
    found = divisions(source, "loads")
    assert found is not None
    assert [(item.divisor, item.body.given, item.line) for item in found.found] == [("b", ("n[0]", "n[e]"), 1)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("int f(int n) { return n ? 8 / n : 0; }", True),
        ("int f(int n) { if (n == 0) return 0; return 8 / n; }", True),
        ("int f(int n) { if (n) return 8 / n; return 0; }", True),
        ("int f(int i, int n) { return i < n && 8 / n; }", False),
        ("int f(int n) { return 8 / n; }", False),
    ],
)
def test_a_divisor_that_is_tested_is_known_as_such(source: str, expected: bool) -> None:
    found = divisions(source, "f")
    assert found is not None and [is_tested(item.divisor, item.body.text) for item in found.found] == [expected]


@pytest.mark.parametrize(
    "source",
    [
        "#define HALF(x) ((x) / 2)\nint f(int n) { return HALF(n); }",
        "int g(int n) { return 1 / n; }\nint g(long n) { return 1 / n; }\nint f(int n) { return g(n); }",
        "struct P { int n; int per(int k) { return k / n; } };\nint f(P *p) { return p->per(8); }",
    ],
    ids=["a macro divides", "an overload divides", "a method divides"],
)
def test_where_a_division_may_be_elsewhere_they_are_not_complete(source: str) -> None:
    found = divisions(source, "f")
    assert found is not None and not found.complete


@pytest.mark.parametrize(
    "source", ["int g(int n) { return n; }", "int f(int n) { return n; }\nint f(long n) { return n; }"]
)
def test_functions_that_are_not_found_have_none(source: str) -> None:
    assert divisions(source, "f") is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("(float)n", "float"),
        ("(float)(n % 2)", "float"),
        ("(int)(x[0] * 0.5f)", "integer"),
        ("x[i]", "float"),
        ("n + 1", "integer"),
        ("n * 1.5", "float"),
        ("sqrtf(n)", "float"),
        ("rand()", "integer"),
        ("p->side", None),
        ("other", None),
    ],
)
def test_kind_of_an_expression(text: str, kind: str | None) -> None:
    assert kind_of(text, ["const float *x", "int i = 0, n = 4"], lambda name: None) == kind


def test_a_divisor_is_followed_to_what_it_is_made_of() -> None:
    """Through a parameter of a function that is called, and a variable that is set once."""
    found = divisions(SAMPLE, "draw")
    assert found is not None
    terms = resolved(found.found[2].divisor, found.found[2].body)
    assert [item.text for item in terms] == ["end", "n", "(int)(offsets[u + 1] - offsets[u])"]
    read = elements(terms[-1])
    assert read is not None and (read.parameter, read.differs) == (0, True)
    assert resolved(found.found[0].divisor, found.found[0].body)[-1].parameter == 2


@pytest.mark.parametrize(
    ("body", "parameter", "differs"),
    [
        ("return 8 / x[i];", 0, False),
        ("int n = x[i]; return 8 / n;", 0, False),
        ("int n = x[i] - x[i - 1]; return 8 / n;", 0, True),
        ("x[i] = 0; return 8 / x[i];", None, False),
        ("fill(x); return 8 / x[i];", None, False),
    ],
)
def test_elements_are_those_that_were_passed_where_nothing_sets_them(
    body: str, parameter: int | None, differs: bool
) -> None:
    found = divisions(f"int f(int *x, int i) {{ {body} }}", "f")
    assert found is not None
    read = elements(resolved(found.found[0].divisor, found.found[0].body)[-1])
    assert read is not None and (read.parameter, read.differs) == (parameter, differs)


@pytest.mark.parametrize(
    "body",
    [
        "n--; return 8 / n;",
        "n = x[i] - x[j]; return 8 / n;",
        "int n = 1; n /= 2; return 8 / n;",
        "read(&n); return 8 / n;",
        "return 8 / (x[i] - x[j]);",
    ],
)
def test_a_variable_that_changes_is_not_followed(body: str) -> None:
    """The look-alike: its number at the call is not the divisor."""
    found = divisions(f"int f(int n, int *x, int i, int j) {{ {body} }}", "f")
    assert found is not None
    last = resolved(found.found[-1].divisor, found.found[-1].body)[-1]
    assert last.parameter is None and elements(last) is None
    assert number_of(found.found[-1].divisor, found.found[-1].body, "", lambda term: 4) is None


@pytest.mark.parametrize(
    ("divisor", "value"),
    [("n - 1", 3), ("(int)n", 4), ("STEP", 8), ("n / STEP", 0), ("sizeof(float)", 1), ("4u", 4), ("m", None)],
)
def test_number_of_a_divisor(divisor: str, value: int | None) -> None:
    source = f"#define STEP 8\nint f(int n, int m) {{ return 9 / ({divisor}); }}"
    found = divisions(source, "f")

    def passed(term: Term) -> int | None:
        return 4 if term.text == "n" else None

    assert found is not None and number_of(found.found[0].divisor, found.found[0].body, source, passed) == value
