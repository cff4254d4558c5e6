#include "recorder.h"

#include "../crashsafe/box.h"
#include "../crashsafe/handler.h"
#include "../crashsafe/other_threads.h"
#include "../crashsafe/python_stack.h"
#include "../crashsafe/steps.h"
#include "../crashsafe/surroundings.h"
#include "../guard/guard.h"
#include "alternate_stack.h"
#include "collectives.h"
#include "core.h"
#include "device_memory.h"
#include "find_python.h"
#include "foreign_storages.h"
#include "journal.h"
#include "libc.h"
#include "name_table.h"
#include "records.h"
#include "scopes.h"
#include "sent_signals.h"
#include "storage_table.h"
#include "thread_context.h"

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
constexpr const char* kEnvironmentNames[] = {"RANK",
                                             "LOCAL_RANK",
                                             "WORLD_SIZE",
                                             "LOCAL_WORLD_SIZE",
                                             "GROUP_RANK",
                                             "ROLE_RANK",
                                             "MASTER_ADDR",
                                             "MASTER_PORT",
                                             "LD_PRELOAD",
                                             "LD_LIBRARY_PATH",
                                             "CUDA_VISIBLE_DEVICES",
                                             "CUDA_LAUNCH_BLOCKING",
                                             "PYTHONFAULTHANDLER",
                                             "MALLOC_ARENA_MAX",
                                             "MALLOC_MMAP_THRESHOLD_",
                                             "KUBERNETES_SERVICE_HOST",
                                             "MPI_LOCALRANKID",
                                             "HOSTNAME"};
constexpr const char* kEnvironmentPrefixes[] = {"TORCH_", "TORCHELASTIC_", "NCCL_",      "GLOO_", "OMP_",      "MKL_",     "KMP_",
                                                "SLURM_", "PMI_",          "OMPI_COMM_", "PMIX_", "MV2_COMM_", "PYTORCH_", "PYTRACER_"};

std::atomic<bool> recording_{false};
std::atomic<uint64_t> quiet_waits{0};
bool process_hooks_set = false;
bool announce = false;

bool allowed(const char* entry) {
  const char* equals = strchr(entry, '=');
  if (equals == nullptr) return false;
  auto length = static_cast<size_t>(equals - entry);
  for (const char* name : kEnvironmentNames)
    if (strlen(name) == length && strncmp(entry, name, length) == 0) return true;
  for (const char* prefix : kEnvironmentPrefixes)
    if (strncmp(entry, prefix, strlen(prefix)) == 0) return true;
  return false;
}

void write_process() {
  static char buffer[65536];  // start-up is single-threaded, in the constructor as in enable()
  int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? read(fd, buffer, sizeof buffer) : 0;
  if (fd >= 0) close(fd);
  append(EntryKind::kProcess, buffer, n > 0 ? static_cast<size_t>(n) : 0);
  size_t used = 0;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; entry++) {
    size_t length = strlen(*entry) + 1;
    if (!allowed(*entry) || used + length > sizeof buffer) continue;
    memcpy(buffer + used, *entry, length);
    used += length;
  }
  append(EntryKind::kEnvironment, buffer, used);
}

void find_doorbell(const char* directory);

void after_fork_in_child() {
  if (!recording_.load(std::memory_order_relaxed)) return;
  reopen_after_fork();
  g_box.header->thread_count = 0;
  forget_threads();
  recount_storages();
  recheck_foreign();
  recount_names();
  forget_collectives();
  forget_device_memory();
  forget_scoped_tensors();
  find_doorbell(run_directory());  // the box has another name now
  write_process();
}

const char* box_name() {
  const char* slash = strrchr(box_path(), '/');
  return slash != nullptr ? slash + 1 : nullptr;
}

// The launcher's helper listens at a file of the run directory; without a launcher there is none.
void find_doorbell(const char* directory) {
  static Doorbell* bell = nullptr;
  char path[PATH_MAX];
  if (bell == nullptr && snprintf(path, sizeof path, "%s/%s", directory, kDoorbellName) < static_cast<int>(sizeof path)) {
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    struct stat file{};
    bool right = fd >= 0 && fstat(fd, &file) == 0 && file.st_size == static_cast<off_t>(sizeof(Doorbell));
    void* at = right ? mmap(nullptr, sizeof(Doorbell), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0) close(fd);
    if (at != MAP_FAILED && memcmp(at, kDoorbellMagic, sizeof kDoorbellMagic) == 0) bell = static_cast<Doorbell*>(at);
  }
  crashsafe::set_doorbell(bell, box_name());
}

