"""Programs built with AddressSanitizer, ThreadSanitizer and other sanitizers run as untraced."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytracer.launcher.run_directory import core_library
from tests.conditions import needs_compiler, needs_core
from tests.support.cli import SCRIPT, clean_environment
from tests.support.crash import PROGRAMS

pytestmark = [needs_core, needs_compiler]

KINDS = {
    "gcc address": ["gcc", "-fsanitize=address"],
    "gcc address static": ["gcc", "-fsanitize=address", "-static-libasan"],
    "gcc thread": ["gcc", "-fsanitize=thread"],
    "gcc undefined": ["gcc", "-fsanitize=undefined"],
    "gcc leak": ["gcc", "-fsanitize=leak"],
    "clang address": ["clang", "-fsanitize=address"],
    "clang address shared": ["clang", "-fsanitize=address", "-shared-libasan"],
    "clang thread": ["clang", "-fsanitize=thread"],
}
LAUNCHER = [sys.executable, "-m", "pytracer", "run", "--quiet", "--no-report", "--"]
Build = Callable[..., Path]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compiles tests/crash/programs/sanitized.c in one way of KINDS, once; skips without that compiler or runtime."""
    made: dict[tuple[str, ...], Path] = {}

    def make(kind: str, *more: str) -> Path:
        compiler, *options = KINDS[kind]
        key = (kind, *more)
        if key not in made:
            if shutil.which(compiler) is None:
                pytest.skip(f"{compiler} is not installed")
            if "-shared-libasan" in options:
                words = [compiler, "-print-resource-dir"]
                folder = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
                options.append(f"-Wl,-rpath,{folder}/lib/linux")
            path = tmp_path_factory.mktemp("sanitized") / "program"
            command: list[str | Path] = [
                compiler,
                "-g",
                "-O1",
                "-w",
                "-pthread",
                *options,
                *more,
                "-o",
                path,
                PROGRAMS / "sanitized.c",
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.skip(f"{compiler} cannot link with {options[0]}: {done.stderr[:200]}")
            made[key] = path
        return made[key]

    return make


def result(command: list[str | Path], cwd: Path, **variables: str) -> tuple[int, str, list[str]]:
    """Status, output, and the sanitizer's messages without numbers."""
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=clean_environment(**variables), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    said = re.findall(r"ERROR: (\w+Sanitizer: [\w -]+?)(?: on| \(|$| [0-9a-f]{4})", done.stderr, re.MULTILINE)
    return done.returncode, done.stdout, said


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.quick(3)
def test_program_with_a_sanitizer_runs_as_untraced(kind: str, build: Build, tmp_path: Path) -> None:
    """Status, output and the sanitizer's verdict, for programs that exit, have an error, fork or start threads."""
    program = build(kind)
    preload = {"LD_PRELOAD": str(core_library()), "PYTRACER_DIR": str(tmp_path), "PYTRACER_LAUNCHER": "1"}
    hows = ["ends", "null", "abort", "leak", "threads", "fork", "exec", "shell"]
    if "undefined" not in kind and "leak" not in kind:
        hows.append("use after free")
    for how in hows:
        untraced = result([program, how], tmp_path)
        assert result([program, how], tmp_path, **preload) == untraced, how
    assert list((tmp_path / "boxes").iterdir())


@pytest.mark.parametrize("way", [LAUNCHER, [str(SCRIPT)]], ids=["pytracer run", "pytracer-run"])
def test_child_of_an_ordinary_program_may_have_a_sanitizer(way: list[str], build: Build, tmp_path: Path) -> None:
    """The shell that starts the program is not instrumented; AddressSanitizer finds the error and reports it."""
    program = build("gcc address")
    command: list[str | Path] = ["sh", "-c", f"'{program}' 'use after free'; exit $?"]
    untraced = result(command, tmp_path)
    assert untraced[2] == ["AddressSanitizer: heap-use-after-free"]
    assert result([*way, *command], tmp_path) == untraced


@pytest.mark.parametrize("freed", [False, True], ids=["sound", "use after free"])
@pytest.mark.parametrize("way", [LAUNCHER, [str(SCRIPT)]], ids=["pytracer run", "pytracer-run"])
@pytest.mark.quick(1)
def test_extension_with_a_preloaded_runtime_works_in_python(
    way: list[str], freed: bool, build: Build, tmp_path: Path
) -> None:
    """`LD_PRELOAD=libasan.so python`: the runtime stays first, and the extension finds it."""
    library = build("gcc address", "-shared", "-fPIC")
    words = ["gcc", "-print-file-name=libasan.so"]
    runtime = os.path.realpath(subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip())
    command: list[str | Path] = [
        sys.executable,
        "-c",
        f"import ctypes; print(ctypes.CDLL('{library}').touch({int(freed)}))",
    ]
    variables = {"LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0"}
    untraced = result(command, tmp_path, **variables)
    assert untraced[0] == int(freed)
    assert result([*way, *command], tmp_path, **variables) == untraced


def test_environment_says_nothing_of_the_sanitizer(build: Build, tmp_path: Path) -> None:
    """The user's ASAN_OPTIONS is unchanged, and its settings apply."""
    program = build("gcc address")
    shown = result([*LAUNCHER, "sh", "-c", "echo [$ASAN_OPTIONS]"], tmp_path)
    assert shown[1] == "[]\n"
    assert result([*LAUNCHER, program, "use after free"], tmp_path, ASAN_OPTIONS="exitcode=77")[0] == 77
