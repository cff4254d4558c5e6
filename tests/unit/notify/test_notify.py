"""What is sent, and to whom. The services' own tools read it in tests/integrations."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from xml.etree import ElementTree

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.job.merge import load_job
from pytracer.notify import github, junit, prometheus, webhook
from pytracer.notify.extras import NotifyError
from pytracer.notify.message import Frame, message_of
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.cli import clean_environment, only_line, pytracer
from tests.support.synth import Box, write_run

HOSTILE = '<script>\x1b[31m\n::error::x </testcase> \u202e & "quoted", :\\ @channel <!here>'


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return build_report(s.use_after_free(tmp_path / "run"))


@pytest.fixture
def hostile(tmp_path: Path) -> Report:
    """A job that chose its own exception."""
    box = Box(rank=0, world_size=1).at(100)
    box.exception("ValueError", HOSTILE, [(HOSTILE, f"/job/{HOSTILE}.py", 3)]).exit(1)
    write_run(tmp_path / "hostile", box)
    return build_report(load_job(tmp_path / "hostile", symbols=False))


@pytest.fixture
def sink() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """A server on loopback; /no answers 500."""
    got: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(500 if self.path == "/no" else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", got
    server.shutdown()
    server.server_close()


def test_equal_failures_have_one_fingerprint_whatever_rank_address_and_path_they_have(tmp_path: Path) -> None:
    """Two runs, other pids and directories; another line of another function differs."""
    prints = []
    for number, (folder, function) in enumerate([("/a", "step"), ("/b", "step"), ("/a", "load")]):
        directory = tmp_path / str(number)
        write_run(directory, Box(pid=200 + number, rank=number).crash(addr=0, python=[(function, f"{folder}/t.py", 3)]))
        prints.append(message_of(build_report(load_job(directory, symbols=False))).fingerprint)
    assert prints[0] == prints[1] != prints[2]


def test_annotation_is_one_line_at_the_file_in_the_repository(report: Report, hostile: Report) -> None:
    """A line break of the job's begins no workflow command."""
    message = message_of(report)
    inside = {"GITHUB_WORKSPACE": "/home/user"}
    line = github.annotation(message, message.place, inside)
    assert line.startswith("::error file=job/train.py,line=41,title=pytracer%3A use-after-free::")
    assert "file=" not in github.annotation(message, message.place, {"GITHUB_WORKSPACE": "/elsewhere"})
    bad = message_of(hostile)
    text = github.annotation(bad, bad.place, {"GITHUB_WORKSPACE": "/job"})
    assert text.count("\n") == 1
    assert "\n::" not in text


def test_actions_of_github_get_an_annotation_and_a_summary_without_being_asked(tmp_path: Path) -> None:
    """By `notify` without options, inside of a workflow only."""
    s.use_after_free(tmp_path / "run")
    summary = tmp_path / "summary.md"
    step = clean_environment(GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(summary), GITHUB_WORKSPACE="/home/user")
    done = pytracer("notify", "run", cwd=tmp_path, env=step)
    assert done.returncode == 0
    assert done.stderr.startswith("::error file=job/train.py,line=41,")
    assert "use-after-free" in summary.read_text()
    outside = pytracer("notify", "run", cwd=tmp_path, env=clean_environment(GITHUB_ACTIONS=""))
    assert (outside.returncode, "no place to send to" in only_line(outside)) == (2, True)


def test_junit_has_a_case_for_each_process_and_the_cause_is_its_error(report: Report) -> None:
    """Consequences are skipped, with the reason."""
    (suite,) = ElementTree.fromstring(junit.junit_xml(report, message_of(report)).encode())
    (error,) = suite.iter("error")
    assert error.get("type") == "use-after-free"
    assert "freed" in (error.get("message") or "")
    assert suite.get("errors") == "1"
    assert suite.get("tests") == str(len(report.processes or ())) == str(len(list(suite)))
    assert int(suite.get("skipped") or 0) >= 1


def test_hostile_text_is_still_xml_and_still_a_metric(hostile: Report) -> None:
    """Control characters cannot stand in XML, escaped or not."""
    message = message_of(hostile)
    root = ElementTree.fromstring(junit.junit_xml(hostile, message).encode())
    assert len(list(root.iter("testcase"))) == 1
    for line in prometheus.textfile(hostile, message).splitlines():
        assert line.startswith(("#", "pytracer_"))


def test_textfile_counts_deaths_by_class(report: Report) -> None:
    """The cause, and the consequences apart."""
    lines = prometheus.textfile(report, message_of(report)).splitlines()
    deaths = [line for line in lines if line.startswith("pytracer_deaths{")]
    assert any('class="use-after-free"' in line and line.endswith(" 1") for line in deaths)
    assert any('class="consequence"' in line for line in deaths)
    assert all(line.rpartition(" ")[2].isdigit() for line in lines if not line.startswith("#"))


def test_textfile_counts_collectives_that_are_open(tmp_path: Path) -> None:
    """By process group."""
    box = Box(rank=0, world_size=1)
    group = box.group("7", [0]).group_seen("7", size=1)
    box.collective("allreduce_", state="started", group=group).at(50).crash(addr=0)
    write_run(tmp_path, box)
    found = build_report(load_job(tmp_path, symbols=False))
    assert 'pytracer_open_collectives{run="' in prometheus.textfile(found, message_of(found))
    (line,) = [x for x in prometheus.textfile(found, message_of(found)).splitlines() if 'group="7"' in x]
    assert line.endswith(" 1")


