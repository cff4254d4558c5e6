"""What has to run around a home's jobs, by the name that homes.toml gives it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

# Each is called with an empty directory and yields variables for the job.
SERVICES: dict[str, Callable[[Path], AbstractContextManager[dict[str, str]]]] = {}
