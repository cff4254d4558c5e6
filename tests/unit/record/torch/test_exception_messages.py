"""Messages of exceptions: whole while they are short; of a long one the first and the last lines."""

from __future__ import annotations

from pytracer.record.torch.exceptions import MESSAGE_CHARACTERS, _begin_and_end


def test_long_message_keeps_its_end() -> None:
    """torch.compile names the program's line there."""
    message = f"Failed to run{'x' * 9000}\nfrom user code:\n  line 12"
    kept = _begin_and_end(message)
    assert len(kept) == MESSAGE_CHARACTERS
    assert kept.startswith("Failed to run")
    assert kept.endswith("from user code:\n  line 12")
    assert "\n[...]\n" in kept


def test_short_message_stays() -> None:
    """Up to what is recorded of one."""
    message = "y" * MESSAGE_CHARACTERS
    assert _begin_and_end(message) is message
