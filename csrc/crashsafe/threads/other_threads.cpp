#include "crashsafe/threads/other_threads.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/handler/dying.h"
#include "crashsafe/handler/steps.h"
#include "crashsafe/platform/arch.h"
#include "crashsafe/platform/large.h"
#include "crashsafe/platform/open_file.h"
#include "crashsafe/signals/stand_ins.h"
#include "crashsafe/text/bounded_text.h"
#include "crashsafe/threads/helper_call.h"
#include "crashsafe/unwind/native_stack.h"
#include "crashsafe/unwind/own_stack.h"
#include "crashsafe/unwind/walk_thread.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

constexpr uint32_t kStacks = 256, kWalkLimit = 20'000, kFewFrames = 2;
constexpr uint64_t kAnswerNs = 250'000'000;
constexpr int kFirstSignal = 61, kLastSignal = 58;  // real-time signals near the top, which libraries leave alone
constexpr unsigned long kSiginfo = 4, kOnStack = 0x08000000, kRestart = 0x10000000, kRestorer = 0x04000000;

std::atomic<bool> asking{false};
PYTRACER_LARGE void* after_walk[kStacks][5];  // where a thread continues after a fault in its walk

ThreadStack& stack_at(uint32_t i) { return g_box.thread_stacks.data[i]; }
std::atomic_ref<uint32_t> state_of(ThreadStack& stack) { return std::atomic_ref(stack.state); }
uint64_t tls_delta() { return static_cast<uint64_t>(pthread_self()) - reinterpret_cast<uint64_t>(__builtin_thread_pointer()); }

// Keeps both ends of a deep stack; the reader rotates the tail by frame_total.
bool keep_frame(void* raw_stack, uint64_t pc, uint64_t, uint32_t found) {
  auto& stack = *static_cast<ThreadStack*>(raw_stack);
  if (found > kUnwound && stack.guessed_how == 0) {
    stack.guessed_how = found;
    stack.guessed_from = stack.frame_total;
  }
  auto index = static_cast<uint32_t>(&stack - g_box.thread_stacks.data);
  uint64_t* frames = g_box.thread_frames.data + static_cast<size_t>(index) * kThreadStackFrames;
  uint32_t n = stack.frame_total++;
  if (n < kThreadHeadFrames) {
    frames[n] = pc;
    stack.frame_count = n + 1;
  } else {
    frames[kThreadHeadFrames + (n - kThreadHeadFrames) % kThreadTailFrames] = pc;
    if (stack.frame_tail < kThreadTailFrames) stack.frame_tail++;
  }
  return stack.frame_total < kWalkLimit;
}

// Hand-written kernels, such as those of a BLAS library, have no call-frame information: what is below them is guessed.
void walk_rest(ThreadStack& stack, uint64_t fp, uint64_t sp) {
  if (!stack.complete && stack.frame_total <= kFewFrames) walk_without_cfi(fp, sp, keep_frame, &stack);
}

// ---- the helper holds the threads, we walk ----

struct Held {
  ThreadStack* stack;
  const KernelAction* like;
};

void walk_held(void* raw_held) {
  auto* held = static_cast<Held*>(raw_held);
  ThreadStack& stack = *held->stack;
  stack.complete = walk_thread(stack.registers, *held->like, keep_frame, &stack);
  walk_rest(stack, stack.registers[kFramePointerIndex], stack.registers[kStackPointerIndex]);
}

void walk_held_threads(const KernelAction& like) {
  const CrashHeader& crash = *g_box.crash.data;
  for (uint32_t i = 0; i < crash.thread_stack_count && i < kStacks; i++) {
    ThreadStack& stack = stack_at(i);
    if (stack.stopped == 0) continue;
    if (stack.pthread != 0) stack.pthread += tls_delta();
    Held held{&stack, &like};
    bool walked = run_guarded(walk_held, &held);
    state_of(stack).store(static_cast<uint32_t>(walked ? StackState::kDone : StackState::kFaulted), std::memory_order_release);
  }
}

// ---- each thread walks its own ----

struct Answer {
  ThreadStack* stack;
  uint64_t from;
};

