#include "core/process/recorder.h"

#include "core/core.h"
#include "core/device/device_memory.h"
#include "core/file/journal.h"
#include "core/file/recorded_environment.h"
#include "core/file/records.h"
#include "core/interpose/libc.h"
#include "core/interpose/sandbox.h"
#include "core/interpose/sent_signals.h"
#include "core/interpose/unwind_tables.h"
#include "core/probe/find_python.h"
#include "core/process/alternate_stack.h"
#include "core/tables/collectives.h"
#include "core/tables/external_allocations.h"
#include "core/tables/name_table.h"
#include "core/tables/scopes.h"
#include "core/tables/storage_table.h"
#include "core/tables/thread_context.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/create_file.h"
#include "crashsafe/file/redact.h"
#include "crashsafe/handler/dying.h"
#include "crashsafe/handler/handler.h"
#include "crashsafe/handler/steps.h"
#include "crashsafe/memory/process_context.h"
#include "crashsafe/platform/large.h"
#include "crashsafe/platform/process_status.h"
#include "crashsafe/platform/safe_read.h"
#include "crashsafe/python/python_stack.h"
#include "crashsafe/threads/helper_call.h"
#include "guard/guard.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern char** environ;

namespace pytracer::recorder {
namespace {

using namespace blackbox;

constexpr uint64_t kQuietWaits = 1000;  // children that ended well, remembered at most

std::atomic<bool> recording_{false}, stopped_{false};
std::atomic<uint64_t> quiet_waits{0};
std::atomic<bool> facts_are_parents{false};  // command line and environment, which the parent may have changed since
bool process_hooks_set = false;
bool announce = false;

size_t copy_words(const char* const* words, char* to, size_t room) {
  size_t used = 0;
  for (; *words != nullptr && used < room; words++) {
    size_t left = room - used, nbytes = strlen(*words) + 1;
    memcpy(to + used, *words, nbytes < left ? nbytes : left);
    used += nbytes < left ? nbytes : left;
  }
  return used;
}

size_t read_command_line(char* to, size_t room) {
  int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? read(fd, to, room) : 0;
  if (fd >= 0) close(fd);
  return n > 0 ? static_cast<size_t>(n) : 0;
}

// `arguments`: main()'s, which the kernel's file shows, too, for the price of its directory in /proc; null where they may have changed.
void write_process(const char* const* arguments) {
  PYTRACER_LARGE static char buffer[65536];  // start-up is single-threaded, in the constructor as in enable()
  size_t n = arguments != nullptr ? copy_words(arguments, buffer, sizeof buffer) : read_command_line(buffer, sizeof buffer);
  crashsafe::Redacted command = crashsafe::redact_words(buffer, n);
  append(EntryKind::kProcess, buffer, command.nbytes);
  size_t used = 0;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; entry++) {
    size_t length = strlen(*entry) + 1;
    if (!is_recorded(*entry) || used + length > sizeof buffer) continue;
    memcpy(buffer + used, *entry, length);
    used += length;
  }
  crashsafe::Redacted variables = crashsafe::redact_words(buffer, used);
  append(EntryKind::kEnvironment, buffer, variables.nbytes);
  g_box.header->redacted = command.count + variables.count;
}

// A program that was started by a debugger: it stops at a fault, and would again at the one that we raise anew. Valgrind makes
// signal frames of its own, and reports faults itself.
bool faults_are_anothers(bool debugged) {
  const char* preload = getenv("LD_PRELOAD");
  return (preload != nullptr && strstr(preload, "/vgpreload_core") != nullptr) || debugged;
}

bool is_debugged() { return crashsafe::read_status("/proc/self/status").debugged; }

void forget_tables() {
  g_box.header->thread_count = 0;
  forget_threads();
  recount_storages();
  recheck_foreign();
  recount_names();
  forget_collectives();
  forget_device_memory();
  forget_scoped_tensors();
}

// What the parent mapped is still there, and nothing may be written to it.
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

// A box that another thread moves while this one forks would be half the child's.
void before_fork() {
  if (recording_.load(std::memory_order_relaxed) && !crashsafe::has_box()) crashsafe::close_gate();
}
void after_fork_in_parent() { crashsafe::open_gate(); }

void after_fork_in_child() {
  crashsafe::forget_reports();
  if (!recording_.load(std::memory_order_relaxed)) return;
  bool copied = false, had_tables = crashsafe::box_mapping_count.load(std::memory_order_relaxed) != 0;
  if (!leave_box_to_parent(copied)) return abandon_parents_box();
  if (had_tables) forget_tables();  // a shell's children have none, and pay for each page that is written
  facts_are_parents.store(!copied, std::memory_order_relaxed);
  if (copied) write_process(nullptr);
}

// How a process that ends itself came to that. By exit() when Python still runs on this thread or the thread is not the
// interpreter's main one: otherwise the interpreter has just ended in order, and there is nothing to tell.
__attribute__((noinline)) void keep_exit_place(int code, bool at_once) {
  if (g_box.header->python_minor == 0) return;
  crashsafe::CheckedReads reads;  // not of the frames of an interpreter that has ended, when that would be the end of the process
  if (!reads.possible()) return;
  crashsafe::FrameView frame;
  bool in_order = at_once ? code == 0 : crashsafe::sys_gettid() == g_box_pid && crashsafe::own_frames(&frame, 1) == 0;
  ucontext_t here;
  if (!in_order && getcontext(&here) == 0) crashsafe::write_exit(&here);
}

void at_exit(int code, void*) { note_exit(code, false); }

// Once per process: they cannot be taken back.
void set_process_hooks() {
  if (process_hooks_set) return;
  process_hooks_set = true;
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  on_exit(at_exit, nullptr);
}

}  // namespace

