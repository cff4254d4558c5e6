// Static memory that is never touched in a process that records nothing.
#pragma once

/// Placed behind all other variables, which then share a few pages: each page that is touched costs every new process 1 to 2 us.
/// The linker sorts by these names (csrc/CMakeLists.txt).
#define PYTRACER_LARGE __attribute__((section(".bss.~large")))
