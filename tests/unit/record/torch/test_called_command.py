"""What a failed command wrote to stderr: its telling lines, without secrets, and only where it was captured."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pytracer.record.torch.called_command import called_command


def written(script: str, **options: object) -> list[str]:
    """What is recorded of a Python program that fails."""
    with pytest.raises(subprocess.CalledProcessError) as caught:
        subprocess.run([sys.executable, "-c", script], check=True, **options)  # type: ignore[call-overload]
    return [item["value"] for item in called_command(caught.value)]


SAYS = "import sys; sys.exit('tool: a.tar: Cannot open\\ntool: exiting now')"


@pytest.mark.parametrize("text", [True, False])
def test_first_line_of_an_error_and_the_last_one(text: bool) -> None:
    """As text or as bytes."""
    assert written(SAYS, capture_output=True, text=text) == ["tool: a.tar: Cannot open / tool: exiting now"]


def test_last_line_of_a_traceback() -> None:
    """It has the message; lines of code above it may have the word, too."""
    assert written("error = 1\nraise ValueError('bad')", capture_output=True) == ["ValueError: bad"]


def test_nothing_of_what_was_not_captured() -> None:
    """And of another exception."""
    assert written(SAYS, stderr=subprocess.DEVNULL) == []
    assert called_command(ValueError("stderr")) == []


def test_secrets_are_masked() -> None:
    """As in command lines."""
    found = written("import sys; sys.exit('failed with --api-key=abcdef123456')", capture_output=True)
    assert "abcdef123456" not in found[0]


def test_half_a_secret_is_none() -> None:
    """A line is masked before it is cut, and one whose begin is cut off is not told."""
    far = written("import sys; sys.exit('failed ' + 'x' * 120 + ' ghp_' + 'a' * 36)", capture_output=True)
    assert "aaaa" not in far[0]
    begun = written("import sys; sys.exit('API_KEY=' + 'b' * 9000)", capture_output=True)
    assert begun == []
