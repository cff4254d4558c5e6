"""The mechanisms of guard mode that this kernel supports."""

from __future__ import annotations

import ctypes
import os

from pytracer import _paths as paths
from pytracer.cli.checks.answer import LIMITED, WORKS, Check, is_built
from pytracer.record.guard_mode import map_count


def check_guard() -> Check:
    """Tries MADV_GUARD_INSTALL on a page."""
    if not is_built():
        return guard(None, map_count())
    return guard(int(ctypes.CDLL(str(paths.built_core())).pytracer_guard_markers()), map_count())


def guard(error: int | None, maps: int) -> Check:
    """`error`: the errno of the trial, 0 when it worked; `maps`: vm.max_map_count."""
    if error is None:
        return Check("guard", LIMITED, "not tried: the core is not built", "see `core` above")
    if error == 0:
        detail = "--guard marks pages with MADV_GUARD_INSTALL: no mapping per storage, about 10 us per small one"
        return Check("guard", WORKS, detail)
    detail = (
        f"--guard falls back to mprotect, since the kernel refuses MADV_GUARD_INSTALL ({os.strerror(error)}): two "
        f"mappings per storage, so that at most {maps // 8} live storages are guarded"
    )
    step = "Linux 6.13 or later has it; or raise vm.max_map_count, or guard fewer: --guard=sample:1000"
    return Check("guard", LIMITED, detail, step)
