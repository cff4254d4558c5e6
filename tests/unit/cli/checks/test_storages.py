"""`doctor` on the kinds of memory: the real children, and its answer when one is not recorded."""

from __future__ import annotations

import pytest

from pytracer.blackbox.schema import Origin
from pytracer.cli.checks.answer import LIMITED, MISSING, WORKS
from pytracer.cli.checks.storages import check_storages, storages
from tests.conditions import needs_core, needs_native, needs_torch

ALL = {origin.name for origin in Origin} | {"UNTYPED_STORAGE"}


@pytest.mark.slow
@needs_core
@needs_torch
@needs_native
def test_every_kind_of_memory_is_seen_here() -> None:
    """Preloaded and with enable() alike."""
    check = check_storages()
    assert check.result == WORKS, check.detail


def test_what_is_missed_is_named_with_the_way() -> None:
    """A torch that maps files in another way is reported."""
    check = storages(ALL, ALL - {"MAPPED_FILE", "DLPACK"})
    assert check.result == LIMITED
    assert "with enable(), DLPack, mapped files" in check.detail
    assert "preloaded" not in check.detail


def test_nothing_at_all_is_missing() -> None:
    """Without a single storage the hooks do not work."""
    assert storages((), ()).result == MISSING
