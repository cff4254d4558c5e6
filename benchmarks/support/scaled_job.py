"""Digests of large jobs with a known truth, made from the recordings of a real job of four ranks below two agents.

Each node is a copy of one real node, with eight ranks: rank 1 of the real job is the guilty one, its copy lies on one
node of the large job, and every other rank is a copy of rank 2. Copies have another host, boot, pid and rank, clocks of
their own (off by up to three seconds), more collectives before the last ones, and a group of their node besides the
default one.
"""

from __future__ import annotations

import hashlib
import random
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from pytracer._version import __version__
from pytracer.analyze.digest import make_digest
from pytracer.decode.formats.digest import Digest, encode_digest
from pytracer.decode.formats.digest_reader import decode_digest
from pytracer.decode.job.digest_names import SUFFIX
from pytracer.decode.job.load import load_runs
from pytracer.decode.types.journal import ChildStatus, Members, Rank
from pytracer.decode.types.snapshot import Collective, Crash, Group, Job, LauncherRecord, Process, Snapshot
from tests.distributed.jobs import agents
from tests.distributed.scenarios import Scenario
from tests.support.crash import traced_run

RANKS_PER_NODE = 8
HISTORY = 60  # collectives before those of the real job
_GUILTY, _OTHER = 1, 2
_SKEW_NS = 3 * 10**9
_STEP_NS = 10**7


@dataclass(frozen=True)
class Truth:
    """A large job: what really happens in it, and which classes of verdict are right about it.

    `in_group`: the guilty rank disagrees in the group of its node. `everywhere`: every rank helps to make the groups of
    all nodes, as new_group() wants, else only those of its own. `lost`: nodes of which there is no digest, `torn`
    those of which half a digest was written. `guilty`: the verdict must name the guilty rank.
    """

    name: str
    program: str
    function: str
    classes: tuple[str, ...]
    in_group: bool = False
    everywhere: bool = False
    lost: int = 0
    torn: int = 0
    guilty: bool = True


TRUTHS = (
    Truth("a rank faults", "deaths", "segfault_in_backward", ("null-dereference",)),
    Truth("a rank is killed", "deaths", "killed", ("external-kill", "unknown")),
    Truth("a rank is late", "absences", "skipped", ("missing-rank",)),
    Truth("another call in one group", "disagreements", "op", ("collective-mismatch",), in_group=True),
    Truth("another call in one of 1 group per node, made by all ranks", "disagreements", "op", ("collective-mismatch",),
          in_group=True, everywhere=True),
    Truth("a rank faults, 3 digests lost, 3 torn", "deaths", "segfault_in_backward", ("null-dereference",), lost=3,
          torn=3),
    Truth("8 nodes vanish at once", "deaths", "killed", ("missing-rank", "unknown"), lost=8, guilty=False),
)  # fmt: skip


def real_job(truth: Truth, directory: Path) -> Job:
    """Runs the job of four ranks, reduces its recordings as a node does, and deletes them."""
    scenario = Scenario(truth.program, truth.function, "", ranks=4, start="agents")
    first, second = agents(scenario)
    line = f"{shlex.join(first)} & first=$!; {shlex.join(second)}; wait $first"
    run = directory / "real"
    traced_run("sh", "-c", line, run=run, VICTIM=str(_GUILTY))
    job = decode_digest(make_digest(load_runs(run)), "the digest").job
    shutil.rmtree(run)
    return job


