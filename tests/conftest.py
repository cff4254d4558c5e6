"""What every test starts from."""

from __future__ import annotations

import compileall
import signal
from pathlib import Path

import pytest

# Below nohup, and in the background of a script, these are ignored, and children would inherit that: no program of ours
# would end by them, traced or not.
for _number, _action in (
    (signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL), (signal.SIGHUP, signal.SIG_DFL)
):  # fmt: skip
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _action)


def pytest_configure(config: pytest.Config) -> None:
    """Compiles the package once: most tests start it in processes that keep no bytecode, each a third longer."""
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(__file__).resolve().parents[1] / "pytracer", quiet=2)
