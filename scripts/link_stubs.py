"""Makes libraries to link wheels against: this machine's C and C++ runtime, without what is newer than manylinux_2_28.

    python scripts/link_stubs.py build/stubs                                   for the host's compiler
    python scripts/link_stubs.py build/stubs --compiler aarch64-linux-gnu-gcc  for another one

Each has the symbols of the real library with the newest version that the policy allows, and no code: the linker writes
those versions into what it links, and refuses a symbol that is too new. glibc keeps the old versions for ever, so this
needs no old system. Functions that moved from libpthread and libdl into libc in glibc 2.34 are in stubs of those two
libraries, where older systems have them.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

Version = tuple[int, ...]

# https://github.com/pypa/auditwheel: manylinux-policy.json, manylinux_2_28
NEWEST: dict[str, Version] = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}
LIBRARIES = {"c": "libc.so.6", "m": "libm.so.6", "stdc++": "libstdc++.so.6"}
LOADERS = {"EM_X86_64": "ld-linux-x86-64.so.2", "EM_AARCH64": "ld-linux-aarch64.so.1"}
# By what the name of a function begins with.
MOVED_FROM = {"pthread_": ("pthread", "libpthread.so.0"), "dl": ("dl", "libdl.so.2")}


class Symbol(NamedTuple):
    """What a library defines under one version."""

    name: str
    version: str
    is_default: bool
    kind: str
    nbytes: int


def symbols(library: ELFFile) -> Iterator[Symbol]:
    """Everything versioned that it exports."""
    table = library.get_section_by_name(".dynsym")
    versions = library.get_section_by_name(".gnu.version")
    definitions = library.get_section_by_name(".gnu.version_d")
    assert isinstance(table, SymbolTableSection)
    assert isinstance(versions, GNUVerSymSection)
    assert isinstance(definitions, GNUVerDefSection)
    names = {definition["vd_ndx"]: next(parts).name for definition, parts in definitions.iter_versions()}
    for number, symbol in enumerate(table.iter_symbols()):
        index = versions.get_symbol(number)["ndx"]
        if symbol["st_shndx"] == "SHN_UNDEF" or not isinstance(index, int):
            continue
        kind, hidden = symbol["st_info"]["type"], bool(index & 0x8000)
        version = names.get(index & 0x7FFF)
        if version is not None and symbol.name != version:
            yield Symbol(symbol.name, version, not hidden, kind, symbol["st_size"])


def number(version: str) -> Version | None:
    """The numbers of a version that the policy allows; None for GLIBC_PRIVATE and everything newer."""
    name, _, digits = version.partition("_")
    found = tuple(map(int, digits.split("."))) if re.fullmatch(r"[\d.]+", digits) else None
    return found if found is not None and name in NEWEST and found <= NEWEST[name] else None


def allowed(exported: Iterator[Symbol]) -> tuple[list[Symbol], list[Symbol]]:
    """Of each symbol the newest version that the policy allows: those of the library, those that had moved there."""
    by_name: dict[str, list[Symbol]] = {}
    for symbol in exported:
        by_name.setdefault(symbol.name, []).append(symbol)
    here: list[Symbol] = []
    moved: list[Symbol] = []
    for name, versions in by_name.items():
        old = [symbol for symbol in versions if number(symbol.version) is not None and symbol.kind != "STT_TLS"]
        if not old:
            continue
        best = max(old, key=lambda symbol: (number(symbol.version) or (), symbol.is_default))
        came_later = not any(symbol.is_default for symbol in old) and name.startswith(tuple(MOVED_FROM))
        (moved if came_later else here).append(best)
    return here, moved


def assembly(wanted: list[Symbol]) -> str:
    """Defines them, without content."""
    lines = []
    for symbol in wanted:
        is_data = symbol.kind == "STT_OBJECT"
        lines += [
            ".data" if is_data else ".text",
            f'.globl "{symbol.name}"',
            f'.type "{symbol.name}", %{"object" if is_data else "function"}',
            f'"{symbol.name}":',
        ]
        if is_data:
            lines += [f'.size "{symbol.name}", {symbol.nbytes}', f".zero {max(symbol.nbytes, 1)}"]
    return "\n".join([*lines, '.section .note.GNU-stack,"",%progbits', ""])


def version_script(wanted: list[Symbol]) -> str:
    """Gives each its version."""
    by_version: dict[str, list[str]] = {}
    for symbol in wanted:
        by_version.setdefault(symbol.version, []).append(symbol.name)
    lines = []
    for version, names in sorted(by_version.items()):
        lines += [f"{version} {{", *(f'"{name}";' for name in sorted(names)), "};"]
    return "\n".join([*lines, ""])


def link(compiler: str, directory: Path, soname: str, wanted: list[Symbol]) -> Path:
    """Links one stub."""
    source, script, library = (directory / f"{soname}{suffix}" for suffix in (".s", ".map", ""))
    source.write_text(assembly(wanted), encoding="ascii")
    script.write_text(version_script(wanted), encoding="ascii")
    subprocess.run(
        [compiler, "-shared", "-nostdlib", f"-Wl,-soname,{soname}", f"-Wl,--version-script={script}"]
        + ["-o", str(library), str(source)],
        check=True,
    )
    source.unlink()
    script.unlink()
    return library


def ask(compiler: str, question: str) -> Path:
    """Where a compiler finds a file."""
    found = Path(subprocess.run([compiler, question], check=True, capture_output=True, text=True).stdout.strip())
    if not found.is_absolute():
        raise SystemExit(f"{compiler} has no {question.partition('=')[2]}")
    return found.resolve()


def main() -> None:
    """Writes the stubs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where they are written")
    parser.add_argument("--compiler", default="gcc", help="the C compiler whose libraries are copied (default: gcc)")
    arguments = parser.parse_args()
    directory: Path = arguments.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    moved: list[Symbol] = []
    for name, soname in LIBRARIES.items():
        path = ask(arguments.compiler, f"-print-file-name={soname}")
        with path.open("rb") as file:
            elf = ELFFile(file)
            machine = elf["e_machine"]
            here, came_later = allowed(symbols(elf))
        if machine not in LOADERS:
            raise SystemExit(f"wheels are not built for {machine}")
        loader = LOADERS[machine]
        moved += came_later
        stub = link(arguments.compiler, directory, soname, here)
        if name != "c":
            (directory / f"lib{name}.so").write_text(f"INPUT({stub})\n", encoding="utf-8")
    with ask(arguments.compiler, f"-print-file-name={loader}").open("rb") as file:
        link(arguments.compiler, directory, loader, allowed(symbols(ELFFile(file)))[0])
    # As glibc's own: the few functions that every program links in are not part of the library.
    nonshared = ask(arguments.compiler, "-print-file-name=libc_nonshared.a")
    (directory / "libc.so").write_text(
        f"GROUP({directory / LIBRARIES['c']} {nonshared} AS_NEEDED({directory / loader}))\n", encoding="utf-8"
    )
    for begins, (name, soname) in MOVED_FROM.items():
        stub = link(arguments.compiler, directory, soname, [s for s in moved if s.name.startswith(begins)])
        (directory / f"lib{name}.so").write_text(f"INPUT({stub})\n", encoding="utf-8")


if __name__ == "__main__":
    main()
