"""cuda-graph-input-freed: a CUDA graph was replayed although memory that it uses had been freed.

What: a graph uses storages that it did not allocate: static inputs, parameters, other graphs' outputs. One of them was
freed after the capture, and the graph was replayed after that.

Why it happens: the variable that held the static input was overwritten or went out of scope; a parameter was replaced,
or resized; gradients were set to None. The graph has only the address: it reads and writes there whatever lies there
now, without any error.

What to do: keep a reference to the tensors that a graph was captured with for as long as it is replayed, and copy new
values into them. `pytracer run --cuda-graphs warn` warns at the first such replay.

How it can be wrong: tensors that only Triton or other hand-made kernels use are not seen; an operator that takes a
tensor and puts work into the graph counts as using it.
"""

from __future__ import annotations

from pytracer._text import count_words
from pytracer.analyze.evidence.cuda.cuda_graphs import broken_graphs, broken_inputs, input_evidence, replay_words
from pytracer.analyze.naming import introduction
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView
from pytracer.decode.types.devices import CudaGraph
from pytracer.report.job import Evidence

_SHOWN = 3


class CudaGraphInputFreed:
    """Fires beside a death when a graph was replayed with a freed input; accompanies what ended the process."""

    id = "cuda-graph-input-freed"
    needs = ("CUDA_GRAPHS",)

    def check(self, job: JobView) -> tuple[Judgement[CudaGraph], ...] | NoFinding:
        """One judgement per graph."""
        judgements = tuple(
            Judgement("misuse", "certain", (view,), graph, accompanies=True)
            for view in job.suspects
            for graph in broken_graphs(view.process.snapshot.cuda_graphs)
        )
        return judgements or not_found("no CUDA graph was replayed with a freed input")

    def describe(self, job: JobView, judgement: Judgement[CudaGraph]) -> Description:
        """See Rule."""
        graph = judgement.found
        gone = broken_inputs(graph)
        taken = any(item.state == "reallocated" for item in gone)
        fate = "had been freed, and belongs to another tensor now" if taken else "had been freed"
        what = "an input of it" if len(gone) == 1 else f"{count_words(len(gone), 'input')} of it"
        return Description(
            f"{introduction(judgement.views)} {replay_words(judgement.views[0], graph)} after {what} {fate}.",
            [
                *[input_evidence(judgement.views[0].space, graph, item) for item in gone[:_SHOWN]],
                _graph(graph, f"{count_words(len(gone) - _SHOWN, 'more input')}", len(gone) - _SHOWN)
                if len(gone) > _SHOWN
                else None,
                _graph(graph, f"the graph was replayed {count_words(graph.replays, 'time')} in all", graph.replays),
            ],
            "Keep a reference to every tensor that the graph was captured with, and copy new values into it.",
        )


def _graph(graph: CudaGraph, sentence: str, count: int) -> Evidence:
    return Evidence("cuda-graph", sentence, cuda_graph=graph.number, device=f"cuda:{graph.device}", count=count)
