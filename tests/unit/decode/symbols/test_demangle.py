"""C++ names for people."""

from __future__ import annotations

import resource
import time

import pytest

from pytracer.decode.symbols import bounded_demangler, demangle
from pytracer.decode.symbols.demangle import node_name


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


def _bomb(levels: int) -> str:
    """`f(A<B>, A<A<B>, A<B>>, ...)`: each argument is a template of two of the one before it."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    name, before = "_Z1f1AI1BS0_E", 2  # S_ is A, S0_ is B, S1_ is A<B, B>
    for _ in range(levels):
        name += f"S_IS{digits[before - 1]}_S{digits[before - 1]}_E"
        before += 1
    return name


def _cpu_seconds() -> float:
    """Of this process and its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(item.ru_utime + item.ru_stime for item in used)


@pytest.mark.slow
def test_name_that_would_grow_without_bound_stays_mangled() -> None:
    """Each level doubles the result: 30 of them are 10^9 of the first one."""
    if demangle.demangle("_ZN1a1bEv") == "_ZN1a1bEv":
        pytest.skip("no C++ library with __cxa_demangle here")
    assert demangle.demangle(_bomb(2)).startswith("f(A<B, B>, A<A<B, B>, A<B, B> >, A<A<A<")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = _cpu_seconds()
    for levels in range(20, 33):
        name = _bomb(levels)
        assert demangle.demangle(name) == name
        assert node_name(f"N{name[2:]}E") == f"N{name[2:]}E"
    assert _cpu_seconds() - began < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


def test_name_that_takes_the_library_seconds_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by the fuzzer: nested expressions are parsed again and again."""
    monkeypatch.setattr(bounded_demangler, "_child", bounded_demangler._Child())
    name = "_ZN1aI1bJiSt6vectorIiSaIiEEEE1cIXsr1E1cIXsr1E1cIXsr1dE1eEEEDaDpOT_"
    began = time.process_time()
    assert demangle.demangle(name) == name
    assert time.process_time() - began < 1
    bounded_demangler._child.end()


def test_deep_name_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pointers to pointers, 16,000 levels."""
    monkeypatch.setattr(bounded_demangler, "_child", bounded_demangler._Child())
    name = "_Z1f" + "P" * 16000 + "c"
    assert demangle.demangle(name) in (name, f"f(char{'*' * 16000})")


def test_name_with_many_references_is_demangled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As libtorch's longest are: the references repeat little."""
    if demangle.demangle("_ZN1a1bEv") == "_ZN1a1bEv":
        pytest.skip("no C++ library with __cxa_demangle here")
    monkeypatch.setattr(bounded_demangler, "_child", bounded_demangler._Child())
    name = "_Z1fN1a1bE" + "S0_" * 40
    assert demangle.demangle(name) == f"f({', '.join(['a::b'] * 41)})"
    bounded_demangler._child.end()
