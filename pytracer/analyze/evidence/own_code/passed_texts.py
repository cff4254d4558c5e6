r"""Which text of the program's line an argument in a C function is: through the parameters of its callers, by source.

`sprintf(buff, "%s\n", name)` of `note(name)`, which `load(path)` calls with `path`, that Python passes as
`folder.encode()`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.own_code.passed_through import NAME, given_for, levels
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

_TEXT = Pattern(r"\bchar\b.*[*\[]")
_QUOTED, _MOST = 50, 2


def passed_text(view: ProcessView, frame: NativeFrame, arguments: Sequence[str]) -> str | None:
    """`` `str(path).encode()`, which line 61 passes``: those of the arguments that are texts of the line; None of none.

    Args:
        view: The process.
        frame: Of the innermost native function, which has the arguments.
        arguments: Expressions of its source.
    """
    way = [*levels(view, frame)]
    given = (given_for(view, way, name, _TEXT) for name in arguments if NAME.match(name))
    texts = list(dict.fromkeys(f"`{shortened(ast.unparse(item), _QUOTED)}`" for item in given if item is not None))
    return f"{list_words(texts, _MOST)}, which {line_words(view)} passes" if texts else None
