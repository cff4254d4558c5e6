"""Roles: which process is a rank, which one is a launcher, which ones were started by a rank.

A RANK entry of the process itself decides, else the call of `init_process_group` that did not return. Without either,
the environment decides (`identity.py`), which every child inherits: among a process and its descendants with the same
rank, the rank is the first one that runs Python.

torchrun restarts all its workers when one of them fails. Workers of one agent belong to a later attempt if their local
rank existed before: TORCHELASTIC_RESTART_COUNT alone does not count restarts requested by another host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytracer.blackbox.ranks import identity_of, number
from pytracer.blackbox.run_counters import SeenProcess
from pytracer.decode.job.identity import is_agent, job_keys, restart_count
from pytracer.decode.types.journal import Rank, Rendezvous
from pytracer.decode.types.snapshot import Role, Snapshot

_MOST_UNBOXED = 16  # one above the other
_MOST_RANKS = 1 << 20


@dataclass
class Standing:
    """What a process is in its job. `parent_rank`: of a process that is no rank, the rank that it works for."""

    role: Role = "process"
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    parent_rank: int | None = None
    attempt: int | None = None


class _Node:
    """One process in the tree of processes; `boxes` are its own recordings, oldest first."""

    def __init__(self, boxes: Sequence[Snapshot]) -> None:
        self.boxes = boxes
        self.box = boxes[-1]
        self.parent: _Node | None = None
        self.children: list[_Node] = []
        self.standing = Standing()
        self.own_rank = _own_rank(self.box)
        self.identity = identity_of(self.box.environment)
        self.agent = is_agent(self.box.argv)
        argv = self.box.argv[0].rpartition("/")[2] if self.box.argv else ""
        self.python = bool(self.box.python_minor or self.box.versions.torch or argv.startswith("python"))

    def ancestors(self) -> Iterator[_Node]:
        node = self.parent
        while node is not None:
            yield node
            node = node.parent


Seen = Mapping[tuple[str, int], SeenProcess]  # by host and pid


def decide_roles(lineages: Sequence[Sequence[Snapshot]], seen: Seen | None = None) -> list[Standing]:
    """Roles for processes given by their recordings (oldest first, the last one counts); in the same order.

    `seen`: processes that may have no recording, such as a shell between an agent and its rank.
    """
    nodes = [_Node(boxes) for boxes in lineages]
    _link(nodes, seen or {})
    for node in nodes:
        if node.own_rank is not None:
            _make_rank(node, node.own_rank)
    # RANK first: an agent that srun started has a rank of Slurm's, its workers those that count.
    named = [node for node in nodes if node.identity is not None and not node.agent]
    chosen = [(node, _first_python(node)) for node in named if not _inherits(node)]
    # Python first: in a pid namespace of its own, a rank is not linked to the bubblewrap or `timeout` around it.
    chosen.sort(
        key=lambda pair: (pair[0].identity is not None and pair[0].identity.launcher is not None, not pair[1].python)
    )
    for _, node in chosen:
        # A shell around a rank has its RANK too; so does everything that a rank starts.
        if not _is_rank_or_related(node) and not _is_wrapper(node, nodes):
            _make_rank(node, None)
    for node in nodes:
        if node.standing.role != "rank":
            node.standing.role = _other_role(node)
            above = (n.standing.rank for n in node.ancestors() if n.standing.role == "rank")
            node.standing.parent_rank = next(above, None)
    _count_attempts(nodes)
    return [node.standing for node in nodes]


def _link(nodes: Sequence[_Node], seen: Seen) -> None:
    by_pid: dict[tuple[str, str, int], list[_Node]] = {}
    for node in nodes:
        by_pid.setdefault((node.box.host, node.box.boot_id, node.box.pid), []).append(node)
    for node in nodes:
        candidates: list[_Node] = []
        for ppid in _pids_above(node.box, seen):
            candidates = by_pid.get((node.box.host, node.box.boot_id, ppid), [])
            if candidates:
                break
        # A parent started before its child; ticks are 10 ms, so both may show the same one.
        older = [p for p in candidates if p is not node and _birth(p) < _birth(node)]
        if older:
            node.parent = max(older, key=_birth)
            node.parent.children.append(node)


def _pids_above(box: Snapshot, seen: Seen) -> Iterator[int]:
    """Its parent, and for an unrecorded parent that one's parent."""
    ppid, before = box.ppid, box.created_mono_ns
    for _ in range(_MOST_UNBOXED):
        yield ppid
        above = seen.get((box.host, ppid))
        if above is None or above.started_mono_ns > before:
            return
        ppid, before = above.ppid, above.started_mono_ns


