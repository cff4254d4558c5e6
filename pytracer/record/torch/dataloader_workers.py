"""DataLoader workers: which worker a process is, and which samples it was loading.

A worker records its identity before anything else, so that one that is killed at once is identified. Each batch has two
records: the indices when loading begins, an empty text when the batch is done.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from pytracer.blackbox.note_codes import NoteCode
from pytracer.blackbox.numbers import ON_FETCH, TEXT_RECORD_BYTES, Entry, Record
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core
from pytracer.record.torch import exceptions

LOOKED_AT = 64  # indices of a batch: more would not fit into a record
WORD_CHARACTERS = 40
MOST_ERRORS = 8  # of one worker: the first one usually ends the program

_patches = Patches()
_errors = 0
_on_its_way = 0  # the id of the exception that was recorded last, as long as it is raised


def install(box: Core) -> None:
    """Wraps the function that a worker runs. Its name and module stay, because spawn pickles it by them."""
    worker = importlib.import_module("torch.utils.data._utils.worker")
    original = worker._worker_loop
    signature = inspect.signature(original)

    @functools.wraps(original)
    def _worker_loop(*args: object, **kwargs: object) -> object:
        try:
            if box.recording:
                _begin(box, signature.bind(*args, **kwargs).arguments)
        except Exception as error:
            box.lib.pytracer_count_hook_error()
            box.note(NoteCode.LOADER, f"the DataLoader worker could not be noted: {type(error).__name__}: {error}")
        return original(*args, **kwargs)

    _patches.replace(worker, "_worker_loop", _worker_loop)
    if hasattr(worker, "ExceptionWrapper"):
        _patches.replace(worker, "ExceptionWrapper", _recorded_wrapper(box, worker.ExceptionWrapper))


def uninstall() -> None:
    """Restores what is still ours."""
    _patches.put_back()


def _begin(box: Core, arguments: dict[str, object]) -> None:
    """Records the worker's identity and its fetchers' batches. The process is the worker's own."""
    number, seed = arguments.get("worker_id"), arguments.get("base_seed")
    box.journal(
        Entry.WORKER,
        {
            "worker_id": number,
            "num_workers": arguments.get("num_workers"),
            "seed": seed + number if isinstance(seed, int) and isinstance(number, int) else None,
            "dataset": dataset_name(arguments),
        },
    )
    box.lib.pytracer_trim_at_exit()
    kinds = importlib.import_module("torch.utils.data")._DatasetKind
    create = kinds.create_fetcher

    @functools.wraps(create)
    def create_fetcher(*args: object, **kwargs: object) -> object:
        fetcher = create(*args, **kwargs)
        fetcher.fetch = _recorded(box, fetcher.fetch)
        return fetcher

    kinds.create_fetcher = staticmethod(create_fetcher)


def _recorded_wrapper(box: Core, wrapper: Callable[..., object]) -> Callable[..., object]:
    """What makes the text of an exception for the other process, as without us: its traceback has no frame of ours.

    Also of worker_init_fn and of a dataset's __iter__(), which are recorded here.
    """

    @functools.wraps(wrapper, updated=())
    def wrap_and_record(*args: object, **kwargs: object) -> object:
        global _on_its_way
        error = sys.exc_info()[1]
        if isinstance(error, Exception) and id(error) != _on_its_way:
            _write_error(box, error)
        _on_its_way = 0
        _leave_out_ours(error)
        return wrapper(*args, **kwargs)

    return wrap_and_record


def _leave_out_ours(error: BaseException | None) -> None:
    trace = error.__traceback__ if error is not None else None
    while trace is not None and trace.tb_next is not None:
        if trace.tb_next.tb_frame.f_code.co_filename == __file__:
            trace.tb_next = trace.tb_next.tb_next
        else:
            trace = trace.tb_next


def dataset_name(arguments: dict[str, object]) -> str | None:
    """Its class. Since torch 2.15 it comes as the only item of a list, from which the worker takes it."""
    dataset, holder = arguments.get("dataset"), arguments.get("dataset_holder")
    if dataset is None and type(holder) is list and holder:
        dataset = holder[0]
    return type(dataset).__qualname__ if dataset is not None else None


def _recorded(box: Core, fetch: Callable[[object], object]) -> Callable[[object], object]:
    @functools.wraps(fetch)
    def fetch_and_record(indices: object) -> object:
        try:
            _sample(box, batch_words(indices))
        except Exception:  # an index with a broken __repr__
            box.lib.pytracer_count_hook_error()
        try:
            return fetch(indices)
        except Exception as error:
            _write_error(box, error)
            raise
        finally:  # an exception is handed over, too: the loading is over
            _sample(box, "")

    return fetch_and_record


def _write_error(box: Core, error: Exception) -> None:
    """The process that reads from the loader gets it as a text: without the variables of the line."""
    global _errors, _on_its_way
    _on_its_way = id(error)
    if _errors < MOST_ERRORS and box.recording:
        _errors += 1
        exceptions.write(box, error, error.__traceback__, on_its_way=ON_FETCH)


def _sample(box: Core, words: str) -> None:
    if box.recording:
        payload = words.encode("utf-8", "replace")[:TEXT_RECORD_BYTES]
        box.lib.pytracer_record(Record.SAMPLE, payload, len(payload))


def batch_words(indices: object) -> str:
    """How many samples, a space, then as many of their indices as fit: `8 0-3,7,9,12-13`; `4 -` without indices."""
    batch = indices if isinstance(indices, (list, tuple)) else [indices]
    limit = TEXT_RECORD_BYTES - 1
    text = f"{len(batch)} "
    for n, word in enumerate(_runs(batch)):
        longer = f"{text},{word}" if n else text + word
        if len(longer.encode("utf-8", "replace")) > limit - 4:
            return f"{text},..."
        text = longer
    return text if len(batch) <= LOOKED_AT else f"{text},..."


def _runs(batch: Iterable[object]) -> Iterator[str]:
    """Consecutive numbers as one word."""
    first: int | None = None
    last = 0
    for index in islice(batch, LOOKED_AT):
        if type(index) is int and first is not None and index == last + 1:
            last = index
            continue
        if first is not None:
            yield str(first) if first == last else f"{first}-{last}"
            first = None
        if type(index) is int:
            first = last = index
        elif index is not None:  # None: of an iterable dataset
            yield repr(index).replace(",", ";")[:WORD_CHARACTERS]
    if first is not None:
        yield str(first) if first == last else f"{first}-{last}"
