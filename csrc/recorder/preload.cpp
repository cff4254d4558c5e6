// What only works when the library is preloaded: the start in a constructor, and libc functions that we stand before.
// Loaded by pytracer.enable() instead, these definitions are found by nobody and the constructor does nothing.
#include "../crashsafe/handler.h"
#include "../crashsafe/raw_log.h"
#include "alternate_stack.h"
#include "box_file.h"
#include "libc.h"
#include "recorder.h"

#include <pthread.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace pytracer;

bool preloaded = false;  // the constructor started recording

__attribute__((constructor)) void start_when_asked() {
  const char* directory = getenv("PYTRACER_DIR");
  const char* preload = getenv("LD_PRELOAD");
  if (directory == nullptr || *directory == 0 || preload == nullptr || strstr(preload, "libpytracer_core") == nullptr) return;
  recorder::Failure failure;
  uint32_t flags = getenv("PYTRACER_LAUNCHER") != nullptr ? 0 : recorder::kAnnounce;
  preloaded = recorder::start(directory, flags, true, failure);
  if (preloaded) return;
  crashsafe::RawLine line;
  line.text("pytracer: process ").number(static_cast<uint64_t>(getpid())).text(" is not recorded: ").text(failure.what).text(": ");
  line.text(strerror(failure.error)).text("; set PYTRACER_DIR to a writable local directory").write_out();
}

// ---- threads ----

struct Start {
  void* (*function)(void*);
  void* argument;
};

void* run_thread(void* stack) {
  Start start = *static_cast<Start*>(recorder::stack_bytes(stack));  // carried by the stack itself: no allocation
  recorder::adopt_stack(stack);
  return start.function(start.argument);
}

// ---- handlers of the program: remembered, while ours stays outermost ----

int set_action(int signal, const struct sigaction* act, struct sigaction* old) {
  // A child between vfork and exec shares our memory but not our handlers: its sigaction must not change our table.
  if (!preloaded || !crashsafe::is_ours(signal) || !crashsafe::handlers_installed() || crashsafe::sys_getpid() != g_box_pid)
    return PYTRACER_REAL(sigaction)(signal, act, old);
  crashsafe::exchange_action(signal, act, old);
  return 0;
}

}  // namespace

EXPORT int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*function)(void*), void* argument) noexcept {
  auto real = PYTRACER_REAL(pthread_create);
  void* stack = preloaded ? recorder::map_stack() : nullptr;
  if (stack == nullptr) return real(thread, attributes, function, argument);
  *static_cast<Start*>(recorder::stack_bytes(stack)) = {function, argument};
  int error = real(thread, attributes, run_thread, stack);
  if (error != 0) recorder::unmap_stack(stack);
  return error;
}

EXPORT int sigaction(int signal, const struct sigaction* act, struct sigaction* old) noexcept { return set_action(signal, act, old); }
EXPORT int __sigaction(int signal, const struct sigaction* act, struct sigaction* old) noexcept { return set_action(signal, act, old); }

EXPORT sighandler_t signal(int number, sighandler_t handler) noexcept {
  if (!preloaded || !crashsafe::is_ours(number)) return PYTRACER_REAL(signal)(number, handler);
  struct sigaction act{};
  struct sigaction old{};
  act.sa_handler = handler;
  act.sa_flags = SA_RESTART;
  sigemptyset(&act.sa_mask);
  sigaddset(&act.sa_mask, number);
  return set_action(number, &act, &old) != 0 ? SIG_ERR : old.sa_handler;
}

// Ours is larger and has a guard page: it stays, and theirs is reported back to them.
EXPORT int sigaltstack(const stack_t* stack, stack_t* old) noexcept {
  if (!preloaded || !recorder::has_our_stack() || crashsafe::sys_getpid() != g_box_pid) return static_cast<int>(syscall(SYS_sigaltstack, stack, old));
  stack_t current{};
  syscall(SYS_sigaltstack, nullptr, &current);
  stack_t& believed = recorder::believed_stack();
  stack_t before = believed;
  if (stack != nullptr) {
    if (current.ss_flags & SS_ONSTACK) return errno = EPERM, -1;
    if (!(stack->ss_flags & SS_DISABLE) && stack->ss_size < getauxval(AT_MINSIGSTKSZ)) return errno = ENOMEM, -1;
    believed = *stack;
  }
  if (old != nullptr) *old = before;
  return 0;
}

// ---- how children ended: the parent knows, and often nobody else ----

EXPORT pid_t waitpid(pid_t pid, int* status, int options) {
  int mine = 0;
  pid_t reaped = PYTRACER_REAL(waitpid)(pid, &mine, options);
  int error = errno;
  recorder::note_wait(reaped, mine, 0, false);
  if (status != nullptr) *status = mine;
  errno = error;
  return reaped;
}
EXPORT pid_t wait(int* status) { return waitpid(-1, status, 0); }
EXPORT pid_t wait4(pid_t pid, int* status, int options, struct rusage* usage) noexcept {
  int mine = 0;
  pid_t reaped = PYTRACER_REAL(wait4)(pid, &mine, options, usage);
  int error = errno;
  recorder::note_wait(reaped, mine, 0, false);
  if (status != nullptr) *status = mine;
  errno = error;
  return reaped;
}
EXPORT pid_t wait3(int* status, int options, struct rusage* usage) noexcept { return wait4(-1, status, options, usage); }
EXPORT int waitid(idtype_t type, id_t id, siginfo_t* info, int options) {
  siginfo_t mine{};
  siginfo_t* out = info != nullptr ? info : &mine;
  int result = PYTRACER_REAL(waitid)(type, id, out, options);
  int error = errno;
  if (result == 0 && !(options & WNOWAIT)) recorder::note_wait(out->si_pid, out->si_status, out->si_code, true);
  errno = error;
  return result;
}

// ---- _exit passes by on_exit handlers; os._exit and multiprocessing children use it ----

EXPORT void _exit(int code) {
  recorder::note_exit(code);
  auto real = PYTRACER_REAL(_exit);
  if (real != nullptr) real(code);
  for (;;) syscall(SYS_exit_group, code);
}
EXPORT void _Exit(int code) noexcept { _exit(code); }

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
  snprintf(boot, sizeof boot, "%.*s/record/boot.py", directory, self.dli_fname);
  if (access(boot, R_OK) != 0) return;
  // Inside a lambda, so that __main__ keeps no name of ours.
  snprintf(code, sizeof code,
           "(lambda p: exec(compile(open(p, encoding='utf-8').read(), p, 'exec'), {'__name__': '_pytracer_boot', '__file__': p}))('%s')", boot);
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
