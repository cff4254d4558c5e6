#include "core/process/recorder.h"

#include "core/core.h"
#include "core/device/device_memory.h"
#include "core/file/box_fork.h"
#include "core/file/box_start.h"
#include "core/file/python_stacks.h"
#include "core/interpose/libc.h"
#include "core/interpose/sent_signals.h"
#include "core/interpose/signal_sends.h"
#include "core/interpose/unwind_tables.h"
#include "core/probe/find_python.h"
#include "core/process/alternate_stack.h"
#include "core/process/exit.h"
#include "core/process/facts.h"
#include "core/tables/collectives.h"
#include "core/tables/external_allocations.h"
#include "core/tables/name_table.h"
#include "core/tables/scopes.h"
#include "core/tables/storage_table.h"
#include "core/tables/thread_context.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/box_gate.h"
#include "crashsafe/file/create_file.h"
#include "crashsafe/file/mapping.h"
#include "crashsafe/handler/handler.h"
#include "crashsafe/memory/process_context.h"
#include "crashsafe/memory/unmappings.h"
#include "crashsafe/platform/process_status.h"
#include "crashsafe/platform/sys.h"
#include "crashsafe/signals/install.h"
#include "crashsafe/threads/helper_call.h"
#include "guard/guard.h"

#include <dlfcn.h>
#include <pthread.h>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace pytracer::core {

std::atomic<bool> g_recording{false}, g_facts_are_parents{false};

namespace {

using namespace blackbox;

std::atomic<bool> stopped_{false};
bool process_hooks_set = false;
bool announce = false;

// A debugger stops the program at a fault, and would stop it again at the signal that we queue anew. Valgrind makes signal frames of its
// own, and reports faults itself.
bool debugger_owns_faults(bool debugged) {
  const char* preload = getenv("LD_PRELOAD");
  return (preload != nullptr && strstr(preload, "/vgpreload_core") != nullptr) || debugged;
}

void install_handlers() { crashsafe::install_handlers(PYTRACER_REAL(sigaction), announce ? run_directory() : nullptr); }

void set_state(State state) { std::atomic_ref(g_box.header->state).store(static_cast<uint32_t>(state), std::memory_order_release); }

void forget_tables() {
  g_box.header->thread_count = 0;
  forget_threads();
  recount_storages();
  recheck_external_allocations();
  recount_names();
  forget_collectives();
  forget_device_memory();
  forget_scoped_tensors();
}

// The parent's mappings are still there, and nothing may be written to them.
void abandon_parents_box() {
  abandon_recording();
  g_box_pid = crashsafe::sys_getpid();
  if (!empty_box()) {
    guard::forget_box();
    close_collectives();
    close_scoped_tensors();
  }
  forget_tables();
}

// Of a black box that another thread moves during the fork the child would have half.
void before_fork() {
  if (g_recording.load(std::memory_order_relaxed) && !crashsafe::has_box()) crashsafe::close_gate();
}
void after_fork_in_parent() { crashsafe::open_gate(); }

void after_fork_in_child() {
  crashsafe::forget_reports();
  forget_ending();
  forget_sends();
  forget_python_stacks();
  crashsafe::forget_unmapping_stacks();
  if (!g_recording.load(std::memory_order_relaxed)) return;
  bool copied = false, had_tables = crashsafe::box_mapping_count.load(std::memory_order_relaxed) != 0;
  if (!leave_box_to_parent(copied)) return abandon_parents_box();
  if (had_tables) forget_tables();  // a shell's children have none, and would pay for each page that is written
  g_facts_are_parents.store(!copied, std::memory_order_relaxed);
  if (copied) write_process(nullptr);
}

void at_exit(int code, void*) { note_exit(code, false); }

// Once per process: they cannot be uninstalled.
void set_process_hooks() {
  if (process_hooks_set) return;
  process_hooks_set = true;
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  on_exit(at_exit, nullptr);
}

}  // namespace

bool announces() noexcept { return announce; }
bool stopped() noexcept { return stopped_.load(std::memory_order_acquire); }
bool is_debugged() noexcept { return crashsafe::read_status("/proc/self/status").debugged; }

void abandon_recording() noexcept {
  g_recording.store(false, std::memory_order_release);
  crashsafe::refuse_boxes();
  // Used without a check of recording(): the tables of storages.
  g_box.newest.store(nullptr, std::memory_order_release);
  g_box.tier_count.store(0, std::memory_order_release);
  g_box.external.store(nullptr, std::memory_order_release);
}

bool start(const char* directory, uint32_t flags, const char* const* preloaded_into, uint32_t most_boxes, Failure& failure) noexcept {
  bool at_once = false, preloaded = preloaded_into != nullptr;
  if (!prepare_box(directory, preloaded, most_boxes, at_once, failure)) return false;
  write_process(preloaded_into);
  note_common_facts();
  if (!preloaded) use_libgcc_s();
  if (!preloaded || python_is_linked()) g_box.header->python_minor = static_cast<uint32_t>(find_python());
  // Without preload the program asked for it. Otherwise only the first process of a run: a run has a recording.
  if ((!preloaded || at_once) && !crashsafe::ensure_box(crashsafe::Need::kMust)) {
    failure = crashsafe::box_failure();
    if (!preloaded) return false;  // with preload there may be space when it is needed
  }
  g_recording.store(true, std::memory_order_release);
  set_process_hooks();
  arm_this_thread();
  crashsafe::set_helper_directory(helper_directory());
  crashsafe::set_abort_message(dlvsym(RTLD_DEFAULT, "__abort_msg", "GLIBC_PRIVATE"));
  announce = (flags & kAnnounce) != 0;
  if (!debugger_owns_faults((flags & kDebugged) != 0)) install_handlers();
  if (preloaded) watch_sent_signals();
  return true;
}

void stop() noexcept {
  stopped_.store(true, std::memory_order_release);
  unwatch_sent_signals();
  crashsafe::uninstall_handlers();
  set_state(State::kDisabled);
}

void resume() noexcept {
  set_state(State::kRecording);
  stopped_.store(false, std::memory_order_release);
  if (!debugger_owns_faults(is_debugged())) install_handlers();
  if (g_box.header->preloaded != 0) watch_sent_signals();
}

void replace_parents_facts() noexcept {
  if (g_facts_are_parents.exchange(false)) write_process(nullptr);
}

}  // namespace pytracer::core
