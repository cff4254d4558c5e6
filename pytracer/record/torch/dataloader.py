"""DataLoaders of a process: whether each splits its samples among ranks, whether ranks were known, how many batches."""

from __future__ import annotations

import importlib
from collections.abc import Sized
from typing import TYPE_CHECKING

from pytracer.blackbox.note_codes import NoteCode
from pytracer.blackbox.numbers import Entry
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core
from pytracer.record.torch.rendezvous import calling_line

if TYPE_CHECKING:
    from pytracer.record.torch_objects import DataLoader

NOTED = 16  # loaders per process: a program that creates one per epoch adds nothing new

_patches = Patches()
_count = 0


def install(box: Core) -> None:
    """Wraps DataLoader.__init__."""
    kind = importlib.import_module("torch.utils.data").DataLoader

    def note_some(loader: DataLoader) -> None:
        global _count
        if _count < NOTED and box.recording:
            _count += 1
            _note(box, loader)

    _patches.after(kind, "__init__", note_some)


def uninstall() -> None:
    """Restores what is still ours."""
    _patches.put_back()


def _note(box: Core, loader: DataLoader) -> None:
    """Writes LOADER. Never raises."""
    try:
        import torch.distributed as dist
        from torch.utils.data import DistributedSampler, IterableDataset, RandomSampler, SequentialSampler

        batches = getattr(loader, "batch_sampler", None)
        sampler = getattr(batches, "sampler", None)
        if sampler is None:  # its truth would be its length, which asks the dataset
            sampler = getattr(loader, "sampler", None)
        own = type(batches).__module__.startswith("torch.") if batches is not None else True
        samples = _samples(loader, isinstance(loader.dataset, IterableDataset))
        box.journal(
            Entry.LOADER,
            {
                "dataset": type(loader.dataset).__qualname__,
                "iterable": isinstance(loader.dataset, IterableDataset),
                "sampler": type(sampler).__qualname__ if sampler is not None else None,
                "distributed": isinstance(sampler, DistributedSampler),
                # These are known to give every rank all samples; a program's own sampler is not.
                "plain": own and type(sampler) in (RandomSampler, SequentialSampler),
                "initialized": bool(dist.is_available() and dist.is_initialized()),
                "samples": samples,
                "batch_size": loader.batch_size if isinstance(loader.batch_size, int) else None,
                "drop_last": bool(loader.drop_last),
                "batches": _batches(loader, sampler, samples) if own and batches is not None else None,
                "at": calling_line(),
            },
        )
    except Exception as error:
        box.lib.pytracer_count_hook_error()
        box.note(NoteCode.LOADER, f"a DataLoader could not be noted: {type(error).__name__}: {error}")


def _samples(loader: DataLoader, iterable: bool) -> int | None:
    """None: not known. torch's samplers ask a map-style dataset for its length; nobody may ask an iterable one."""
    if iterable or not isinstance(loader.dataset, Sized):
        return None
    try:
        return len(loader.dataset)
    except Exception:  # the program's own code: Keras has datasets with a __len__ that raises
        return None


def _batches(loader: DataLoader, sampler: object, samples: int | None) -> int | None:
    """Of an epoch, as torch's BatchSampler counts them (torch 2.13, utils/data/sampler.py).

    Only where torch's own sampler draws each sample of the dataset once; that was asked for its length already.
    """
    from torch.utils.data import RandomSampler, SequentialSampler

    size = loader.batch_size
    if samples is None or type(size) is not int or size <= 0:
        return None
    if type(sampler) not in (RandomSampler, SequentialSampler) or getattr(sampler, "_num_samples", None) is not None:
        return None
    if getattr(sampler, "data_source", None) is not loader.dataset:
        return None
    return samples // size if loader.drop_last else -(-samples // size)
