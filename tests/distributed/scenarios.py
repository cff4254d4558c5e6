"""The jobs of this directory as data: the error of each, the rank to blame, and the expected report."""

from __future__ import annotations

from dataclasses import dataclass

ALL = "all"


@dataclass(frozen=True)
class Scenario:
    """A job of `ranks` ranks that runs one function of a program.

    `guilty` are the ranks to blame: one that a verdict must name, or several that by the verdict disagree or did the
    same. `classes` are the correct classes of the verdict, `words` what its summary must contain, ignoring case.
    `start`: "torchrun", "spawn" (torch.multiprocessing) or "agents" (two of torchrun's).
    """

    program: str
    function: str
    truth: str
    guilty: tuple[int, ...] = ()
    classes: tuple[str, ...] = ("clean",)
    words: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    ranks: int = 3
    start: str = "torchrun"
    victim: int = 1
    status: int = 1
    often: bool = False  # part of `make test`

    def __str__(self) -> str:
        how = "" if self.start == "torchrun" else f"-{self.start}"
        who = "" if self.victim in (1, self.ranks - 1) else f"-rank-{self.victim}"
        return f"{self.program}-{self.function}-{self.ranks}{how}{who}"


NULL, MISMATCH, MISSING = ("null-dereference",), ("collective-mismatch",), ("missing-rank",)
RAISED = ("python-exception",)
CLEAN_UP = "rank {} raised and then cleaned up for 3 s"

DEATHS = (
    Scenario("deaths", "segfault_in_backward", "rank 1 faulted in backward", (1,), NULL, ("rank 1", "null pointer")),
    Scenario("deaths", "segfault_in_backward", "rank 1 faulted in backward", (1,), NULL, ("rank 1", "null pointer"),
             start="spawn", ranks=2),
    Scenario("deaths", "killed", "somebody killed rank 1 with SIGKILL", (1,), ("external-kill",),
             ("rank 1", "sigkill")),
    Scenario("deaths", "slow_cleanup", CLEAN_UP.format(1), (1,), RAISED, ("rank 1", "shard 3 has 0 rows"), often=True),
    Scenario("deaths", "slow_cleanup", CLEAN_UP.format(0), (0,), RAISED, ("rank 0", "shard 3 has 0 rows"), victim=0),
    Scenario("deaths", "prompt_exception", "rank 1 raised", (1,), RAISED, ("rank 1", "shard 3 has 0 rows")),
    Scenario("deaths", "prompt_exception", "rank 1 raised", (1,), RAISED, ("rank 1", "shard 3 has 0 rows"),
             start="spawn", ranks=2),
    Scenario("deaths", "exits", "rank 1 called os._exit(3)", (1,), ("exit",),
             ("rank 1", "3", "os._exit() was called at deaths.py")),
    Scenario("deaths", "exits_well", "rank 1 called os._exit(0) while others waited for it", (1,), ("exit",),
             ("rank 1", "exit status 0", "os._exit() was called at deaths.py"), advice=("no launcher",), often=True),
    Scenario("deaths", "raised_everywhere", "all ranks miss the same file", (0, 1, 2), RAISED,
             ("ranks 0, 1 and 2", "filenotfounderror"), often=True),
    Scenario("deaths", "terminated", "somebody ended rank 1 with SIGTERM", (1,), ("external-kill",),
             ("rank 1", "sigterm"), ranks=2),
    Scenario("deaths", "fault_everywhere", "all ranks fault at the same place", (0, 1, 2), NULL, ("null pointer",)),
    Scenario("deaths", "fails_after_the_end", "rank 1 raised after its last collective", (1,), RAISED,
             ("rank 1", "no space left")),
    Scenario("deaths", "segfault_in_backward", "rank 3 faulted, below the second agent", (3,), NULL,
             ("rank 3", "null pointer"), start="agents", ranks=4, victim=3, often=True),
    Scenario("deaths", "slow_cleanup", CLEAN_UP.format(3) + ", below the second agent", (3,), RAISED,
             ("rank 3", "shard 3 has 0 rows"), start="agents", ranks=4, victim=3),
)  # fmt: skip

