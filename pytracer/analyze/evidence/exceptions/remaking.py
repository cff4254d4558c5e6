"""Why an exception cannot be made again from its pickle, and how it can, in words: by the constructor of its class."""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.syntax.error_classes import ErrorConstructor
from pytracer.analyze.naming import LineWords, line_in

# CPython 3.10 has the class before it; 3.9 does not.
CALLED = Pattern(r"^(?:([\w.<>]+)\.)?__init__\(\) (?:missing|takes|got) ")
_LONGEST = 50


class Remaking(msgspec.Struct, frozen=True):
    """`name`: of the exception's class. `here`: the file that is spoken of."""

    made: ErrorConstructor
    name: str
    here: str | None

    @property
    def lines(self) -> tuple[LineWords, ...]:
        """Of the constructor, and of its call of the base's."""
        own, kept = self.made.node.lineno, self.made.kept
        return (self._line(own), *([self._line(kept.lineno)] if kept is not None else []))

    @property
    def why(self) -> str | None:
        """`__init__() (line 15) takes `row` and `why`, and super().__init__() (line 16) gets `f'...'` only`."""
        made = self.made
        if not made.takes:
            return None
        function = "__init__()" if made.owner == self.name else f"{made.owner}.__init__()"
        takes = f"{function} ({self._line(made.node.lineno)}) takes {list_words([f'`{item}`' for item in made.takes])}"
        if made.kept is None:
            return takes
        kept = f"{self._base} ({self._line(made.kept.lineno)})"
        passed = made.passed
        if passed is None:
            return f"{takes}, and is called again with what {kept} gets"
        texts = [f"`{shortened(ast.unparse(item), _LONGEST)}`" for item in passed]
        return f"{takes}, and {kept} gets {f'{list_words(texts)} only' if texts else 'nothing'}"

    @property
    def mend(self) -> str:
        """The change at the call of the base's constructor."""
        made, kept = self.made, self.made.kept
        line = self._line(kept.lineno if kept is not None else made.node.lineno)
        instead = f" in place of `{shortened(ast.unparse(kept), _LONGEST)}`" if kept is not None else ""
        how = f"At {line}, pass on all that __init__() takes: `{made.given_all}`{instead}, with the text in `__str__`"
        if made.given_all is None:
            by_name = f" by position, {list_words([f'`{item}`' for item in made.by_name])} too," if made.by_name else ""
            how = f"Let __init__() take all{by_name} and give that to {self._base} at {line}; the text in `__str__`"
        got = f"what {self._base} got" if kept is not None else "what it was made with by position"
        return (
            f"{how}; or define `__reduce__`. An exception is pickled as its class and its `args`, {got}, and loading "
            "it calls the class with them."
        )

    @property
    def _base(self) -> str:
        """`super().__init__()`."""
        return f"{ast.unparse(self.made.kept.func)}()" if self.made.kept is not None else "super().__init__()"

    def _line(self, line: int) -> LineWords:
        return line_in(self.made.file, line, self.here)
