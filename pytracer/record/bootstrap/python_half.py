"""The Python half of recording, started once the core records: exceptions immediately, the torch hooks with torch.

Every traced process that imports torch pays for the imports here and in `torch_half`.
"""

from __future__ import annotations

import os
import sys

from pytracer.blackbox.note_codes import NoteCode
from pytracer.blackbox.numbers import Entry
from pytracer.record.bootstrap import torch_half
from pytracer.record.bootstrap.import_hook import is_imported, when_torch_is_imported
from pytracer.record.core import Core, core
from pytracer.record.torch import exceptions

started = False  # the result of is_enabled() in compiled code


def start(level: str) -> None:
    """Common to `enable()` and to the preloaded core inside `import torch`."""
    global started
    started = True
    box = core()
    if not box.check_python():
        why = "is free-threaded" if "t" in sys.abiflags else "lays out its frames differently"
        box.note(NoteCode.PYTHON_LAYOUT, f"this CPython {why}: Python stacks are left out")
    elif not box.check_objects():
        box.note(
            NoteCode.PYTHON_LAYOUT,
            "the objects of this CPython are laid out differently: who holds a storage is not looked for",
        )
    exceptions.install(box)
    _name_xdist_worker(box)
    if not box.preloaded:  # with preload the core sees every end, handler and thread
        from pytracer.record.bootstrap import exits, handlers, threads

        exits.install(box)
        handlers.install(box)
        threads.install(box)
    late = is_imported()
    when_torch_is_imported(lambda: torch_half.install(box, level, late=late))


def _name_xdist_worker(box: Core) -> None:
    """xdist sets the variable in a worker itself, after its start; what a worker starts has it, too, but no execnet."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker and "execnet.gateway_base" in sys.modules:
        box.journal(Entry.DOING, {"kind": "name", "text": f"pytest-xdist worker {worker}"})


def stop() -> None:
    """Restores what is still ours."""
    global started
    started = False
    torch_half.uninstall()
    exceptions.uninstall()
    if not core().preloaded:
        from pytracer.record.bootstrap import exits, handlers, threads

        exits.uninstall()
        handlers.uninstall()
        threads.uninstall()
