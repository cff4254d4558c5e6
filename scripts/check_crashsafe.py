"""Checks what the crash path calls, and what each folder of csrc/ includes.

    python scripts/check_crashsafe.py       exit 1 with one line per problem

Four things are compared: the includes of csrc/ with the table below; the undefined symbols of the objects of
csrc/crashsafe with csrc/crashsafe/symbols.allow; those objects with the rule that nothing in them is initialized or
guarded at run time; and libpytracer_core.so with what a preloaded library may be: no library but libc, nothing bound
lazily, never unloaded, thread-locals in the static TLS block.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"
SELF = "scripts/check_crashsafe.py"
CRASHSAFE = CSRC / "crashsafe"
ALLOW = CRASHSAFE / "symbols.allow"
# libdl and libpthread became parts of libc in glibc 2.34; before, they are separate entries.
LIBRARIES = ("libc.so.", "libdl.so.", "libpthread.so.", "ld-linux")
LINKER = {"_GLOBAL_OFFSET_TABLE_", "_DYNAMIC"}
NOW, NOW_1, NODELETE_1 = 0x8, 0x1, 0x8
# glibc allocates a loaded library's initial-exec block from a small reserve.
TLS_BYTES = 128
# Relocation types by machine: module number, offset in module, descriptor. Offsets from the thread pointer are fine.
DYNAMIC_TLS = {"EM_X86_64": {16, 17, 36}, "EM_AARCH64": {1028, 1029, 1031}}
# Folder of csrc/ -> what its files may include besides their own folder. core and guard do not include each other: core
# calls guard's interface, through which guard gets what it needs from core.
MAY_INCLUDE = {
    "blackbox": (),
    "crashsafe": ("blackbox/",),
    "guard": ("blackbox/", "crashsafe/"),
    "core": ("blackbox/", "crashsafe/", "guard/guard.h"),
    "helper": ("crashsafe/threads/helper_protocol.h",),
    "hooks": ("blackbox/", "crashsafe/", "core/"),
    "cuda": ("blackbox/", "core/", "hooks/"),
    "manylinux": ("crashsafe/",),
    "testing": ("blackbox/", "crashsafe/", "core/"),
}
# Headers of other projects, by their first path component: only these folders may include them.
RESTRICTED = {
    "Python.h": ("hooks",),
    "pybind11": ("hooks",),
    "torch": ("hooks", "cuda"),
    "ATen": ("hooks", "cuda"),
    "c10": ("hooks", "cuda"),
    "cuda_runtime_api.h": ("cuda",),
}
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
FORBIDDEN_IN_CORE = {
    "__tls_get_addr": "a thread-local is not initial-exec: this may allocate",
    "__cxa_guard_acquire": "a function-local static has a guard: build with -fno-threadsafe-statics",
    "__cxa_throw": "something throws",
    "__gxx_personality_v0": "something is built with exceptions",
    "__stack_chk_fail": "built with a stack protector, whose canary a crashed thread may have lost",
}


class Allowed(NamedTuple):
    """One line of symbols.allow."""

    line: int
    must: bool


def read_allowed(path: Path) -> tuple[dict[str, Allowed], list[str]]:
    """The list, and what is wrong with it."""
    allowed: dict[str, Allowed] = {}
    problems = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not text.strip() or text.startswith("#"):
            continue
        words = text.split(maxsplit=2)
        if len(words) < 3 or words[1] not in ("must", "may"):
            problems.append(f"{name_of(path)}:{number}: expected a symbol, must or may, and a reason")
        elif words[0] in allowed:
            problems.append(f"{name_of(path)}:{number}: {words[0]} is listed twice")
        else:
            allowed[words[0]] = Allowed(number, words[1] == "must")
    return allowed, problems


def name_of(path: Path) -> str:
    """The path as messages show it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def built_objects(build: Path) -> list[Path]:
    """The core's objects of csrc/crashsafe, as listed by CMake."""
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    return [
        Path(command["directory"], command["output"])
        for command in commands
        if Path(command["file"]).is_relative_to(CRASHSAFE) and "pytracer_core.dir" in command["output"]
    ]


def source_of(path: Path) -> str:
    """The source of an object: objects lie in folders as the sources do."""
    below = path.parts[path.parts.index("crashsafe") :] if "crashsafe" in path.parts else ("crashsafe", path.name)
    return "/".join(("csrc", *below)).removesuffix(".o")


