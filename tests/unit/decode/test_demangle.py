"""C++ names for people."""

from __future__ import annotations

import pytest

from pytracer.decode import demangle
from pytracer.decode.demangle import node_name


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("N5torch8autograd9generated12MulBackward0E", "MulBackward0"),
        ("N5torch8autograd14AccumulateGradE", "AccumulateGrad"),
        ("N12_GLOBAL__N_13FooE", "Foo"),
        ("MyFunctionBackward", "MyFunctionBackward"),
        ("NormalFunctionE", "NormalFunctionE"),
        ("N5torch8autog", "N5torch8autog"),
        ("N99999999999999xE", "N99999999999999xE"),
        ("NE", "NE"),
        ("", ""),
    ],
)
def test_node_names_are_shortened_to_their_class(mangled: str, name: str) -> None:
    """Plain nested names need no C++ library; what cannot be read stays as it is."""
    assert node_name(mangled) == name


def test_templates_keep_their_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Namespaces go, template arguments stay."""
    if demangle.demangle("_ZN1a1bEv") == "_ZN1a1bEv":
        pytest.skip("no C++ library with __cxa_demangle here")
    assert node_name("N5torch8autograd7CppNodeIN2my4MineEEE") == "CppNode<my::Mine>"
    assert demangle.demangle("_ZN3c104Warn4warnEv") == "c10::Warn::warn()"


def test_without_a_cpp_library_names_stay_mangled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is dropped."""
    monkeypatch.setattr(demangle, "_demangler", lambda: None)
    demangle.demangle.cache_clear()
    try:
        assert demangle.demangle("_ZN3c104Warn4warnEv") == "_ZN3c104Warn4warnEv"
    finally:
        demangle.demangle.cache_clear()


def test_names_that_are_not_mangled_stay() -> None:
    """`main` is not a type."""
    assert demangle.demangle("main") == "main"
