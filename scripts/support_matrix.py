"""Installs one wheel under each CPython beside each torch, lets a training die there, and reads its report.

    python scripts/support_matrix.py --python python3.11 --python python3.13 --torch 2.13.0 2.14.1
    python scripts/support_matrix.py --python CHROOT:/usr/bin/python3.14 --write docs/reference/support.md

The wheel is the newest in dist/ (`make wheel`) unless --wheel names one. Each CPython gets one venv below --cache;
pytracer is installed into it once, without a compiler, and one torch after the other is put beside it. Torches for CUDA
run on the CPU, with stubs in place of NVIDIA's libraries (tests/fakecuda/stubs.py, which needs cc). Results are kept in
--cache, by wheel: the page has all that were obtained with this wheel file. A combination that was not tried or cannot
be had is never "ok".

Needs the network for torch's wheels (0.5 to 0.9 GB each, removed again unless --keep), 6 GB of disk, and root for a
chroot.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts import support_page  # noqa: E402
from scripts.build_wheel import TORCHES, WHEELS_OF  # noqa: E402

JOB = ROOT / "scripts" / "support_job.py"
WITHOUT_PTRACE = ROOT / "tests" / "crash" / "programs" / "without_ptrace.py"
NEEDED_BY_TORCH = ("typing-extensions", "sympy", "networkx", "jinja2", "filelock", "fsspec", "setuptools")
LIMIT_S = 300

HOOKS = """
import json, sys, torch
from pathlib import Path
from pytracer._torch_libraries import Torch
from pytracer.record.core import core
from pytracer.record.torch import library
core().start(Path(sys.argv[1]), 0)
hooks, _ = library.load(Torch(torch.__version__, torch.version.git_version or ""))
print(json.dumps(hooks.install(1, [])))
"""
WHERE = "import pytracer; print(pytracer.__file__)"
ABOUT = """
import json, platform, sys, sysconfig
free = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
libc = platform.libc_ver()
print(json.dumps([platform.python_version(), "t" if free else "", " ".join(libc)]))
"""


class Failed(Exception):
    """A combination cannot be tried; the text says why."""


class Interpreter(NamedTuple):
    """A CPython of this machine, or of a chroot."""

    root: Path
    program: str
    version: str
    free_threaded: str
    """ "t" or nothing."""
    libc: str

    @property
    def tag(self) -> str:
        """As in the names of wheels: cp313t."""
        return f"cp{''.join(self.version.split('.')[:2])}{self.free_threaded}"

    @property
    def minor(self) -> str:
        """As people write it: 3.13t."""
        return ".".join(self.version.split(".")[:2]) + self.free_threaded

    def inside(self, path: Path) -> str:
        """What a path of this machine is called inside."""
        return str(Path("/") / path.relative_to(self.root))

    def command(self, *words: str | Path) -> list[str]:
        """To be run there; paths are this machine's."""
        inside = [self.inside(word) if isinstance(word, Path) else word for word in words]
        return inside if self.root == Path("/") else ["chroot", str(self.root), *inside]


def interpreter(word: str) -> Interpreter:
    """From PROGRAM or CHROOT:PROGRAM."""
    directory, colon, program = word.rpartition(":")
    root = Path(directory).resolve() if colon else Path("/")
    found = program if colon else shutil.which(program)
    if found is None:
        raise SystemExit(f"there is no {word}")
    place = Interpreter(root, found, "", "", "")
    about = subprocess.run(place.command(found, "-c", ABOUT), capture_output=True, text=True, check=True).stdout
    version, free_threaded, libc = json.loads(about)
    return Interpreter(root, found, version, free_threaded, libc)


