// What only works when the library is preloaded: the start in a constructor, and libc functions we interpose. When pytracer.enable()
// loads it instead, calls do not reach these definitions and the constructor does nothing.
#include "core/interpose/preload.h"
#include "core/file/run_directory.h"
#include "core/interpose/libc.h"
#include "core/interpose/masks.h"
#include "core/interpose/python_exceptions.h"
#include "core/interpose/sandbox.h"
#include "core/interpose/sanitizers.h"
#include "core/interpose/signal_sends.h"
#include "core/interpose/unmappings.h"
#include "core/process/alternate_stack.h"
#include "core/process/exit.h"
#include "core/process/notice.h"
#include "core/process/recorder.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/mapping.h"
#include "crashsafe/platform/process_status.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

constinit bool pytracer::core::preloaded = false;

namespace {

using namespace pytracer;
using core::preloaded;

auto real_wait4() { return PYTRACER_REAL(wait4); }
auto real_waitid() { return PYTRACER_REAL(waitid); }
auto real_exit() { return PYTRACER_REAL(_exit); }

// PYTRACER_REAL looks up at first use, which must not be in a signal handler, in a vfork child or in a sandbox.
void resolve_early() {
  sigset_t now;
  pthread_sigmask(SIG_SETMASK, nullptr, &now);
  sigprocmask(SIG_SETMASK, nullptr, &now);
  sigaction(SIGCHLD, nullptr, nullptr);
  real_wait4();
  real_waitid();
  real_exit();
  core::resolve_signal_sends();
}

__attribute__((constructor)) void start_when_asked(int, char** arguments) {  // glibc's way to call constructors
  core::resolve_system_calls();
  core::resolve_unmappings();
  const char* directory = getenv("PYTRACER_DIR");
  const char* preload = getenv("LD_PRELOAD");
  if (directory == nullptr || *directory == 0 || preload == nullptr || strstr(preload, "libpytracer_core") == nullptr) return;
  crashsafe::ProcessStatus status = crashsafe::read_status("/proc/self/status");
  if (core::starts_in_sandbox(getenv("PYTRACER_SECCOMP_FILTERS"), status.filters)) return;
  core::Failure failure;
  uint32_t flags = (getenv("PYTRACER_LAUNCHER") != nullptr ? 0 : core::kAnnounce) | (status.debugged ? core::kDebugged : 0);
  const char* budget = getenv("PYTRACER_MOST_BOXES");
  uint32_t most_boxes = budget != nullptr ? static_cast<uint32_t>(strtoul(budget, nullptr, 10)) : core::kMostBoxes;
  preloaded = core::start(directory, flags, arguments, most_boxes, failure);
  if (preloaded) {
    core::hide_faults();
    core::adopt_mask();
    core::watch_python_exceptions();
    resolve_early();
  }
  if (failure.what != nullptr && (flags & core::kAnnounce) != 0) core::announce_unrecorded(directory, failure);
}

// ---- threads ----

struct Start {
  void* (*function)(void*);
  void* argument;
};

void* run_thread(void* stack) {
  Start start = *static_cast<Start*>(core::stack_bytes(stack));  // carried by the stack itself: no allocation
  core::adopt_stack(stack);
  core::adopt_mask();
  return start.function(start.argument);
}

}  // namespace

PYTRACER_EXPORT int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*), void* argument) noexcept {
  auto real = PYTRACER_REAL(pthread_create);
  void* stack = preloaded && !core::thread_sanitizer_precedes_us() ? core::take_stack() : nullptr;
  if (stack == nullptr) return real(thread, attributes, function, argument);
  *static_cast<Start*>(core::stack_bytes(stack)) = {function, argument};
  int error = real(thread, attributes, run_thread, stack);
  if (error != 0) core::give_stack(stack);
  return error;
}

// ---- how children ended: often known to the parent only ----

// The kernel gets the program's own pointers: what it writes, when, and which of them it refuses after it has reaped the child, is
// unchanged. noexcept as in libc; a thread that is cancelled in here unwinds through it, since nothing is built with exceptions.
PYTRACER_EXPORT pid_t wait4(pid_t pid, int* status, int options, struct rusage* usage) noexcept {
  if (!preloaded) return real_wait4()(pid, status, options, usage);
  int own_status = 0;
  struct rusage own_usage{};
  if (status == nullptr) status = &own_status;
  if (usage == nullptr) usage = &own_usage;
  pid_t reaped = real_wait4()(pid, status, options, usage);
  int error = errno;
  if (reaped > 0) core::note_wait(reaped, *status, 0, false, usage);
  errno = error;
  return reaped;
}
// The same call, with a place for what the child used.
PYTRACER_EXPORT pid_t waitpid(pid_t pid, int* status, int options) { return wait4(pid, status, options, nullptr); }
PYTRACER_EXPORT pid_t wait(int* status) { return waitpid(-1, status, 0); }
PYTRACER_EXPORT pid_t wait3(int* status, int options, struct rusage* usage) noexcept { return wait4(-1, status, options, usage); }
PYTRACER_EXPORT int waitid(idtype_t type, id_t id, siginfo_t* info, int options) {
  if (!preloaded) return real_waitid()(type, id, info, options);
  siginfo_t mine{};
  siginfo_t* out = info != nullptr ? info : &mine;
  int result = real_waitid()(type, id, out, options);
  int error = errno;
  if (result == 0 && !(options & WNOWAIT)) core::note_wait(out->si_pid, out->si_status, out->si_code, true, nullptr);
  errno = error;
  return result;
}

