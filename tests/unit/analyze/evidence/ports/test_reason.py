"""A server that was refused its port: who has it, by which line, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, evidence, summary, verdict
from tests.support.synth import Box

PORT = 29673
IN_USE = (
    "The server socket has failed to listen on any local network address. port: 29673, useIpv6: false, code: -98, "
    "name: EADDRINUSE, message: address already in use"
)
NET = "torch.distributed.DistNetworkError"
JOIN = [
    ("_create_c10d_store", f"{s.TORCH}/distributed/rendezvous.py", 199),
    ("init_process_group", f"{s.TORCH}/distributed/distributed_c10d.py", 1892),
]
SPAWNED = ("python", "-c", "from multiprocessing.spawn import spawn_main")
HEAD = "import argparse, os, sys\nimport torch.distributed as dist\nimport torch.multiprocessing as mp\n"
CLASS = """\
class Settings:
    def __init__(self):
        self.port = int(os.environ.setdefault("MASTER_PORT", "29673"))
class Board:
    def __init__(self, settings, serve=False):
        self.store = dist.TCPStore("127.0.0.1", settings.port, is_master=serve, wait_for_workers=False)
def worker(rank, settings):
    dist.init_process_group("gloo", rank=rank, world_size=2)
    board = Board(settings)
def main():
    settings = Settings()
    board = Board(settings, serve=True)
    mp.spawn(worker, args=(settings,), nprocs=2)
main()
"""
FUNCTION = """\
def open_store(serving, port):
    return dist.TCPStore("127.0.0.1", port, 2, serving)
def worker(rank, port):
    store = open_store(False, port)
    dist.init_process_group("gloo", rank=rank, world_size=2)
def launch():
    number = 29600
    port = number + 73
    kept = open_store(True, port)
    mp.spawn(worker, args=(port,), nprocs=2)
launch()
"""
MODULE = """\
def worker(rank):
    dist.init_process_group("gloo", rank=rank, world_size=2)
if __name__ == "__main__":
    board = dist.TCPStore("localhost", {port}, is_master={master})
    mp.spawn(worker, nprocs=2)
"""
OPTION = """\
def worker(rank):
    dist.init_process_group("gloo", rank=rank, world_size=2)
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--board-port", type=int, default=29500)
    args = parser.parse_args()
    board = dist.TCPStore("localhost", args.board_port, is_master=True)
    mp.spawn(worker, nprocs=2)
"""
WEB = """\
class Metrics:
    def __init__(self, port):
        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
def work(rank):
    metrics = Metrics(29673)
if __name__ == "__main__":
    mp.start_processes(work, nprocs=2, start_method="fork")