def _birth(node: _Node) -> tuple[int, int]:
    return node.box.start_ticks, node.boxes[0].created_mono_ns


def _own_rank(box: Snapshot) -> Rank | None:
    """By its RANK entry; of a process whose init_process_group() did not return, by what it called that with."""
    own = [f.data for f in box.recorded(Rank) if f.mono_ns >= box.created_mono_ns]
    if own:
        return own[-1]
    meant = [f.data for f in box.recorded(Rendezvous) if f.mono_ns >= box.created_mono_ns]
    if not meant or meant[-1].rank is None:
        return None
    return Rank(meant[-1].rank, meant[-1].local_rank, meant[-1].world_size)


def _inherits(node: _Node) -> bool:
    parent = node.parent
    return parent is not None and any(identity_of(b.environment) == node.identity for b in parent.boxes)


def _first_python(node: _Node) -> _Node:
    """The process itself when it runs Python, else the nearest descendant with the same RANK that does."""
    level = [node]
    while level:
        for candidate in level:
            if candidate.python:
                return candidate
        level = [c for n in level for c in n.children if c.identity == node.identity]
    return node


def _size(count: int | None) -> int | None:
    """A number of ranks that a job may have; members are counted through, so that no other one is believed."""
    return count if count is not None and 0 <= count <= _MOST_RANKS else None


def _make_rank(node: _Node, entry: Rank | None) -> None:
    """By its RANK entry, else by its environment."""
    environment, identity = node.box.environment, node.identity
    local_rank = identity.local_rank if identity else number(environment.get("LOCAL_RANK"))
    world_size = identity.world_size if identity else number(environment.get("WORLD_SIZE"))
    node.standing = Standing(
        "rank",
        entry.rank if entry else identity.rank if identity else None,
        _first(entry.local_rank if entry else None, local_rank),
        _size(_first(entry.world_size if entry else None, world_size)),
    )


def _count_attempts(nodes: Sequence[_Node]) -> None:
    """Numbers attempts from 0: torchrun's restarts, and jobs that ran one after the other.

    What a rank starts belongs to its attempt.
    """
    agents: dict[object, list[_Node]] = {}
    for node in nodes:
        if node.standing.role == "rank" and restart_count(node.box.environment) is not None:
            agents.setdefault(_agent_of(node), []).append(node)
    for workers in agents.values():
        attempt, there = 0, set[object]()
        count = None
        for node in sorted(workers, key=_birth):
            counted = restart_count(node.box.environment)
            place = node.standing.local_rank if node.standing.local_rank is not None else node.standing.rank
            if there and (place in there or counted != count):
                attempt, there = attempt + 1, set()
            # An agent that was recorded from the middle on, or lost recordings.
            attempt = max(attempt, counted or 0)
            there.add(place)
            count = counted
            node.standing.attempt = attempt
    _count_jobs([node for node in nodes if node.standing.role == "rank"])
    for node in sorted(nodes, key=_birth):  # parents first
        if node.standing.attempt is None and node.parent is not None:
            node.standing.attempt = node.parent.standing.attempt


def _count_jobs(ranks: Sequence[_Node]) -> None:
    """Separates jobs that were recorded into one directory.

    By what their launchers call them, if they repeat ranks: a job that Slurm requeued, two jobs with one PYTRACER_DIR.
    By time: a new job begins with a rank that existed before, if all processes of the previous job had ended: a sweep
    that calls mp.spawn, or torchrun, in a loop. Other simultaneous jobs are not separated: nothing identifies them.
    """
    named = _jobs_by_name(ranks)
    for job in named:
        hosts: dict[tuple[str, str], list[_Node]] = {}
        for node in job:
            hosts.setdefault((node.box.host, node.box.boot_id), []).append(node)
        for here in hosts.values():
            _count_on(_jobs_of(sorted(here, key=_birth), _mono_ns))
        if len(hosts) > 1:
            _count_on(_jobs_of(sorted(job, key=lambda node: _wall_ns(node, node.boxes[0].created_mono_ns)), _wall_ns))
    _count_on(named)


def _count_on(jobs: Sequence[Sequence[_Node]]) -> None:
    """Numbers the attempts of jobs one after the other; those of a single job stay as they are."""
    first = 0
    for job in jobs if len(jobs) > 1 else ():
        for node in job:
            node.standing.attempt = first + (node.standing.attempt or 0)
        first = 1 + max(node.standing.attempt or 0 for node in job)


