"""Every skip condition of the tests, with its reason."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "pytracer"

needs_core = pytest.mark.skipif(
    not (PACKAGE / "libpytracer_core.so").exists(), reason="libpytracer_core.so is not built: make build"
)
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
needs_native = pytest.mark.skipif(not list(PACKAGE.glob("_native*.so")), reason="pytracer was built without torch")
needs_user = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
needs_capstone = pytest.mark.skipif(importlib.util.find_spec("capstone") is None, reason="capstone is not installed")
