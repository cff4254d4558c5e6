"""Loops of CUDA C that only wait, and those that do something, or end by themselves."""

from __future__ import annotations

import pytest

from pytracer.analyze.evidence.cuda.waiting_loops import WaitingLoop, waiting_loops

BARRIER = """
__device__ void barrier(int* count, int blocks) {
    atomicAdd(count, 1);
    while (atomicAdd(count, 0) < blocks) {}
}
extern "C" __global__ void __launch_bounds__(256) scale(float* items, int* arrived, int total) {
    items[0] = 1.0f;
    barrier(arrived, total);
}
"""


def loop_of(body: str) -> WaitingLoop | None:
    source = f"__global__ void run(int* flag, int n, float* out) {{ {body} }}"
    return next(iter(waiting_loops(source)), None)


@pytest.mark.parametrize(
    "body",
    [
        "while (*flag == 0) {}",
        "volatile int* seen = flag; while (seen[0] == 0);",
        "while (atomicAdd(flag, 0) < n) { __nanosleep(32); }",
        "int seen; do { seen = atomicAdd(flag, 0); } while (seen < n);",
        "cuda::atomic_ref<int, cuda::thread_scope_device> ref(*flag); while (ref.load(cuda::std::acquire) != n);",
        "while (true) { if (*flag != 0) break; }",
        "for (;;) { int seen = *flag; if (seen == n) { break; } __threadfence(); }",
        "for (; atomicCAS(flag, 0, 1) != 0; ) {}",
        'int seen; do { asm volatile("ld.acquire.b32 %0, [%1];" : "=r"(seen) : "l"(flag)); } while (seen < 4);',
        "while (load_acquire(flag) != n) { __nanosleep(20); }",
        "do {} while (*flag == 0);",
    ],
)
def test_a_loop_that_only_waits(body: str) -> None:
    """By what its condition or its body reads."""
    found = loop_of(body)
    assert found is not None and found.read == 0 and found.written is None


@pytest.mark.parametrize(
    "body",
    [
        "for (int i = 0; i < n; ++i) {}",
        "long long begun = clock64(); while (clock64() - begun < n) {}",
        "while (*flag == 0 && clock64() < n) {}",
        "while (*flag == 0) { out[0] += 1; }",
        "int i = 0; while (i++ < n);",
        "while (atomicAdd(flag, 1) < n);",
        "int old; do { old = atomicAdd(flag, 1); } while (old < 100);",
        "int i = 0; do { out[i] = 1; i += 32; } while (i < n);",
        "while (n > 1) { n = n / 2; }",
        "while (n < 4) {}",
        "while (i < n) { i = flag[i]; }",
        "// while (*flag == 0) {}\n",
        'printf("while (*flag == 0) {}");',
    ],
)
def test_a_loop_that_works_or_ends_by_itself(body: str) -> None:
    """The look-alikes."""
    assert loop_of(body) is None


def test_what_the_kernel_itself_writes() -> None:
    """Its blocks wait for each other then; a flag that is only set back is written by somebody else."""
    found = loop_of("atomicAdd(flag, 1); while (atomicAdd(flag, 0) < n) {}")
    assert found is not None and (found.read, found.until, found.written) == (0, 1, "atomicAdd(flag, 1)")
    lock = loop_of("while (atomicCAS(flag, 0, 1) != 0); out[0] += 1; atomicExch(flag, 0);")
    assert lock is not None and lock.written == "atomicExch(flag, 0)"
    queue = loop_of("while (*flag == 0); out[0] += 1; *flag = 0;")
    assert queue is not None and queue.written is None


def test_a_loop_of_a_function_that_a_kernel_calls() -> None:
    """In terms of the kernel's own parameters."""
    (found,) = waiting_loops(BARRIER)
    assert (found.kernel, found.read, found.until) == ("scale", 1, 2)
    assert found.written == "atomicAdd(count, 1)" and BARRIER[found.at :].startswith("while (atomicAdd(count, 0)")
    assert not list(waiting_loops(BARRIER.replace("barrier(arrived, total);", "")))