bool announces() noexcept { return announce; }
bool stopped() noexcept { return stopped_.load(std::memory_order_acquire); }
void set_stopped(bool stopped) noexcept { stopped_.store(stopped, std::memory_order_release); }
bool recording() noexcept { return recording_.load(std::memory_order_acquire); }

void abandon_recording() noexcept {
  recording_.store(false, std::memory_order_release);
  crashsafe::refuse_boxes();
  // What is asked without a look at recording(): the tables of storages.
  g_box.newest.store(nullptr, std::memory_order_release);
  g_box.tier_count.store(0, std::memory_order_release);
  g_box.foreign.store(nullptr, std::memory_order_release);
}

bool start(const char* directory, uint32_t flags, const char* const* preloaded_into, uint32_t most_boxes, Failure& failure) noexcept {
  bool at_once = false, preloaded = preloaded_into != nullptr;
  if (!prepare_box(directory, preloaded, most_boxes, at_once, failure)) return false;
  write_process(preloaded_into);
  note_common_facts();
  if (!preloaded) use_libgcc_s();
  if (!preloaded || python_is_linked()) g_box.header->python_minor = static_cast<uint32_t>(find_python());
  // Who preloads nothing has asked for it in the program. Else the first process of a run: a run has a recording.
  if ((!preloaded || at_once) && !crashsafe::ensure_box(crashsafe::Need::kMust)) {
    failure = crashsafe::box_failure();
    if (!preloaded) return false;  // else there may be room when it matters
  }
  recording_.store(true, std::memory_order_release);
  set_process_hooks();
  arm_this_thread();
  crashsafe::set_helper_directory(run_directory());
  crashsafe::set_abort_message(dlvsym(RTLD_DEFAULT, "__abort_msg", "GLIBC_PRIVATE"));
  announce = (flags & kAnnounce) != 0;
  if (!faults_are_anothers((flags & kDebugged) != 0)) crashsafe::install_handlers(PYTRACER_REAL(sigaction), announce ? run_directory() : nullptr);
  if (preloaded) watch_sent_signals();
  return true;
}

bool make_box() noexcept {
  if (!crashsafe::ensure_box(crashsafe::Need::kMust)) return false;
  if (facts_are_parents.load(std::memory_order_relaxed) && facts_are_parents.exchange(false)) write_process(nullptr);
  return true;
}

