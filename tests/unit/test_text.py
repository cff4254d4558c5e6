"""How values are worded."""

from __future__ import annotations

import pytest

from pytracer._text import function_words, message_words

LOOP = (
    "void at::internal::invoke_parallel<at::parallel_for<at::native::(anonymous namespace)::pool_backward<float>"
    "(at::Tensor const&)::{lambda(long, long)#1}>(long, long, long, f const&)::{lambda(long, long)#1}>(long)"
)
CALLBACK = (
    "void c10::function_ref<void (char**, long const*, long, long)>::callback_fn<at::native::AVX2::VectorizedLoop2d<"
    "at::native::(anonymous namespace)::fill_kernel(at::TensorIterator&)::{lambda()#1}> >(long, char**)"
)
NOTHING = (
    "void at::internal::invoke_parallel<at::parallel_for<at::TensorIteratorBase::for_each(c10::function_ref<void "
    "(char**)>, long)::{lambda(long, long)#1}>(long)::{lambda(long, long)#1}>(long)"
)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (LOOP, "at::internal::invoke_parallel<pool_backward>"),
        (CALLBACK, "c10::function_ref::callback_fn<fill_kernel>"),
        (NOTHING, "at::internal::invoke_parallel"),
        ("void at::parallel_for<", "at::parallel_for<"),
        (
            "_ZN2at8internal15invoke_parallelIZNS_12parallel_forIZNS_6native12_GLOBAL__N_19pool_stepIdEEvPT_EE._omp_fn.0",
            "pool_step",
        ),
        ("_ZN999999999", "_ZN999999999"),
        ("std::vector<at::f(int)>::push_back(at::g(int))", "std::vector::push_back"),
    ],
)
def test_function_that_only_runs_another_keeps_its_name(name: str, words: str) -> None:
    """The kernel is in the template argument; other functions lose theirs."""
    assert function_words(name) == words


def test_long_hostile_names_take_no_time() -> None:
    """Names come from files that anybody may have written."""
    for part in ("a::", "a", "a::b<", "(anonymous namespace)::"):
        assert function_words("at::parallel_for<" + part * 20000 + ">()")


MESSAGE = "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (f"{MESSAGE}.", MESSAGE),
        (f"{MESSAGE}\nException raised from f at x.cpp:4 (most recent call first):\nframe #0: g() + 0x1", MESSAGE),
        (f"{MESSAGE}\nC++ CapturedTraceback:\n#4 f from ??:0", MESSAGE),
        ("ValueError raised from here", "ValueError raised from here"),
        ("word " * 100, " ".join(["word"] * 31) + "..."),
        ("x" * 300, "x" * 157 + "..."),
        ("", ""),
    ],
)
def test_message_is_cut_between_words_and_before_a_backtrace(message: str, words: str) -> None:
    """A headline has the message, no half word and no C++ frames."""
    assert message_words(message) == words
