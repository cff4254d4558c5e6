"""CUDA graphs: which one an address belongs to, and which ones were replayed after memory that they use was freed."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from pytracer._text import count_words, hex_addr, size_words
from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.analyze.naming import kernel_words, place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.timeline.clock import ProcessClock
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.devices import DEFAULT_POOL, CudaGraph, GraphInput, Pool
from pytracer.decode.types.journal import GraphReplay
from pytracer.decode.types.snapshot import CallSite, Storage
from pytracer.report import job as r
from pytracer.report.job import Evidence, PythonFrame


def graph_reports(space: AddressSpace, clock: ProcessClock) -> list[r.CudaGraph] | None:
    """All captures; None where no CUDA graph was captured."""
    found = [_report(space, graph, clock) for graph in space.snapshot.cuda_graphs]
    return found or None


def graph_use(graphs: Sequence[CudaGraph], place: Place | None, clock: ProcessClock) -> r.CudaGraphUse | None:
    """How a CUDA graph used the memory at an address of a device: as an input of its own, or from its pool."""
    if place is None or place.kind != "device-memory":
        return None
    for graph in reversed(graphs):
        item = next((item for item in graph.inputs if item.base <= place.addr < item.base + item.nbytes), None)
        if item is not None:
            return _use(graph, clock, "static-input", _input_note(graph, item))
    owner = _graph_of_pool(graphs, pool_of(place), place.storage)
    return _use(owner, clock, "pool-memory", _pool_note(owner)) if owner is not None else None


def pool_of(place: Place) -> Pool:
    """The pool of the allocator that an address belongs to."""
    if place.storage is not None:
        return place.storage.pool
    return place.segment.pool if place.segment is not None else DEFAULT_POOL


def _graph_of_pool(all_graphs: Sequence[CudaGraph], pool: Pool, storage: Storage | None = None) -> CudaGraph | None:
    """The graph in whose capture a live block of a private pool was allocated, else the last one of the pool.

    Graphs may share a pool, as those of inductor's trees do.
    """
    if pool == DEFAULT_POOL:
        return None
    graphs = [graph for graph in reversed(all_graphs) if graph.pool == pool]
    if storage is not None and storage.state == "live" and not storage.awaited:
        allocated = storage.order[1]
        graphs = [graph for graph in graphs if graph.capture_order <= allocated] or graphs
    return next(iter(graphs), None)


def broken_graphs(graphs: Sequence[CudaGraph]) -> list[CudaGraph]:
    """Graphs that were replayed although one of their inputs was freed."""
    return [graph for graph in graphs if graph.broken_replays]


def broken_inputs(graph: CudaGraph) -> list[GraphInput]:
    """Inputs that were no longer live at the last replay, those whose memory was reused first."""
    last = graph.broken_order or 0
    gone = [item for item in graph.inputs if item.freed_order is not None and item.freed_order <= last]
    as_then = [item if (item.new_order or 0) <= last else structs.replace(item, state="freed") for item in gone]
    return sorted(as_then, key=lambda item: item.state != "reallocated")


def replayed_at(view: ProcessView, graph: CudaGraph) -> PythonFrame | None:
    """The line that first replayed it after an input was freed, where the recorder noted it."""
    lines = (fact.data for fact in view.process.snapshot.recorded(GraphReplay) if fact.data.graph == graph.number)
    first = next(lines, None)
    return PythonFrame(function=first.function, file=first.file, line=first.line) if first is not None else None


def replay_words(view: ProcessView, graph: CudaGraph) -> str:
    """`replayed CUDA graph 1, captured at train.py:20 in main, 3 times, first at train.py:30 in serve,`."""
    at, count = replayed_at(view, graph), graph.broken_replays
    line = f"{', first' if count > 1 else ''} at {place_words(at)}{',' if count > 1 else ''}" if at is not None else ""
    return f"replayed {graph_words(graph)}, {count_words(count, 'time')}{line}"


def reused_words(view: ProcessView, graph: CudaGraph) -> str:
    """The same, and after which input had been freed."""
    item = next(iter(broken_inputs(graph)), None)
    what = gone_words(item) if item is not None else "an input of it"
    taken = ", and its memory taken by another tensor" if item is not None and item.state == "reallocated" else ""
    return f"{replay_words(view, graph)} after {what} had been freed{taken}"


def lost_input(view: ProcessView, graph: CudaGraph) -> GraphInput | None:
    """A freed input whose memory the allocator has returned to the driver: what reads it meets an illegal access."""
    live = [item for item in view.process.snapshot.segments if item.live]
    for item in broken_inputs(graph):
        mapped = (s for s in live if s.base <= item.base < s.base + s.nbytes)
        if item.state == "freed" and next(mapped, None) is None:
            return item
    return None


def gone_words(item: GraphInput) -> str:
    """`an input of it (96 MiB, allocated at train.py:35, freed at train.py:45, used first by kernel mul)`."""
    freed = f", {_by('freed', item.freed_by)}" if item.freed_by is not None else ""
    used = f", used first by kernel {kernel_words(item.kernel)}" if item.kernel else ""
    return f"an input of it ({size_words(item.nbytes)}, {_by('allocated', item.allocated_by)}{freed}{used})"


def keep_advice(view: ProcessView, graph: CudaGraph) -> str:
    """What to do about the first of its inputs that was freed."""
    item = next(iter(broken_inputs(graph)), None)
    if item is None:
        return "Keep a reference to every tensor that a CUDA graph uses for as long as the graph is replayed."
    freed = f" (it was freed {_at(item.freed_by)})" if item.freed_by is not None and _at(item.freed_by) else ""
    made = f" that is allocated {_at(item.allocated_by)}" if _at(item.allocated_by) else " that it was captured with"
    return (
        f"Keep the tensor of {size_words(item.nbytes)}{made} alive{freed} for as long as CUDA graph {graph.number} is "
        "replayed (beside the graph, in an attribute), and copy new values into it by copy_(): a graph reads the "
        "addresses of its capture, whatever the variable holds later."
    )


def _at(site: CallSite) -> str:
    frame = site.place
    return f"at {place_words(python_frame(frame))}" if frame is not None else ""


def input_words(space: AddressSpace, item: GraphInput) -> str:
    """`4096 bytes at 0x7f.., allocated at a.py:3 in main, freed at a.py:9 in main; DDP bucket 0 lies there now`."""
    words = f"{size_words(item.nbytes)} at {hex_addr(item.base)}, {_by('allocated', item.allocated_by)}"
    if item.freed_by is not None:
        words += f", {_by('freed', item.freed_by)}"
    if item.kernel is not None:
        words += f", used first by kernel {kernel_words(item.kernel)}"
    return words + (f"; {_owner_words(space, item)}" if item.state == "reallocated" else "")


def input_evidence(space: AddressSpace, graph: CudaGraph, item: GraphInput) -> Evidence:
    """What became of an input."""
    freed = item.freed_by.place if item.freed_by is not None else None
    return Evidence(
        "cuda-graph",
        input_words(space, item),
        cuda_graph=graph.number,
        device=f"cuda:{graph.device}",
        base=hex_addr(item.base),
        nbytes=item.nbytes,
        state=item.state,
        python=python_frame(freed) if freed is not None else None,
    )


def _owner_words(space: AddressSpace, item: GraphInput) -> str:
    """What lies there now: `DDP bucket 0 of model (generation 1) lies there now, allocated at train.py:12 in main`."""
    now = next((s for s in space.snapshot.storages.at(item.new_base or 0) if s.state == "live"), None)
    names = space.uses.names_of(now, now.base)[1] if now is not None else ()
    what = names[0] if names else f"another tensor of {size_words(item.new_nbytes or 0)}"
    fate = "lies there now" if now is not None else "was allocated there since"
    return f"{what} {fate}" + (f", {_by('allocated', item.new_by)}" if item.new_by is not None else "")


def graph_words(graph: CudaGraph) -> str:
    """`CUDA graph 1, captured at train.py:20 in main`; with the compiled function's name if it has one."""
    name = f" of {graph.name}" if graph.name else ""
    return f"CUDA graph {graph.number}{name}, {_by('captured', graph.captured_by)}"


