"""Messages of compilers, exporters and the dispatcher: what is told apart, and the look-alikes of others."""

from __future__ import annotations

import pytest

from pytracer.analyze.known.exceptions import exception_advice, exception_reason

LINE = "train.py:12 in main"


@pytest.mark.parametrize(
    ("kind", "message", "begins"),
    [
        ("NotSupportedError", "savepoints aren't supported", None),
        ("KeyError", "'scale'", "The key 'scale' is not in"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/data/triton/model.py'", "Look for"),
        ("PermissionError", "[Errno 13] Permission denied: '/data/out'", "Look at owner and mode"),
        (
            "ImportError",
            "cannot import name 'Config' from 'tritonclient' (/x/__init__.py)",
            "tritonclient has no Config",
        ),
        ("ModuleNotFoundError", "No module named 'torch.ao.quantization.own'", "Upgrade the package in whose file"),
        ("AttributeError", "'_Namespace' 'aten' object has no attribute 'x'", "Look at where the aten"),
        ("RuntimeError", "unsupported type: NoneType", None),
        ("RuntimeError", "\"index_put\" not implemented for 'Half'", "Print x.device before"),
        ("RuntimeError", "\"bincount_cpu\" not implemented for 'Float'", "Give train.py:12 in main integers"),
        ("CalledProcessError", "Command '['git', 'clone']' returned non-zero exit status 1.", "Run that command"),
        ("AssertionError", "expected size 3, got 4", "The condition of the assert"),
    ],
)
def test_message_of_another_library_keeps_its_advice(kind: str, message: str, begins: str | None) -> None:
    """Each is near to a message of torch's compilers."""
    said = exception_advice(kind, message, LINE)
    assert said is None if begins is None else said is not None and said.startswith(begins)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("You marked b as dynamic but your code specialized it to be a constant (1).", "with an example of 2 or more"),
        ("You marked b as dynamic but your code specialized it to be a constant (4).", "what fixes it to 4"),
        ("The values of c = L['y'].size()[0] and b = L['x'].size()[0] must always be equal.", "same Dim object"),
        (
            "Not all values of b = x satisfy the generated guard b % 2 == 0.\n- Not all values of b = y satisfy b > 3",
            "b must satisfy `b % 2 == 0`",
        ),
    ],
)
def test_violated_constraints_are_told_apart(message: str, says: str) -> None:
    """The first of several counts."""
    head = 'Constraints violated (b)! For more information, run with TORCH_LOGS="+dynamic".\n  - '
    assert says in (exception_advice("UserError", f"{head}{message}", LINE) or "")


def test_error_of_the_model_itself_keeps_its_advice_below_the_compiler() -> None:
    """The words of dynamo around it say nothing."""
    message = (
        "RuntimeError when making fake tensor call\n  Explanation: Dynamo failed to run FX node with fake tensors: "
        "call_method view(*(FakeTensor(..., size=(3, 2)), 7), **{}): got RuntimeError(\"shape '[7]' is invalid for "
        'input of size 6")\n  Hint: Your code may result in an error when running in eager.'
    )
    said = exception_advice("torch._dynamo.exc.TorchRuntimeError", message, LINE)
    assert said is not None and "has 6 elements, which do not fill [7]" in said


def test_hints_of_a_graph_break_are_not_taken_for_its_cause() -> None:
    """They name nan_to_num, calls that were attempted, and what is not supported."""
    message = (
        "Data-dependent branching\n  Explanation: Dynamo does not support tracing dynamic control flow.\n"
        "  Hint: Operations like torch.nan_to_num are no-ops (e.g. clamping inf/nan values).\n"
        "  Developer debug context: attempted to jump with TensorVariable()"
    )
    reason = exception_reason("torch._dynamo.exc.Unsupported", message)
    assert reason is not None and reason.startswith("a branch (if, while, and, or) asks for a value")
