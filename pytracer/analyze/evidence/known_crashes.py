"""Whether a death is a known crash: one whose facts all hold. The entries are in `known/crashes/`."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import function_words
from pytracer.analyze.evidence.cuda.assertions import kernel_assertion
from pytracer.analyze.evidence.native.native_stack import functions, own_frames
from pytracer.analyze.evidence.operators.operator import find_operator
from pytracer.analyze.evidence.waits.waits import was_forked
from pytracer.analyze.known.registry import Entry, Facts, Raised, entries
from pytracer.analyze.known.versions import in_range
from pytracer.analyze.platform.signals import signal_name
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Process
from pytracer.report.job import Confidence, Evidence, VerdictClass

_CITED = Pattern(r"[\w.-]+/[\w.-]+#\d+")
_KNOWN_AS = {"certain": "known as {}: {}", "likely": "looks like {}: {}", "possible": "possibly {}: {}"}
_STRENGTH: tuple[Confidence, ...] = ("possible", "likely", "certain")
_MESSAGE_CHARACTERS = 4000  # the recorder writes no more; an expression may not search a hostile file for ever
# Py_FinalizeEx() is what ends an interpreter; PyThread_exit_thread() is how it ends a thread that wants its GIL.
_FINALIZERS = ("Py_FinalizeEx", "PyThread_exit_thread")


class KnownCrash(msgspec.Struct, frozen=True):
    """What is known about a death. `what` is for the headline, `says` for the evidence, which cites an issue.

    `not_finite_advice`: behind the lines that can make NaN or infinity, of a crash that these numbers lead to.
    `lists_causes`: `says` is a list of what the cause may be.
    """

    id: str
    classes: tuple[VerdictClass, ...]
    confidence: Confidence
    what: str
    says: str
    advice: str
    not_finite_advice: str | None = None
    lists_causes: bool = False

    @property
    def evidence(self) -> Evidence:
        """That it is known."""
        return Evidence("known-crash", self.says, id=self.id, state=self.confidence)


def known_crash(view: ProcessView, verdict_class: VerdictClass | None = None) -> KnownCrash | None:
    """The known crash that a death is or looks like: the surest one, and of these the one that needs most facts.

    `verdict_class`: only of those that may explain such a verdict.
    """
    candidates = [entry for entry in entries() if verdict_class is None or verdict_class in entry.classes]
    found = [(confidence, entry) for entry in candidates if (confidence := _confidence(entry, view)) is not None]
    if not found:
        return None
    confidence, entry = max(found, key=lambda item: (_STRENGTH.index(item[0]), len(_needs(item[1].facts)), item[1].id))
    says = _cited(entry, confidence)
    advice = (entry.advice, entry.not_finite_advice)
    return KnownCrash(entry.id, entry.classes, confidence, entry.what, says, *advice, entry.lists_causes)


def _needs(facts: Facts) -> list[object]:
    """The facts that an entry asks for."""
    return [value for name in facts.__struct_fields__ if (value := getattr(facts, name)) not in (None, (), {})]


def _cited(entry: Entry, confidence: Confidence) -> str:
    source = next((item for item in entry.sources if _CITED.fullmatch(item)), None)
    return entry.says if source is None else _KNOWN_AS[confidence].format(source, entry.says)


def _confidence(entry: Entry, view: ProcessView) -> Confidence | None:
    """That of the entry, if all facts hold; lower when a version is not known."""
    facts = entry.facts
    if not (_died_so(facts, view) and _was_so(facts, view) and _ran_there(facts, view)):
        return None
    versions = view.process.snapshot.versions
    asked = ((facts.torch, versions.torch), (facts.python_version, versions.python), (facts.cuda, versions.cuda))
    unknown = False
    for wanted, version in asked:
        if wanted is not None and version is not None and not in_range(version, wanted):
            return None
        unknown = unknown or (wanted is not None and version is None)
    return "likely" if unknown and entry.confidence == "certain" else entry.confidence


def _died_so(facts: Facts, view: ProcessView) -> bool:
    """Signal, exception and what was printed."""
    crash = view.crash
    if facts.signal is not None and (crash is None or view.raised or signal_name(crash.signal) != facts.signal):
        return False
    if facts.abort_text is not None and not re.search(facts.abort_text, (crash and crash.abort_text) or ""):
        return False
    return facts.exception is None or _raised(facts.exception, view)


def _raised(wanted: Raised, view: ProcessView) -> bool:
    exception = view.exception
    if exception is None or not (view.raised or view.crash):
        return False
    name, message = re.split(r"\.|::", exception.type or "")[-1], (exception.message or "")[:_MESSAGE_CHARACTERS]
    return (not wanted.type or name in wanted.type) and re.search(wanted.message, message) is not None


def _was_so(facts: Facts, view: ProcessView) -> bool:
    """What the process was, and in which surroundings."""
    process, snapshot = view.process, view.process.snapshot
    if facts.architecture not in (None, snapshot.arch) or facts.role not in (None, process.role):
        return False
    if facts.world_size is not None and (process.world_size or 0) < facts.world_size:
        return False
    if facts.process_group not in (None, _process_group(process)):
        return False
    if facts.forked is not None and facts.forked != was_forked(view):
        return False
    if facts.finalizing is not None and facts.finalizing != _finalizing(view):
        return False
    if facts.kernel_assertion is not None and facts.kernel_assertion != (kernel_assertion(view) is not None):
        return False
    if facts.not_finite is not None and facts.not_finite != _has_not_finite(view):
        return False
    if facts.gradients_off is not None and facts.gradients_off != _gradients_off(view):
        return False
    variables = snapshot.environment
    return all(re.search(value, variables.get(name, "")) for name, value in facts.environment.items())


def _process_group(process: Process) -> str | None:
    """Whether there was one; None when torch was not recorded."""
    snapshot = process.snapshot
    if snapshot.rank is not None and snapshot.rank.left:
        return "left"
    if snapshot.groups or snapshot.collectives or (snapshot.rank is not None and snapshot.rank.backend):
        return "present"
    return "none" if snapshot.versions.torch else None


def _has_not_finite(view: ProcessView) -> bool:
    operator = find_operator(view)
    return operator is not None and any(
        item.passed and (item.item.nans or item.item.infinite) for item in operator.tensors
    )


def _gradients_off(view: ProcessView) -> bool:
    variables = (view.exception.variables or ()) if view.exception is not None else ()
    return any(item.name == "torch.is_grad_enabled()" and item.value == "False" for item in variables)


def _finalizing(view: ProcessView) -> bool:
    names = [*functions(view), *_of_other_threads(view)]
    return any(part in name for part in _FINALIZERS for name in names)


def _ran_there(facts: Facts, view: ProcessView) -> bool:
    """Stacks and libraries."""
    if facts.innermost is not None and view.function != facts.innermost:
        return False
    names = [function_words(name) for name in functions(view)] + [frame.image or "" for frame in own_frames(view)]
    if not _all_groups(facts.stack, names) or _all_groups((facts.not_on_stack,), names):
        return False
    if facts.threads and not _all_groups(facts.threads, _of_other_threads(view)):
        return False
    stack = (view.exception_stack if view.raised else view.python_stack) or []
    frames = [((frame.file or ""), (frame.function or "").rsplit(".", 1)[-1]) for frame in stack]
    if not all(any(file.endswith(end) and name == function for file, name in frames) for end, function in facts.python):
        return False
    return all(any(re.search(image, path) for path in _images(view)) for image in facts.images)


def _all_groups(groups: Iterable[Iterable[str]], names: list[str]) -> bool:
    return all(any(part in name for part in group for name in names) for group in groups)


def _of_other_threads(view: ProcessView) -> list[str]:
    """Their names, and those of the functions on their stacks."""
    threads = view.crash.threads if view.crash is not None else ()
    return [
        name for thread in threads for name in (thread.name, *(frame.function or "" for frame in thread.native_stack))
    ]


def _images(view: ProcessView) -> set[str]:
    """The paths of loaded libraries, as they were asked for and, from the memory map, as they really are."""
    crash = view.crash
    if crash is None:
        return set()
    return {image.path for image in crash.images} | {mapping.path for mapping in crash.mappings if mapping.path}
