"""The exception that a process ended with: who raised it first, what led to it, and what explains it.

Worked out once; the headline and the next step (next_step.py) read it.
"""

from __future__ import annotations

import re

import msgspec

from pytracer._errors import bug_words
from pytracer._library_files import is_library_file
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.cuda.shared_devices import shared_device
from pytracer.analyze.evidence.exceptions.chains import Chain, as_uncaught, chain_of, found_its_way, original
from pytracer.analyze.evidence.exceptions.done_by_all import done_by_all
from pytracer.analyze.evidence.exceptions.ended_senders import ended_sender
from pytracer.analyze.evidence.exceptions.failed_workers import failed_worker
from pytracer.analyze.evidence.exceptions.left_peers import left_peers
from pytracer.analyze.evidence.exceptions.living_senders import living_sender
from pytracer.analyze.evidence.exceptions.name_origins import meant_words, origin_words
from pytracer.analyze.evidence.exceptions.own_keys import own_key
from pytracer.analyze.evidence.exceptions.raisers import Raiser, failed_sample, raiser
from pytracer.analyze.evidence.exceptions.reraised import Reraised, broken_by_loading, reason_within, reraised
from pytracer.analyze.evidence.exceptions.rpc_peers import rpc_peer
from pytracer.analyze.evidence.exceptions.running_children import running_child
from pytracer.analyze.evidence.exceptions.shared_offsets import shared_offset
from pytracer.analyze.evidence.exceptions.spent_senders import spent_sender
from pytracer.analyze.evidence.exceptions.store_servers import store_server
from pytracer.analyze.evidence.exceptions.unanswered_lookups import unanswered_lookup
from pytracer.analyze.evidence.exceptions.unequal_keys import unequal_key
from pytracer.analyze.evidence.exceptions.unequal_lists import unequal_lists
from pytracer.analyze.evidence.exceptions.unfinished_files import unfinished_file
from pytracer.analyze.evidence.exceptions.unkept_statuses import unkept_status
from pytracer.analyze.evidence.exceptions.unmade import not_loaded
from pytracer.analyze.evidence.exceptions.unmade_results import unmade_object
from pytracer.analyze.evidence.exceptions.unmet_paths import unmet_path
from pytracer.analyze.evidence.exceptions.unsent_items import unsent_item
from pytracer.analyze.evidence.failing.explained import Explanation, explained, involved
from pytracer.analyze.evidence.limits.words import limit_reason
from pytracer.analyze.evidence.phrases import error_at_words
from pytracer.analyze.evidence.ports.reason import port_reason
from pytracer.analyze.evidence.ports.taken import speaks_of_refusal
from pytracer.analyze.known.exceptions import exception_reason
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, HandledExceptionReport, PythonFrame


class Told(msgspec.Struct, frozen=True):
    """What is recorded of it. `first`: the text with it of another process; `origin`: that process, if recorded.

    `chain`: the exception that led to it, or to the one that another process handed over.
    """

    view: ProcessView
    first: Reraised | None
    origin: Raiser | None
    chain: Chain | None
    sample: str | None
    """The number that `__getitem__` of the dataset was called with."""

    @property
    def frame(self) -> PythonFrame | None:
        """The program's innermost line; of another process's, that one's."""
        return self.first.frame if self.first is not None else self.view.python_frame

    @property
    def of_worker(self) -> bool:
        """Whether it is a DataLoader worker's, with its line."""
        return self.first is not None and self.first.frame is not None and "DataLoader worker" in self.first.where

    @property
    def text(self) -> str | None:
        """Of that line."""
        return line_text(self.view.process.snapshot, self.frame)

    @property
    def deliberate(self) -> bool:
        """Whether it is a `raise`."""
        return re.match(r"raise\b", self.text or "") is not None

    @property
    def before(self) -> HandledExceptionReport | None:
        """The one that was being handled, of an exception of the process's own."""
        return original(self.view.exception) if self.first is None else None

    @property
    def reason(self) -> Reraised | ExceptionReport | None:
        """The one with the message that counts."""
        own = self.view.exception
        return self.first if self.first is not None else reason_within(own) if own is not None else None

    @property
    def meant(self) -> str | None:
        """What the variables were that the message is about."""
        raised = self.origin
        return meant_words(raised.snapshot, raised.exception, raised.stack) if raised is not None else None

    @property
    def means(self) -> str | None:
        """What the message means, where it does not say so."""
        return exception_reason(self.reason.type, self.reason.message) if self.reason is not None else None

    @property
    def origin_of_values(self) -> str | None:
        """Where the values came from that the line used."""
        raised = self.origin
        return origin_words(raised.snapshot, raised.exception, raised.stack) if raised is not None else None

    @property
    def given(self) -> str | None:
        """What the line worked on."""
        raised = self.origin
        return involved(raised.snapshot, raised.exception, raised.stack) if raised is not None else None

    @property
    def given_to_chain(self) -> str | None:
        """The same of the exception that led to it."""
        if self.origin is None or self.chain is None:
            return None
        led = self.chain.report(self.origin.exception, self.origin.stack)
        return involved(self.origin.snapshot, led, led.python_stack or [])

    def handling(self, explanation: Explanation | None = None) -> str:
        """What the program was handling when its line failed; not where it was expected and the line is explained."""
        own, line_explained = self.view.exception, explanation is not None and explanation.subject is not None
        if self.before is None or own is None:
            return ""
        if line_explained and found_its_way(self.view.process.snapshot, own, self.view.exception_stack):
            return ""
        return f" It came while {error_at_words(self.before)} was being handled."


