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
    failed = module.__dict__.get("CalledProcessError") if module is not None else None
    if failed is None or type(error) is not failed or not records_values():
        return []
    written = error.__dict__.get("stderr")
    if type(written) is not bytes and type(written) is not str:
        return []
    end, cut = written[-_END:], len(written) > _END
    text = end.decode("utf-8", "replace") if type(end) is bytes else str(end)
    # Of a line whose begin is not there nothing is told: the name of a secret may be in that part.
    lines = [line.strip() for line in text.splitlines()[1 if cut else 0 :] if line.strip()]
    first = next((line for line in lines if _TELLS.search(line)), None) if _TRACEBACK not in text else None
    told = [line for line in dict.fromkeys((first, *lines[-1:])) if line is not None]
    words = " / ".join(_redacted(line)[:_LONGEST] for line in told)
    return [{"name": "written to stderr", "value": words}] if words else []


def _redacted(line: str) -> str:
    """The whole line: half a secret may not be known for one."""
    return redact_text(line.encode("utf-8", "replace"), line=True)[0].decode("utf-8", "replace")
