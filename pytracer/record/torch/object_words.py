"""What is left in an iterator, and what a DataLoader was made for: read from the objects, without asking them for more.

Nothing is taken from an iterator: a generator has no frame once it has ended, and the others show what they read from.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterable, Iterator
from types import GeneratorType
from typing import Any

from pytracer.record.config import records_values
from pytracer.record.torch.near_names import attributes_of

_EMPTY: tuple[Iterable[object], ...] = ([], (), {}, {}.values(), {}.items(), set(), range(0), reversed([]))
_PLAIN = tuple(type(iter(item)) for item in _EMPTY)
_AROUND = (filter, map, zip, enumerate, itertools.islice)
_ENDED = (*_AROUND, itertools.chain)
_MOST_LEVELS = 4
_DIFFERENT = 1024
_SEVERAL = (list, tuple)
_NUMBERS = (int, float, bool)


def iterator_words(value: object) -> str | None:
    """`filter`, `generator, used up`; None of anything else than an iterator of Python's own."""
    kind = type(value)
    if kind is not GeneratorType and kind not in _PLAIN and kind not in _ENDED:
        return None
    return f"{kind.__name__}{', used up' if _is_used_up(value) else ''}"


def _is_used_up(value: object, level: int = 0) -> bool:
    kind = type(value)
    if kind is GeneratorType:
        return value.gi_frame is None  # type: ignore[attr-defined]
    if kind in _PLAIN:
        return value.__length_hint__() == 0  # type: ignore[attr-defined,no-any-return]
    if kind not in _ENDED or level == _MOST_LEVELS:
        return False
    held = [item for item in gc.get_referents(value) if not issubclass(type(item), type)]
    if kind is itertools.chain or kind is itertools.islice:
        return not held  # both let go of what they read from when it ends
    inner = [*held, *(part for item in held if type(item) is tuple for part in item)]  # zip and map hold a tuple
    return any(_is_used_up(item, level + 1) for item in inner)


def loader_words(value: object) -> str | None:
    """`DataLoader, batch_size=32, drop_last=False, 961 samples`; of its iterator, how many batches were taken."""
    kind = type(value)
    if module_of(kind) != "torch.utils.data.dataloader" or not records_values():
        return None
    own = attributes_of(value)
    taken = own.get("_num_yielded")
    if kind.__name__.endswith("DataLoaderIter") and type(taken) is int:
        return f"iterator of a DataLoader, {taken} batches taken"
    if kind.__name__ != "DataLoader":
        return None
    told = [f"{name}={own[name]}" for name in ("batch_size", "drop_last") if type(own.get(name)) in (int, bool)]
    count = _samples(own.get("dataset"))
    return ", ".join(["DataLoader", *told, *([f"{count} samples"] if count is not None else [])])


def module_of(kind: type) -> str:
    """Without code of a metaclass."""
    found = type.__getattribute__(kind, "__module__")
    return found if type(found) is str else ""


def _samples(dataset: object) -> int | None:
    """Of torch's own datasets and lists; a length of the program's would run its code."""
    if type(dataset) in _SEVERAL:
        return len(dataset)  # type: ignore[arg-type]
    own, kind = attributes_of(dataset), type(dataset)
    if module_of(kind) != "torch.utils.data.dataset":
        return None
    indices, tensors = own.get("indices"), own.get("tensors")
    if kind.__name__ == "Subset" and type(indices) in (*_SEVERAL, range):
        return len(indices)  # type: ignore[arg-type]
    first: Any = tensors[0] if kind.__name__ == "TensorDataset" and type(tensors) is tuple and tensors else None
    return int(first.shape[0]) if module_of(type(first)) == "torch" else None


def unequal_items(name: str, value: object) -> Iterator[dict[str, str]]:
    """`items of rows`, `list of 3; list of 2 at 5`: of a list, its first item and the first that is of another kind."""
    if type(value) not in _SEVERAL or not 1 < len(value) <= _DIFFERENT:  # type: ignore[arg-type]
        return
    items: list[object] = value  # type: ignore[assignment]
    first = _kind(items[0])
    found = next(((n, other) for n, item in enumerate(items) if (other := _kind(item)) != first), None)
    if found is not None:
        yield {"name": f"items of {name}", "value": f"{first}; {found[1]} at {found[0]}"}


def _kind(value: object) -> str:
    """Numbers are alike."""
    return "number" if type(value) in _NUMBERS else kind_words(value)


def kind_words(value: object) -> str:
    """`[3, 4]` of a tensor or array, `list of 3`, else the type's name."""
    kind = type(value)
    if kind in (list, tuple, dict):
        return f"{kind.__name__} of {len(value)}"  # type: ignore[arg-type]
    shape: Any = value.shape if module_of(kind) in ("torch", "numpy") and hasattr(value, "shape") else None
    return kind.__name__ if shape is None else f"[{', '.join(str(int(size)) for size in shape)}]"
