// The C face of the core: it translates, checks that something is recorded, and decides nothing else.
#include "core/core.h"

#include "core/core_cuda.h"
#include "core/file/box_trim.h"
#include "core/file/journal.h"
#include "core/file/records.h"
#include "core/file/run_directory.h"
#include "core/interpose/exit_requests.h"
#include "core/interpose/python_exceptions.h"
#include "core/interpose/sandbox.h"
#include "core/probe/find_python.h"
#include "core/process/alternate_stack.h"
#include "core/process/exit.h"
#include "core/process/notice.h"
#include "core/process/recorder.h"
#include "core/tables/collectives.h"
#include "core/tables/external_allocations.h"
#include "core/tables/name_table.h"
#include "core/tables/scopes.h"
#include "core/tables/storage_table.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/create_file.h"
#include "crashsafe/handler/steps.h"
#include "crashsafe/platform/safe_read.h"
#include "crashsafe/python/python_stack.h"
#include "crashsafe/unwind/images.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

using namespace pytracer;

namespace {

std::atomic<int (*)(struct pytracer_stream*)> stream_probe{nullptr};  // set by libpytracer_cuda
std::atomic<bool> device_operators{false};                            // the same

// Whether there is a file for a record; created if need be.
inline bool ready() { return core::recording() && core::create_black_box(); }

}  // namespace

