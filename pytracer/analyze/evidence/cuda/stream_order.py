"""What is ordered before what: CUDA streams, and the host as one more, from the records so far.

Work of one stream runs in order. Between streams only waits make an order: an event that one records and another waits
for, a stream that waits for another, or the host, which launches nothing before its wait is over. What the host itself
does to its memory is over at once.
"""

from __future__ import annotations

from pytracer.blackbox.numbers import StreamAction
from pytracer.decode.types.records import Stream

HOST = -1
"""In place of a stream: what the host itself does."""

Clock = dict[int, int]
"""Stream -> how many of its launches are known to be over or ordered before."""


class StreamOrder:
    """Counts launches of each stream, and follows the waits between them."""

    def __init__(self) -> None:
        self._count: Clock = {}
        self._before: dict[int, Clock] = {}
        self._events: dict[int, Clock] = {}
        self._host: Clock = {}

    def launched(self, stream: int) -> int:
        """The number of one more launch."""
        self._count[stream] = self._count.get(stream, 0) + 1
        return self._count[stream]

    def is_over(self, number: int, of: int, for_stream: int) -> bool:
        """Whether a launch, and all of its stream before it, is over before the next launch of another stream runs."""
        if of in (HOST, for_stream):
            return True
        return max(self._before.get(for_stream, {}).get(of, 0), self._host.get(of, 0)) >= number

    def note(self, record: Stream) -> None:
        """A wait, or the recording of an event."""
        if record.action == StreamAction.EVENT_RECORDED and record.event:
            self._events[record.event] = self._upto(record.stream)
        elif record.action == StreamAction.EVENT_RECORDED:  # an older recorder's: of an event without a handle yet
            self._events.clear()
        elif record.action == StreamAction.WAITS_FOR_EVENT:
            _merge(self._before.setdefault(record.stream, {}), self._of_event(record.event))
        elif record.action == StreamAction.WAITS_FOR_STREAM:
            _merge(self._before.setdefault(record.stream, {}), self._upto(record.other_stream))
        elif record.action == StreamAction.HOST_WAITED and record.event:
            _merge(self._host, self._of_event(record.event))
        elif record.action == StreamAction.HOST_WAITED:
            self.host_waited(record.stream)
        elif record.action == StreamAction.HOST_WAITED_FOR_DEVICE:
            self.device_waited()

    def device_waited(self) -> None:
        """The host, for everything."""
        _merge(self._host, self._count)

    def host_waited(self, stream: int) -> None:
        """For all that was put on a stream."""
        _merge(self._host, self._upto(stream))

    def _upto(self, stream: int) -> Clock:
        return {**self._before.get(stream, {}), stream: self._count.get(stream, 0)}

    def _of_event(self, event: int) -> Clock:
        """Of one whose recording is not among the records: everything."""
        return self._events.get(event, self._count)


def _merge(into: Clock, more: Clock) -> None:
    for stream, number in more.items():
        into[stream] = max(into.get(stream, 0), number)