"""


def facts(state: str = "listening", *, pid: int | None = 100, **more: object) -> list[dict[str, str]]:
    """What the recorder writes; `pid` of the holder, which had begun as the synthetic processes have."""
    known: dict[str, object] = {"": PORT, "state": state, "user": 1000}
    if pid is not None:
        known |= {"holder pid": pid, "holder start": pid * 10, "holder parent": 1, "holder seconds": 8}
        known["holder program"] = "train.py"
    known |= {name.replace("_", " "): value for name, value in more.items()}
    named = {f"taken port {name}".rstrip(): str(value) for name, value in known.items() if value is not None}
    return [{"name": name, "value": value} for name, value in named.items()]


def line_of(source: str, text: str) -> int:
    """Of the program, in which HEAD comes first."""
    return next(n for n, line in enumerate((HEAD + source).splitlines(), 1) if text in line)


def reported(
    run: Path,
    source: str,
    variables: list[dict[str, str]],
    *,
    at: str = "dist.init_process_group",
    function: str = "worker",
    parent_at: str = "mp.s",
    argv: tuple[str, ...] = ("python", "program.py"),
    others: tuple[Box, ...] = (),
    **raised: str,
) -> Report:
    """Rank 0, pid 101, was refused the port at the line with `at`; its parent, pid 100, was at `parent_at`."""
    program = str(s.program_in(run, HEAD + source))
    own = (function, program, line_of(source, at))
    stack = [*(JOIN if "init_process_group" in at else []), own]
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(PORT)}
    child = Box(
        101, 100, rank=0, environment=environment, argv=("python", "-c", "from multiprocessing.spawn import spawn_main")
    )
    child.at(7000).exception(raised.get("kind", NET), raised.get("message", IN_USE), stack, variables=variables).exit(1)
    parent = Box(100, 99, argv=argv)
    told = f"\n\n-- Process 0 terminated with the following error:\n{IN_USE}"
    outer = [("launch", program, line_of(source, parent_at)), ("<module>", program, len((HEAD + source).splitlines()))]
    outer = outer if "launch" in source else [("<module>", program, line_of(source, parent_at))]
    outer = [("main", program, line_of(source, parent_at)), outer[-1]] if "def main" in source else outer
    parent.wait(101, exit_code=1)
    parent.at(8000).exception("torch.multiprocessing.spawn.ProcessRaisedException", told, outer).exit(1)
    return build_report(s.load(run, child, parent, *others))


def test_the_programs_own_store_on_the_master_port_is_named(run: Path) -> None:
    """With who made it, though the call itself serves in one of two constructions only."""
    report = reported(run, CLASS, facts())
    assert verdict(report) == ("python-exception", "certain")
    said = summary(report)
    assert "address at program.py:11 in worker: its parent, process 100 (program.py) of this job, already" in said
    assert "listens on port 29673 (MASTER_PORT), which line 15 (`Board(settings, serve=True)`) opened" in said
    assert "(TCPStore at line 9); init_process_group() needs it for a store of its own" in said
    assert "Give the store of line 15 (`Board(settings, serve=True)`) a port of its own (port=0" in advice(report)
    assert 'store=dist.PrefixStore("group", store), rank=rank, world_size=world_size)' in advice(report)
    assert "no other program has to be ended" in advice(report)


def test_false_owners_are_not_spoken_of_where_the_owner_is_known(run: Path) -> None:
    """Neither the words of the known crash nor its advice."""
    report = reported(run, CLASS, facts())
    words = " ".join([summary(report), advice(report), evidence(report)])
    assert "another job" not in words
    assert "left over" not in words
    assert "when the exception had come, process 100 (train.py) listened on port 29673" in words


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(FUNCTION, "which line 12 (`open_store(True, port)`) opened (TCPStore at line 5)", id="function"),
        pytest.param(
            MODULE.format(port="int(os.environ['MASTER_PORT'])", master="True"),
            "which line 7 (`dist.TCPStore(..., int(os.environ['MASTER_PORT']), is_master=True)`) opened",
            id="environment",
        ),
        pytest.param(
            MODULE.format(port="find_port()", master="True"),
            "is_master=True)`) alone may have opened",
            id="unknown port",
        ),
        pytest.param(
            MODULE.format(port="0", master="True"),
            "`dist.TCPStore('localhost', 0, is_master=True)`) alone may have opened",
            id="any free port",
        ),
        pytest.param(
            MODULE.format(port="PORT", master="True").replace("if __name__", "PORT = 29673\nif __name__"),
            "PORT, is_master=True)`) opened",
            id="constant",
        ),
    ],
)
def test_the_line_is_found_however_it_is_written(source: str, expected: str, run: Path) -> None:
    """Functions, module level, variables; with an unknown port only as the one line that may."""
    assert expected in summary(reported(run, source, facts()))


def test_an_option_of_the_command_line_counts(run: Path) -> None:
    """The default would be another port."""
    argv = ("python", "program.py", "--board-port", "29673")
    assert "args.board_port, is_master=True)`) opened" in summary(reported(run, OPTION, facts(), argv=argv))
    assert "opened" not in summary(reported(run, OPTION, facts()))


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(MODULE.format(port="29700", master="True"), id="another port"),
        pytest.param(MODULE.format(port="29673", master="False"), id="a client"),
        pytest.param(MODULE.format(port="29673", master="rank_of() == 1"), id="another rank"),
        pytest.param(
            MODULE.format(port="29673", master="True").replace(
                "    board", "    other = dist.TCPStore('h', 29673, is_master=True)\n    board"
            ),
            id="two lines",
        ),
        pytest.param(
            "def worker(rank):\n    dist.init_process_group('gloo')\n    board = dist.TCPStore('h', 29673, 2, True)\n"
            "if __name__ == '__main__':\n    mp.spawn(worker, nprocs=2)\n",
            id="in the ranks alone",
        ),
    ],
)
def test_no_line_is_named_that_cannot_have_opened_it(source: str, run: Path) -> None:
    """The process still is: that is recorded."""
    said = summary(reported(run, source, facts()))
    assert "its parent, process 100 (program.py) of this job, already listens on port 29673" in said
    assert " opened" not in said or "alone may have" in said


@pytest.mark.parametrize("port", ["0", "29673"])
def test_a_helper_that_looks_for_a_free_port_serves_nothing(port: str, run: Path) -> None:
    """It asks the system for one."""
    source = (
        "def free_port():\n    with socket.socket() as made:\n"
        f"        made.bind(('', {port}))\n        return made.getsockname()[1]\n"
        "def worker(rank, port):\n    dist.init_process_group('gloo')\n"
        "if __name__ == '__main__':\n    port = free_port()\n    mp.spawn(worker, args=(port,))\n"
    )
    said = summary(reported(run, source, facts()))
    assert "already listens on port 29673" in said
    assert ("opened" in said) == (port != "0")


def test_a_line_below_the_parents_own_has_not_run(run: Path) -> None:
    """It comes after mp.spawn()."""
    source = MODULE.format(port="29700", master="True") + "    late = dist.TCPStore('h', 29673, is_master=True)\n"
    assert " opened" not in summary(reported(run, source, facts()))


def test_a_server_that_two_processes_open_is_one_line(run: Path) -> None:
    """Of a web server; the child of fork has the parent's command line."""
    other = Box(102, 100, argv=("python", "program.py")).doing("name", "multiprocessing process ForkProcess-2")
    other.at(9000).exit(0)
    report = reported(
        run, WEB, facts(pid=102), at="self.server =", function="Metrics.__init__", parent_at="mp.s", others=(other,),
        kind="OSError", message="[Errno 98] Address already in use",
    )  # fmt: skip
    assert "ForkProcess-2 (pid 102) of this job already listens on port 29673" in summary(report)
    assert "which line 8 (`Metrics(29673)`) opened (ThreadingHTTPServer at line 6)" in summary(report)
    assert "Line 8 (`Metrics(29673)`) serves in both processes: let one alone run it" in advice(report)