// How a process that ends itself came to that. By exit() when Python still runs on this thread or the thread is not the
// interpreter's main one: otherwise the interpreter has just ended in order, and there is nothing to tell.
__attribute__((noinline)) void keep_exit_place(int code, bool at_once) {
  if (g_box.header->python_minor == 0) return;
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
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
  on_exit(at_exit, nullptr);
}

}  // namespace

bool announces() noexcept { return announce; }
bool recording() noexcept { return recording_.load(std::memory_order_acquire); }

bool start(const char* directory, uint32_t flags, bool preloaded, Failure& failure) noexcept {
  if (!open_box(directory, preloaded, failure)) return false;
  recording_.store(true, std::memory_order_release);
  write_process();
  g_box.header->python_minor = static_cast<uint32_t>(find_python());
  set_process_hooks();
  arm_this_thread();
  find_doorbell(directory);
  crashsafe::set_abort_message(dlvsym(RTLD_DEFAULT, "__abort_msg", "GLIBC_PRIVATE"));
  announce = (flags & kAnnounce) != 0;
  crashsafe::install_handlers(PYTRACER_REAL(sigaction), announce ? run_directory() : nullptr);
  if (preloaded) watch_sent_signals();
  return true;
}

void note_exit(int code, bool at_once) noexcept {
  if (!recording() || crashsafe::sys_getpid() != g_box_pid) return;
  FileHeader& header = *g_box.header;
  crashsafe::note_normal_exit();
  if (header.state == static_cast<uint32_t>(State::kCrashed)) return;
  guard::look_at_live();
  keep_exit_place(code, at_once);
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
  if (recorder::recording())
    failure = {"already recording", EALREADY};
  else if (recorder::start(run_directory, flags, false, failure))
    return 0;
  snprintf(error, error_bytes, "%s", failure.what);
  return failure.error != 0 ? failure.error : EIO;
}

void pytracer_stop(void) {
  if (!recorder::recording()) return;
  recorder::unwatch_sent_signals();
  crashsafe::uninstall_handlers();
  std::atomic_ref(g_box.header->state).store(static_cast<uint32_t>(blackbox::State::kDisabled), std::memory_order_release);
}

void pytracer_keep_little(void) { recorder::keep_little(); }
void pytracer_note_exit(int code) { recorder::note_exit(code, true); }

void pytracer_resume(void) {
  if (!recorder::recording()) return;
  std::atomic_ref(g_box.header->state).store(static_cast<uint32_t>(blackbox::State::kRecording), std::memory_order_release);
  crashsafe::install_handlers(PYTRACER_REAL(sigaction), recorder::announces() ? recorder::run_directory() : nullptr);
  if (pytracer_preloaded() != 0) recorder::watch_sent_signals();
}

void pytracer_arm_thread(void) {
  if (recorder::recording()) recorder::arm_this_thread();
}

int pytracer_recording(void) { return recorder::recording() && crashsafe::handlers_installed(); }
int pytracer_preloaded(void) { return recorder::recording() && g_box.header->preloaded != 0; }
const char* pytracer_box_path(void) { return recorder::box_path(); }
const char* pytracer_directory(void) { return recorder::run_directory(); }
const char* pytracer_version(void) { return PYTRACER_VERSION; }

uint32_t pytracer_journal(uint32_t kind, const void* data, size_t nbytes) {
  return recorder::recording() ? recorder::append(static_cast<blackbox::EntryKind>(kind), data, nbytes) : 0;
}
void pytracer_record(uint32_t kind, const void* payload, size_t nbytes) {
  if (recorder::recording()) recorder::write_record(static_cast<blackbox::RecordKind>(kind), payload, nbytes);
}
void pytracer_mark(const char* text, size_t nbytes) {
  blackbox::TextRecord record{};
  memcpy(record.text, text, nbytes < sizeof record.text ? nbytes : sizeof record.text);
  pytracer_record(static_cast<uint32_t>(blackbox::RecordKind::kMark), &record, sizeof record);
}
void pytracer_step(int64_t step, uint32_t source) {
  if (!recorder::recording()) return;
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
  bool right = crashsafe::own_frames(frames, 2) > 0 && crashsafe::code_is_named(frames[0].code, function);
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