DISAGREEMENTS = (
    Scenario("disagreements", "op", "rank 1 broadcasts, the others reduce", (1,), MISMATCH,
             ("rank 1", "broadcast", "all_reduce"), often=True),
    Scenario("disagreements", "op", "two ranks ask for different collectives", (0, 1), MISMATCH,
             ("broadcast", "all_reduce"), ranks=2, start="spawn"),
    Scenario("disagreements", "shape", "rank 1 passes 96 rows, the others 32; rank 0 is aborted", (1,), MISMATCH,
             ("rank 1", "96", "32", "512"), often=True),
    Scenario("disagreements", "shape", "two ranks pass different shapes; rank 0 is aborted", (0, 1), MISMATCH,
             ("96", "32"), ranks=2),
    Scenario("disagreements", "dtype", "rank 1 passes int32, the others float32: silent corruption", (1,), MISMATCH,
             ("rank 1", "int32", "float32"), status=0, often=True),
    Scenario("disagreements", "dtype", "two ranks pass different dtypes: silent corruption", (0, 1), MISMATCH,
             ("int32", "float32"), ranks=2, start="spawn", status=0),
    Scenario("disagreements", "root", "rank 1 names another root", (1,), MISMATCH, ("rank 1", "root", "broadcast")),
    Scenario("disagreements", "reduce_op", "rank 1 asks for max, the others for sum: wrong numbers", (1,), MISMATCH,
             ("rank 1", "max", "sum"), status=0),
    Scenario("disagreements", "short_broadcast", "rank 0 broadcasts 16 values, the others expect 32: wrong numbers",
             (0,), MISMATCH, ("rank 0", "16", "32"), status=0),
    Scenario("disagreements", "accumulates", "two ranks accumulate over numbers of micro-batches that differ", (0, 1),
             MISMATCH, ("rank 0", "rank 1", "different lines"), ranks=2),
    Scenario("disagreements", "order", "rank 1 swaps two all-reduces", (1,), MISMATCH,
             ("rank 1", "4096", "all_reduce")),
)  # fmt: skip

ABSENCES = (
    Scenario("absences", "skipped", "rank 1 is busy elsewhere until the others time out", (1,), MISSING,
             ("rank 1", "all_reduce"), often=True),
    Scenario("absences", "skipped", "rank 1 is busy elsewhere until the other times out", (1,), MISSING,
             ("rank 1", "all_reduce"), ranks=2, start="spawn"),
    Scenario("absences", "skipped_monitored_barrier", "rank 1 is busy elsewhere until the others time out", (1,),
             MISSING, ("rank 1",)),
    Scenario("absences", "returns_early", "rank 1 has fewer batches", (1,), MISSING, ("rank 1",), ("same numbers",),
             often=True),
    Scenario("absences", "returns_at_once", "rank 1 never takes part", (1,), MISSING,
             ("rank 1", "before its first collective"), ("early return",)),
    Scenario("absences", "unused_parameters", "all ranks leave parameters unused", (0, 1), ("misuse", *RAISED),
             ("second.weight",), ("find_unused_parameters",), ranks=2),
    Scenario("absences", "unused_on_one_rank", "rank 1 leaves parameters unused", (1,), ("misuse", *MISSING, *RAISED),
             ("rank 1",), ("find_unused_parameters",)),
)  # fmt: skip

GROUPS = (
    Scenario("groups", "made_by_a_subset", "rank 2 does not call new_group()", (2,), MISSING + MISMATCH,
             ("rank 2", "group")),
    Scenario("groups", "all_after_a_subset", "rank 2 does not call new_group([0, 1])", (2,), MISMATCH,
             ("rank 2", "left out the process group [0, 1]")),
    Scenario("groups", "made_in_another_order", "rank 1 makes two groups in the other order", (1,), MISMATCH,
             ("rank 1", "group", "order")),
    Scenario("groups", "stuck_upstream", "rank 3 keeps rank 2 waiting, and rank 2 the others", (3,), MISSING,
             ("rank 3",), ranks=4),
)  # fmt: skip

