"""What a process did on a device before a check of the program's own failed, and may have been the reason."""

from __future__ import annotations

import msgspec

from pytracer._text import uncapital
from pytracer.analyze.evidence.cuda.cuda_graphs import broken_graphs, keep_advice, reused_words
from pytracer.analyze.evidence.cuda.lost_gradients import lost_gradients
from pytracer.analyze.evidence.cuda.race_words import race_advice, race_words
from pytracer.analyze.evidence.cuda.stream_races import stream_races
from pytracer.analyze.view import ProcessView


class PossibleReason(msgspec.Struct, frozen=True):
    """`words`: a clause, as `the process replayed CUDA graph 1 ...`."""

    words: str
    advice: str


def before_check(view: ProcessView) -> PossibleReason | None:
    """A CUDA graph that was replayed without an input or its gradients, or memory that was used without a wait."""
    for graph in broken_graphs(view.process.snapshot.cuda_graphs):
        advice = _if("what the graph computed", keep_advice(view, graph))
        return PossibleReason(f"the process {reused_words(view, graph)}", advice)
    gradients = lost_gradients(view)
    if gradients is not None:
        return PossibleReason(gradients.words, gradients.advice)
    for race in stream_races(view):
        advice = _if("what that memory held", race_advice(view, race))
        return PossibleReason(f"the process {race_words(race)}", advice)
    return None


def _if(about: str, advice: str) -> str:
    return f"If the check is about {about}: {uncapital(advice)} "
