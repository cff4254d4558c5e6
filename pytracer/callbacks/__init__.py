"""Callbacks for training frameworks: they name steps, epochs and batches in the recording.

    from pytracer.callbacks import LightningCallback      # lightning, or pytorch_lightning
    from pytracer.callbacks import HuggingFaceCallback    # transformers

Optional: a job below `pytracer run` is recorded without them. The framework is imported with its callback.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytracer.callbacks.huggingface import HuggingFaceCallback
    from pytracer.callbacks.lightning import LightningCallback

__all__ = ["HuggingFaceCallback", "LightningCallback"]

_MODULES = {"HuggingFaceCallback": "huggingface", "LightningCallback": "lightning"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'pytracer.callbacks' has no attribute {name!r}")
    return getattr(import_module(f"pytracer.callbacks.{_MODULES[name]}"), name)