def _by(verb: str, site: CallSite) -> str:
    frame = site.place
    if frame is not None:
        return f"{verb} at {place_words(python_frame(frame))}"
    return f"{verb} by autograd node {site.node}" if site.node else f"{verb} at an unrecorded place"


def _use(graph: CudaGraph, clock: ProcessClock, role: str, note: str | None) -> r.CudaGraphUse:
    frame = graph.captured_by.place
    return r.CudaGraphUse(
        id=graph.number,
        name=graph.name,
        pool=pool_words(graph.pool),
        captured_at=clock.relative(graph.captured_ns),
        captured_by=python_frame(frame) if frame else None,
        replays=graph.replays,
        role=role,
        note=note,
    )


def _input_note(graph: CudaGraph, item: GraphInput) -> str | None:
    if item.state == "live":
        return None
    count = count_words(graph.broken_replays, "time")
    replays = f"; the graph was replayed {count} since" if graph.broken_replays else ""
    return f"{_by('freed', item.freed_by or CallSite())} after the capture{replays}"


def _pool_note(graph: CudaGraph) -> str | None:
    if graph.state != "reset":
        return None
    return (
        f"the graph was reset before, {_by('dropped', graph.reset_by or CallSite())}: its pool may belong to others now"
    )


def pool_words(pool: Pool) -> str | None:
    """As `graph.pool()` prints it; None for the default pool."""
    return None if pool == DEFAULT_POOL else f"({pool[0]}, {pool[1]})"


def _report(space: AddressSpace, graph: CudaGraph, clock: ProcessClock) -> r.CudaGraph:
    frame = graph.captured_by.place
    return r.CudaGraph(
        id=graph.number,
        name=graph.name,
        device=f"cuda:{graph.device}",
        pool=pool_words(graph.pool),
        state=graph.state,
        captured_at=clock.relative(graph.captured_ns),
        captured_by=python_frame(frame) if frame else None,
        replays=graph.replays,
        last_replay=clock.relative(graph.replayed_ns),
        inputs=len(graph.inputs),
        unknown_inputs=graph.inputs_dropped,
        collectives=graph.collectives,
        broken_replays=graph.broken_replays,
        broken_inputs=[input_words(space, item) for item in broken_inputs(graph)],
    )
