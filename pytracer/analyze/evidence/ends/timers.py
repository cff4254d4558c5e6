"""Timers that a process had set itself: alarm(), setitimer(). Without a handler their signal ends it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._library_files import is_library_file
from pytracer._text import shortened
from pytracer.analyze.evidence.ends.sent_signals import deadly_signal
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.platform.signals import SI_KERNEL, SI_TIMER, SIGALRM, SIGPROF, SIGVTALRM
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

TIMERS = (SIGALRM, SIGVTALRM, SIGPROF)
_SETTERS = ("alarm", "setitimer")
_LONGEST = 60
_UNKNOWN = (
    "Look for signal.alarm(), setitimer() or a profiler in the program or its libraries. Nothing handled the signal "
    "when it came: the timer must be taken back (alarm(0), setitimer(..., 0)) before its handler is."
)


class _Setting(msgspec.Struct, frozen=True):
    """A call that sets a timer, or takes it back."""

    line: int
    text: str
    takes_back: bool


def was_sent_by_timer(view: ProcessView) -> bool:
    """Whether the kernel itself sent it, as its siginfo says."""
    sent = deadly_signal(view)
    return sent is not None and sent.signal in TIMERS and sent.code in (SI_KERNEL, SI_TIMER)


def timer_words(view: ProcessView, number: int) -> str:
    """After `was ended by SIGALRM, `."""
    whose = "a timer of its own" if was_sent_by_timer(view) else "the signal of a timer"
    return f"{whose}, for which no handler was installed when it came" + (
        " (a profiler's)" if number == SIGPROF else ""
    )


def timer_advice(view: ProcessView) -> str:
    """The line that sets it, and whether one takes it back."""
    found = list(_settings(view))
    sets = [item for item in found if not item.takes_back]
    if len({item.line for item in sets}) != 1:
        return _UNKNOWN
    first = sets[0]
    back = next((item for item in found if item.takes_back), None)
    words = f"Line {first.line} (`{first.text}`) sets a timer"
    if back is None:
        return (
            f"{words}, and no line of that file takes it back: call {_off(first)} when what it limits is done, in a "
            "`finally` or __exit__, before the earlier handler is installed again."
        )
    return (
        f"{words}, and line {back.line} (`{back.text}`) takes it back: see how the program came by without it, such as "
        "by an exception or a return; `finally` comes by always."
    )


def _off(setting: _Setting) -> str:
    return "signal.alarm(0)" if "alarm" in setting.text.partition("(")[0] else "signal.setitimer(..., 0)"


def _settings(view: ProcessView) -> Iterator[_Setting]:
    """In the program's files that its stack names."""
    files = set()
    for frame in view.python_stack or ():
        tree = syntax_tree(view.process.snapshot, frame) if not is_library_file(frame.file) else None
        if tree is None or frame.file in files:
            continue
        files.add(frame.file)
        for item in nodes_of(tree):
            if isinstance(item, ast.Call) and called_name(item) in _SETTERS and item.args:
                value = item.args[-1] if called_name(item) == "alarm" else item.args[min(1, len(item.args) - 1)]
                off = isinstance(value, ast.Constant) and not value.value
                yield _Setting(item.lineno, shortened(ast.unparse(item), _LONGEST), off)