// The system call that was interrupted: the kernel rewound the program counter to restart it. -1: not known.
int32_t interrupted_call(const ucontext_t* context) {
#if defined(__x86_64__)
  uint64_t pc = pc_of(context);
  auto code = reinterpret_cast<const unsigned char*>(pc);  // the interrupted thread was executing it
  auto rax = static_cast<int64_t>(context->uc_mcontext.gregs[REG_RAX]);
  return code[0] == 0x0f && code[1] == 0x05 && rax >= 0 && rax < 1024 ? static_cast<int32_t>(rax) : -1;
#else
  // The number stays in x8, also when the call is not to be restarted and has returned -EINTR.
  constexpr uint32_t kSvc = 0xd4000001;
  uint64_t pc = pc_of(context), number = context->uc_mcontext.regs[8];
  auto code = reinterpret_cast<const uint32_t*>(pc);
  bool restarts = code[0] == kSvc, ended = static_cast<int64_t>(context->uc_mcontext.regs[0]) == -EINTR && pc % 4096 != 0 && code[-1] == kSvc;
  return (restarts || ended) && number < 1024 ? static_cast<int32_t>(number) : -1;
#endif
}

__attribute__((noinline)) bool walk_guarded(ThreadStack& stack, ucontext_t* context) {
  auto index = static_cast<uint32_t>(&stack - g_box.thread_stacks.data);
  if (__builtin_setjmp(after_walk[index])) return false;
  state_of(stack).store(static_cast<uint32_t>(StackState::kWalking), std::memory_order_release);
  stack.syscall = interrupted_call(context);
  stack.complete = walk_stack(pc_of(context), keep_frame, &stack);
  walk_rest(stack, fp_of(context), sp_of(context));
  return true;
}

ThreadStack* asked_stack(int tid, StackState state) {
  uint32_t count = std::atomic_ref(g_box.crash.data->thread_stack_count).load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count && i < kStacks; i++)
    if (stack_at(i).tid == tid && state_of(stack_at(i)).load(std::memory_order_acquire) == static_cast<uint32_t>(state)) return &stack_at(i);
  return nullptr;
}

void on_asked(ucontext_t* context) {
  int saved_errno = errno;
  borrow_alternate_stack(context);
  ThreadStack* stack = asking.load(std::memory_order_acquire) ? asked_stack(sys_gettid(), StackState::kAsked) : nullptr;
  if (stack != nullptr) {
    stack->pthread = static_cast<uint64_t>(pthread_self());
    prctl(PR_GET_NAME, stack->name);
    bool walked = walk_guarded(*stack, context);
    state_of(*stack).store(static_cast<uint32_t>(walked ? StackState::kDone : StackState::kFaulted), std::memory_order_release);
    // Its wait was interrupted: the program must not observe that, nor end the process by exit() while it dies.
    wait_until_gone();
  }
  errno = saved_errno;
}

// Entries of getdents64(2).
struct Entry {
  uint64_t inode, offset;
  uint16_t nbytes;
  uint8_t kind;
  char name[1];
};

// All but the calling thread. That is the crashed one, unless it dies while the report of another thread is kept: then that thread is
// listed, too, and stays stopped.
void list_thread(int tid) {
  CrashHeader& crash = *g_box.crash.data;
  if (tid <= 0 || tid == sys_gettid()) return;
  crash.threads_total++;
  if (crash.thread_stack_count >= kStacks) return;
  ThreadStack& stack = stack_at(crash.thread_stack_count);
  memset(static_cast<void*>(&stack), 0, sizeof stack);
  stack.tid = tid;
  stack.syscall = -1;
  crash.thread_stack_count++;
}

void list_threads() {
  CrashHeader& crash = *g_box.crash.data;
  crash.thread_stack_count = crash.threads_total = 0;
  OpenFile tasks("/proc/self/task", O_RDONLY | O_DIRECTORY);
  alignas(8) char entries[2048];
  long n;
  while (tasks.opened() && (n = syscall(SYS_getdents64, tasks.descriptor(), entries, sizeof entries)) > 0)
    for (long at = 0; at < n;) {
      uint16_t nbytes = 0;
      memcpy(&nbytes, entries + at + offsetof(Entry, nbytes), sizeof nbytes);
      const char* digits = entries + at + offsetof(Entry, name);
      int tid = 0;
      for (; *digits >= '0' && *digits <= '9'; digits++) tid = tid * 10 + (*digits - '0');
      list_thread(tid);
      at += nbytes;
    }
}