POINT_TO_POINT = (
    Scenario("point_to_point", "unmatched_receive", "rank 1 waits for a message that rank 0 never sends", (0, 1),
             MISMATCH + MISSING, ("rank 0", "rank 1", "recv"), ranks=2, often=True),
    Scenario("point_to_point", "another_tag", "rank 0 sends with tag 1, rank 1 receives with tag 2", (0, 1), MISMATCH,
             ("tag", "1", "2"), ranks=2),
    Scenario("point_to_point", "cycle", "each rank waits for the one before it", (0, 1, 2), ("hang", *MISMATCH),
             ("cycle", "recv")),
)  # fmt: skip

WORKERS = (
    Scenario("workers", "segfault", "a DataLoader worker of rank 1 faulted", (1,), NULL, ("worker", "rank 1"), ranks=2),
    Scenario("workers", "never_ready", "a DataLoader worker of rank 1 does not deliver", (1,), MISSING,
             ("rank 1", "dataloader worker 1 of rank 1 had been loading samples 12-15"), ("dataloader worker 1",),
             ranks=2),
    Scenario("workers", "busy_elsewhere", "rank 1 is late, and not for its DataLoader worker, which hangs, too", (1,),
             MISSING, ("rank 1",), ("busy_elsewhere",), ranks=2),
    Scenario("workers", "killed", "a DataLoader worker of rank 1 killed itself with SIGKILL", (1,), ("external-kill",),
             ("worker", "rank 1"), ranks=2),
)  # fmt: skip

SAMPLERS = (
    Scenario("samplers", "before", "all ranks make the sampler before the process group", (0, 1), ("misuse",),
             ("distributedsampler",), ("init_process_group",), ranks=2),
    Scenario("samplers", "forgotten", "all ranks train on the same samples", (0, 1), ("misuse",), ("sample",),
             ("distributedsampler",), ranks=2, status=0),
)  # fmt: skip

RENDEZVOUS = (
    Scenario("rendezvous", "other_port", "rank 1 looks for the store at another port", (1,), ("misuse",),
             ("rank 1", "master_port=", "ranks 0 and 2 with"), ("master_port",), often=True),
    Scenario("rendezvous", "other_size", "rank 1 waits for a fourth rank", (1,), ("misuse",),
             ("rank 1", "world_size=4", "ranks 0 and 2 with 3"), ("world_size",)),
    Scenario("rendezvous", "same_rank", "the last process takes the rank of the one before it", (1,), ("misuse",),
             ("as rank 1", "no process had rank 2"), ("rank of its own",)),
)  # fmt: skip

WRONG = RENDEZVOUS + DEATHS + DISAGREEMENTS + ABSENCES + GROUPS + POINT_TO_POINT + WORKERS + SAMPLERS


def _fine(program: str, function: str, truth: str, *, ranks: int = 3, often: bool = False) -> Scenario:
    return Scenario(program, function, truth, ranks=ranks, status=0, often=often)


FINE = (
    _fine("healthy", "training", "DDP, different data"),
    _fine("healthy", "uneven", "uneven where it is legal", often=True),
    _fine("healthy", "saves_at_the_end", "rank 0 works on after the last collective", ranks=2),
    _fine("rendezvous", "other_names_of_one_host", "MASTER_ADDR differs and leads to the same host"),
    _fine("groups", "different_but_legal", "different groups, different often", often=True),
    _fine("point_to_point", "ring", "messages in a circle, all at once"),
    _fine("point_to_point", "pipeline", "the first rank only sends, the last only receives"),
    _fine("absences", "late", "a rank comes late, but in time", ranks=2),
    _fine("absences", "uneven_with_join", "fewer batches on one rank, below join()", ranks=2, often=True),
    _fine("absences", "unused_but_searched", "unused parameters, and DDP looks for them", ranks=2),
    _fine("absences", "ready_in_another_order", "gradients become ready in another order on one rank", ranks=2),
    _fine("workers", "healthy", "DataLoader workers on every rank", ranks=2),
    _fine("samplers", "after", "a sampler made after the process group", ranks=2),
)
