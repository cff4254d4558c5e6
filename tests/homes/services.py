"""What has to run around a home's jobs, by the name that homes.toml gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.homes.slurm import slurm_cluster


@contextmanager
def _slurm(_: Path) -> Iterator[dict[str, str]]:
    with slurm_cluster() as slurm:
        yield {"SLURM_CONF": slurm.environment["SLURM_CONF"]}


# Each is called with an empty directory and yields variables for the job.
SERVICES: dict[str, Callable[[Path], AbstractContextManager[dict[str, str]]]] = {"slurm": _slurm}
