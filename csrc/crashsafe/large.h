// Static memory that a process which records nothing never touches.
#pragma once

/// Behind all other variables, which then share a few pages: each page that is touched costs every process that starts 1 to 2 us.
/// The linker sorts by these names (csrc/CMakeLists.txt).
#define PYTRACER_LARGE __attribute__((section(".bss.~large")))
