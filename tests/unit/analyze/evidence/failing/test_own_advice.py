"""What messages of torch, NumPy and others advise themselves, and what is no advice."""

from __future__ import annotations

import pytest

from pytracer.analyze.evidence.failing.own_advice import own_advice

SORTED = (
    "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
    "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not "
    "need ONNX exportability."
)
CLONE = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
    "location. Please clone() the tensor before performing the operation."
)


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        (
            SORTED,
            "You can pass `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this",
        ),
        (
            CLONE,
            "Please clone() the tensor before performing the operation.",
        ),
        ("view size is not compatible with input tensor's size and stride. Use .reshape(...) instead.", "Use .reshape"),
        ("Default process group has not been initialized, please make sure to call init_process_group.", None),
        ("index 3 is out of bounds for dimension 0 with size 3", None),
        ('INTERNAL ASSERT FAILED at "a.cpp":3. Please report a bug to PyTorch.', None),
        ("Use of x is over. It has 3 rows.", None),
        ("The set is empty. Settings are in x.py.", None),
        (None, None),
    ],
)
def test_sentences_of_a_message_that_advise_are_quoted(message: str | None, advice: str | None) -> None:
    """As they are, not longer than a line and a half; the first sentence says what is wrong."""
    found = own_advice(message)
    assert found is None if advice is None else (found or "").startswith(advice), found
