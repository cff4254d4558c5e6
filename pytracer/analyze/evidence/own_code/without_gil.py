"""pybind11's own check that whoever uses a Python object has the GIL, which failed."""

from __future__ import annotations

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.native.aborts import cpp_exception
from pytracer.analyze.evidence.own_code.own_place import OwnPlace, own_place
from pytracer.analyze.view import ProcessView

_CHECK = "PyGILState_Check() failure"
_QUOTED = 60


class WithoutGil(msgspec.Struct, frozen=True):
    """`at`: the line of the program's own; `of_native`: on a thread that runs no Python."""

    at: OwnPlace | None
    of_native: bool

    @property
    def what(self) -> str:
        """Behind `aborted:`."""
        thread = ", on a thread of native code" if self.of_native else ""
        if self.at is None:
            return f"native code used a Python object without the GIL{thread}"
        return (
            f"{self.at.function}() used a Python object without the GIL at {self.at.place} "
            f"(`{shortened(self.at.text, _QUOTED)}`){thread}"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        place = f"before {self.at.place}" if self.at is not None else "before it uses Python objects"
        if self.of_native:
            return (
                f"Take the GIL on that thread: `py::gil_scoped_acquire gil;` {place}, as long as Python objects are "
                "called, copied or destroyed there. A thread that waits for it, as in join(), must have released the "
                "GIL (`py::gil_scoped_release`)."
            )
        return (
            f"Take the GIL back {place} (`py::gil_scoped_acquire gil;`), or release it (`py::gil_scoped_release`, "
            "call_guard) only around code that calls, copies and destroys no Python objects."
        )


def without_gil(view: ProcessView) -> WithoutGil | None:
    """None for any other exception."""
    exception, crash = cpp_exception(view), view.crash
    if exception is None or crash is None or _CHECK not in (exception.what or ""):
        return None
    native = not crash.python_stack and crash.tid != view.process.snapshot.pid
    return WithoutGil(own_place(view), native)
