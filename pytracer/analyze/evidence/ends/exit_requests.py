"""Ends that a Python program asked for by SystemExit: sys.exit(), exit(), and what argparse and click do by these."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import message_words
from pytracer.analyze.evidence.ends.exit_calls import may_have_printed, printed_before, printed_in_vain
from pytracer.analyze.evidence.ends.exit_condition import exit_condition, frames_below_condition
from pytracer.analyze.evidence.ends.exit_values import exit_value
from pytracer.analyze.evidence.failing.explained import explained, involved
from pytracer.analyze.evidence.failing.not_finite.refused_loss import refused_loss
from pytracer.analyze.evidence.phrases import error_at_words
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.known.exceptions import exception_advice
from pytracer.analyze.naming import place_words, samples_words, short_file
from pytracer.analyze.parts import innermost_of_program
from pytracer.analyze.tensors.source_lines import line_text, syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, ExitRequestReport, HandledExceptionReport, PythonFrame

READ_ARGUMENTS = (
    "Read the last lines of its output: status 2 is how argparse and click refuse a command line (an option that is "
    "unknown, misspelt or lacks its value). Compare the options of the launch script with `--help`; "
    "torch.distributed.launch adds --local-rank; torchrun sets LOCAL_RANK instead."
)
_ARGUMENTS = Pattern(r"/(argparse|optparse|click/\w+|docopt|fire/\w+|tyro/\w+|hydra/_internal/\w+)\.py$")
_FETCHER = "/torch/utils/data/_utils/fetch.py"
_SHORTEST = 3  # of an option
_QUIET = ("SystemExit", "KeyboardInterrupt", "GeneratorExit")
_ITS_OWN = "Look at the condition above that line: the program ends itself there, and what it printed before says why."


def handled_error(view: ProcessView) -> HandledExceptionReport | None:
    """The error that the program was handling when it asked for its end: an `except` that ends in sys.exit()."""
    request = view.exit_request
    first = next(iter(request.context or ()), None) if request is not None else None
    if request is None or first is None or first.type in _QUIET or _parser(request) is not None:
        return None
    return first


def left_at(views: Sequence[ProcessView]) -> str:
    """` by SystemExit at train.py:14 in train`: where the one process left in mid-work; nothing at a program's end."""
    request = views[0].exit_request if len(views) == 1 else None
    frame = innermost_of_program(request.python_stack or ()) if request is not None else None
    if frame is None or frame.function in (None, "<module>") or is_library_file(frame.file):
        return ""
    return f" by SystemExit at {place_words(frame)}"


def exit_words(view: ProcessView, request: ExitRequestReport) -> tuple[str, str, str | None]:
    """What happened, without subject; advice; what is missing."""
    error = handled_error(view)
    if error is not None:
        return _handling(view, request, error)
    status, frame = request.status, innermost_of_program(request.python_stack or ())
    at = f" at {place_words(frame)}" if frame is not None else ""
    parser = _parser(request)
    if parser is not None:
        first = next(iter(request.context or ()), None)
        unknown = unknown_option(view.process.snapshot, innermost_of_program(request.python_stack or ()))
        why = f" ({message_words(first.message)})" if first is not None and first.message else unknown or ""
        says = f"ended itself with exit status {status}: {parser} refused the command line{why}{at}"
        return says, READ_ARGUMENTS, None if why else "which option it refused: its output says that"
    text = message_words(request.message.splitlines()[0]) if request.message else None
    says = f"ended itself with exit status {status}: SystemExit{f', {text},' if text else ''} was raised{at}"
    value = exit_value(view.process.snapshot, request.python_stack or (), status) if text is None else None
    if value is not None:
        return f"{says}: {value.words}", value.advice, None
    refused = refused_loss(view.process.snapshot, request.python_stack or (), request.message)
    if refused is not None:
        return f"{says}: {refused[0]}", _refused_advice(view, request, refused[1]), None
    advice = exit_advice(view.process.snapshot, request.python_stack or ())
    missing = "why it did: an exit status carries no reason" if text is None and advice is None else None
    return says, advice or _ITS_OWN, missing


