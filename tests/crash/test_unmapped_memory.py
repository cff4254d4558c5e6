"""Memory of others that was unmapped: the report has who gave it back, and callers of munmap() get their answers."""

from __future__ import annotations

import ctypes.util
import subprocess
from pathlib import Path

import pytest

from tests.conditions import needs_compiler, needs_core
from tests.support.crash import CORE, ended, environment, line_of, preloaded, victim

pytestmark = needs_core

PROGRAM = "closed_file.py"
CLOSES, READS = line_of(PROGRAM, "self.file.close()"), line_of(PROGRAM, "return ctypes.string_at")


@pytest.mark.parametrize("how", ["close", "thread", "child"])
def test_read_of_a_closed_file_names_the_line_that_closed_it(how: str, run: Path) -> None:
    """In the same thread, in another one, and in a process that was forked later."""
    done = victim(PROGRAM, how, run=run)
    assert done.status == (0 if how == "child" else -11)
    verdict = done.report.verdict
    assert verdict is not None
    assert (verdict.class_, verdict.confidence) == ("use-after-free", "likely")
    says = (
        f"read memory that had been unmapped, at {PROGRAM}:{READS} in Records.read: `self.file.close()` at "
        f"line {CLOSES} in Records.close gave it back "
    )
    if how == "child":  # the line is in its parent's recording
        says = f"read memory that had been unmapped, at {PROGRAM}:{READS} in Records.read: mmap.close() gave it back "
    assert says in (verdict.summary or "")
    evidence = " ".join(verdict.evidence or [])
    assert "gave 1.0 MiB from" in evidence
    assert ("the same thread gave" in evidence) == (how == "close")
    assert ("its parent, before the fork, gave" in evidence) == (how == "child")


def test_memory_that_was_mapped_again_is_not_called_unmapped(run: Path) -> None:
    """The look-alike: it may not be read, for another reason."""
    done = victim(PROGRAM, "replaced", run=run)
    assert done.status == -11
    assert all(item.id != "unmapped-memory" for item in done.report.findings or [])


def test_memory_that_is_there_again_can_be_read(run: Path) -> None:
    """Nothing dies."""
    done = victim(PROGRAM, "in_use", run=run)
    assert done.status == 0
    assert all(box.crash is None for box in done.boxes)


def test_index_out_of_a_tensor_is_not_blamed_on_munmap(run: Path) -> None:
    """The look-alike: a process that closes files all the time, and runs off a tensor."""
    done = victim("unmaps_and_overruns.py", run=run)
    assert done.status == -11
    verdict = done.report.verdict
    assert verdict is not None
    assert verdict.class_ == "out-of-bounds", verdict.summary


EARLY = r"""
#include <stdio.h>
#include <sys/mman.h>
static int result = -2;
__attribute__((constructor)) static void early(void) {
  result = munmap(mmap(NULL, 65536, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 65536);
}
__attribute__((destructor)) static void late(void) { printf("early %d\n", result); }
"""


@needs_compiler
def test_library_that_is_initialized_first_can_unmap(run: Path) -> None:
    """Preloaded allocators give memory back before the core's constructor has run."""
    source, library = run.parent / "early.c", run.parent / "libearly.so"
    source.write_text(EARLY)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    env = preloaded(run) | {"LD_PRELOAD": f"{CORE}:{library}"}
    done = ended(["/bin/true"], env, run)
    assert (done.status, done.stdout) == (0, "early 0\n")


UCX = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
struct unmapped { void* address; size_t nbytes; };
static void* volatile watched;
static volatile int seen;
static void on_event(int event, struct unmapped* what, void* argument) {
  (void)event, (void)argument;
  seen += what->address == watched;
}
int main(void) {
  if (!dlopen("libucs.so.0", RTLD_NOW | RTLD_GLOBAL)) return 77;
  void* ucm = dlopen("libucm.so.0", RTLD_NOW);
  if (!ucm) return 77;
  int (*handle)(int, int, void*, void*) = (int (*)(int, int, void*, void*))dlsym(ucm, "ucm_set_event_handler");
  const int vm_unmapped = 1 << 17;
  if (handle(vm_unmapped, 0, (void*)on_event, NULL) != 0) return 77;
  for (int i = 0; i < 10; i++) {
    watched = mmap(NULL, 1 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(watched, 1 << 20);
  }
  printf("%d unmapped, ", seen);
  for (int i = 0; i < 10; i++) {
    char* block = malloc(64 << 20);
    watched = block - 16;  // the chunk's header
    free(block);
  }
  printf("%d with those of free()\n", seen);
  return 0;
}
"""


@needs_compiler
@pytest.mark.skipif(ctypes.util.find_library("ucm") is None, reason="UCX is not installed")
@pytest.mark.parametrize("mode", ["bistro", "reloc"])
def test_ucx_sees_every_call_as_it_does_untraced(mode: str, run: Path) -> None:
    """It replaces munmap() by code or in tables, and drops registered memory by what it sees: RDMA's correctness."""
    source, program = run.parent / "ucx.c", run.parent / "ucx"
    source.write_text(UCX)
    subprocess.run(["cc", "-w", "-o", str(program), str(source), "-ldl"], check=True)
    plain = ended([program], environment(UCX_MEM_MMAP_HOOK_MODE=mode), run)
    done = ended([program], preloaded(run, UCX_MEM_MMAP_HOOK_MODE=mode), run)
    if plain.status == 77:
        pytest.skip("this version of UCX has no ucm_set_event_handler()")
    assert (done.status, done.stdout) == (plain.status, plain.stdout)
    assert plain.stdout == "10 unmapped, 20 with those of free()\n"
