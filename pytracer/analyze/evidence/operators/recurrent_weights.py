"""A weight of a recurrent layer that is smaller than its hidden size asks for.

torch checks the number of dimensions of the weights, not their sizes (torch 2.13, nn/modules/rnn.py); the kernels of
oneDNN read weight_hh as [gates * hidden, hidden]. The biases, which have gates * hidden elements, tell the hidden size.
"""

from __future__ import annotations

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.lifetime.variables import line_words, plain_expression, python_frames
from pytracer.analyze.evidence.lifetime.where_made import line_that_made
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Holder

_FILE = "torch/nn/modules/rnn.py"
_GATES = {"LSTM.forward": 4, "GRU.forward": 3, "RNN.forward": 1}
_PARAMETER = Pattern(r"self\.(weight|bias)_(\w+)$")


class CutWeight(msgspec.Struct, frozen=True):
    """`name`: `weight_hh_l0` of `layer`, `LSTM`."""

    name: str
    layer: str
    elements: int
    gates: int
    hidden: int
    base: int
    line: str

    @property
    def summary(self) -> str:
        """For the headline."""
        return (
            f"`{self.name}` of the {self.layer} that {self.line} runs has {self.elements} elements, where its hidden "
            f"size of {self.hidden} takes [{self.gates * self.hidden}, {self.hidden}]"
        )

    def advice(self, view: ProcessView) -> str:
        """What to keep."""
        made = line_that_made(view, self.base, quote=False)
        since = f", which {made} made," if made is not None else ""
        return (
            f"Keep `{self.name}`{since} at [{self.gates * self.hidden}, {self.hidden}] for {self.line}, which "
            f"runs the {self.layer}: set what is cut to 0, or build a layer of a smaller hidden size from all weights."
        )


def cut_weight(view: ProcessView) -> CutWeight | None:
    """None unless a layer of torch runs, has biases that agree, and a weight_hh that is smaller."""
    frame, crash = next(iter(python_frames(view)), None), view.crash
    if frame is None or crash is None or not (frame.file or "").endswith(_FILE) or frame.function not in _GATES:
        return None
    held: dict[str, Holder] = {}
    place = (frame.file, frame.function, frame.line)
    for item in crash.holders:
        found = _PARAMETER.match(plain_expression(item.expression))
        at = item.frame
        if found is not None and at is not None and (at.file, at.function, at.line) == place:
            held.setdefault(found[1] + "_" + found[2], item)
    biases = {item.elements for name, item in held.items() if name.startswith("bias_")}
    gates = _GATES[frame.function]
    if len(biases) != 1 or any(name.startswith("weight_hr") for name in held):
        return None
    hidden, rest = divmod(biases.pop(), gates)
    line = line_words(view)
    small = [
        CutWeight(name, frame.function.partition(".")[0], item.elements, gates, hidden, item.base, line)
        for name, item in held.items()
        if name.startswith("weight_hh") and 0 < item.elements < gates * hidden * hidden
    ]
    return small[0] if small and not rest else None
