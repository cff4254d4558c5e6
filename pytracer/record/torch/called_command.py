"""What a command that failed had written to its standard error, where the program captured that: its telling lines."""

from __future__ import annotations

import re
import sys

from pytracer.blackbox.redaction import redact_text
from pytracer.record.config import records_values

_END, _LONGEST = 4096, 160  # characters
_TELLS = re.compile(r"error|cannot|can't|no such|not found|failed|invalid|denied|unknown|unable", re.IGNORECASE)
_TRACEBACK = "Traceback (most recent call last)"


def called_command(error: BaseException) -> list[dict[str, str]]:
    """As the variable `written to stderr`: the first line that speaks of an error, and the last one."""
    module = sys.modules.get("subprocess")
    if module is None or type(error) is not module.CalledProcessError or not records_values():
        return []
    text = error.__dict__.get("stderr")
    if type(text) is bytes:
        text = text[-_END:].decode("utf-8", "replace")
    if type(text) is not str:
        return []
    lines = [line.strip() for line in text[-_END:].splitlines() if line.strip()]
    first = next((line for line in lines if _TELLS.search(line)), None) if _TRACEBACK not in text else None
    told = [line for line in dict.fromkeys((first, *lines[-1:])) if line is not None]
    plain = " / ".join(line[:_LONGEST] for line in told)
    redacted = redact_text(plain.encode("utf-8", "replace"), line=True)[0].decode("utf-8", "replace")
    return [{"name": "written to stderr", "value": redacted}] if redacted else []
