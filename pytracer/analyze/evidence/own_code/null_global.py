"""A pointer of a C or C++ file that is null: what sets it was not called in this process, or something cleared it.

A handle in a static variable belongs to the library: `open()` sets it, `close()` or a fork handler clears it. Which
lines of the program call those is what its author can change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import function_around, statement_at
from pytracer.analyze.evidence.own_code.calling_lines import lines_that_call
from pytracer.analyze.evidence.own_code.native_source import own_sources
from pytracer.analyze.naming import short_file
from pytracer.analyze.view import ProcessView

_GLOBAL = Pattern(
    r"(?m)^(?:static\s+|thread_local\s+|__thread\s+)*(?:const\s+|struct\s+)*[A-Za-z_][\w:<>,]*\s*\*+\s*(?P<name>\w+)\s*"
    r"(?:=\s*(?:NULL|nullptr|0)\s*)?;"
)
_USED = r"\b{}\s*(?:->|\[)|\*\s*{}\b"
_NOTHING = Pattern(r"^(?:NULL|nullptr|0|\(void\s*\*\)\s*0)$")
_MOST = 3


class NullGlobal(msgspec.Struct, frozen=True):
    """`name` of `declared` (`store.c:5`). `setters` and `clearers`: functions of the same file.

    `calls`: the lines of the program that call a setter. `worker`: the process is one of a DataLoader.
    """

    name: str
    declared: str
    setters: tuple[str, ...]
    clearers: tuple[str, ...]
    calls: tuple[str, ...]
    worker: bool

    @property
    def summary(self) -> str:
        """Behind the headline."""
        cleared = f" and {_functions(self.clearers)} clears" if len(self.clearers) == 1 else ""
        return f"likely `{self.name}` ({self.declared}), which {_functions(self.setters)} sets{cleared}"

    def advice(self, line: str) -> str:
        """The change to make. `line`: what failed."""
        setter = _functions(self.setters)
        if not self.calls:
            return f"Call {setter} before {line}, in the same process: no line of the program's files does."
        calls = list_words(self.calls, _MOST)
        if self.worker:
            return (
                f"Call {setter} in the worker, too, before {line}: {calls} calls it, in the process that started the "
                "workers if it ran there. Do so in worker_init_fn or at the first sample of each worker."
            )
        cleared = f", and not behind {_functions(self.clearers)}" if self.clearers else ""
        return f"Call {setter} before {line} in the same process{cleared}, and check what it returns: {calls} calls it."


def null_global(view: ProcessView) -> NullGlobal | None:
    """The only pointer of the file's own that the running line goes through; None where no function sets it."""
    frame = next((item for item in own_frames(view)[:1] if is_of_own_image(item)), None)
    sources = own_sources(frame)[:1] if frame is not None else []
    if not sources:
        return None
    line, lines = sources[0]
    text, running = "\n".join(lines), lines[(line.line or 1) - 1]
    used = [item for item in _GLOBAL.finditer(text) if re.search(_USED.replace("{}", item["name"]), running)]
    around = function_around(text, statement_at(lines, line.line or 1))
    if len(used) != 1 or (around is not None and around.place_of(used[0]["name"]) is not None):
        return None
    name = used[0]["name"]
    written = [(function, _NOTHING.match(value) is not None) for function, value in _writers(text, name)]
    declared = f"{short_file(line.file or '')}:{text.count(chr(10), 0, used[0].start('name')) + 1}"
    return set_by_functions(view, name, declared, written)


def set_by_functions(
    view: ProcessView, name: str, declared: str, written: Sequence[tuple[str, bool]]
) -> NullGlobal | None:
    """`written`: the functions that set it, each with whether to null; None where none sets it to anything else."""
    setters = tuple(dict.fromkeys(function for function, null in written if not null))
    clearers = tuple(dict.fromkeys(function for function, null in written if null))
    if not setters:
        return None
    worker = view.process.role == "dataloader-worker" or view.process.snapshot.worker is not None
    return NullGlobal(name, declared, setters, clearers, tuple(lines_that_call(view, setters)), worker)


def _writers(text: str, name: str) -> Iterator[tuple[str, str]]:
    for match in re.finditer(rf"(?<![\w.>*])\b{re.escape(name)}\s*=\s*(?P<value>[^=;][^;]*);", text):
        around = function_around(text, match.start())
        if around is not None:
            yield around.name, match["value"].strip()


def _functions(names: tuple[str, ...]) -> str:
    return list_words([f"{name}()" for name in names], _MOST)