def _refused_advice(view: ProcessView, request: ExitRequestReport, known: str | None) -> str:
    """What can have made the number so, else where that was asked; and why nobody saw what the program printed."""
    snapshot, stack = view.process.snapshot, request.python_stack or ()
    if known is None:
        return exit_advice(snapshot, stack) or _ITS_OWN
    frames = frames_below_condition(snapshot, stack)
    vain = next((words for item in frames if (words := printed_in_vain(snapshot, item)) is not None), None)
    return f"{known} {vain}" if vain is not None else known


def exit_advice(snapshot: Snapshot, stack: Sequence[PythonFrame]) -> str | None:
    """`` Line 12 does so where `x.isnan()` holds (line 11): ... ``; None where no condition is known.

    With the line that printed or logged just before: only where a call there may have is the output worth a look.
    """
    condition, frames = exit_condition(snapshot, stack), frames_below_condition(snapshot, stack)
    if condition is None:
        return None
    printed = next((words for item in frames if (words := printed_before(snapshot, item)) is not None), None)
    if printed is not None:
        return f"{condition}. {printed}"
    if any(may_have_printed(snapshot, item) for item in frames):
        return f"{condition}: what it printed before may say more."
    return f"{condition}: find out why that held, and for which input."


def _handling(
    view: ProcessView, request: ExitRequestReport, error: HandledExceptionReport
) -> tuple[str, str, str | None]:
    """By the facts of the line that raised the error, as if that had reached the top."""
    status, frame = request.status, innermost_of_program(request.python_stack or ())
    at = f" at {place_words(frame)}" if frame is not None else ""
    raised = innermost_of_program(error.python_stack or ())
    worker = view.process.snapshot.worker
    loads = any((item.file or "").endswith(_FETCHER) for item in request.python_stack or ())
    report = ExceptionReport(
        type=error.type, message=error.message, variables=error.variables, columns=error.columns, near=error.near
    )
    found = explained(view.process.snapshot, report, error.python_stack or [], worker.dataset if worker else None)
    line = f"line {raised.line}" if raised is not None else "the line that raised it"
    text = line_text(view.process.snapshot, raised) if raised is not None else None
    known = found.words or exception_advice(error.type, error.message, line, text)
    known = known or involved(view.process.snapshot, report, error.python_stack or [])
    about = f": {found.subject}" if found.subject is not None else ""
    sample = f" (it was loading {samples_words(worker)})" if worker is not None and loads else ""
    where = f"line {frame.line}" if frame is not None and frame.line is not None else "its place"
    out = f"In place of the exit at {where} write `raise`: the error then comes with its traceback"
    return (
        (
            f"raised {error_at_words(error)}{about}, and ended itself with exit status {status}{at} while handling "
            f"it{sample}"
        ),
        f"{known or f'Print the values, types and shapes that go into {line}.'} {out}.",
        found.failure,
    )


def unknown_option(snapshot: Snapshot, frame: PythonFrame | None) -> str | None:
    """`` (no add_argument() of train.py has --local-rank, but one has --local_rank) ``, by the program's source."""
    tree = syntax_tree(snapshot, frame)
    calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call)] if tree is not None else []
    made = [item for call in calls if called_name(call) == "add_argument" for item in call.args]
    flags = [item.value for item in made if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    given = [word.partition("=")[0] for word in snapshot.argv if word.startswith("--") and len(word) > _SHORTEST]
    unknown = [word for word in given if word != "--help" and not any(flag.startswith(word) for flag in flags)]
    if frame is None or len(flags) < len(made) or not flags or len(set(unknown)) != 1:
        return None
    like = difflib.get_close_matches(unknown[0], flags, 1)
    return (
        f" (no add_argument() of {short_file(frame.file)} has {unknown[0]}{f', but one has {like[0]}' if like else ''})"
    )


def _parser(request: ExitRequestReport) -> str | None:
    """The library that refused the command line: its frame called sys.exit()."""
    first = next(iter(request.python_stack or ()), None)
    found = _ARGUMENTS.search(first.file or "") if first is not None else None
    return found[1].split("/")[0] if found is not None else None
