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


def test_many_keys_of_a_state_leave_room_for_the_others() -> None:
    """Missing keys alone read like another model, where the unexpected ones show a prefix."""
    missing = [f"encoder.layers.{n}.attention.weight" for n in range(200)]
    listed = (", ".join(f'"{prefix}{key}"' for key in missing) for prefix in ("", "module."))
    message = "Error(s):\n\tMissing key(s) in state_dict: {}. \n\tUnexpected key(s) in state_dict: {}. "
    kept = _begin_and_end(message.format(*listed))
    lines = kept.split("\n\t")
    assert len(kept) < MESSAGE_CHARACTERS
    for line, first in zip(lines[1:], ("encoder.layers.0.", "module.encoder.layers.0."), strict=True):
        told = line.count('"') // 2
        assert f': "{first}' in line
        assert line.endswith(f'", and {200 - told} more.')