def test_webhook_gets_slacks_json_without_mentions(hostile: Report, sink: tuple[str, list[tuple[str, bytes]]]) -> None:
    """`<!here>` would call everybody."""
    url, got = sink
    webhook.send(message_of(hostile), f"{url}/hook")
    ((path, body),) = got
    sent = json.loads(body)
    assert path == "/hook"
    assert set(sent) == {"text", "blocks"}
    assert all(0 < len(block["text"]["text"]) <= 3000 for block in sent["blocks"])
    assert "<!here>" not in body.decode()


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://h/x", "nothing"])
def test_webhook_is_http_only(report: Report, url: str) -> None:
    """urllib would open others."""
    with pytest.raises(NotifyError, match="no http"):
        webhook.send(message_of(report), url)


def test_refusal_of_one_place_is_a_line_without_its_secret_and_the_others_are_told(
    tmp_path: Path, sink: tuple[str, list[tuple[str, bytes]]]
) -> None:
    """Exit status 1."""
    s.use_after_free(tmp_path / "run")
    url, got = sink
    variables = clean_environment(HOOK=f"{url}/no")
    done = pytracer("notify", "run", "--webhook", "$HOOK", "--prometheus", "a.prom", cwd=tmp_path, env=variables)
    assert done.returncode == 1
    assert "the webhook at 127.0.0.1 answered 500" in done.stderr
    assert "/no" not in done.stderr
    assert (tmp_path / "a.prom").exists()
    assert len(got) == 1


def test_what_leaves_by_the_webhook_is_redacted(tmp_path: Path, sink: tuple[str, list[tuple[str, bytes]]]) -> None:
    """The directories of the job do not; in JUnit's file, which stays here, they are."""
    s.use_after_free(tmp_path / "run")
    url, got = sink
    assert pytracer("notify", "run", "--webhook", url, "--junit", "j.xml", cwd=tmp_path).returncode == 0
    assert b"/home/user" not in got[0][1]
    assert b"train.py" in got[0][1]
    assert "/home/user/job/train.py" in (tmp_path / "j.xml").read_text()


def test_service_is_not_told_of_a_run_in_which_nothing_died(
    tmp_path: Path, sink: tuple[str, list[tuple[str, bytes]]]
) -> None:
    """Files are written: the metric of a good run replaces that of the bad one."""
    s.clean(tmp_path / "run")
    url, got = sink
    done = pytracer("notify", "run", "--webhook", url, "--prometheus", "a.prom", cwd=tmp_path)
    assert (done.returncode, got) == (0, [])
    assert 'class="clean"' in (tmp_path / "a.prom").read_text()


@pytest.mark.parametrize(("option", "extra"), [("otel", "otel"), ("sentry", "sentry"), ("mlflow", "mlflow")])
def test_missing_library_is_one_line_that_names_the_extra(tmp_path: Path, option: str, extra: str) -> None:
    """Blocked here by a module that is none."""
    s.use_after_free(tmp_path / "run")
    for name in ("opentelemetry", "sentry_sdk", "mlflow"):
        (tmp_path / "lib").mkdir(exist_ok=True)
        (tmp_path / "lib" / f"{name}.py").write_text(f"raise ModuleNotFoundError('none', name={name!r})\n")
    variables = clean_environment()
    variables["PYTHONPATH"] = f"{tmp_path / 'lib'}{os.pathsep}{variables['PYTHONPATH']}"
    done = pytracer("notify", "run", f"--{option}", "http://127.0.0.1:9", cwd=tmp_path, env=variables)
    assert done.returncode == 1
    assert f'pip install "pytracer[{extra}]"' in only_line(done)


def test_run_sends_what_the_file_names_after_a_death(tmp_path: Path, sink: tuple[str, list[tuple[str, bytes]]]) -> None:
    """The status stays the job's; without a place `run --notify` fails before the job starts."""
    url, got = sink
    (tmp_path / "job.py").write_text("import ctypes\nctypes.string_at(0)\n")
    nothing = pytracer("run", "--notify", "--", "python3", "job.py", cwd=tmp_path)
    assert (nothing.returncode, "no place to send to is set" in only_line(nothing)) == (2, True)
    (tmp_path / "pytracer.toml").write_text(f'[run]\nnotify = true\n[notify]\nwebhook = "{url}/hook"\n')
    done = pytracer("run", "--", "python3", "job.py", cwd=tmp_path)
    assert done.returncode == 139
    assert "webhook: 127.0.0.1 answered 200" in done.stderr
    assert "null pointer" in json.loads(got[0][1])["text"]


def test_place_is_the_innermost_line_of_python(report: Report) -> None:
    """Native frames stand before it."""
    message = message_of(report)
    assert message.place == Frame("Peek.backward", s.SCRIPT, 41)
    assert message.frames[0].native


def test_run_annotates_in_a_workflow_without_being_asked(tmp_path: Path) -> None:
    """On stderr: stdout is the job's."""
    (tmp_path / "job.py").write_text("import ctypes\nctypes.string_at(0)\n")
    step = clean_environment(GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md"))
    done = pytracer("run", "--", "python3", "job.py", cwd=tmp_path, env=step)
    assert (done.returncode, done.stdout) == (139, "")
    assert "\n::error title=pytracer%3A null-dereference::" in done.stderr
    assert "null pointer" in (tmp_path / "summary.md").read_text()
