"""Enables before torch is imported, records every operator, and aborts: torch_after_enable.py RUN."""

import os
import sys

import pytracer

assert "torch" not in sys.modules
pytracer.enable(sys.argv[1], level="ops")
import torch  # noqa: E402

weights = torch.ones(4321)
product = weights * 3
os.abort()
