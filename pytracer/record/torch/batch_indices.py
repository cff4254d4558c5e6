"""Which samples the batch had that a collate_fn failed on: the indices that torch's fetcher was given."""

from __future__ import annotations

from types import TracebackType

_FETCHER = "torch/utils/data/_utils/fetch.py"
_MOST = 64


def batch_indices(trace: TracebackType | None) -> list[dict[str, str]]:
    """As the variable `indices of the batch`, `12 5 7`; nothing before all samples were there, or of other indices."""
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == "fetch" and code.co_filename.endswith(_FETCHER):
            held = trace.tb_frame.f_locals
            indices, data = held.get("possibly_batched_index"), held.get("data")
            if type(indices) is not list or type(data) is not list or not 0 < len(indices) == len(data) <= _MOST:
                return []
            if not all(type(item) is int for item in indices):
                return []
            return [{"name": "indices of the batch", "value": " ".join(str(item) for item in indices)}]
        trace = trace.tb_next
    return []
