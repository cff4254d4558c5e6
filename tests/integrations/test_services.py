"""Each service's own tool shows the failure: what it was sent is asked back from it."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.support import scenarios
from tests.support.cli import clean_environment, pytracer

SUMMARY = "Rank 1 read freed memory"
Requests = list[tuple[str, bytes]]
pytestmark = pytest.mark.timeout(600)  # MLflow's server takes minutes to start on a busy machine


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A use after free on rank 1 of two."""
    directory = tmp_path_factory.mktemp("job") / "run"
    scenarios.use_after_free(directory)
    return directory


@pytest.fixture
def sink() -> Iterator[tuple[int, Requests]]:
    """A server on loopback that takes everything."""
    got: Requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}" if "envelope" in self.path else b"")

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port, got
    server.shutdown()
    server.server_close()


def _notify(run: Path, directory: Path, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return pytracer("notify", run, *options, cwd=directory, env=clean_environment(**environ))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def _server(*command: str, url: str, cwd: Path, **environ: str) -> Iterator[None]:
    """A server that runs until the block ends; it has a process group of its own, with its workers."""
    with (cwd / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=cwd, env=clean_environment(**environ), stdout=log, stderr=log, start_new_session=True
        )
    try:
        for _ in range(2000):
            with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
                break
            assert process.poll() is None, (cwd / "server.log").read_text()
            time.sleep(0.2)
        else:
            raise AssertionError((cwd / "server.log").read_text())
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def test_mlflow_server_shows_a_failed_run_with_the_report(run: Path, tmp_path: Path) -> None:
    """By its REST API: status FAILED, tags, the note, the artifacts."""
    pytest.importorskip("mlflow", reason="make test-integrations installs it")
    port = _free_port()
    address = f"http://127.0.0.1:{port}"
    store = f"sqlite:///{tmp_path}/mlflow.db"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", store, "--artifacts-destination", str(tmp_path / "artifacts")]
    with _server(*command, url=f"{address}/health", cwd=tmp_path):
        create = urllib.request.Request(
            f"{address}/api/2.0/mlflow/runs/create", json.dumps({"experiment_id": "0"}).encode(),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(create, timeout=20) as answer:
            run_id = json.load(answer)["run"]["info"]["run_id"]
        done = _notify(run, tmp_path, "--mlflow", run_id, MLFLOW_TRACKING_URI=address)
        assert done.returncode == 0, done.stderr
        found = json.loads(_get(f"{address}/api/2.0/mlflow/runs/get?run_id={run_id}"))["run"]
        html = _get(f"{address}/get-artifact?run_id={run_id}&path=pytracer/report.html")
        files = json.loads(_get(f"{address}/api/2.0/mlflow/artifacts/list?run_id={run_id}&path=pytracer"))["files"]
    tags = {tag["key"]: tag["value"] for tag in found["data"]["tags"]}
    assert found["info"]["status"] == "FAILED"
    assert (tags["pytracer.class"], tags["pytracer.rank"]) == ("use-after-free", "1")
    assert tags["mlflow.note.content"].startswith(f"**{SUMMARY}")
    assert SUMMARY in html
    assert {file["path"] for file in files} == {"pytracer/report.html", "pytracer/report.txt"}


def test_wandb_offline_run_has_the_verdict_and_a_failing_exit_status(run: Path, tmp_path: Path) -> None:
    """Its own file, decoded with its own protocol."""
    pytest.importorskip("wandb", reason="make test-integrations installs it")
    from wandb.proto import wandb_internal_pb2

    page = tmp_path / "report.html"
    page.write_text("<p>the page</p>")
    done = _notify(
        run,
        tmp_path,
        "--wandb",
        "team/project/abc123",
        "--page",
        str(page),
        WANDB_MODE="offline",
        WANDB_DIR=str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert "team/project/abc123 is marked as failed" in done.stderr
    (file,) = (tmp_path / "wandb").glob("offline-run-*/run-abc123.wandb")
    summary: dict[str, object] = {}
    status = None
    for data in _log_records(file.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(data)
        for item in record.summary.update:
            summary[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
        if record.WhichOneof("record_type") == "exit":
            status = record.exit.exit_code
    assert status == 1
    assert summary["pytracer/class"] == "use-after-free"
    assert str(summary["pytracer/summary"]).startswith(SUMMARY)
    assert SUMMARY in (file.parent / "files" / "pytracer.txt").read_text()
    assert [p.read_text() for p in (file.parent / "files" / "media" / "html").iterdir()] == ["<p>the page</p>"]


def _log_records(data: bytes) -> Iterator[bytes]:
    """LevelDB's log format after seven bytes of W&B's: blocks of 32 KiB, records in one piece or several."""
    at, parts, block = 7, b"", 32768
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, last
            yield parts
            parts = b""


def test_tensorboard_serves_the_report(run: Path, tmp_path: Path) -> None:
    """Its server's API: the text, and the scalar that is 1."""
    pytest.importorskip("tensorboard", reason="make test-integrations installs it")
    done = _notify(run, tmp_path, "--tensorboard", str(tmp_path / "logs"))
    assert done.returncode == 0, done.stderr
    port = _free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(tmp_path / "logs"), "--port", str(port)]
    with _server(*command, "--load_fast=false", url=address, cwd=tmp_path):
        for _ in range(100):
            tags = json.loads(_get(f"{address}/data/plugin/text/tags"))
            if tags:
                break
            time.sleep(0.2)
        (texts,) = tags.values()
        assert "pytracer/report" in str(texts)
        text = _get(f"{address}/data/plugin/text/text?run=.&tag=pytracer%2Freport")
        scalars = json.loads(_get(f"{address}/data/plugin/scalars/scalars?run=.&tag=pytracer%2Fdied"))
    assert SUMMARY in text
    assert scalars[0][2] == 1.0


def test_otlp_collector_gets_a_span_with_an_exception(run: Path, tmp_path: Path, sink: tuple[int, Requests]) -> None:
    """What the exporter sent, decoded with OpenTelemetry's own protocol."""
    pytest.importorskip("opentelemetry.sdk", reason="make test-integrations installs it")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    port, got = sink
    done = _notify(run, tmp_path, "--otel", f"http://127.0.0.1:{port}")
    assert done.returncode == 0, done.stderr
    ((path, body),) = got
    assert path == "/v1/traces"
    request = ExportTraceServiceRequest.FromString(body)
    (span,) = request.resource_spans[0].scope_spans[0].spans
    (event,) = span.events
    attributes = {item.key: item.value.string_value for item in event.attributes}
    assert (span.status.code, event.name) == (2, "exception")
    assert attributes["exception.type"] == "SIGSEGV"
    assert attributes["exception.message"].startswith(SUMMARY)
    assert 'train.py", line 41' in attributes["exception.stacktrace"]
    assert span.end_time_unix_nano > span.start_time_unix_nano


def test_otlp_endpoint_that_refuses_is_an_error(run: Path, tmp_path: Path) -> None:
    """The SDK itself only logs it."""
    pytest.importorskip("opentelemetry.sdk", reason="make test-integrations installs it")
    done = _notify(run, tmp_path, "--otel", f"http://127.0.0.1:{_free_port()}")
    assert done.returncode == 1
    assert "the OTLP endpoint did not take the span" in done.stderr


def test_sentry_gets_an_event_with_frames_tags_and_a_fingerprint(
    run: Path, tmp_path: Path, sink: tuple[int, Requests]
) -> None:
    """The envelope that its SDK sent."""
    pytest.importorskip("sentry_sdk", reason="make test-integrations installs it")
    port, got = sink
    done = _notify(run, tmp_path, "--sentry", f"http://key@127.0.0.1:{port}/42")
    assert done.returncode == 0, done.stderr
    ((path, body),) = got
    assert path == "/api/42/envelope/"
    lines = body.split(b"\n")
    assert json.loads(lines[1])["type"] == "event"
    event = json.loads(lines[2])
    (exception,) = event["exception"]["values"]
    assert event["level"] == "fatal"
    assert exception["type"] == "SIGSEGV"
    assert exception["value"].startswith(SUMMARY)
    frames = exception["stacktrace"]["frames"]
    assert (frames[-1]["function"], frames[-1]["lineno"], frames[-1]["in_app"]) == ("Peek.backward", 41, True)
    assert frames[0]["function"] == "<module>"
    assert event["tags"]["rank"] == "1"
    assert event["fingerprint"] == ["pytracer", "use-after-free", "use-after-free", "train.py:Peek.backward"]
    assert "/home/user" not in body.decode()


def test_sentry_that_is_not_reached_is_an_error(run: Path, tmp_path: Path) -> None:
    """The SDK itself only counts it."""
    pytest.importorskip("sentry_sdk", reason="make test-integrations installs it")
    done = _notify(run, tmp_path, "--sentry", f"http://key@127.0.0.1:{_free_port()}/42")
    assert done.returncode == 1
    assert "Sentry did not take the event" in done.stderr


def test_prometheus_client_parses_the_textfile(run: Path, tmp_path: Path) -> None:
    """Prometheus's own parser of its text format."""
    parser = pytest.importorskip("prometheus_client.parser", reason="make test-integrations installs it")
    assert _notify(run, tmp_path, "--prometheus", "p.prom").returncode == 0
    families = {f.name: f for f in parser.text_string_to_metric_families((tmp_path / "p.prom").read_text())}
    deaths = {sample.labels["class"]: sample.value for sample in families["pytracer_deaths"].samples}
    assert deaths["use-after-free"] == 1.0
    assert families["pytracer_dropped_records"].samples[0].value == 0.0


@pytest.mark.skipif(shutil.which("prometheus-node-exporter") is None, reason="apt-get install prometheus-node-exporter")
def test_node_exporter_serves_the_textfile(run: Path, tmp_path: Path) -> None:
    """As a scrape sees it."""
    assert _notify(run, tmp_path, "--prometheus", "p.prom").returncode == 0
    port = _free_port()
    command = ["prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{port}", "--collector.disable-defaults"]
    command += ["--collector.textfile", f"--collector.textfile.directory={tmp_path}"]
    with _server(*command, url=f"http://127.0.0.1:{port}/metrics", cwd=tmp_path):
        metrics = _get(f"http://127.0.0.1:{port}/metrics")
    assert 'pytracer_deaths{class="use-after-free",' in metrics
    assert "node_textfile_scrape_error 0" in metrics
