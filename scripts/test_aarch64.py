"""Runs the aarch64 build in a Debian of that architecture, by an emulator: tests/aarch64 and tests/native.

    python scripts/test_aarch64.py                      after scripts/build_aarch64.py --torch 2.10
    python scripts/test_aarch64.py tests/native -k rings

Needs root, debootstrap, qemu-user-static and its registration with the kernel (binfmt_misc). The Debian is made once,
in build/aarch64-root (10 minutes on two cores, 2 GB); its Python packages are unpacked by this machine's pip.
tests/native has tests that no emulator passes: docs/measurements/aarch64.md lists them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.build_wheel import TORCHES, WHEELS_OF, machine  # noqa: E402

SYSTEM = ROOT / "build" / "aarch64-root"
BUILD = ROOT / "build" / "aarch64"
BINFMT = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")
DEBIAN, PYTHON = "bookworm", "3.11"
# The newest torch whose wheel for aarch64 needs no NVIDIA libraries.
TORCH = "2.10"
PACKAGES = (
    *("numpy<2.3", "filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec"),
    *("click>=8.1", "msgspec>=0.18.5", "rich>=13.7", "capstone>=5.0", "pyelftools>=0.30", "jsonschema==4.26.0"),
    *("hypothesis==6.170.15", "pytest==9.2.0", "pytest-timeout==2.4.0"),
)
# In the Debian: a neutral path, so that a recording can become one of tests/golden.
TREE, SITE, LIBRARIES = Path("opt/pytracer"), Path("opt/site"), Path("opt/lib")
TIMEOUT_SECONDS = 900
ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONPATH": f"/{TREE}:/{SITE}",
    "LD_LIBRARY_PATH": f"/{TREE}/pytracer",
    "FAULTS_LIBRARY": f"/{LIBRARIES}/libfaults.so",
}


def need(condition: bool, message: str) -> None:
    """Ends with one line."""
    if not condition:
        raise SystemExit(f"test-aarch64: {message}")


def check() -> None:
    """What has to be there."""
    for tool, package in (("debootstrap", "debootstrap"), ("qemu-aarch64-static", "qemu-user-static")):
        need(shutil.which(tool) is not None, f"there is no {tool}: apt-get install {package}")
    need(
        BINFMT.exists(),
        "the kernel does not start programs for aarch64: mount -t binfmt_misc none /proc/sys/fs/binfmt_misc; "
        "cat /usr/lib/binfmt.d/qemu-aarch64.conf > /proc/sys/fs/binfmt_misc/register",
    )
    need((BUILD / "testing" / "libpytracer_testing.so").exists(), "nothing is built: make build-aarch64")


def make_system() -> None:
    """A minimal Debian; a second call finds it."""
    if (SYSTEM / ".made").exists():
        return
    SYSTEM.parent.mkdir(exist_ok=True)
    command = ["debootstrap", "--arch=arm64", "--foreign", "--variant=minbase"]
    subprocess.run([*command, "--include=python3,procps", DEBIAN, SYSTEM], check=True)
    subprocess.run(["chroot", SYSTEM, "/debootstrap/debootstrap", "--second-stage"], check=True)
    install([f"torch=={TORCHES[TORCH][0]}"], "--no-deps")
    install(PACKAGES)
    (SYSTEM / ".made").touch()


def install(requirements: tuple[str, ...] | list[str], *options: str) -> None:
    """Wheels for aarch64, unpacked by this machine's pip."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += [
        "--only-binary=:all:",
        "--python-version",
        PYTHON,
        "--target",
        str(SYSTEM / SITE),
        "--upgrade",
        *options,
    ]
    command += [word for name in WHEELS_OF for word in ("--platform", f"{name}_aarch64")]
    subprocess.run([*command, *requirements], check=True)


def copy_tree() -> None:
    """Sources and tests, with the libraries for aarch64 where they are expected."""
    tree = SYSTEM / TREE
    subprocess.run([sys.executable, ROOT / "scripts" / "second_tree.py", tree], check=True)
    shutil.rmtree(tree / "pytracer" / "_torch", ignore_errors=True)
    subprocess.run(["cmake", "--install", BUILD, "--prefix", tree / "pytracer"], check=True, stdout=subprocess.DEVNULL)
    testing = tree / "build" / "native" / "testing"
    testing.mkdir(parents=True, exist_ok=True)
    for library in (BUILD / "testing").glob("*.so"):
        shutil.copy2(library, testing)
    (SYSTEM / LIBRARIES).mkdir(parents=True, exist_ok=True)
    compiler = machine("aarch64").tool("gcc")
    source = ROOT / "tests" / "crash" / "programs" / "faults.c"
    target = SYSTEM / LIBRARIES / "libfaults.so"
    subprocess.run([compiler, "-O1", "-g", "-shared", "-fPIC", source, "-o", target], check=True)


def run(arguments: list[str]) -> int:
    """pytest in the Debian, with mounts that end with it."""
    command = ["python3", "-m", "pytest", "-p", "no:cacheprovider", f"--timeout={TIMEOUT_SECONDS}", *arguments]
    script = (
        'system=$1; shift; mount -t proc proc "$system/proc"; mount --rbind /dev "$system/dev"; '
        'mount -t tmpfs -o size=2g tmpfs "$system/tmp"; exec chroot "$system" "$@"'
    )
    inside = ["env", "-i", *(f"{name}={value}" for name, value in ENVIRONMENT.items())]
    inside += ["sh", "-c", f'cd /{TREE} && exec "$@"', "sh", *command]
    return subprocess.run(["unshare", "--mount", "sh", "-ec", script, "sh", SYSTEM, *inside], check=False).returncode


def main() -> int:
    """Prepares, then runs."""
    check()
    make_system()
    copy_tree()
    return run(sys.argv[1:] or ["tests/aarch64", "tests/native/test_processors.py"])


if __name__ == "__main__":
    sys.exit(main())