int find_free_signal(KernelAction& before) {
  for (int signal = kFirstSignal; signal >= kLastSignal; signal--)
    if (sys_action(signal, nullptr, &before) == 0 && before.handler == nullptr) return signal;
  return 0;
}

bool all_answered() {
  for (uint32_t i = 0; i < g_box.crash.data->thread_stack_count; i++) {
    uint32_t state = state_of(stack_at(i)).load(std::memory_order_acquire);
    if (state == static_cast<uint32_t>(StackState::kAsked) || state == static_cast<uint32_t>(StackState::kWalking)) return false;
  }
  return true;
}

// Threads that did not answer, because they block the signal or wait uninterruptibly, have at least a name.
void name_silent_threads() {
  for (uint32_t i = 0; i < g_box.crash.data->thread_stack_count; i++) {
    ThreadStack& stack = stack_at(i);
    if (stack.name[0] != 0) continue;
    char path[48];
    BoundedText(path, sizeof path).add("/proc/self/task/").add(static_cast<uint32_t>(stack.tid)).add("/comm");
    OpenFile file(path);
    long n = file.opened() ? file.read(stack.name, sizeof stack.name - 1) : 0;
    stack.name[n > 0 ? n - 1 : 0] = 0;  // without the newline
  }
}

void ask_by_signal(const KernelAction& like) {
  CrashHeader& crash = *g_box.crash.data;
  list_threads();
  KernelAction before{};
  int signal = find_free_signal(before);
  if (signal == 0 || crash.thread_stack_count == 0) return;
  KernelAction action{reinterpret_cast<void*>(pytracer_enter_asked), kSiginfo | kOnStack | kRestart | (like.flags & kRestorer), like.restorer,
                      ~our_signals()};
  sys_action(signal, &action, nullptr);
  asking.store(true, std::memory_order_release);
  for (uint32_t i = 0; i < crash.thread_stack_count; i++) {
    state_of(stack_at(i)).store(static_cast<uint32_t>(StackState::kAsked), std::memory_order_release);
    if (syscall(SYS_tgkill, g_box_pid, stack_at(i).tid, signal) != 0) state_of(stack_at(i)).store(static_cast<uint32_t>(StackState::kListed));
  }
  for (uint64_t start = now_ns(); !all_answered() && now_ns() - start < kAnswerNs;) {
    timespec t{0, 100'000};
    syscall(SYS_nanosleep, &t, nullptr);
  }
  if (!dying()) asking.store(false, std::memory_order_release);
  name_silent_threads();
  crash.threads_how = static_cast<uint32_t>(ThreadsHow::kSignal);
  if (dying()) return;  // a thread that blocks the signal now, and not later, stays then
  KernelAction ignore = before;
  ignore.handler = reinterpret_cast<void*>(SIG_IGN);
  sys_action(signal, &ignore, nullptr);  // discards copies that are pending on a thread that blocks it
  sys_action(signal, &before, nullptr);
}

}  // namespace

void write_other_threads(const KernelAction& like) noexcept {
  CrashHeader& crash = *g_box.crash.data;
  crash.tls_delta = static_cast<uint32_t>(tls_delta());
  if (helper_stops_threads()) {
    crash.threads_how = static_cast<uint32_t>(ThreadsHow::kHelper);
    walk_held_threads(like);
    if (dying())
      hold_until_gone();
    else
      release_helper();
    return;
  }
  ask_by_signal(like);
}

bool recover_walk(int tid, ucontext_t* context) noexcept {
  if (!asking.load(std::memory_order_acquire)) return false;
  ThreadStack* stack = asked_stack(tid, StackState::kWalking);
  if (stack == nullptr) return false;
  resume_at(after_walk[stack - g_box.thread_stacks.data], context);
  return true;
}

}  // namespace pytracer::crashsafe

extern "C" __attribute__((visibility("hidden"))) void pytracer_on_asked(long, void*, void* context) noexcept {
  pytracer::crashsafe::on_asked(static_cast<ucontext_t*>(context));
}
