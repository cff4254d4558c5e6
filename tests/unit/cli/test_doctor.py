"""`pytracer doctor`: a table, a JSON object, and an exit code."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytracer.cli import checks, doctor
from pytracer.cli.checks import environment
from tests.conditions import needs_core, needs_native
from tests.support.cli import ROOT, pytracer


@needs_core
def test_doctor_finds_this_machine_able_to_record(tmp_path: Path) -> None:
    """Where the tests run, everything essential works: the core, the preload, the crash handler."""
    done = pytracer("doctor", "--json", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout
    assert document["ok"] is True
    results = {check["id"]: check["result"] for check in document["checks"]}
    assert results["core"] == results["preload"] == results["crash-handler"] == "works"
    assert results["thread-stacks"] == "works"
    assert not [check for check in document["checks"] if "could not be checked" in check["detail"]]
    assert not list(tmp_path.iterdir())
    assert document["full"] is False
    assert not {"native", "storages", "cuda", "wrappers"} & results.keys()  # their children import torch


@pytest.mark.slow
@needs_native
def test_full_doctor_tries_what_is_recorded_of_torch(tmp_path: Path) -> None:
    """Children with torch record every kind of memory, a bucket and a unit."""
    done = pytracer("doctor", "--full", "--json", cwd=tmp_path)
    results = {check["id"]: check["result"] for check in json.loads(done.stdout)["checks"]}
    assert results["native"] == results["storages"] == results["wrappers"] == "works", done.stdout


def test_missing_services_are_named_with_the_command_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row for all of them; only those that are missing."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("wandb", "sentry_sdk") else object())
    found = environment.check_services()
    assert found.detail == "optional: `notify` cannot send to sentry, wandb"
    assert found.next == "pip install 'pytracer[sentry,wandb]', or those that you use"


def test_every_extra_for_users_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(environment, "sys", SimpleNamespace(executable="/nowhere/python"))
    text = (ROOT / "pyproject.toml").read_text()
    section = text.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    extras = set(re.findall(r"^(\w+) =", section, re.MULTILINE)) - {"bench", "test", "peers", "lint", "dev"}
    checks_of_extras = (
        environment.check_symbols, environment.check_disassembler, environment.check_html, environment.check_stacks,
        environment.check_services, environment.check_history, environment.check_engines, environment.check_urls,
    )  # fmt: skip
    assert set(checks_of_extras) <= set(checks.ENVIRONMENT)
    named = " ".join(check().next or "" for check in checks_of_extras)
    assert {extra for extra in extras if not re.search(rf"[\[,]{extra}[\],]", named)} == set()


def test_missing_core_is_exit_1_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the library nothing can be recorded, and the table names the remedy."""
    from pytracer import _paths as paths
    from pytracer import cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(paths, "_PACKAGE", tmp_path)
    assert cli.main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "is not built" in " ".join(text.split())
    assert "next: `pip install --force-reinstall WHEEL`" in " ".join(text.split())
    assert "Nothing can be recorded" in text


def test_check_that_fails_itself_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable /proc is an answer, too."""

    def check_broken() -> checks.Check:
        raise PermissionError("no /proc here")

    monkeypatch.setattr(checks, "RECORDING", ())
    monkeypatch.setattr(checks, "ENVIRONMENT", (check_broken, checks.recording.check_python))
    first, second = checks.run_checks(full=False)
    assert (first.id, first.result) == ("broken", checks.LIMITED)
    assert "no /proc here" in first.detail
    assert second.id == "python"


def test_every_check_is_named_for_its_function() -> None:
    """A check that raises is reported under its usual name."""
    functions = (checks.faults.check_core_dumps, checks.faults.check_tools, checks.faults.check_c_library)
    for function in functions:
        assert function().id == function.__name__.removeprefix("check_").replace("_", "-")


def test_table_keeps_its_columns_and_shows_next_steps() -> None:
    """Long answers wrap within their column."""
    found = [
        checks.Check("core", checks.WORKS, "fine"),
        checks.Check("torch", checks.LIMITED, "word " * 20, "do this"),
    ]
    lines = doctor.table(found, 60).splitlines()
    assert lines[0] == "check  result   why"
    assert lines[1] == "core   works    fine"
    assert lines[2].startswith("torch  limited  word")
    assert all(line.startswith(" " * 16) and len(line) <= 60 for line in lines[3:])
    assert lines[-1].strip() == "next: do this"
