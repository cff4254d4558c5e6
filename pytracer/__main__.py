"""`python -m pytracer`."""

from __future__ import annotations

import sys

from pytracer.cli import main

if __name__ == "__main__":
    sys.exit(main())