def test_the_process_itself_may_have_it(run: Path) -> None:
    """Its own store came first."""
    source = (
        "def worker(rank):\n    board = dist.TCPStore('h', 29673, is_master=True)\n"
        "    dist.init_process_group('gloo')\nmp.spawn(worker)\n"
    )
    said = summary(reported(run, source, facts(pid=101)))
    assert "this process itself already listens on port 29673" in said
    assert "which line 5 (`dist.TCPStore('h', 29673, is_master=True)`) opened" in said


def test_the_store_of_a_process_group_may_have_it(run: Path) -> None:
    """The line of init_process_group() is recorded."""
    source = "def worker(rank):\n    board = dist.TCPStore('h', 29673, is_master=True)\nmp.spawn(worker)\n"
    caller = {"function": "join", "file": "/home/user/ranks.py", "line": 40}
    other = Box(102, 100, rank=0).rendezvous(0, master_addr="127.0.0.1", master_port=PORT, caller=caller)
    report = reported(run, source, facts(pid=102), at="dist.TCPStore", others=(other.at(9000).exit(0),))
    assert "serves the store of its process group since ranks.py:40 (init_process_group())" in summary(report)
    assert "is_master=False for all, in a dist.PrefixStore of its own" in advice(report)


@pytest.mark.parametrize(
    ("start", "parent", "expected"),
    [
        (7, 50, "process 77 (train.py), which had run for 8 s and is older than this job, listens on port 29673"),
        (5000, 50, "is not recorded as one of this job, listens on port 29673 (MASTER_PORT)"),
        (5000, 101, "process 77 (train.py), a child of this process, already listens on port 29673"),
    ],
)
def test_another_program_is_named_with_its_age(start: int, parent: int, expected: str, run: Path) -> None:
    """A child of a recorded process belongs to the job."""
    report = reported(run, CLASS, facts(pid=77, holder_start=start, holder_parent=parent))
    assert expected in summary(report)
    assert " opened" not in summary(report)
    assert ("or end process 77 if nobody needs it" in advice(report)) == (parent != 101)


def test_a_reused_number_is_no_process_of_the_job(run: Path) -> None:
    """The parent's pid with another start."""
    said = summary(reported(run, CLASS, facts(pid=102, holder_start=3), others=(Box(102, 50).at(100).exit(0),)))
    assert "process 102 (train.py), which had run for 8 s and is older than this job" in said


def test_a_process_of_another_user_stays_unknown(run: Path) -> None:
    """Its socket is seen, not the process."""
    report = reported(run, CLASS, facts(pid=None, user=0))
    assert "worker: a process of another user (uid 0) listens on port 29673 (MASTER_PORT)" in summary(report)
    assert "Take another MASTER_PORT" in advice(report)
    assert "could not be seen" in summary(reported(run, CLASS, facts(pid=None)))


def test_of_processes_that_share_it_none_is_named(run: Path) -> None:
    """As with SO_REUSEPORT."""
    report = reported(run, CLASS, facts(pid=None, holder_count=4))
    assert "4 processes that are not related listen on port 29673 (MASTER_PORT)" in summary(report)
    assert "ss -ltnp 'sport = :29673'" in advice(report)


