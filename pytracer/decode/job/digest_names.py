"""Which paths are digests, by their names: what `inspect` asks before it reads anything, or imports what reads them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pytracer._objects import is_url
from pytracer.decode.job.merge import SUFFIX as BOX_SUFFIX

SUFFIX = ".digest"


def are_digests(paths: Sequence[str]) -> bool:
    """Whether all of them are digests, or folders of digests; a URL always is."""
    return bool(paths) and all(is_url(path) or _is_local(path) for path in paths)


def _is_local(path: str) -> bool:
    if path.endswith(SUFFIX) and os.path.isfile(path):
        return True
    if not os.path.isdir(path) or os.path.isdir(os.path.join(path, "boxes")):
        return False
    names = os.listdir(path)
    return any(name.endswith(SUFFIX) for name in names) and not any(name.endswith(BOX_SUFFIX) for name in names)
