"""Reads a core dump with gdb."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def seen_by_gdb(core: Path) -> dict[str, str]:
    """Signal, code, address, program counter, and the function that faulted, if it has a name."""
    asks = ["p $_siginfo.si_signo", "p $_siginfo.si_code", "p/x (long)$_siginfo._sifields._sigfault.si_addr"]
    asks += ["p/x (long)$pc", "frame 0"]
    arguments = [word for ask in asks for word in ("-ex", ask)]
    command = ["gdb", "-batch", "-nx", *arguments, sys.executable, str(core)]
    out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout
    values = re.findall(r"^\$\d+ = (\S+)$", out, re.MULTILINE)
    frame = re.search(r"^#0 +(?:0x\w+ in )?([\w?]+)", out, re.MULTILINE)
    assert len(values) == 4, out
    names = ("signal", "code", "addr", "pc")
    return {**dict(zip(names, values, strict=True)), "function": frame[1] if frame else ""}