def check_includes(csrc: Path) -> list[str]:
    """The includes of every file below `csrc` against MAY_INCLUDE and RESTRICTED."""
    problems = []
    for path in sorted(p for p in csrc.rglob("*") if p.suffix in (".cpp", ".h", ".c", ".inc")):
        name = path.relative_to(csrc).as_posix()
        folder = name.partition("/")[0]
        for own, system in INCLUDE.findall(path.read_text(encoding="utf-8")):
            if folder not in MAY_INCLUDE:
                problems.append(f"csrc/{name}: MAY_INCLUDE of {SELF} has no line for csrc/{folder}")
                break
            if own and not own.startswith((f"{folder}/", *MAY_INCLUDE[folder])):
                problems.append(f"csrc/{name}: includes {own}, which {folder}/ must not see")
            if folder not in RESTRICTED.get(system.partition("/")[0], (folder,)):
                problems.append(f"csrc/{name}: includes <{system}>, which {folder}/ must not see")
    return problems


def symbols(elf: Any, section: str = ".symtab") -> Iterator[Any]:
    """The symbols of an ELF file, without the nameless ones."""
    table = elf.get_section_by_name(section)
    if isinstance(table, SymbolTableSection):
        yield from (symbol for symbol in table.iter_symbols() if symbol.name)


def check_objects(objects: list[Path], allowed: dict[str, Allowed]) -> list[str]:
    """Undefined symbols against the list; no initializers, no guards."""
    problems = []
    wanted: dict[str, str] = {}
    defined = set(LINKER)
    for path in objects:
        source = source_of(path)
        with path.open("rb") as file:
            elf = ELFFile(file)
            for symbol in symbols(elf):
                if symbol["st_shndx"] == "SHN_UNDEF":
                    wanted.setdefault(symbol.name, source)
                elif symbol["st_info"]["bind"] != "STB_LOCAL":
                    defined.add(symbol.name)
                if symbol.name.startswith("_ZGV"):
                    problems.append(f"{source}: a function-local static is made at first use: {symbol.name}")
            if any(s.name.startswith((".init_array", ".ctors")) for s in elf.iter_sections()):
                problems.append(f"{source}: something is initialized at run time: make it constinit")
    for symbol, where in sorted(wanted.items()):
        if symbol not in allowed and symbol not in defined:
            problems.append(f"{where}: calls {symbol}, which {name_of(ALLOW)} does not list")
    for symbol, entry in allowed.items():
        if entry.must and symbol not in wanted:
            problems.append(f"{name_of(ALLOW)}:{entry.line}: nobody calls {symbol} any more: remove the line")
    return problems


def check_core(path: Path) -> list[str]:
    """Requirements on a preloaded library."""
    problems = []
    with path.open("rb") as file:
        elf = ELFFile(file)
        dynamic = elf.get_section_by_name(".dynamic")
        if not isinstance(dynamic, DynamicSection):
            return [f"{name_of(path)}: not a shared library"]
        tags: dict[str, int] = {}
        tag: Any
        for tag in dynamic.iter_tags():
            tags[tag.entry.d_tag] = tag.entry.d_val
            if tag.entry.d_tag == "DT_NEEDED" and not tag.needed.startswith(LIBRARIES):
                problems.append(f"{name_of(path)}: needs {tag.needed}; only libc is in every process")
        flags, flags_1 = tags.get("DT_FLAGS", 0), tags.get("DT_FLAGS_1", 0)
        if not (flags & NOW or flags_1 & NOW_1 or "DT_BIND_NOW" in tags):
            problems.append(f"{name_of(path)}: functions are bound at first use, in the handler too: link with -z now")
        if not flags_1 & NODELETE_1:
            problems.append(f"{name_of(path)}: may be unloaded while handlers point into it: link with -z nodelete")
        for symbol in symbols(elf, ".dynsym"):
            if symbol["st_shndx"] == "SHN_UNDEF" and symbol.name in FORBIDDEN_IN_CORE:
                problems.append(f"{name_of(path)}: uses {symbol.name}: {FORBIDDEN_IN_CORE[symbol.name]}")
        for segment in elf.iter_segments("PT_TLS"):
            if segment["p_memsz"] > TLS_BYTES:
                problems.append(
                    f"{name_of(path)}: {segment['p_memsz']} bytes of thread-locals; at most {TLS_BYTES} surely fit"
                )
        dynamic_tls = DYNAMIC_TLS.get(elf["e_machine"], set())
        for section in elf.iter_sections():
            if isinstance(section, RelocationSection) and any(
                r["r_info_type"] in dynamic_tls for r in section.iter_relocations()
            ):
                problems.append(
                    f"{name_of(path)}: a thread-local is not initial-exec: build with -ftls-model=initial-exec"
                )
    return problems


def main() -> int:
    """Prints one line per problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "native", help="the build directory to check")
    build = parser.parse_args().build.resolve()
    core = build / "csrc" / "libpytracer_core.so"
    if not core.exists():
        raise SystemExit(f"{name_of(core)} is not built: make build")
    allowed, problems = read_allowed(ALLOW)
    problems += check_includes(CSRC)
    problems += check_objects(built_objects(build), allowed)
    problems += check_core(core)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