extern "C" {

int pytracer_start(const char* run_directory, uint32_t flags, char* error, size_t error_bytes) {
  core::Failure failure;
  if (core::is_debugged()) flags |= core::kDebugged;
  if (core::recording())
    failure = {"already recording", EALREADY};
  else if (core::sandboxed())
    failure = {"the program confines itself by seccomp", EPERM};
  else if (core::start(run_directory, flags, nullptr, core::kMostBoxes, failure))
    return 0;
  snprintf(error, error_bytes, "%s", failure.what);
  return failure.error != 0 ? failure.error : EIO;
}

void pytracer_stop(void) {
  if (core::recording()) core::stop();
}

int pytracer_create_black_box(void) { return ready(); }
void pytracer_trim_at_exit(void) { core::trim_when_done(); }
void pytracer_announce(const char* text) { core::announce_missing(text); }
void pytracer_note_exit(int code) { core::note_exit(code, true); }
void pytracer_note_wait(int pid, int status) { core::note_wait(pid, status, 0, false, nullptr); }

void pytracer_resume(void) {
  if (core::recording()) core::resume();
}

void pytracer_arm_thread(void) {
  if (core::recording()) core::arm_this_thread();
}

int pytracer_recording(void) { return core::recording() && !core::stopped(); }
int pytracer_finds_images(void) { return crashsafe::images_are_known(); }
int pytracer_preloaded(void) { return core::recording() && g_box.header->preloaded != 0; }
const char* pytracer_black_box_path(void) { return crashsafe::box_path(); }
const char* pytracer_directory(void) { return core::run_directory(); }
const char* pytracer_version(void) { return PYTRACER_VERSION; }

uint32_t pytracer_journal(uint32_t kind, const void* data, size_t nbytes) {
  return ready() ? core::append(static_cast<blackbox::EntryKind>(kind), data, nbytes) : 0;
}
void pytracer_record(uint32_t kind, const void* payload, size_t nbytes) {
  if (ready()) core::write_record(static_cast<blackbox::RecordKind>(kind), payload, nbytes);
}
void pytracer_kernel_launched(uint32_t name_id) {
  using blackbox::DeviceOpRecord;
  constexpr uint32_t kDevice = 0xff;
  if (ready()) core::amend_record(blackbox::RecordKind::kDeviceOp, offsetof(DeviceOpRecord, device), kDevice, name_id << 8);
}
void pytracer_mark(const char* text, size_t nbytes) {
  blackbox::TextRecord record{};
  memcpy(record.text, text, nbytes < sizeof record.text ? nbytes : sizeof record.text);
  pytracer_record(static_cast<uint32_t>(blackbox::RecordKind::kMark), &record, sizeof record);
}
void pytracer_step(int64_t step, uint32_t source) {
  if (!ready()) return;
  if (source == 2 && g_box.header->step_source == 1) return core::refresh_names_sometimes();
  g_box.header->step_source = source;
  std::atomic_ref(g_box.header->step).store(step, std::memory_order_relaxed);
  core::tick();
  blackbox::StepRecord record{step, source, 0};
  pytracer_record(static_cast<uint32_t>(blackbox::RecordKind::kStep), &record, sizeof record);
  core::refresh_names_sometimes();
}
int pytracer_open_storages(void) { return core::recording() && core::open_storage_table(); }
int pytracer_storage_known(const void* addr) { return core::storage_known(addr) || core::external_known(reinterpret_cast<uint64_t>(addr)); }
uint64_t pytracer_external_allocated(const struct pytracer_external* birth) { return core::recording() ? core::external_allocated(*birth) : 0; }
void pytracer_external_freed(uint64_t number, pytracer_detailed_call_site site) { core::external_freed(number, site); }
uint64_t pytracer_external_of(uint64_t identity) { return core::external_of(identity); }
void pytracer_count_unfollowed(void) {
  if (core::recording()) std::atomic_ref(g_box.header->storages_unfollowed).fetch_add(1, std::memory_order_relaxed);
}
int pytracer_open_collectives(void) { return core::recording() && core::open_collectives(); }
uint64_t pytracer_collective_scheduled(const void* slot) {
  if (!core::recording()) return 0;
  return core::collective_scheduled(*static_cast<const blackbox::CollectiveSlot*>(slot));
}
uint64_t pytracer_start_scheduled_collective(int (*fits)(const void*, const void*), const void* argument) {
  return core::recording() ? core::start_scheduled_collective(fits, argument) : 0;
}
void pytracer_collective_reached(uint64_t number, uint32_t state) {
  if (core::recording()) core::collective_reached(number, static_cast<blackbox::CollectiveState>(state));
}
void pytracer_collective_returned(uint64_t number) {
  if (core::recording()) core::collective_returned(number);
}
void pytracer_group_reached(const char* group, uint64_t sequence_nr, uint32_t state) {
  if (core::recording()) core::group_reached(group, sequence_nr, static_cast<blackbox::CollectiveState>(state));
}
uint64_t pytracer_group_scheduled(const char* group) { return core::recording() ? core::group_scheduled(group) : 0; }
void pytracer_set_stream_probe(int (*probe)(struct pytracer_stream*)) { stream_probe.store(probe, std::memory_order_release); }
int pytracer_current_stream(struct pytracer_stream* out) {
  auto* probe = stream_probe.load(std::memory_order_acquire);
  return probe != nullptr ? probe(out) : 0;
}
void pytracer_follow_device_operators(int follow) { device_operators.store(follow != 0, std::memory_order_release); }
int pytracer_device_operators_followed(void) { return device_operators.load(std::memory_order_acquire) ? 1 : 0; }
uint32_t pytracer_scope(uint32_t id) { return core::enter_scope(id); }
int pytracer_open_scoped_tensors(void) { return core::recording() && core::open_scoped_tensors(); }
void pytracer_scoped_tensors(uint32_t role, const void* tensors, size_t count) {
  if (core::recording()) core::scoped_tensors(static_cast<blackbox::TensorRole>(role), static_cast<const blackbox::ScopedTensor*>(tensors), count);
}
void pytracer_watch_exits(void) { core::watch_exit_requests(); }
void pytracer_exception_recorded(uint64_t exception) { core::python_exception_recorded(exception); }
void pytracer_count_hook_error(void) {
  if (core::recording()) std::atomic_ref(g_box.header->hook_errors).fetch_add(1, std::memory_order_relaxed);
}
int pytracer_check_python(const char* function) {
  if (!core::recording() || core::find_python() == 0) return 0;
  crashsafe::FrameView frames[2];
  crashsafe::CheckedReads reads;
  bool right = reads.possible() && crashsafe::own_frames(frames, 2) > 0 && crashsafe::code_is_named(frames[0].code, function);
  g_box.header->python_minor = static_cast<uint32_t>(core::find_python());
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
