"""The homes' own environments, a venv each below build/homes, which finds the project's packages, too: torch."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = Path(__file__).resolve().parent / "requirements"
ENVIRONMENTS = ROOT / "build" / "homes"


def python_of(environment: str | None) -> Path:
    """The interpreter of an environment; of the project's own one for None."""
    return ENVIRONMENTS / environment / "bin" / "python" if environment else Path(sys.executable)


def installed(environment: str | None) -> bool:
    """Whether `install` has finished with today's requirements."""
    if environment is None:
        return True
    stamp = ENVIRONMENTS / environment / "installed.txt"
    return stamp.exists() and stamp.read_bytes() == _requirements(environment).read_bytes()


def install(environment: str) -> None:
    """By pip, with everything the project has already: torch is not installed again.

    Raises:
        subprocess.CalledProcessError: pip could not.
    """
    directory = ENVIRONMENTS / environment
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(directory), "platbase": str(directory)}))
    (packages / "project.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    requirements = _requirements(environment)
    command = [str(directory / "bin" / "python"), "-m", "pip", "install", "-q", "-r", str(requirements)]
    subprocess.run(command, check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    (directory / "installed.txt").write_bytes(requirements.read_bytes())


def _requirements(environment: str) -> Path:
    return REQUIREMENTS / f"{environment}.txt"


def main() -> None:
    """Installs those named, or all, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", nargs="*", default=sorted(path.stem for path in REQUIREMENTS.glob("*.txt")))
    for environment in parser.parse_args().environment:
        if not installed(environment):
            print(f"== build/homes/{environment}", flush=True)
            install(environment)


if __name__ == "__main__":
    main()
