"""A history in an object store: a real S3 server on loopback, s3fs, pyarrow and DuckDB."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import clean_environment, only_line, pytracer
from tests.support.histories import rows

moto = pytest.importorskip("moto", reason="make test-integrations installs it")
s3fs = pytest.importorskip("s3fs", reason="make test-integrations installs it")
Store = pytest.importorskip("pytracer.history.store").Store

BUCKET = "team"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of moto's server, ready."""
    log = tmp_path_factory.mktemp("s3") / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], stdout=out, stderr=subprocess.STDOUT
        )
        try:
            yield _address(process, log)
        finally:
            process.terminate()
            process.wait(10)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found = [word for word in log.read_text().split() if word.startswith("http://127.0.0.1:")]
        if found:
            try:
                urllib.request.urlopen(found[0], timeout=5).close()
            except urllib.error.HTTPError:
                pass  # it answers
            except OSError:
                time.sleep(0.1)
                continue
            return found[0].rstrip("/")
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty store; s3fs finds the server as boto does, by the environment."""
    variables = {
        "AWS_ENDPOINT_URL": server, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    files = s3fs.S3FileSystem(skip_instance_cache=True)
    if not files.exists(BUCKET):
        files.mkdir(BUCKET)
    return f"s3://{BUCKET}/{os.urandom(4).hex()}"


def test_history_lives_in_a_bucket(bucket: str, tmp_path: Path) -> None:
    """Added, asked, compacted, forgotten: by the same commands as on a disk."""
    store = Store(bucket)
    assert store.add(rows(3)).new == 3 and store.add(rows(5)).new == 2
    ask = ["history", "--store", bucket]
    done = pytracer(*ask, cwd=tmp_path, env=clean_environment())
    assert "5 deaths in 5 runs" in done.stdout, done.stderr
    assert pytracer("history", "compact", "--store", bucket, cwd=tmp_path).stdout == f"{bucket}: 2 files became 1\n"
    done = pytracer(*ask, "--sql", "SELECT count(*) AS n FROM nodes", "--json", cwd=tmp_path)
    assert '"n": 10' in done.stdout, done.stderr
    gone = pytracer("history", "forget", "--older-than", "2027-01-01", "--store", bucket, cwd=tmp_path)
    assert gone.stdout == f"{bucket}: 5 forgotten\n"


def test_torn_object_is_left_out_and_named(bucket: str, tmp_path: Path) -> None:
    """As one that was copied in half."""
    store = Store(bucket)
    store.add(rows(2))
    store.add(rows(3, 2))
    victim = store.files()[0]
    content = store.filesystem.cat_file(victim)
    store.filesystem.pipe_file(victim, content[: len(content) // 2])
    done = pytracer("history", "--store", bucket, cwd=tmp_path)
    assert done.returncode == 0 and " runs of " in done.stdout.splitlines()[0]
    assert only_line(done) == f"pytracer: {victim} cannot be read and is left out; remove it, or add its runs again"


def test_bucket_that_is_not_there_is_one_line(bucket: str, tmp_path: Path) -> None:
    """With its URL."""
    done = pytracer("history", "--store", "s3://nobody-has-this/x", cwd=tmp_path)
    assert done.returncode == 1 and "s3://nobody-has-this/x" in only_line(done)
