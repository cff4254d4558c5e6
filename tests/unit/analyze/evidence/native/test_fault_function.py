"""Which native function a headline names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytracer._text import function_words
from pytracer.analyze.evidence.lifetime import never_made as tensors
from pytracer.analyze.evidence.native import fault_function as module
from pytracer.report.job import NativeFrame, SourceLine

TORCH, LIBC, OWN, PYTHON = "/x/libtorch_cpu.so", "/lib/libc.so.6", "/x/ops.so", "/x/libpython3.11.so.1.0"
MEMMOVE = (LIBC, "__memmove_avx512_unaligned_erms")
RUNNER = (TORCH, "at::internal::invoke_parallel<at::parallel_for<void>>(long, long)")
KERNEL = (TORCH, "at::native::(anonymous namespace)::fused_adam_kernel(at::Tensor const&)")
CALL = (TORCH, "at::_ops::_fused_adam_::redispatch(c10::DispatchKeySet)")
SCRIPTED = (TORCH, "torch::jit::(anonymous namespace)::opGenArgs::{lambda(std::vector<c10::IValue>&)#45}")
SCRIPT = (TORCH, "torch::jit::InterpreterStateImpl::runTemplate<true>(std::vector<c10::IValue>&)")
POOLED = (OWN, "pooled(at::Tensor, std::string)")
HASH = "czz3tn2xhkcggyp6whnnkkzeuuiw2hmwjp5gbqa36xufmles5vha"
GENERATED = (f"/tmp/torchinductor_user/cz/{HASH}.main.so", "kernel._omp_fn.0")
PACKAGED = (f"/tmp/pkg/{HASH}.wrapper.so", "cpp_fused_abs_mean_mul_0._omp_fn.0")
MADE: tuple[Any, None] = (None, None)  # code without a library
CALLOC = ("/env/numpy/_core/_multiarray_umath.so", "default_calloc")  # a word that was left on the stack
NUMBA = ("/env/site-packages/numba/_dispatcher.cpython-311-x86_64-linux-gnu.so", "Dispatcher_call")
EVALUATE = (PYTHON, "_PyEval_EvalFrameDefault")


def view_of(*frames: tuple[str, str | None], base: int | None = None) -> Any:
    """A crash in these functions, innermost first."""
    stack = [NativeFrame(image=image, function=function) for image, function in frames]
    instruction = SimpleNamespace(base_value=base)
    process = SimpleNamespace(snapshot=None)
    return SimpleNamespace(native_stack=stack, instruction=instruction, crash=None, python_stack=None, process=process)


@pytest.fixture(autouse=True)
def _operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_operator", lambda view: SimpleNamespace(name="aten::_fused_adam_"))


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        ((MEMMOVE, POOLED, EVALUATE), "pooled"),
        ((SCRIPTED, SCRIPT, EVALUATE), "TorchScript's interpreter"),
        ((KERNEL, SCRIPT, EVALUATE), "at::native::(anonymous)::fused_adam_kernel"),
        ((RUNNER, KERNEL, CALL, EVALUATE), "at::native::(anonymous)::fused_adam_kernel"),
        ((RUNNER, CALL, EVALUATE), "aten::_fused_adam_"),
        (((OWN, None), EVALUATE), "ops.so"),
        ((KERNEL, POOLED, EVALUATE), "at::native::(anonymous)::fused_adam_kernel, called by pooled"),
        ((KERNEL, EVALUATE, POOLED), "at::native::(anonymous)::fused_adam_kernel"),  # another call, further out
        ((POOLED, KERNEL, EVALUATE), "pooled"),
        ((GENERATED, RUNNER, EVALUATE), "a kernel that torch.compile made"),
        ((PACKAGED, EVALUATE), "a kernel that torch.compile made (abs_mean_mul)"),
        (((OWN, "kernel"), EVALUATE), "kernel"),  # the program's own, of that name
        ((MEMMOVE, EVALUATE), "aten::_fused_adam_"),
        ((MADE, CALLOC, NUMBA, EVALUATE), "a function that numba compiled"),
        ((("?", None), EVALUATE), "aten::_fused_adam_"),  # the name of the library was destroyed
    ],
)
def test_the_first_function_that_is_no_helper_is_named(frames: tuple[Any, ...], named: str) -> None:
    """The program's own one, else torch's kernel, else the operator."""
    found = module.fault_function(view_of(*frames))
    assert found is not None
    assert found.words == named


@pytest.mark.parametrize(
    ("function", "named"),
    [
        ("__strlen_evex", "strlen()"),
        ("__memset_avx512_unaligned_erms", "memset()"),
        ("__wmemset_sse2_unaligned", "wmemset()"),
        ("__memcpy_chk", "__memcpy_chk"),  # another function
        ("string_sse", "string_sse"),
    ],
)
def test_copies_that_glibc_has_of_a_function_for_processors_have_its_name(
    function: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_operator", lambda view: None)
    found = module.fault_function(view_of((LIBC, function), EVALUATE))
    assert found is not None and found.words == named


def test_the_line_of_an_own_function_is_not_that_of_an_inlined_header() -> None:
    """Of `~Tensor` inlined in `pooled`, the line of `pooled`."""
    lines = [
        SourceLine(function="at::Tensor::~Tensor()", file="/x/torch/include/ATen/core/TensorBody.h", line=93),
        SourceLine(function="pooled", file="/x/ops.cpp", line=9),
    ]
    view = SimpleNamespace(native_stack=[NativeFrame(image=OWN, function="pooled(int)", lines=lines)])
    found = module.fault_function(view)  # type: ignore[arg-type]
    assert found is not None
    assert found.words == "pooled (ops.cpp:9)"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("__pyx_pw_7pyarrow_3lib_5Array_74to_pylist(_object*, _object*)", "pyarrow.lib.Array.to_pylist"),
        ("__pyx_f_7pyarrow_3lib_11StringArray__getitem_py", "pyarrow.lib.StringArray._getitem_py"),
        ("__pyx_tp_dealloc", "__pyx_tp_dealloc"),
        ("__pyx_f_99abc_x", "__pyx_f_99abc_x"),
    ],
)
def test_names_of_cython_are_those_of_python(name: str, words: str) -> None:
    """With module and class; what is no such name stays."""
    assert function_words(name) == words


END = (OWN, "c10::intrusive_ptr<c10::TensorImpl>::reset_not_null_(c10::TensorImpl*)")


@pytest.mark.parametrize(
    ("frames", "base", "made"),
    [
        ((END, POOLED, EVALUATE), 3, False),
        ((END, POOLED, EVALUATE), 0, False),
        ((END, POOLED, EVALUATE), 0x55DF_0000_1040, True),  # an address: it may have been a tensor
        ((POOLED, EVALUATE), 3, True),  # its own pointer
        ((END, CALL, EVALUATE), 3, True),  # torch's own
    ],
)
def test_a_tensor_that_was_never_made(frames: tuple[Any, ...], base: int, made: bool) -> None:
    """By what lay in the place of its pointer, and who ended it."""
    found = tensors.never_made(view_of(*frames, base=base))
    assert (found is None) == made
    assert found is None or found.function.name == "pooled"


@pytest.mark.parametrize(
    ("image", "own"),
    [
        ("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", False),
        ("/usr/lib/libgcc_s.so.1", False),
        ("/usr/lib/libc.so.6", False),
        ("/home/user/libcodec.so", True),
    ],
)
def test_images_of_the_system_are_not_the_programs_own(image: str, own: bool) -> None:
    assert module.is_of_own_image(NativeFrame(function="f", image=image)) == own
