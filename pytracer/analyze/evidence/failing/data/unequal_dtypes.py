"""Samples of one batch with different dtypes: a worker joins them in memory of the first one's."""

from __future__ import annotations

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine

_CAST = Pattern(r"(?:input types|result type \w+) can't be cast to the desired output type (?:torch\.)?(\w+)")
_COLLATE = "torch/utils/data/_utils/collate.py"


def unequal_dtypes(at: FailingLine) -> str | None:
    """Of torch's default_collate in a worker; without workers the same samples give a batch of the larger type."""
    found = _CAST.search(at.message)
    if found is None or not (at.stack[0].file or "").endswith(_COLLATE):
        return None
    whose = f"{at.dataset.rpartition('.')[2]}.__getitem__()" if at.dataset is not None else "__getitem__()"
    return (
        f"The samples of one batch have different dtypes: a DataLoader worker joins them in memory for the first "
        f"one's, {found[1]}, which cannot hold the others'. Let {whose} return one dtype for all (`.float()`, "
        "torch.as_tensor(x, dtype=...)): print those of the samples."
    )
