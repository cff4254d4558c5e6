"""An `init_method` that each process makes for itself: of a uuid, the time, its own number or a temporary folder."""

from __future__ import annotations

from pytracer._text import capital
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.own_values import OwnValues
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, calls_on
from pytracer.analyze.parts import python_frame
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.storages import PythonFrame

_PLACE = 1  # of init_process_group()


def own_method(view: ProcessView, caller: PythonFrame | None) -> str | None:
    """What makes it another one in each process; `caller`: the line of the program that called."""
    frame = python_frame(caller) if caller is not None else None
    if frame is None:
        return None
    snapshot = view.process.snapshot
    back = Slice(snapshot, [frame])
    spot = back.spot(0)
    calls = calls_on(spot.tree, spot.line) if spot is not None else []
    joins = [item for item in calls if called_name(item) == "init_process_group"]
    given = argument_at(joins[0], _PLACE, "init_method") if len(joins) == 1 else None
    if given is None or spot is None:
        return None
    value, _ = OwnValues(back, program_files(snapshot, [frame]), spot.file).of(given, spot)
    if value is None:
        return None
    return (
        f"{capital(value.reason)}: make it once, before the processes are started, and pass it to them (an argument, "
        "an environment variable)."
    )