def write_digests(job: Job, truth: Truth, ranks: int, folder: Path) -> tuple[int, int]:
    """Writes the digests of the large job; the guilty rank, and the bytes of all digests."""
    folder.mkdir()
    nodes = ranks // RANKS_PER_NODE
    guilty_node = nodes // 2
    unseen = {nodes - 1 - number for number in range(truth.lost)} - {guilty_node}
    if not truth.guilty:
        unseen = {guilty_node + number for number in range(truth.lost)}
    torn = {nodes - 1 - truth.lost - number for number in range(truth.torn)} - {guilty_node}
    parts = _Parts.of(job)
    everybody = Members(range(ranks))
    made = [_node_group(node, by_all=True) for node in range(nodes)] if truth.everywhere else None
    nbytes = 0
    for node in range(nodes):
        if node in unseen:
            continue
        content = encode_digest(Digest(_node(parts, truth, node, node == guilty_node, everybody, made), __version__))
        content = content[: len(content) // 2] if node in torn else content
        (folder / f"node{node}{SUFFIX}").write_bytes(content)
        nbytes += len(content)
    return guilty_node * RANKS_PER_NODE + _GUILTY, nbytes


@dataclass(frozen=True)
class _Parts:
    """The processes of the real job that are copied."""

    launcher: LauncherRecord  # of `pytracer run`; each node has its own
    agents: dict[bool, Process]  # by whether the guilty rank is below it
    ranks: dict[int, Process]
    begin_ns: int  # before the first collective of any rank: all of the history lies before

    @classmethod
    def of(cls, job: Job) -> _Parts:
        ranks = {item.rank: item for item in job.ranks if item.rank is not None}
        found = {}
        for guilty, rank in ((True, _GUILTY), (False, _OTHER)):
            above = ranks[rank].snapshot.ppid
            found[guilty] = next(item for item in job.processes if item.snapshot.pid == above)
        calls = [item.scheduled_ns or 0 for process in job.ranks for item in process.snapshot.collectives]
        assert job.launcher is not None
        return cls(job.launcher, found, ranks, min(calls))


def _node_group(node: int, *, by_all: bool) -> Group:
    """The group of a node as its ranks see it, named as c10d names one that all ranks make, or its members only."""
    first = node * RANKS_PER_NODE
    name = str(node + 1) if by_all else hashlib.sha1(f"pp{node}".encode()).hexdigest()
    members = Members(range(first, first + RANKS_PER_NODE))
    return Group(name, "pipeline", "gloo", RANKS_PER_NODE, None, members, node + 1 if by_all else 1)


def _node(
    parts: _Parts, truth: Truth, node: int, guilty: bool, everybody: Members, made: Sequence[Group] | None
) -> Job:
    random_of_node = random.Random(node)
    delta = random_of_node.randrange(10**12)
    clocks = (delta, delta + random_of_node.randrange(-_SKEW_NS, _SKEW_NS))
    first = node * RANKS_PER_NODE
    own = made[node] if made is not None else _node_group(node, by_all=False)
    all_groups = tuple(item if item is own else item.as_made for item in made or [own])
    agent_pid = 1000
    processes = []
    pids: dict[int, list[int]] = {}
    for local in range(RANKS_PER_NODE):
        real = parts.ranks[_GUILTY if guilty and local == _GUILTY else _OTHER]
        pids.setdefault(real.snapshot.pid, []).append(agent_pid + 1 + local)
        copy = _Copy(node, agent_pid + 1 + local, agent_pid, clocks, first + local, local, everybody, own, all_groups)
        apart = truth.in_group and guilty
        processes.append(copy.rank(real, parts.begin_ns, apart=apart, random=random_of_node))
    agent = parts.agents[guilty]
    copy = _Copy(node, agent_pid, 1, clocks, None, None, everybody, own, all_groups)
    pids[agent.snapshot.pid] = [agent_pid]
    return Job(f"/runs/node{node}", copy.launcher(parts.launcher, pids), (copy.agent(agent, pids), *processes))


@dataclass(frozen=True)
class _Copy:
    """A process of the large job."""

    node: int
    pid: int
    ppid: int
    clocks: tuple[int, int]  # added to the monotonic and to the wall clock
    number: int | None
    local: int | None
    everybody: Members
    own: Group
    made: tuple[Group, ...]  # beside the default one

    def launcher(self, real: LauncherRecord, pids: dict[int, list[int]]) -> LauncherRecord:
        """What `pytracer run` on this node saw, of its own processes."""
        witness = real.witness
        assert witness is not None
        processes = tuple(
            replace(seen, pid=pid, start_ticks=pid) for seen in witness.processes for pid in pids.get(seen.pid, [])
        )
        host, boot = self.machine
        record = replace(
            real, host=host, boot_id=boot, pid=self.pid - 1, child_pid=self.pid,
            witness=replace(witness, processes=processes), started_wall_ns=real.started_wall_ns + self.clocks[1],
        )  # fmt: skip
        moved: LauncherRecord = _later(record, self.clocks[0])
        return moved

    @property
    def machine(self) -> tuple[str, str]:
        """Its host and boot."""
        return f"node{self.node}", f"b0075f00-0000-4000-8000-{self.node:012d}"

    def agent(self, real: Process, waits: dict[int, list[int]]) -> Process:
        """With the ends of its own children."""
        facts: list[Any] = []
        for fact in real.snapshot.facts:
            end = fact.data.end if isinstance(fact.data, ChildStatus) else None
            if end is None:
                facts.append(fact)
                continue
            for pid in waits.get(end.pid, []):
                facts.append(replace(fact, data=ChildStatus(replace(end, pid=pid))))
        seen = tuple(fact.data.end for fact in facts if isinstance(fact.data, ChildStatus) and fact.data.end)
        return self._process(real, replace(real.snapshot, facts=tuple(facts), waits=seen))

    def rank(self, real: Process, begin_ns: int, *, apart: bool, random: random.Random) -> Process:
        """With a history of collectives; `apart`: what was not completed is in the group of the node."""
        box = real.snapshot
        default = next(group for group in box.groups if group.name is not None)
        size = len(self.everybody)
        world = replace(default, ranks=self.everybody, size=size, own_rank=self.number)
        group = replace(self.own, own_rank=self.local)
        groups = (world, *(group if item is self.own else item for item in self.made))
        completed = [item for item in box.collectives if item.state == "completed" and item.group == default.name]
        sample = completed[0]
        history = [
            replace(
                sample,
                number=2 * number + place + 1,
                sequence_nr=number + 1,
                group=item.name,
                scheduled_ns=_at(begin_ns, number, random.randrange(10**6)),
                started_ns=_at(begin_ns, number, 2 * 10**6),
                completed_ns=_at(begin_ns, number, 3 * 10**6 + random.randrange(10**6)),
            )
            for number in range(HISTORY)
            for place, item in enumerate((world, group))
        ]
        last = len(completed)
        moved = [
            replace(
                item,
                number=item.number + 2 * HISTORY,
                sequence_nr=item.sequence_nr + HISTORY - (last if apart and item.state != "completed" else 0),
                group=group.name if apart and item.state != "completed" else item.group,
            )
            for item in box.collectives
        ]
        calls = (*history[-64:], *moved)
        environment = box.environment | {
            "RANK": str(self.number), "LOCAL_RANK": str(self.local), "WORLD_SIZE": str(size),
            "GROUP_RANK": str(self.node), "MASTER_ADDR": "node0",
        }  # fmt: skip
        facts: list[Any] = [
            replace(fact, data=msgspec.structs.replace(
                fact.data, rank=self.number, local_rank=self.local, world_size=size
            )) if isinstance(fact.data, Rank) else fact
            for fact in box.facts
        ]  # fmt: skip
        box = replace(
            box, collectives=calls, groups=groups, environment=environment, facts=tuple(facts),
            rank=Rank(self.number or 0, self.local, size),
        )  # fmt: skip
        return self._process(real, box)

    def _process(self, real: Process, box: Snapshot) -> Process:
        host, boot = self.machine
        box = replace(
            box, host=host, boot_id=boot, pid=self.pid, ppid=self.ppid, start_ticks=self.pid,
            path=f"/runs/node{self.node}/boxes/{host}.{self.pid}.blackbox",
        )  # fmt: skip
        size = len(self.everybody) if self.number is not None else None
        process = replace(real, snapshot=box, rank=self.number, local_rank=self.local, world_size=size)
        return _shifted(process, *self.clocks)


def _at(begin_ns: int, number: int, more: int) -> int:
    """Of a collective of the history, `HISTORY - number` steps before the first real one."""
    return begin_ns - (HISTORY - number) * _STEP_NS + more


def _shifted(process: Process, mono: int, wall: int) -> Process:
    """On the clocks of another boot."""
    box = process.snapshot

    def moved(crash: Crash | None) -> Crash | None:
        return replace(crash, mono_ns=crash.mono_ns + mono) if crash is not None else None

    later = _adder(mono)
    created = box.created_wall_ns + wall
    snapshot = replace(
        box,
        created_mono_ns=box.created_mono_ns + mono,
        created_wall_ns=created,
        exit_mono_ns=later(box.exit_mono_ns),
        last_mono_ns=later(box.last_mono_ns),
        facts=tuple(_fact(fact, mono) for fact in box.facts),
        events=tuple(replace(event, mono_ns=event.mono_ns + mono) for event in box.events),
        waits=tuple(replace(item, mono_ns=item.mono_ns + mono) for item in box.waits),
        sends=tuple(replace(item, mono_ns=item.mono_ns + mono) for item in box.sends),
        collectives=tuple(_calls(box.collectives, later)),
        crash=moved(box.crash),
        live=moved(box.live),
        ending=moved(box.ending),
    )
    return replace(
        process,
        snapshot=snapshot,
        ended_mono_ns=later(process.ended_mono_ns),
        exception_mono_ns=later(process.exception_mono_ns),
    )


def _adder(mono: int) -> Callable[[int | None], int | None]:
    return lambda value: None if value is None else value + mono


def _later(value: Any, mono: int) -> Any:
    """With all times of CLOCK_MONOTONIC moved."""
    if isinstance(value, tuple):
        return tuple(_later(item, mono) for item in value)
    if isinstance(value, msgspec.Struct):
        names: Sequence[str] = value.__struct_fields__
    elif is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value)]
    else:
        return value
    new = {}
    for name in names:
        old = getattr(value, name)
        new[name] = old + mono if name.endswith("mono_ns") and old is not None else _later(old, mono)
    return msgspec.structs.replace(value, **new) if isinstance(value, msgspec.Struct) else replace(value, **new)


def _fact(fact: Any, mono: int) -> Any:
    data = fact.data
    if isinstance(data, ChildStatus) and data.end is not None:
        data = ChildStatus(replace(data.end, mono_ns=data.end.mono_ns + mono))
    return replace(fact, mono_ns=fact.mono_ns + mono, data=data)


def _calls(items: tuple[Collective, ...], later: Callable[[int | None], int | None]) -> Iterator[Collective]:
    for item in items:
        yield replace(
            item,
            scheduled_ns=later(item.scheduled_ns),
            started_ns=later(item.started_ns),
            completed_ns=later(item.completed_ns),
        )
