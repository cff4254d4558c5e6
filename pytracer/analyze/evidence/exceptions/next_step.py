"""What to do about an exception that the facts of its line do not explain: by type and message, and by its values."""

from __future__ import annotations

from pytracer._text import capital
from pytracer.analyze.evidence.exceptions.chains import Chain
from pytracer.analyze.evidence.exceptions.other_end import is_of_other_end
from pytracer.analyze.evidence.exceptions.raisers import Raiser, repeats
from pytracer.analyze.evidence.exceptions.reraised import Reraised, library_reason
from pytracer.analyze.evidence.exceptions.told import Told
from pytracer.analyze.evidence.failing.own_advice import own_advice
from pytracer.analyze.evidence.phrases import error_at_words
from pytracer.analyze.known.exceptions import exception_advice
from pytracer.analyze.naming import place_words
from pytracer.report.job import HandledExceptionReport, PythonFrame

_SAMPLE = "and at the sample that it was given: num_workers=0 under a debugger stops there."
_STREAM = "with num_workers=0 under a debugger, which stops there."
_BEGIN = "which each worker runs when it begins, and num_workers=0 never: call it by hand to repeat it."
_BATCH = "and at the batch that it was given: num_workers=0 under a debugger stops there."
_QUOTED = 80  # characters of a line of the program
_READ = ("EOFError",)  # a file that ends too early, or another process: the line says which it reads
_ANY = (None, "ValueError", "RuntimeError", "TypeError")  # types that say nothing of a check


def next_step(told: Told) -> str:
    """Of a DataLoader worker: how to meet it again."""
    first = told.first
    if told.of_worker and first is not None and first.frame is not None:
        return _of_worker(told, first, first.frame)
    if told.chain is not None:
        return _by_chain(told, told.chain)
    origin = _origin(told) if not _is_of_other_end(told) else ""
    given = told.given if first is None else None
    advice = _by_kind(told, given, quoted=not origin)
    if given is not None and given in advice:
        return advice
    return f"{origin}{advice}" if told.meant is not None else f"{advice} {origin}".rstrip()  # else but one of the line


def _of_worker(told: Told, first: Reraised, frame: PythonFrame) -> str:
    number, raised = told.sample, told.origin
    if told.chain is not None:
        again = f" {repeats(f'dataset[{number}]')}" if number is not None else ""
        return f"{_by_chain(told, told.chain)}{again}"
    joins = raised is not None and raised.joins
    repeated = raised.repeated if raised is not None else None
    again = _of_stack(raised) if number is None else f"with sample {number}: {repeats(f'dataset[{number}]')}"
    if joins:
        again = f"with the samples of its batch: {repeated}" if repeated is not None else _BATCH
    line = place_words(frame) if joins else "that line"
    known = exception_advice(first.type, first.message, line, general=told.given is None) or told.given
    if joins and known is not None:
        return f"{known} {repeated or ''}".rstrip()
    sample = f"Look at {place_words(frame)} {again}"
    return f"{sample} {known}" if known is not None else f"{_origin(told)}{sample}"


def _of_stack(raised: Raiser | None) -> str:
    """How to meet again what was raised without a sample that is known."""
    if raised is None:
        return _SAMPLE
    names = [item.function or "" for item in raised.stack]
    if any(name.startswith("_recorded_init.") for name in names):
        return _BEGIN
    return _STREAM if any("_IterableDatasetFetcher" in name for name in names) else _SAMPLE


def _origin(told: Told) -> str:
    words = told.origin_of_values
    return f"{capital(words)}. " if words is not None else ""


def _by_chain(told: Told, chain: Chain) -> str:
    """With what the first one's line works on."""
    given = told.given_to_chain
    known = exception_advice(chain.first.type, chain.first.message, "that line", general=given is None)
    return " ".join(filter(None, (chain.look, known or given)))


def _by_kind(told: Told, given: str | None, *, quoted: bool) -> str:
    """One that the program raised for an earlier one has that one's advice."""
    if told.deliberate and told.before is not None:
        return _for_earlier(told.before)
    if told.deliberate and told.frame is not None:
        return _of_own_check(told, told.frame)
    return f"{_by_message(told, given, quoted=quoted)}{told.handling()}"


def _is_of_other_end(told: Told) -> bool:
    """Whether a library raised it, for what another process or a file did."""
    stack, reason = told.view.exception_stack, told.reason
    return (
        told.first is None
        and bool(stack)
        and stack[0] != told.frame
        and reason is not None
        and is_of_other_end(reason.type)
    )


def _for_earlier(before: HandledExceptionReport) -> str:
    known = exception_advice(before.type, before.message, "that line")
    look = f"Look at {error_at_words(before)} first: the program raised the last one for it."
    return " ".join(filter(None, (look, known)))


def _of_own_check(told: Told, frame: PythonFrame) -> str:
    own = told.view.exception
    kind = own.type if own is not None else None
    known = exception_advice(kind, own.message if own is not None else None, "that line")
    if kind not in _ANY and known is not None:
        return known
    return (
        f"A check of the program's own raised it: look at the condition above {place_words(frame)}, print what it "
        "compares, and go back to where that is set: this step's input, an option, this rank's share of the data."
    )


def _by_message(told: Told, given: str | None, *, quoted: bool) -> str:
    view, first, frame, text = told.view, told.first, told.frame, told.text
    named = f"line {frame.line}" if frame is not None and first is None else None  # the headline has its file
    place = named or (place_words(frame) if frame is not None else "the line that raised it")
    if text is not None and len(text) <= _QUOTED and quoted:
        place = f"{place} (`{text}`)"
    stack = view.exception_stack if first is None else []
    # below a function of a library its line looks nothing up, but still says what is read
    own = text if stack and (stack[0] == frame or (told.reason is not None and told.reason.type in _READ)) else None
    known = hint = None
    if told.reason is not None:
        hint = own_advice(told.reason.message)
        known = exception_advice(told.reason.type, told.reason.message, place, own, general=given is None)
    inner = library_reason(view.exception) if first is None and view.exception is not None else None
    if known is None and inner is not None:
        known = exception_advice(inner.type, inner.message, place, own, general=given is None)
    if known is None and hint is not None:
        return f"{f'{given} ' if given is not None else ''}The message itself advises: {hint}"
    if known is None and given is None and _is_of_other_end(told):
        return (
            f"{place_words(stack[0])} raised it, below {place}: look there for what it asks for, and at the process, "
            "file or peer at its other end."
        )
    return (
        known
        or given
        or f"Print the values, types and shapes that go into {place}, and compare them with what the message asks for; "
        "`python -m pdb -c continue` stops there with all variables."
    )
