"""A test suite whose tests die; pytest runs it, not ours."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
import torch.multiprocessing
import training

DEATH = os.environ["HOMES_DEATH"]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_healthy(size):
    """Others run beside."""
    assert training.classifier()(training.Samples().features[:size]).shape == (size, training.CLASSES)


@pytest.mark.parametrize("rank", [0, 1])
def test_training(rank):
    """In pytest's own process."""
    if DEATH in ("fault", "kill", "none", "worker"):
        model = training.classifier()
        training.train(DEATH, rank, model, training.samples(DEATH, rank))


def test_ranks(tmp_path):
    """On two ranks."""
    if DEATH in ("exception", "desync", "hang", "none"):
        torch.multiprocessing.spawn(training.spawned, args=(DEATH, str(tmp_path / "store")), nprocs=2)
