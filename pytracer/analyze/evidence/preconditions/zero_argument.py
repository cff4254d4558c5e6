"""A number that an operator of torch divides by, and that is passed as 0: `num_heads`."""

from __future__ import annotations

import msgspec

from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.preconditions.violated import violated
from pytracer.analyze.view import ProcessView


class ZeroArgument(msgspec.Struct, frozen=True):
    """`name`: as the program writes it; `argument`: of `operator`, as that is called by `line`."""

    name: str
    argument: str
    operator: str
    line: str

    @property
    def words(self) -> str:
        """`` `n` is 0, which line 9 passes for `num_heads` of _transform_bias_rescale_qkv ``."""
        return f"`{self.name}` is 0, which {self.line} passes for `{self.argument}` of {self.operator}"

    @property
    def advice(self) -> str:
        """What to pass."""
        return f"Pass 1 or more for `{self.argument}` at {self.line}: {self.operator} divides by it without a check."


def zero_argument(view: ProcessView) -> ZeroArgument | None:
    """None where all that the operator takes for granted holds, or what does not is another thing."""
    found = violated(view)
    if found is None or found.broken.left.function is not None or found.culprit.value != 0:
        return None
    argument = found.broken.left.arguments[0]
    return ZeroArgument(found.culprit.name.strip("`"), argument, found.call.operator, line_words(view))
