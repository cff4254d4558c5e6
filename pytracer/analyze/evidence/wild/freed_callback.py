"""libffi, called by native code, found no callback: the object of ctypes that owned its code had been freed."""

from __future__ import annotations

from dataclasses import dataclass

from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.native.fault_function import is_of_own_image
from pytracer.analyze.evidence.native.native_stack import image_name, own_frames
from pytracer.analyze.evidence.own_code.dropped_callback import DroppedCallback, dropped_callback
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, NativeFrame


@dataclass(frozen=True)
class FreedCallback(Explanation):
    """`callback`: the only object that a line made and nothing holds."""

    verdict_class = "use-after-free"
    names_source = True
    callback: DroppedCallback

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def access(self, view: ProcessView) -> str | None:
        """See Explanation."""
        return "called a callback of ctypes that had likely been freed"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": `{self.callback.text}` of line {self.callback.line}, which nothing holds"

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return f"{self.callback.advice} It was called below {line_words(view)}."


def freed_callback(view: ProcessView) -> FreedCallback | None:
    """None where the fault is not in libffi, or Python itself called it: then it was on its way into C."""
    frames = own_frames(view)
    inner = next((number for number, frame in enumerate(frames) if not _is_libffi(frame)), 0)
    if not inner or not is_of_own_image(frames[inner]):
        return None
    callback = dropped_callback(view)
    return FreedCallback(callback) if callback is not None else None


def _is_libffi(frame: NativeFrame) -> bool:
    return image_name(frame.image).startswith("libffi")
