"""Which Python files belong to a library, and not to the user's program."""

from __future__ import annotations

import re

# torch.compile's files lie in a folder of their own, or are named by a hash (torch 2.13, _inductor/codecache.py). A
# frame of Cython has the path below which its package was built: `_mt19937.pyx`, `pandas/_libs/index.pyx`.
_LIBRARY = re.compile(
    r"/(?:site-packages|dist-packages|lib/python3\.\d+|pytracer/record|torchinductor_[^/]+)/|/c[a-z2-7]{51}\.py$"
    r"|^<frozen|^[^/<].*\.p(?:yx|xd|xi)$"
)


def is_library_file(file: str | None) -> bool:
    """Whether a Python file belongs to a package, the standard library or torch.compile, not to the user's program."""
    return file is None or _LIBRARY.search(file) is not None
