"""`pytest --pytracer` in real test runs: which test, which phase, which parameters; and nothing without the option."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.conditions import needs_core
from tests.support.crash import environment

pytestmark = needs_core

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import ctypes, pytest

def read():
    ctypes.string_at(0)

@pytest.fixture
def broken():
    yield
    read()

@pytest.fixture
def unmade():
    read()

def test_good():
    pass

@pytest.mark.parametrize("model", [object()])
@pytest.mark.parametrize("n", [1, 2])
def test_call(model, n):
    if n == 2:
        read()

def test_teardown(broken):
    pass

def test_setup(unmade):
    pass
"""


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    """A directory with tests, and pytracer as it is installed: with its entry point."""
    installed = tmp_path / "site" / "pytracer-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: pytracer-for-tests\nVersion: 0\n")
    (installed / "entry_points.txt").write_text("[pytest11]\npytracer = pytracer.pytest_plugin\n")
    (tmp_path / "test_x.py").write_text(TESTS)
    return tmp_path


def run_pytest(
    tests: Path, *arguments: str, start: tuple[str, ...] = ("-m", "pytest")
) -> subprocess.CompletedProcess[str]:
    env = environment(PYTHONPATH=f"{tests / 'site'}:{ROOT}", COLUMNS="200")
    env = {name: value for name, value in env.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, *start, "-p", "no:cacheprovider", *arguments],
        env=env, cwd=tests, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("test_call", r"test_x.py::test_call\[2-model0\]: (model=<object>, n=2|n=2, model=<object>) \(call\)"),
        ("test_teardown", r"test_x.py::test_teardown \(teardown\)"),
        ("test_setup", r"test_x.py::test_setup \(setup\)"),
    ],
)
def test_crash_names_test_phase_and_parameters(test: str, words: str, tests: Path) -> None:
    """The whole report follows, with its place; the status is that of the signal, as below a shell."""
    done = run_pytest(tests, "-p", "pytracer", "--pytracer", "--pytracer-dir", "run", "-k", test)
    assert done.returncode == 139
    assert re.search(rf"^test +{words}$", done.stderr, re.M), done.stderr
    assert re.search(
        r"^Process \d+ \(pytest\) read through a null pointer.* at test_x.py:5 in read\.$", done.stderr, re.M
    )
    assert re.search(r"^run +run$", done.stderr, re.M)


def test_crashed_worker_of_xdist_has_the_headline_in_its_line(tests: Path) -> None:
    """Where xdist says only that it crashed. The other tests go on."""
    done = run_pytest(tests, "--pytracer", "--pytracer-dir", "run", "-n", "2", "-k", "good or call or teardown")
    assert done.returncode == 1
    assert "2 failed, 3 passed" in done.stdout or "2 failed, 2 passed" in done.stdout
    for test, words in (("test_call[2-model0]", "test_call"), ("test_teardown", "test_teardown (teardown)")):
        line = done.stdout.partition(f"crashed while running 'test_x.py::{test}'\n")[2].partition("\n")[0]
        assert re.match(r"pytracer: Pytest-xdist worker gw\d \(pid \d+\) read through a null pointer", line), (
            done.stdout
        )
        assert words in line
        assert line.endswith("`pytracer inspect run` has the report")


@pytest.mark.slow
def test_crashed_worker_of_xdist_has_a_line_on_stderr_below_run(tests: Path) -> None:
    """Without --pytracer: what pytest prints is the same, the line names worker and place. The other tests go on."""
    text = (tests / "test_x.py").read_text(encoding="utf-8")
    (tests / "test_x.py").write_text(f"import torch\n{text}", encoding="utf-8")
    arguments = ("-q", "-n", "2", "-k", "good or call")
    run = ("-m", "pytracer", "run", "-o", "run", "--", sys.executable, "-m", "pytest")
    plain, traced = run_pytest(tests, *arguments), run_pytest(tests, *arguments, start=run)
    assert traced.returncode == plain.returncode == 1
    assert "pytracer" not in plain.stderr
    assert "pytracer" not in traced.stdout
    crashed = r"^worker '(gw\d)' crashed while running 'test_x.py::test_call\[2-model0\]'$"
    named = re.search(crashed, traced.stdout, re.M)
    assert named is not None, traced.stdout
    place = r"died of SIGSEGV at test_x.py:6 in read; `pytracer inspect run` has the report"
    line = rf"^pytracer: process \d+ \(pytest-xdist worker {named[1]}\) {place}$"
    assert re.search(line, traced.stderr, re.M), traced.stderr


def test_good_tests_pass_as_they_do_without(tests: Path) -> None:
    """The same output and status; the run directory is the only trace."""
    plain = run_pytest(tests, "-k", "good", "-q")
    traced = run_pytest(tests, "-k", "good", "-q", "--pytracer")
    assert (plain.returncode, traced.returncode) == (0, 0)
    assert re.sub(r"[\d.]+s", "", plain.stdout) == re.sub(r"[\d.]+s", "", traced.stdout)
    assert len(list((tests / "runs").glob("*-pytest-*"))) == 1


@pytest.mark.slow
def test_program_that_calls_pytest_is_not_started_again(tests: Path) -> None:
    """It records itself: what it did before would be done twice."""
    program = "import sys, pytest; print('once'); sys.exit(pytest.main(sys.argv[1:]))"
    done = run_pytest(tests, "--pytracer", "--pytracer-dir", "run", "-k", "test_call", start=("-c", program))
    assert done.returncode == -11
    assert done.stdout.count("once") == 1
    assert "\npytracer: recording into run\n" in done.stdout
    shown = subprocess.run(
        [sys.executable, "-m", "pytracer", "inspect", str(tests / "run")],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "test_call[2-model0]" in shown.stdout


def test_nothing_is_imported_without_the_option(tests: Path) -> None:
    """Neither torch nor the recorder, nor a hook: the module of the plugin alone."""
    (tests / "test_modules.py").write_text(
        "import sys\n"
        "def test_modules(request):\n"
        "    ours = {name for name in sys.modules if name.split('.')[0] in ('pytracer', 'torch')}\n"
        "    assert ours == {'pytracer', 'pytracer.pytest_plugin'}\n"
        "    assert not request.config.pluginmanager.hasplugin('pytracer-tests')\n"
        "    assert request.config.pluginmanager.hasplugin('pytracer')\n"
    )
    done = run_pytest(tests, "test_modules.py")
    assert done.returncode == 0, done.stdout
    assert not (tests / "runs").exists()
    assert version("pytest").split(".")[0] in ("8", "9")
