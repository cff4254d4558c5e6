"""What Python had warned of, before an exception, in the functions that the exception left."""

from __future__ import annotations

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence, PythonFrame, WarningReport

_INTERNAL = " (Triggered internally"  # of torch's: where it was built
_MOST = 2
_MOST_FRAMES = 4
_CHARACTERS = 110


def warning_words(text: str) -> str:
    """The first sentence."""
    return shortened(" ".join(text.partition(_INTERNAL)[0].split()).partition(". ")[0].rstrip("."), _CHARACTERS)


def warning_evidence(view: ProcessView) -> list[Evidence]:
    """The last ones of the program's innermost functions: `line 73 had warned before: "std(): ..."`."""
    found = view.exception.warnings if view.exception is not None else None
    stack = view.exception_stack_of_program[:_MOST_FRAMES]
    near = [item for item in found or () if any(_is_near(view, item, frame) for frame in stack)]
    return [
        Evidence(
            "warning",
            f'{line_in(item.file, item.line, stack[0].file)} had warned before: "{warning_words(item.message or "")}"',
            text=item.message,
            python=PythonFrame(file=item.file, line=item.line),
        )
        for item in near[-_MOST:]
    ]


def _is_near(view: ProcessView, item: WarningReport, frame: PythonFrame) -> bool:
    """Whether it is of the same function, or the same line of a module."""
    if item.file != frame.file or item.line is None or frame.line is None:
        return False
    tree = syntax_tree(view.process.snapshot, frame)
    return item.line == frame.line or (tree is not None and scope_of(tree, item.line) is scope_of(tree, frame.line))
