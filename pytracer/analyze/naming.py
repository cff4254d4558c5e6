"""What processes and places in the program are called in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._started_package import program_name
from pytracer._text import capital, function_words, list_words, ranks_words
from pytracer.analyze.view import ProcessView
from pytracer.decode.symbols.demangle import demangle
from pytracer.decode.types.snapshot import Worker
from pytracer.report.job import PythonFrame

_SHORT, _SHOWN = 24, 3  # characters, and numbers, of a batch's samples
_FIRST = 2  # of several processes


def subject_words(views: Sequence[ProcessView]) -> str:
    """`Rank 1`, `Ranks 0 and 1`, or `Process 4711 (train.py)`: who a sentence begins with."""
    return capital(name_words(views))


def introduction(views: Sequence[ProcessView]) -> str:
    """The subject of a finding's summary: a DataLoader worker is introduced with the samples that it was loading."""
    worker = views[0].process.snapshot.worker if len(views) == 1 else None
    loading = f", loading {samples_words(worker)}," if worker is not None and worker.loading else ""
    return subject_words(views) + loading


def name_words(views: Sequence[ProcessView]) -> str:
    """`rank 1`, `ranks 0 and 1`, or `process 4711 (train.py)` for a process that is no rank: within a sentence."""
    processes = [view.process for view in views]
    ranks = sorted({item.rank for item in processes if item.role == "rank" and item.rank is not None})
    if ranks:
        return ranks_words(ranks)
    process = processes[0]
    worker, parent = process.snapshot.worker, process.parent_rank
    if worker is not None and worker.worker_id is not None:
        of = f" of rank {parent}" if parent is not None else f" (pid {process.snapshot.pid})"
        return f"DataLoader worker {worker.worker_id}{of}"
    work = views[0].work
    if work is not None and process.role != "dataloader-worker":
        return f"{work.name} (pid {process.snapshot.pid})"
    kind = {"dataloader-worker": "DataLoader worker", "launcher": "launcher"}.get(process.role, "process")
    program = program_name(process.snapshot.argv)
    return f"{kind} {process.snapshot.pid}" + (f" ({program})" if program else "")


def names_words(views: Sequence[ProcessView], most: int = 3) -> str:
    """`rank 1, process 12 (prep.py) and others`: the first ones, each by its name."""
    names = [name_words([view]) for view in views[:most]] + ["others"] * (len(views) > most)
    return list_words(names, len(names))


def first_names(views: Sequence[ProcessView]) -> str:
    """`process 12 (prep.py) and process 13 (prep.py) and 3 more`: the first two, each by its name."""
    more = f" and {len(views) - _FIRST} more" if len(views) > _FIRST else ""
    return list_words([name_words([view]) for view in views[:_FIRST]]) + more


def samples_words(worker: Worker) -> str:
    """`samples 20-24`, `32 samples (933, 641, 748, ...)`, or `a batch of 5`."""
    if worker.batch_indices:
        return indices_words(worker.batch_count, worker.batch_indices)
    return f"a batch of {worker.batch_count}"


def indices_words(count: int | str | None, indices: str) -> str:
    """Of the recorded numbers of a batch: all in short order, the first three of many that were shuffled."""
    first = indices.split(",")[:_SHOWN]
    if len(indices) <= _SHORT or len(first) < _SHOWN:
        return f"sample{'s' * (str(count) != '1')} {indices}"
    return f"{f'{count} ' if count is not None else ''}samples ({', '.join(first)}, ...)"


class LineWords(str):
    """Words for a line of the program, such as `line 6`, that know which one it is."""

    file: str | None
    line: int | None

    def __new__(cls, words: str, file: str | None, line: int | None) -> LineWords:
        """`words`: as a sentence has them."""
        made = super().__new__(cls, words)
        made.file, made.line = file, line
        return made

    def quoted(self, text: str) -> LineWords:
        """`` line 6 (`x = load()`) ``."""
        return self.then(f" (`{text}`)")

    def then(self, words: str) -> LineWords:
        """With more words behind it."""
        return LineWords(f"{self}{words}", self.file, self.line)

    def after(self, words: str) -> LineWords:
        """With more words before it."""
        return LineWords(f"{words}{self}", self.file, self.line)


def line_in(file: str | None, line: int | None, here: str | None) -> LineWords:
    """`line 6`, or `model.py:6` where that is another file than the one that is spoken of, `here`."""
    return LineWords(f"line {line}" if file == here else f"{short_file(file)}:{line}", file, line)


def short_file(file: str | None) -> str:
    """Below site-packages for libraries, the bare name for others."""
    if not file:
        return "?"
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in file:
            return file.split(folder, 1)[1]
    return file.rsplit("/", 1)[-1]


def kernel_words(name: str) -> str:
    """`nll_loss_forward_reduce_cuda_kernel_2d`: a kernel, mangled or not, without namespaces and template arguments."""
    return function_words(demangle(name)).rpartition("::")[2]


def place_words(frame: PythonFrame) -> str:
    """`train.py:12 in main`: short, for sentences; the report's frames keep whole paths."""
    line = f":{frame.line}" if frame.line is not None else ""
    return f"{short_file(frame.file)}{line} in {frame.function or '?'}"