def told_of(job: JobView, view: ProcessView) -> Told:
    """Of a process that ended with an exception."""
    first = reraised(view.exception)
    origin = raiser(job, view, first)
    chain = chain_of(origin.snapshot, origin.exception, origin.stack) if origin is not None else None
    return Told(view, first, origin, chain, failed_sample(job, view, first))


def explanation_of(job: JobView, told: Told) -> Explanation:
    """By the facts of the line; of an exception of a DataLoader worker, by those that the worker recorded."""
    view, first, origin = told.view, told.first, told.origin
    snapshot, own, before = view.process.snapshot, view.exception, told.before
    port = _of_port(job, told)
    if port is not None:
        return port
    lookup = unanswered_lookup(snapshot, own, view.exception_stack) if first is None and own is not None else None
    if lookup is not None:
        return Explanation(lookup.advice, lookup.subject, behind=Behind.of([], lookup))
    if told.chain is not None and origin is not None:
        return _limit_or_line(origin.snapshot, origin.exception, told.chain.report(origin.exception, origin.stack))
    if own is not None and before is not None and told.deliberate:
        return _limit_or_line(snapshot, own, as_uncaught(before, own, view.exception_stack))
    if own is None:
        return Explanation()
    if first is None:
        shared = shared_device(job, view)
        if shared is not None:
            return Explanation(shared.advice, shared.subject)
        status = unkept_status(job, view)
        if status is not None:
            return Explanation(status.advice, status.subject, behind=status.behind, evidence=status.evidence)
        running = running_child(job, view)
        if running is not None:
            return Explanation(running.advice, running.subject, behind=running.behind)
        key = unequal_key(job, view)
        if key is not None:
            return Explanation(key.advice, key.subject, together=True, behind=key.behind, evidence=key.evidence)
        peer = rpc_peer(job, view)
        if peer is not None:
            return Explanation(peer.advice, peer.subject)
        server = store_server(job, view)
        if server is not None:
            return Explanation(server.advice, server.subject)
        asked = own_key(job, view)
        if asked is not None:
            return Explanation(asked.advice, asked.subject, behind=asked.behind)
        path = unmet_path(job, view)
        if path is not None:
            return Explanation(path.repair, path.alone)
        lists = unequal_lists(job, view)
        if lists is not None:
            return Explanation(lists.advice, lists.subject, together=True, behind=lists.behind, evidence=lists.evidence)
        twice = done_by_all(job, view)
        if twice is not None:
            return Explanation(twice.advice, twice.subject, together=True, behind=twice.behind)
        spent = spent_sender(job, view)
        if spent is not None:
            return Explanation(spent.advice, spent.subject, of_limit=True, line=spent.line, evidence=spent.evidence)
        left = left_peers(job, view)
        if left is not None:
            return Explanation(left.advice, left.subject, behind=left.behind)
        unsent = unsent_item(job, view)
        if unsent is not None:
            return Explanation(unsent.advice, unsent.subject, evidence=unsent.evidence)
        lost = unmade_object(job, view) or not_loaded(view) if broken_by_loading(own) else None
        if lost is not None:
            return Explanation(lost.advice, lost.subject, behind=Behind.of([], lost))
        gone = ended_sender(job, view)
        if gone is not None:
            return Explanation(gone.advice, gone.subject, behind=gone.behind)
        living = living_sender(job, view)
        if living is not None:
            return Explanation(living.advice, living.subject, behind=living.behind, evidence=living.evidence)
        offset = shared_offset(job, view, origin)
        if offset is not None:
            return Explanation(offset.advice, offset.subject, together=True, behind=offset.behind)
        unfinished = unfinished_file(job, view, snapshot, own, view.exception_stack)
        if unfinished is not None:
            return Explanation(unfinished.advice, unfinished.subject, together=True, behind=unfinished.behind)
        worker = failed_worker(job, view)
        return worker if worker is not None else explained(snapshot, reason_within(own), view.exception_stack)
    if origin is None:  # a pool's process: what its text has, and the source
        report = ExceptionReport(type=first.type, message=first.message)
        stack = [item for item in (first.innermost, first.frame) if item is not None]
        stack = stack[:1] if first.innermost == first.frame else stack
        called = first.type == "TypeError" and " positional argument" in first.message
        if called and stack and is_library_file(stack[-1].file):  # a function of the program that torch calls
            stack = [*stack, *view.exception_stack]
        return explained(snapshot, report, stack)
    dataset = origin.snapshot.worker.dataset if origin.snapshot.worker is not None else None
    found = explained(origin.snapshot, origin.exception, [*origin.stack, *view.exception_stack], dataset)
    offset = shared_offset(job, view, origin) if not found.together else None
    if offset is not None:
        return Explanation(offset.advice, offset.subject, together=True, behind=offset.behind)
    unfinished = unfinished_file(job, view, origin.snapshot, origin.exception, origin.stack)
    if unfinished is not None:
        return Explanation(unfinished.advice, unfinished.subject, together=True, behind=unfinished.behind)
    return found


