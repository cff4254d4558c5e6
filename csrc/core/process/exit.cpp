#include "core/process/exit.h"

#include "core/file/box_trim.h"
#include "core/file/journal.h"
#include "core/interpose/sent_signals.h"
#include "core/process/recorder.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/create_file.h"
#include "crashsafe/handler/dying.h"
#include "crashsafe/handler/handled_signal.h"
#include "crashsafe/handler/handler.h"
#include "crashsafe/platform/safe_read.h"
#include "crashsafe/platform/sys.h"
#include "crashsafe/python/python_stack.h"
#include "guard/guard.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <atomic>
#include <csignal>

namespace pytracer::core {
namespace {

using namespace blackbox;

constexpr uint64_t kQuietWaits = 1000;  // children that exited with status 0, recorded at most

constexpr int kMostFailures = 3;  // of collectives, whose stacks are written

std::atomic<uint64_t> quiet_waits{0};
std::atomic<int> failures{0};

// The stacks of a process that ends itself. By exit() when Python still runs on this thread or the thread is not the interpreter's
// main one: otherwise the interpreter has just ended in order, and there is nothing to show. By _exit(0) in a handler of SIGTERM, as
// torch's DataLoader workers do, and where others may wait for the process in a collective: elsewhere it is how forked children end.
__attribute__((noinline)) void write_exit_stack(int code, bool at_once) {
  if (g_box.header->python_minor == 0) return;
  crashsafe::CheckedReads reads;  // not of the frames of an interpreter that has ended, when a failed read would end the process
  if (!reads.possible()) return;
  crashsafe::FrameView frame;
  bool awaited = std::atomic_ref(g_box.header->collectives).load(std::memory_order_relaxed) != 0;
  bool in_order =
      at_once ? code == 0 && !awaited && !in_sent_handler() : crashsafe::sys_gettid() == g_box_pid && crashsafe::own_frames(&frame, 1) == 0;
  ucontext_t here;
  if (!in_order && getcontext(&here) == 0) crashsafe::write_exit(&here);
}

// Where the Python threads are when a collective fails or times out on this thread, whatever becomes of the error.
__attribute__((noinline)) void write_stacks_of_failure() {
  crashsafe::CheckedReads reads;
  ucontext_t here;
  if (reads.possible() && getcontext(&here) == 0) crashsafe::write_here(&here);
}

}  // namespace

void write_failure_stacks() noexcept {
  if (g_box.header->python_minor == 0 || failures.fetch_add(1, std::memory_order_relaxed) >= kMostFailures) return;
  if (recording() && crashsafe::sys_getpid() == g_box_pid) write_stacks_of_failure();
}

void note_exit(int code, bool at_once) noexcept {
  crashsafe::wait_while_dying();
  if (!recording() || crashsafe::sys_getpid() != g_box_pid) return;
  crashsafe::note_normal_exit();
  if (g_box.header->state == static_cast<uint32_t>(State::kCrashed)) return;
  // A Python program that fails is worth a recording. A command of a shell that returns non-zero is not.
  if (code != 0 && g_box.header->python_minor != 0) crashsafe::ensure_box();
  guard::look_at_live();
  write_exit_stack(code, at_once);
  FileHeader& header = *g_box.header;
  header.exit_code = code;
  if (header.exit_mono_ns == 0) header.exit_mono_ns = crashsafe::now_ns();
  std::atomic_ref(header.state).store(static_cast<uint32_t>(State::kExiting), std::memory_order_release);
  trim_at_exit(code);
}

void note_wait(int pid, int status, int code, bool via_waitid, const struct rusage* usage) noexcept {
  if (pid <= 0 || !recording() || crashsafe::sys_getpid() != g_box_pid) return;
  bool well = status == 0 && (!via_waitid || code == CLD_EXITED);
  if (!via_waitid && !WIFEXITED(status) && !WIFSIGNALED(status)) return;  // stopped or continued
  if (via_waitid && code != CLD_EXITED && code != CLD_KILLED && code != CLD_DUMPED) return;
  if (well && quiet_waits.fetch_add(1, std::memory_order_relaxed) >= kQuietWaits) return;
  // A killed child is worth a black box, its parent's if it had none itself. SIGPIPE is everyday: the reader of a pipe has ended.
  bool killed = via_waitid ? code != CLD_EXITED : WIFSIGNALED(status);
  int signal = via_waitid ? status : WTERMSIG(status);
  if (killed && signal != SIGPIPE) crashsafe::ensure_box();
  if (!crashsafe::has_box() && g_box.header->journal_used > g_box.journal.items * 3ull / 4) return;
  constexpr uint64_t kUnknown = ~0ull;
  WaitEntry entry{pid, status, code, via_waitid, crashsafe::now_ns(), kUnknown, kUnknown, kUnknown, kUnknown};
  if (usage != nullptr) {
    auto us = [](const timeval& t) { return static_cast<uint64_t>(t.tv_sec) * 1'000'000 + static_cast<uint64_t>(t.tv_usec); };
    entry.user_us = us(usage->ru_utime);
    entry.system_us = us(usage->ru_stime);
    entry.max_rss_kb = static_cast<uint64_t>(usage->ru_maxrss);
    entry.major_faults = static_cast<uint64_t>(usage->ru_majflt);
  }
  append(EntryKind::kWait, &entry, sizeof entry);
}

}  // namespace pytracer::core