// ---- locked memory: the kernel counts it, and a recording would take half of the usual limit of 8 MiB ----

PYTRACER_EXPORT int mlockall(int flags) noexcept {
  int result = PYTRACER_REAL(mlockall)(flags);
  int error = errno;
  if (result == 0 && preloaded && crashsafe::sys_getpid() == g_box_pid) crashsafe::unlock_mappings();
  errno = error;
  return result;
}

// ---- _exit runs no on_exit handlers; os._exit and multiprocessing children use it ----

PYTRACER_EXPORT void _exit(int code) {
  core::note_exit(code, true);
  auto real = real_exit();
  if (real != nullptr) real(code);
  for (;;) syscall(SYS_exit_group, code);
}
PYTRACER_EXPORT void _Exit(int code) noexcept { _exit(code); }

// ---- dlopen: the moment when torch's extension is loaded ----

extern "C" {
__attribute__((visibility("hidden"))) void* pytracer_real_dlopen;
__attribute__((visibility("hidden"))) void pytracer_before_dlopen(const char* path);
}

// importlib loads torch/_C: the interpreter runs and the GIL is held. Run boot.py, which acts when the import is complete.
void pytracer_before_dlopen(const char* path) {
  if (pytracer_real_dlopen == nullptr) pytracer_real_dlopen = dlsym(RTLD_NEXT, "dlopen");
  static bool done = false;
  if (!preloaded || done || path == nullptr || strstr(path, "/torch/_C.") == nullptr) return;
  done = true;
  auto run = reinterpret_cast<int (*)(const char*, void*)>(dlsym(RTLD_DEFAULT, "PyRun_SimpleStringFlags"));
  auto has_gil = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  Dl_info self{};
  if (run == nullptr || has_gil == nullptr || has_gil() == 0 || dladdr(reinterpret_cast<void*>(pytracer_before_dlopen), &self) == 0) return;
  const char* slash = strrchr(self.dli_fname, '/');
  if (slash == nullptr || strchr(self.dli_fname, '\'') != nullptr || strchr(self.dli_fname, '\\') != nullptr) return;
  char boot[2048], code[4096];
  int directory = static_cast<int>(slash - self.dli_fname);
  snprintf(boot, sizeof boot, "%.*s/record/bootstrap/boot.py", directory, self.dli_fname);
  if (access(boot, R_OK) != 0) return;
  // Inside a lambda, so that no name of ours remains in __main__. As a module, whose bytecode is cached: compiling it takes 0.4 ms.
  snprintf(code, sizeof code,
           "(lambda u: (lambda s: s.loader.exec_module(u.module_from_spec(s)))(u.spec_from_file_location('_pytracer_boot', '%s')))"
           "(__import__('importlib.util').util)",
           boot);
  run(code, nullptr);
}

// glibc finds the caller's RUNPATH and namespace by return address, so the real dlopen must be reached by a jump.
#if defined(__x86_64__)
asm(R"(
  .text
  .globl dlopen
  .type dlopen, @function
dlopen:
  .cfi_startproc
  push %rdi
  .cfi_adjust_cfa_offset 8
  push %rsi
  .cfi_adjust_cfa_offset 8
  sub $8, %rsp
  .cfi_adjust_cfa_offset 8
  call pytracer_before_dlopen
  add $8, %rsp
  .cfi_adjust_cfa_offset -8
  pop %rsi
  .cfi_adjust_cfa_offset -8
  pop %rdi
  .cfi_adjust_cfa_offset -8
  jmp *pytracer_real_dlopen(%rip)
  .cfi_endproc
  .size dlopen, .-dlopen
)");
#else
asm(R"(
  .text
  .globl dlopen
  .type dlopen, %function
dlopen:
  stp x29, x30, [sp, #-32]!
  stp x0, x1, [sp, #16]
  mov x29, sp
  bl pytracer_before_dlopen
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #32
  adrp x16, pytracer_real_dlopen
  ldr x16, [x16, :lo12:pytracer_real_dlopen]
  br x16
  .size dlopen, .-dlopen
)");
#endif