def _of_port(job: JobView, told: Told) -> Explanation | None:
    """Of a server that was refused its port: who has it. Not where the program had handled that, and failed later."""
    try:
        about = told.first is None and _speaks_of_refusal(told)
        found = port_reason(job, told.view, _led(told)) if about else None
    except Exception as error:  # a program may be written in any way: the report goes on, and says so
        return Explanation(failure=f"who has the port: {bug_words(error)}")
    if found is None:
        return None
    return Explanation(found.advice, found.subject, together=True, behind=found.behind, evidence=found.evidence)


def _speaks_of_refusal(told: Told) -> bool:
    """Of the exception that is told; of one inside a library also the one that it was raised for."""
    own, before = told.view.exception, told.before
    if told.chain is not None:
        return speaks_of_refusal(told.chain.first.message)
    if own is None or speaks_of_refusal(own.message):
        return own is not None
    if before is not None:
        return told.deliberate and _raised_where_caught(told, before) and speaks_of_refusal(before.message)
    return any(speaks_of_refusal(item.message) for item in own.context or ())


def _raised_where_caught(told: Told, before: HandledExceptionReport) -> bool:
    """Whether the function that caught it raised the last one itself; else the program went on in a handler."""
    caught, own = next(iter((before.python_stack or [])[-1:]), None), told.frame
    return caught is not None and own is not None and (caught.file, caught.function) == (own.file, own.function)


def _led(told: Told) -> list[PythonFrame]:
    """The stack of the exception that led to it, or its own; innermost first."""
    view, origin, before = told.view, told.origin, told.before
    if told.chain is not None and origin is not None:
        return told.chain.report(origin.exception, origin.stack).python_stack or []
    return (before.python_stack if before is not None and told.deliberate else None) or view.exception_stack


def _limit_or_line(snapshot: Snapshot, last: ExceptionReport, led: ExceptionReport) -> Explanation:
    """Of the exception `led` that led to the last one."""
    stack = led.python_stack or []
    limit = limit_reason(snapshot, last, stack, led)
    if limit is not None:
        return Explanation(limit.advice, limit.subject, of_limit=True, line=limit.line)
    return explained(snapshot, led, stack)