def test_connections_that_still_close_have_no_process(run: Path) -> None:
    """TIME_WAIT: nothing to end."""
    report = reported(run, CLASS, facts("closing", pid=None, user=None, closing=3))
    assert "no process listens on port 29673 (MASTER_PORT) any more, but 3 connections of a server" in summary(report)
    assert "SO_REUSEADDR" in advice(report)
    assert "There is no process to end" in advice(report)


def test_an_outgoing_connection_may_have_the_port(run: Path) -> None:
    """The system chose it."""
    report = reported(run, CLASS, facts("connected", pid=77, holder_start=3))
    assert "but a connection of process 77 (train.py) has it as its own end" in summary(report)
    assert "net.ipv4.ip_local_port_range" in advice(report)


def test_an_owner_that_ended_before_is_not_guessed(run: Path) -> None:
    """Nothing had it when it was looked for."""
    report = reported(run, CLASS, facts("free", pid=None, user=None))
    said = "no process listened on port 29673 (MASTER_PORT), and no connection had it, when the exception had reached"
    assert said in summary(report)
    assert "nothing had" not in summary(report)
    assert "that is only bound is not seen: a helper that looks for a free port and keeps its socket" in advice(report)
    assert "line 15" not in summary(report)


@pytest.mark.parametrize("failing", ["main_loop", "handler"])
def test_an_exception_of_other_things_is_not_of_a_port_that_the_program_had_handled(failing: str, run: Path) -> None:
    """It is only where the handler itself raises it for that."""
    source = (
        "def main_loop(data):\n    raise ValueError('shapes differ')\n"
        "def start():\n    try:\n        start_http_server(29673)\n    except OSError as error:\n"
        "        raise ValueError('shapes differ')\n        main_loop([])\nstart()\n"
    )
    program = str(s.program_in(run, HEAD + source))
    before = [
        {
            "type": "OSError",
            "message": "[Errno 98] Address already in use",
            "python_stack": [
                {"function": "start_http_server", "file": f"{s.TORCH}/web.py", "line": 3},
                {"function": "start", "file": program, "line": 8},
            ],
        }
    ]
    stack = [("main_loop", program, 5), ("start", program, 11)] if failing == "main_loop" else [("start", program, 10)]
    one = Box(100, 99, argv=("python", "program.py"))
    one.at(7000).exception("ValueError", "shapes differ", stack, variables=facts(pid=77), context=before).exit(1)
    report = build_report(s.load(run, one))
    assert ("listens on port 29673" in summary(report)) == (failing == "handler")


@pytest.mark.parametrize(
    "variables",
    [
        facts("closing", pid=None, user=None, closing=3),
        facts("free", pid=None, user=None),
        facts(pid=77),
        facts(pid=101),
        facts(pid=102),
    ],
)
def test_a_line_that_is_not_known_is_not_spoken_of(variables: list[dict[str, str]], run: Path) -> None:
    """No line of the program is on the stack, as of a server that a library starts in the background."""
    stack = [("bind", f"{s.TORCH}/web.py", 3)]
    message = "[Errno 98] Address already in use"
    one = Box(101, 99).at(7000).exception("OSError", message, stack, variables=variables).exit(1)
    report = build_report(s.load(run, one, Box(102, 98).at(9000).exit(0)))
    said = f"{summary(report)} {advice(report)}"
    assert "29673" in said
    assert "line None" not in said
    assert "?" not in said


@pytest.mark.parametrize("text", ["f''", "(f'')", "f'{HOST}:'"])
def test_an_empty_address_of_a_call_is_no_port(text: str, run: Path) -> None:
    """Nothing fails where a text is put together of nothing."""
    source = MODULE.format(port="29700", master="True") + f"def other():\n    sock.bind({text})\n"
    source = source.replace("    mp.spawn", "    other()\n    mp.spawn")
    report = reported(run, source, facts())
    assert "already listens on port 29673" in summary(report)


def test_without_recorded_sockets_a_line_of_the_parent_is_probable(run: Path) -> None:
    """As with --no-values; the known crash is spoken of where no line serves there."""
    said = summary(reported(run, CLASS, []))
    assert "probably its parent, process 100 (program.py) of this job, listens on port 29673" in said
    assert "which line 15 (`Board(settings, serve=True)`) opened" in said


@pytest.mark.parametrize(
    "source",
    [
        MODULE.format(port="29700", master="True"),
        MODULE.format(port="find_port()", master="True"),
        "def worker(rank):\n    dist.init_process_group('gloo')\nmp.spawn(worker)\n",
    ],
)
def test_nothing_is_presumed_of_a_port_that_is_not_known(source: str, run: Path) -> None:
    """The known crash is named instead."""
    report = reported(run, source, [])
    assert "probably" not in summary(report)
    assert "the port of the store is in use" in summary(report)
