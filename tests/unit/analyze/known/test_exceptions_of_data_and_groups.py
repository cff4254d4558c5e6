"""Look-alikes of messages of process groups and data loading: who says them, and with which words."""

from __future__ import annotations

import pytest

from pytracer.analyze.known.exceptions import exception_advice, exception_reason

LINE = "train.py:12 in main"
SHAPE = "CollectiveFingerPrint(SequenceNumber=3, OpType={op}, TensorShape=[{n}], TensorDtypes=Float)"


@pytest.mark.parametrize(("other", "differs"), [("ALLGATHER", "was at ALLREDUCE while"), ("ALLREDUCE", "tensors")])
def test_collectives_that_differ_are_told_by_what_differs(other: str, differs: str) -> None:
    """Another call, or the same one with another shape."""
    mine, others = SHAPE.format(op="ALLREDUCE", n=2), SHAPE.format(op=other, n=3)
    said = f"Rank 0 is running collective: {mine}, but Rank 1 is running collective: {others}."
    said = f"Detected mismatch between collectives on ranks. {said}"
    assert differs in (exception_reason("RuntimeError", said) or "")


@pytest.mark.parametrize("source", ["state = torch.load(path)", "answer = input()"])
def test_end_of_file_is_an_empty_file_where_one_is_loaded(source: str) -> None:
    """The look-alike has no file; connections end so too."""
    said = exception_advice("EOFError", "", LINE, source) or ""
    assert ("0 bytes" in said) == ("load" in source)


@pytest.mark.parametrize(
    ("line", "found"), [("RuntimeError: Missing key in checkpoint state_dict: step.\n", True), ("", False)]
)
def test_key_of_a_checkpoint_is_not_taken_from_torch_s_source(line: str, found: bool) -> None:
    """The traceback in the message has the line that raised it, with a placeholder."""
    source = '    raise RuntimeError(f"Missing key in checkpoint state_dict: {fqn}.")\n'
    said = exception_advice("CheckpointException", f"CheckpointException ranks:dict_keys([0])\n{source}{line}", LINE)
    assert ("allow_partial_load" in (said or "")) == found


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("ValueError", "Unknown backend 'agg' for a plot"),
        ("ValueError", "LoRA rank must be positive"),
        ("RuntimeError", "Timed out waiting for the lock"),
        ("TypeError", "object of type 'NoneType' has no len()"),
        ("DistBackendError", "NCCL watchdog thread terminated with exception: CUDA error: an illegal memory access"),
    ],
)
def test_words_of_others_are_not_taken(kind: str, message: str) -> None:
    """They have a word or two in common with messages of groups and loaders."""
    said = exception_advice(kind, message, LINE, "loader = DataLoader(rows, shuffle=True)") or ""
    assert not any(word in said for word in ("gloo", "WORLD_SIZE", "__len__", "is not at this call"))
