"""`pytracer history`: real crashes added, questions asked, mistakes explained."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from pytracer.history.store import Store
from tests.conditions import needs_core, needs_history
from tests.support.cli import clean_environment, only_line, pytracer
from tests.support.histories import rows, tear

pytestmark = needs_history

CRASH = "import ctypes\ndef look_up():\n    ctypes.string_at({address})\nlook_up()\n"


def crashed(folder: Path, address: int) -> Path:
    """A run of a program that reads an address, recorded below its folder."""
    folder.mkdir()
    (folder / "reader.py").write_text(CRASH.format(address=address))
    done = pytracer("run", "-o", folder / "run", "--", sys.executable, "reader.py", cwd=folder)
    assert done.returncode == 139, done.stderr
    return folder / "run"


@needs_core
def test_same_crash_in_two_places_is_one_cause(tmp_path: Path) -> None:
    """Added, counted, shown, and recognized in the report of the next one."""
    runs = [crashed(tmp_path / name, 8) for name in ("one", "two", "three")]
    other = crashed(tmp_path / "four", 0x1234_5678_9000)
    store = tmp_path / "store"
    env = clean_environment(PYTRACER_HISTORY=str(store))
    done = pytracer("history", "add", *runs[:2], other, "--jobs", "2", "--commit", "c0ffee", cwd=tmp_path, env=env)
    assert (done.returncode, done.stdout) == (0, f"{store}: 3 added\n"), done.stderr
    again = pytracer("history", "add", runs[0], cwd=tmp_path, env=env)
    assert again.stdout == f"{store}: 0 added, 1 already there\n"

    shown = pytracer("history", cwd=tmp_path, env=env)
    assert "3 deaths in 3 runs" in shown.stdout.splitlines()[0] and "      2  Process" in shown.stdout, shown.stdout
    answer = json.loads(pytracer("history", "--json", cwd=tmp_path, env=env).stdout)
    assert [group["deaths"] for group in answer["groups"]] == [2, 1]
    assert answer["groups"][0]["place"] == "reader.py:3 in look_up"
    commits = pytracer("history", "--sql", "SELECT DISTINCT commit AS c FROM deaths", "--json", cwd=tmp_path, env=env)
    assert json.loads(commits.stdout) == {"rows": [{"c": "c0ffee"}]}

    fingerprint = answer["groups"][0]["fingerprint"]
    report = pytracer("inspect", runs[2], "--history", store, cwd=tmp_path)
    folded = " ".join(report.stdout.split())
    assert (
        "before 2 times " in folded and f"always on this host: pytracer history --fingerprint {fingerprint}" in folded
    )
    assert (
        json.loads(pytracer("inspect", runs[2], "--history", store, "--json", cwd=tmp_path).stdout)["seen"]["deaths"]
        == 2
    )


@needs_core
def test_report_is_shown_when_the_history_is_not_there(tmp_path: Path) -> None:
    """With one line about it."""
    done = pytracer("inspect", crashed(tmp_path / "one", 8), "--history", tmp_path / "none", cwd=tmp_path)
    assert done.returncode == 0 and "null" in done.stdout
    assert only_line(done).startswith("pytracer: --history: there is no history in ")


def test_runs_that_cannot_be_read_are_named_and_the_others_added(tmp_path: Path) -> None:
    """Exit status 1."""
    (tmp_path / "empty").mkdir()
    done = pytracer("history", "add", tmp_path / "empty", "--store", tmp_path / "h", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == f"{tmp_path / 'h'}: 0 added, 1 not readable\n"
    assert only_line(done).startswith(f"pytracer: {tmp_path / 'empty'}: not added: no black boxes")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made = Store(str(tmp_path / "h"))
    made.add([*rows(3), *rows(2, 10, function="validate", day=2)])
    made.add(rows(4, 20, clean=True))
    return tmp_path / "h"


def test_page_loads_nothing_and_runs_nothing(store: Path) -> None:
    """Style by its hash; a script is not allowed at all."""
    page = store.parent / "fleet.html"
    done = pytracer("history", "--store", store, "--html", page, cwd=store)
    assert done.returncode == 0 and only_line(done) == f"pytracer: {page}: open it in a browser"
    text = page.read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None and "default-src &#39;none&#39;" in policy[1] and "script-src" not in policy[1]
    assert "<script" not in text and "Rank 1 read freed memory." in text
    assert "2026-11-02: 0 deaths in 0 runs" in text, "a day without runs has its place"


def test_text_of_a_job_is_escaped_in_page_and_terminal(tmp_path: Path) -> None:
    """A headline may be anything."""
    evil = rows(1)[0] | {"summary": "<script>alert(1)</script>\x1b[31mred", "url": "javascript:alert(1)"}
    Store(str(tmp_path / "h")).add([evil])
    shown = pytracer("history", "--store", tmp_path / "h", cwd=tmp_path)
    assert "\x1b" not in shown.stdout and "\\x1b[31mred" in shown.stdout
    sql = pytracer("history", "--store", tmp_path / "h", "--sql", "SELECT summary FROM runs", cwd=tmp_path)
    assert "\x1b" not in sql.stdout
    pytracer("history", "--store", tmp_path / "h", "--html", "p.html", cwd=tmp_path)
    text = (tmp_path / "p.html").read_text()
    assert "<script" not in text and "\x1b" not in text and "javascript:" not in text


def test_torn_file_is_one_line_and_an_answer(store: Path) -> None:
    """Of everything else."""
    victim = Store(str(store)).files()[-1]
    tear(victim)
    done = pytracer("history", "--store", store, cwd=store)
    assert done.returncode == 0 and "3 deaths in 7 runs" in done.stdout
    assert only_line(done) == f"pytracer: {victim} cannot be read and is left out; remove it, or add its runs again"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--nodes", "--changes", "torch"], "one question at a time"),
        (["--since", "yesterday"], "--since got 'yesterday', which is no day"),
        (["--sql", "SELEC 1"], "DuckDB refuses the question: Parser Error"),
        (["--fingerprint", "f1-ffff"], "no death has the fingerprint f1-ffff"),
        (["--html", "."], ". is a directory"),
        (["forget"], "nothing was named"),
        (["forget", "--older-than", "old"], "--older-than got 'old', which is no day"),
        (["add", "x", "--label", "vision"], "'vision' is no label"),
    ],
)
def test_mistake_is_one_line_with_the_next_step(store: Path, arguments: list[str], says: str) -> None:
    """And nothing is printed or written."""
    done = pytracer("history", *arguments, cwd=store, env=clean_environment(PYTRACER_HISTORY=str(store)))
    assert done.returncode in (1, 2) and done.stdout == ""
    assert only_line(done).startswith(f"pytracer: {says}")


def test_store_comes_from_option_variable_or_settings(store: Path) -> None:
    """In this order; without any the line names all three."""
    none = pytracer("history", cwd=store.parent)
    assert none.returncode == 2 and "--store, PYTRACER_HISTORY, or `store` in [history] of pytracer.toml" in none.stderr
    (store.parent / "pytracer.toml").write_text(f'[history]\nstore = "{store}"\n')
    assert pytracer("history", cwd=store.parent).returncode == 0
    assert pytracer("history", "compact", cwd=store.parent).stdout == f"{store}: 2 files became 1\n"


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [("duckdb", (), "history"), ("ray", ("add", "none", "--engine", "ray"), "ray")],
)
def test_library_that_is_missing_is_named_with_its_extra(
    module: str, arguments: tuple[str, ...], extra: str, store: Path, tmp_path: Path
) -> None:
    """As on an installation without it."""
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / f"{module}.py").write_text(f"raise ModuleNotFoundError(name={module!r})")
    env = clean_environment(PYTRACER_HISTORY=str(store))
    env["PYTHONPATH"] = f"{shadow}:{env['PYTHONPATH']}"
    done = pytracer("history", *arguments, cwd=store, env=env)
    assert only_line(done) == f'pytracer: {module} is not installed here; pip install "pytracer[{extra}]"'


def test_runs_are_named_by_stdin(store: Path, tmp_path: Path) -> None:
    """More than a command line holds; an empty list is a mistake."""
    names = tmp_path / "names"
    names.write_text("one\n\ntwo\n")
    at = ["history", "add", "-", "--store", str(store)]
    with names.open() as stdin:
        done = pytracer(*at, cwd=tmp_path, stdin=stdin)
    assert done.returncode == 1 and done.stdout == f"{store}: 0 added, 2 not readable\n", done.stderr
    assert only_line(pytracer(*at, cwd=tmp_path)).startswith("pytracer: stdin names no run; ")


def test_forgetting_by_age_and_key(store: Path) -> None:
    """A count is printed; the recordings are not touched."""
    gone = pytracer("history", "forget", "--older-than", "2026-11-02", "--store", store, cwd=store)
    assert gone.stdout == f"{store}: 7 forgotten\n"
    keys = [str(row["run_key"]) for row in rows(2, 10, function="validate", day=2)]
    gone = pytracer("history", "forget", "--store", store, "--", *keys, cwd=store)
    assert gone.stdout == f"{store}: 2 forgotten\n"
    assert "no runs" in pytracer("history", "--store", store, cwd=store).stdout