def _jobs_by_name(ranks: Sequence[_Node]) -> list[list[_Node]]:
    """Jobs whose launchers call them differently, the earliest first; one where nothing has to be separated.

    What one recorded process started is one job: programs start groups of ranks side by side.
    """
    places = [(node.standing.rank, node.standing.attempt) for node in ranks]
    if len(set(places)) == len(places):
        return [list(ranks)]
    known: list[tuple[set[object], list[_Node]]] = []
    for node in sorted(ranks, key=_first_wall_ns):
        names: set[object] = {*job_keys(node.box.environment)}
        if not names:
            return [list(ranks)]
        top = next(reversed([*node.ancestors()]), None)
        if top is not None:
            names.add(top)
        same = [item for item in known if item[0] & names]
        merged = (names.union(*(item[0] for item in same)), [*(n for item in same for n in item[1]), node])
        known = [item for item in known if item not in same] + [merged]
    return sorted((nodes for _, nodes in known), key=lambda nodes: min(map(_first_wall_ns, nodes)))


def _mono_ns(_: _Node, mono_ns: int) -> int:
    return mono_ns


def _wall_ns(node: _Node, mono_ns: int) -> int:
    """A moment on the wall clock: between hosts, jobs in turn are further apart than clocks that are set."""
    return mono_ns - node.box.created_mono_ns + node.box.created_wall_ns


def _first_wall_ns(node: _Node) -> int:
    return node.boxes[0].created_wall_ns


def _jobs_of(ranks: Sequence[_Node], clock: Callable[[_Node, int], int]) -> list[list[_Node]]:
    jobs: list[list[_Node]] = []
    there: set[tuple[int | None, int | None]] = set()
    ended_ns = 0
    for node in ranks:
        place = node.standing.rank, node.standing.attempt
        again = node.standing.rank is not None and place in there
        if not jobs or (again and clock(node, node.boxes[0].created_mono_ns) > ended_ns):
            jobs.append([])
            there = set()
        jobs[-1].append(node)
        there.add(place)
        box = node.box
        last_ns = max(box.exit_mono_ns or 0, box.last_mono_ns or 0, box.created_mono_ns)
        ended_ns = max(ended_ns, clock(node, last_ns))
    return jobs


def _agent_of(node: _Node) -> object:
    """Something that the workers of one agent share."""
    agent = next((n for n in node.ancestors() if n.agent), None)
    return agent or (node.box.host, node.box.boot_id, node.box.ppid)


def _other_role(node: _Node) -> Role:
    if node.box.dataloader_worker or _is_worker_thread(node.box):
        return "dataloader-worker"
    if any(n.standing.role == "rank" for n in node.ancestors()):
        return "child"
    if node.agent or _has_rank_below(node):
        return "launcher"
    return "child" if any(n.python for n in node.ancestors()) else "process"


def _is_worker_thread(box: Snapshot) -> bool:
    """torch names the main thread of a DataLoader worker "pt_data_worker" (torch 2.13, utils/data/_utils/worker.py)."""
    names = {t.name for t in box.threads if t.tid == box.pid}
    if box.crash is not None and box.crash.tid == box.pid:
        names.add(box.crash.thread_name)
        if any(
            f.function == "_worker_loop" and f.file.endswith("data/_utils/worker.py") for f in box.crash.python_stack
        ):
            return True
    return any(name.startswith("pt_data_worker") for name in names)


def _is_rank_or_related(node: _Node) -> bool:
    return (
        node.standing.role == "rank"
        or _has_rank_below(node)
        or any(n.standing.role == "rank" for n in node.ancestors())
    )


def _is_wrapper(node: _Node, nodes: Sequence[_Node]) -> bool:
    """Whether a process that runs no Python has the identity of a rank that does, and was there before it."""
    return not node.python and any(
        other.standing.role == "rank"
        and other.python
        and (other.identity, other.box.host, other.box.boot_id) == (node.identity, node.box.host, node.box.boot_id)
        and _birth(node) <= _birth(other)
        for other in nodes
    )


def _has_rank_below(node: _Node) -> bool:
    todo = list(node.children)
    while todo:
        child = todo.pop()
        if child.standing.role == "rank":
            return True
        todo.extend(child.children)
    return False


def _first(a: int | None, b: int | None) -> int | None:
    return b if a is None else a