void note_exit(int code, bool at_once) noexcept {
  crashsafe::wait_while_dying();
  if (!recording() || crashsafe::sys_getpid() != g_box_pid) return;
  crashsafe::note_normal_exit();
  if (g_box.header->state == static_cast<uint32_t>(State::kCrashed)) return;
  // A Python program that fails has something to tell. A command of a shell that says no has not.
  if (code != 0 && g_box.header->python_minor != 0) crashsafe::ensure_box();
  guard::look_at_live();
  keep_exit_place(code, at_once);
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
  // A child that was killed is worth a box, its parent's if it had none itself. The end of a pipe's reader kills its writer every day.
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

}  // namespace pytracer::recorder

using namespace pytracer;

namespace {

std::atomic<int (*)(struct pytracer_stream*)> stream_probe{nullptr};  // set by _native_cuda

}  // namespace

extern "C" {

int pytracer_start(const char* run_directory, uint32_t flags, char* error, size_t error_bytes) {
  recorder::Failure failure;
  if (recorder::is_debugged()) flags |= recorder::kDebugged;
  if (recorder::recording())
    failure = {"already recording", EALREADY};
  else if (recorder::sandboxed())
    failure = {"the program confines itself by seccomp", EPERM};
  else if (recorder::start(run_directory, flags, nullptr, recorder::kMostBoxes, failure))
    return 0;
  snprintf(error, error_bytes, "%s", failure.what);
  return failure.error != 0 ? failure.error : EIO;
}

void pytracer_stop(void) {
  if (!recorder::recording()) return;
  recorder::set_stopped(true);
  recorder::unwatch_sent_signals();
  crashsafe::uninstall_handlers();
  std::atomic_ref(g_box.header->state).store(static_cast<uint32_t>(blackbox::State::kDisabled), std::memory_order_release);
}

int pytracer_make_box(void) { return recorder::recording() && recorder::make_box(); }
void pytracer_keep_little(void) { recorder::keep_little(); }
void pytracer_note_exit(int code) { recorder::note_exit(code, true); }

void pytracer_resume(void) {
  if (!recorder::recording()) return;
  std::atomic_ref(g_box.header->state).store(static_cast<uint32_t>(blackbox::State::kRecording), std::memory_order_release);
  recorder::set_stopped(false);
  if (!recorder::faults_are_anothers(recorder::is_debugged()))
    crashsafe::install_handlers(PYTRACER_REAL(sigaction), recorder::announces() ? recorder::run_directory() : nullptr);
  if (pytracer_preloaded() != 0) recorder::watch_sent_signals();
}

void pytracer_arm_thread(void) {
  if (recorder::recording()) recorder::arm_this_thread();
}

int pytracer_recording(void) { return recorder::recording() && !recorder::stopped(); }
int pytracer_preloaded(void) { return recorder::recording() && g_box.header->preloaded != 0; }
const char* pytracer_box_path(void) { return crashsafe::box_path(); }
const char* pytracer_directory(void) { return recorder::run_directory(); }
const char* pytracer_version(void) { return PYTRACER_VERSION; }

uint32_t pytracer_journal(uint32_t kind, const void* data, size_t nbytes) {
  return pytracer_make_box() != 0 ? recorder::append(static_cast<blackbox::EntryKind>(kind), data, nbytes) : 0;
}
void pytracer_record(uint32_t kind, const void* payload, size_t nbytes) {
  if (pytracer_make_box() != 0) recorder::write_record(static_cast<blackbox::RecordKind>(kind), payload, nbytes);
}
void pytracer_mark(const char* text, size_t nbytes) {
  blackbox::TextRecord record{};
  memcpy(record.text, text, nbytes < sizeof record.text ? nbytes : sizeof record.text);
  pytracer_record(static_cast<uint32_t>(blackbox::RecordKind::kMark), &record, sizeof record);
}
void pytracer_step(int64_t step, uint32_t source) {
  if (!recorder::recording()) return;
  if (pytracer_make_box() == 0) return;
  if (source == 2 && g_box.header->step_source == 1) return recorder::refresh_names_sometimes();
  g_box.header->step_source = source;
  std::atomic_ref(g_box.header->step).store(step, std::memory_order_relaxed);
  recorder::tick();
  blackbox::StepRecord record{step, source, 0};
  pytracer_record(static_cast<uint32_t>(blackbox::RecordKind::kStep), &record, sizeof record);
  recorder::refresh_names_sometimes();
}
int pytracer_open_storages(void) { return recorder::recording() && recorder::open_storage_table(); }
int pytracer_storage_known(const void* addr) { return recorder::storage_known(addr) || recorder::foreign_known(reinterpret_cast<uint64_t>(addr)); }
uint64_t pytracer_foreign_allocated(const struct pytracer_foreign* birth) { return recorder::recording() ? recorder::foreign_allocated(*birth) : 0; }
void pytracer_foreign_freed(uint64_t number, pytracer_who_in_detail who) { recorder::foreign_freed(number, who); }
uint64_t pytracer_foreign_of(uint64_t identity) { return recorder::foreign_of(identity); }
void pytracer_count_unfollowed(void) {
  if (recorder::recording()) std::atomic_ref(g_box.header->storages_unfollowed).fetch_add(1, std::memory_order_relaxed);
}
int pytracer_open_collectives(void) { return recorder::recording() && recorder::open_collectives(); }
uint64_t pytracer_collective_scheduled(const void* slot) {
  if (!recorder::recording()) return 0;
  return recorder::collective_scheduled(*static_cast<const blackbox::CollectiveSlot*>(slot));
}
uint64_t pytracer_start_scheduled_collective(int (*fits)(const void*, const void*), const void* argument) {
  return recorder::recording() ? recorder::start_scheduled_collective(fits, argument) : 0;
}
void pytracer_collective_reached(uint64_t number, uint32_t state) {
  if (recorder::recording()) recorder::collective_reached(number, static_cast<blackbox::CollectiveState>(state));
}
void pytracer_collective_returned(uint64_t number) {
  if (recorder::recording()) recorder::collective_returned(number);
}
void pytracer_group_reached(const char* group, uint64_t sequence_nr, uint32_t state) {
  if (recorder::recording()) recorder::group_reached(group, sequence_nr, static_cast<blackbox::CollectiveState>(state));
}
uint64_t pytracer_group_scheduled(const char* group) { return recorder::recording() ? recorder::group_scheduled(group) : 0; }
void pytracer_set_stream_probe(int (*probe)(struct pytracer_stream*)) { stream_probe.store(probe, std::memory_order_release); }
int pytracer_current_stream(struct pytracer_stream* out) {
  auto* probe = stream_probe.load(std::memory_order_acquire);
  return probe != nullptr ? probe(out) : 0;
}
uint32_t pytracer_scope(uint32_t id) { return recorder::enter_scope(id); }
int pytracer_open_scoped_tensors(void) { return recorder::recording() && recorder::open_scoped_tensors(); }
void pytracer_scoped_tensors(uint32_t role, const void* tensors, size_t count) {
  if (recorder::recording())
    recorder::scoped_tensors(static_cast<blackbox::TensorRole>(role), static_cast<const blackbox::ScopedTensor*>(tensors), count);
}
void pytracer_count_hook_error(void) {
  if (recorder::recording()) std::atomic_ref(g_box.header->hook_errors).fetch_add(1, std::memory_order_relaxed);
}
int pytracer_check_python(const char* function) {
  if (!recorder::recording() || recorder::find_python() == 0) return 0;
  crashsafe::FrameView frames[2];
  crashsafe::CheckedReads reads;
  bool right = reads.possible() && crashsafe::own_frames(frames, 2) > 0 && crashsafe::code_is_named(frames[0].code, function);
  g_box.header->python_minor = static_cast<uint32_t>(recorder::find_python());
  g_box.header->python_offsets_ok = right;
  if (!right) crashsafe::distrust_python();
  return right ? 1 : -1;
}
void pytracer_set_node_probe(bool (*probe)(struct pytracer_node*)) {
  static_assert(sizeof(pytracer_node) == sizeof(crashsafe::NodeProbe));
  crashsafe::set_node_probe(reinterpret_cast<crashsafe::NodeProbeFn>(probe));
}
void pytracer_break_step(int step) { crashsafe::break_step(step); }
const void* pytracer_python_offsets(void) { return crashsafe::python_offsets(); }

}  // extern "C"