class Venv:
    """One CPython's packages: pytracer, what torch needs of pure Python, and one torch at a time."""

    def __init__(self, place: Interpreter, cache: Path) -> None:
        self.place = place
        # The same folder in every root: a chroot sees nothing else of this machine.
        self.home = place.root / cache.relative_to("/") / place.tag
        self._bin = self.home / "venv" / "bin"

    def create(self, wheel: Path) -> float:
        """Anew; returns how many seconds pip took to install the wheel, with its dependencies at hand."""
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        for path in (wheel, JOB, WITHOUT_PTRACE):
            shutil.copy(path, self.home)
        self._check(self.place.program, "-m", "venv", self.home / "venv")
        self._check(*self._pip, "--only-binary=:all:", "click", "msgspec", "rich", "tomli", *NEEDED_BY_TORCH)
        begun = time.monotonic()
        self._check(*self._pip, "--only-binary=:all:", "--no-index", self.home / wheel.name)
        seconds = time.monotonic() - begun
        found = self.run("-c", WHERE).stdout.strip()
        assert found.startswith(self.place.inside(self.home / "venv")), found
        return seconds

    def put_torch(self, wheel: Path) -> None:
        """In place of the one before."""
        copy = self.home / wheel.name
        os.link(wheel, copy)  # 0.5 GB
        try:
            self._check(*self._pip, "--no-deps", "--no-index", "--no-compile", "--force-reinstall", copy)
        finally:
            copy.unlink()
        shutil.rmtree(self._stubs, ignore_errors=True)
        package = next((self.home / "venv").glob("lib/python*/site-packages/torch"))
        if (package / "lib" / "libtorch_cuda.so").exists():
            stubs = ROOT / "tests" / "fakecuda" / "stubs.py"
            command = [sys.executable, str(stubs), "--torch", str(package), "--out", str(self._stubs), "--no-device"]
            subprocess.run(command, check=True)

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Runs the venv's Python."""
        return self._run(self._python, *words)

    def pytracer_run(
        self, directory: Path, *words: str | Path, below: tuple[str | Path, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        """`pytracer run` around the venv's Python; `below` is a program that runs a command."""
        command = (self._python, "-m", "pytracer", "run", "--force", "-o", directory, "--", self._python, *words)
        return self.run(*below, *command) if below else self._run(*command)

    @property
    def _python(self) -> Path:
        return self._bin / "python"

    @property
    def _stubs(self) -> Path:
        return self.home / "stubs"

    @property
    def _pip(self) -> list[str | Path]:
        return [self._python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]

    def _run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        environment = outside_settings() | {"GLOO_SOCKET_IFNAME": "lo", "PYTHONNOUSERSITE": "1"}
        if self._stubs.exists():
            environment["LD_LIBRARY_PATH"] = self.place.inside(self._stubs)
        command = self.place.command(*words)
        try:  # not in this tree, whose pytracer `-m` would find
            return subprocess.run(
                command, cwd=self.home, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired as error:
            raise Failed(f"`{shlex.join(map(str, words[:4]))}` took more than {LIMIT_S} s") from error

    def _check(self, *words: str | Path) -> None:
        done = self._run(*words)
        if done.returncode:
            raise Failed(last_line(done.stderr))


def outside_settings() -> dict[str, str]:
    """The environment without what changes which Python packages are found."""
    unwanted = ("PYTHONPATH", "PYTHONHOME", "PIP_CONSTRAINT", "PIP_FIND_LINKS", "LD_LIBRARY_PATH", "LD_PRELOAD")
    return {name: value for name, value in os.environ.items() if name not in unwanted} | {"PIP_CONFIG_FILE": os.devnull}


def last_line(text: str) -> str:
    """The last one of a tool's errors."""
    return (text.strip().splitlines() or ["no message"])[-1]


@contextlib.contextmanager
def torch_wheel(version: str, place: Interpreter, kept: Path, keep: bool) -> Iterator[Path]:
    """A wheel of torch for that CPython, downloaded now unless it was kept."""
    kept.mkdir(parents=True, exist_ok=True)
    found = list(kept.glob(f"torch-{version}-*-{place.tag}-*x86_64.whl"))
    if not found:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", place.version]
        command += ["--abi", place.tag, "--dest", str(kept), f"torch=={version}"]
        command += [word for name in WHEELS_OF for word in ("--platform", f"{name}_x86_64")]
        done = subprocess.run(command, env=outside_settings(), capture_output=True, text=True, check=False)
        if done.returncode:
            why = "PyPI has no such wheel" if "No matching distribution" in done.stderr else last_line(done.stderr)
            raise Failed(why)
        found = list(kept.glob(f"torch-{version}-*-{place.tag}-*x86_64.whl"))
    yield found[0]
    if not keep:
        found[0].unlink()


def try_torch(venv: Venv) -> dict[str, Any]:
    """One combination: the job untraced, traced, dying, and dying where ptrace is refused."""
    job = venv.home / JOB.name
    plain = venv.run(job)
    if plain.returncode:
        raise Failed(f"the untraced job fails: {last_line(plain.stderr)}")
    traced = venv.pytracer_run(venv.home / "healthy", job)
    missing = [] if (traced.returncode, traced.stdout) == (0, plain.stdout) else ["healthy run as untraced"]
    died = venv.pytracer_run(venv.home / "crash", job, "crash")
    report = read_report(venv, venv.home / "crash")
    lost = missing_in(report, died.returncode)
    venv.pytracer_run(venv.home / "graph", job, "graph")
    lost += missing_in_graph(read_report(venv, venv.home / "graph"))
    refused = venv.pytracer_run(venv.home / "no-ptrace", job, "crash", below=(venv.home / WITHOUT_PTRACE.name,))
    without = missing_in(read_report(venv, venv.home / "no-ptrace"), refused.returncode)
    (venv.home / "hooks").mkdir(exist_ok=True)
    hooks = venv.run("-c", HOOKS, venv.home / "hooks")
    return {
        "missing": missing + lost,
        "without_ptrace": without,
        "hooks": json.loads(hooks.stdout) if hooks.returncode == 0 else None,
        "no_hooks": last_line(hooks.stderr) if hooks.returncode else None,
        "notes": [note for process in report["processes"] for note in process["notes"]],
        "headline": report["verdict"]["summary"] if report.get("verdict") else None,
        "torch": report["run"]["torch"],
        "said": [line for line in died.stderr.splitlines() if line.startswith("pytracer:")],
    }


def read_report(venv: Venv, directory: Path) -> dict[str, Any]:
    """As JSON, read by the installed pytracer."""
    done = venv.run("-m", "pytracer", "inspect", directory, "--json")
    if not done.stdout:
        raise Failed(f"there is no report: {last_line(done.stderr)}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def line_of(text: str) -> int:
    """The line of the job that contains `text`."""
    lines = JOB.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def missing_in(report: dict[str, Any], status: int) -> list[str]:
    """Which of the things that the report of the crash must have it has not; support_page.FACTS explains them."""
    process = next((one for one in report["processes"] if one["primary"]), None)
    if process is None or not report["verdict"]:
        return ["crash"]
    fault = process.get("fault") or {}
    storage, bucket, node = fault.get("storage") or {}, fault.get("bucket") or {}, process.get("autograd_node") or {}
    allocated, freed = (((storage.get(end) or {}).get("caller") or {}).get("line") for end in ("allocated", "freed"))
    frames = [(frame["function"], frame["line"]) for frame in process["python_stack"] or []]
    reduced = [call["buffer"] or {} for call in process["recent_collectives"] or [] if call["op"] == "all_reduce"]
    verdict = (report["verdict"]["class"], report["verdict"]["confidence"])
    lines = (line_of("# first buckets"), line_of("= model("))
    caller = frames[1] if len(frames) > 1 else ("", 0)  # the innermost one is ctypes.string_at
    found = {
        "crash": status == 139 and process["status"].get("signal") == 11 and bool(process["native_stack"]),
        "Python lines": caller[0].endswith("backward") and caller[1] == line_of("# it dies here"),
        "storages": storage.get("state") == "freed" and (allocated, freed) == lines,
        "nodes": node.get("name") == "LookAtGradientBackward",
        "collectives": any(buffer.get("bucket_index") == 0 for buffer in reduced),
        "buckets": (bucket.get("module"), bucket.get("parameter")) == ("Model", "decoder.weight"),
        "names": "gradient of decoder.weight" in (storage.get("names") or []),
        "verdict": verdict == ("use-after-free", "certain"),
    }
    return [name for name, right in found.items() if not right]


def missing_in_graph(report: dict[str, Any]) -> list[str]:
    """The same for the report of the activation that only the autograd graph holds."""
    process = next((one for one in report["processes"] if one["primary"]), None) or {}
    held = ((process.get("fault") or {}).get("storage") or {}).get("holders") or []
    return [] if "MulBackward0" in [holder["expression"] for holder in held] else ["saved tensors"]


def try_all(arguments: argparse.Namespace, results: Path) -> None:
    """Every torch under every CPython; each result is a file of its own."""
    for place in map(interpreter, arguments.python or [sys.executable]):
        venv = Venv(place, arguments.cache)
        about = {"python": place.version, "libc": place.libc, "chroot": place.root != Path("/")}
        try:
            about["install_seconds"] = round(venv.create(arguments.wheel), 1)
            problem = None
        except Failed as error:
            problem = f"pytracer is not installed: {error}"
        for version in arguments.torch:
            result: dict[str, Any]
            begun = time.monotonic()
            try:
                if problem:
                    raise Failed(problem)
                with torch_wheel(version, place, arguments.cache / "torch-wheels", arguments.keep) as wheel:
                    venv.put_torch(wheel)
                result = try_torch(venv)
            except Failed as error:
                result = {"not_tried": str(error)}
            result = about | result | {"date": datetime.date.today().isoformat()}
            (results / f"{place.minor} {version}.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
            shown = result.get("not_tried") or support_page.mark(result)
            seconds = time.monotonic() - begun
            print(f"CPython {place.minor}, torch {version}: {shown} ({seconds:.0f} s)", flush=True)
        if not arguments.keep:
            shutil.rmtree(venv.home)


def newest_wheel() -> Path:
    """In dist/."""
    wheels = sorted((ROOT / "dist").glob(f"pytracer-*{platform.machine()}.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        raise SystemExit("there is no wheel in dist/: make wheel, or --wheel FILE")
    return wheels[-1]


def main(words: Sequence[str] | None = None) -> int:
    """Tries, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, help="default: the newest in dist/")
    parser.add_argument(
        "--python", action="append", metavar="[CHROOT:]PROGRAM", help="may be repeated; default: this one"
    )
    parser.add_argument(
        "--torch",
        nargs="*",
        default=[version for version, _ in TORCHES.values()],
        metavar="VERSION",
        help="default: all; none: write only",
    )
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "matrix", help="default: build/matrix")
    parser.add_argument("--keep", action="store_true", help="keep torch's wheels and the venvs")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page from all results with this wheel")
    arguments = parser.parse_args(words)
    arguments.cache = arguments.cache.resolve()
    arguments.wheel = (arguments.wheel or newest_wheel()).resolve()
    digest = hashlib.sha256(arguments.wheel.read_bytes()).hexdigest()
    kept = arguments.cache / f"results-{digest[:16]}"
    kept.mkdir(parents=True, exist_ok=True)
    if arguments.torch:
        try_all(arguments, kept)
    results = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(kept.glob("*.json"))}
    if arguments.write:
        releases = [version for version, _ in TORCHES.values()]
        page = support_page.page(results, arguments.wheel, digest, releases)
        arguments.write.write_text(page, encoding="utf-8")
    tried = [result for result in results.values() if "not_tried" not in result]
    return 0 if tried and all(re.match("ok|core", support_page.mark(result)) for result in tried) else 1


if __name__ == "__main__":
    sys.exit(main())
