#include "crashsafe/handler/steps.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/handler/report.h"
#include "crashsafe/memory/frame_values.h"
#include "crashsafe/memory/heap_damage.h"
#include "crashsafe/memory/process_context.h"
#include "crashsafe/memory/referrers.h"
#include "crashsafe/memory/storage_lookup.h"
#include "crashsafe/memory/unmappings.h"
#include "crashsafe/platform/arch.h"
#include "crashsafe/platform/deadline.h"
#include "crashsafe/platform/safe_read.h"
#include "crashsafe/python/python_stack.h"
#include "crashsafe/threads/other_threads.h"
#include "crashsafe/torch/arguments.h"
#include "crashsafe/torch/named_tensors.h"
#include "crashsafe/unwind/images.h"
#include "crashsafe/unwind/native_stack.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <atomic>
#include <cstring>

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

constexpr uint64_t kStepNs = 1'000'000'000, kAllStepsNs = 4'000'000'000;  // a report takes 1 ms; these are for a hang

std::atomic<NodeProbeFn> node_probe{nullptr};
void* after_step[5];  // __builtin_setjmp buffer of the running step
void* after_part[5];  // and of a guarded part of it
volatile bool in_part = false;
volatile int running_step = -1;  // -1: between steps
volatile int step_to_break = -1;
volatile int* volatile nowhere = nullptr;

void write_thread() {
  CrashHeader& crash = *g_box.crash.data;
  crash.thread_index = -1;
  uint32_t threads = std::atomic_ref(g_box.header->thread_count).load(std::memory_order_acquire);
  for (uint32_t i = 0; i < threads && i < kThreadLimit; i++)
    if (g_box.heads[i / kThreadsPerChunk][i % kThreadsPerChunk].tid == crash.tid) crash.thread_index = static_cast<int32_t>(i);
  for (uint32_t n = sizeof crash.code_bytes; n > 0 && crash.code_nbytes == 0; n--)
    if (read_bytes(crash.code_bytes, crash.pc, n)) crash.code_nbytes = n;
}

void write_node() {
  CrashHeader& crash = *g_box.crash.data;
  NodeProbeFn probe = node_probe.load(std::memory_order_acquire);
  NodeProbe node{};
  set_running_node(0);
  if (probe == nullptr || !probe(&node)) return;
  crash.node_found = 1;
  crash.node_sequence_nr = node.sequence_nr;
  crash.node_is_python = node.is_python;
  set_running_node(reinterpret_cast<uint64_t>(node.node));
  for (size_t i = 0; i + 1 < sizeof crash.node_name; i++)
    if (!read_bytes(crash.node_name + i, reinterpret_cast<uint64_t>(node.name) + i, 1) || crash.node_name[i] == 0) break;
}

void write_hits() {
  const CrashHeader& crash = *g_box.crash.data;
  if ((crash.signal == SIGSEGV || crash.signal == SIGBUS) && crash.code > 0 && crash.fault_addr != 0) {
    write_unmapping(crash.fault_addr);
    write_storage_hits(crash.fault_addr);
  }
}

// Looks at every live storage, so that it comes after the minimal report, and before the steps that look for who refers to what it found.
void write_overrun() {
  const CrashHeader& crash = *g_box.crash.data;
  if (crash.signal == SIGSEGV || crash.signal == SIGBUS || crash.signal == SIGABRT) write_overrun_storages();
}

// What a process that stands still was about to do is up to the values of its variables; a crash is about its tensors. For pytracer
// attach there is time for both.
void write_holders() {
  bool crashed = has_state(CrashState::kClaimed);
  if (!crashed) write_values();
  if (crashed || g_box.crash.data->signal == static_cast<int>(kRequestSignal)) write_referrers();
}

void do_step(Step step, ucontext_t* context, const KernelAction& like) {
  switch (step) {
    case Step::kSignal: return write_thread();
    case Step::kAutogradNode: return write_node();
    case Step::kPythonStack: return write_python_stacks();
    case Step::kStorageLookup: return write_hits();
    case Step::kNativeStack: return write_native_stack(context);
    case Step::kNativeFallback: return write_native_fallback(context);
    case Step::kImages: return write_frame_images();
    case Step::kMaps: return write_maps();
    case Step::kWords: return write_messages();
    case Step::kFaultFile: return write_fault_file();
    case Step::kMemory: return write_memory();
    case Step::kLoadedImages: write_loaded_images(); return write_overrun();
    case Step::kOtherThreads: return write_other_threads(like);
    case Step::kNames: return write_names();
    case Step::kHolders: return write_holders();
    case Step::kArguments: return write_arguments();
  }
}

// One numbered step. After a fault inside it the nested handler returns here, and the next step follows.
__attribute__((noinline)) void run_step(Step step, ucontext_t* context, const KernelAction& like) {
  CrashHeader& crash = *g_box.crash.data;
  uint32_t bit = 1u << static_cast<uint32_t>(step);
  in_part = false;
  if (__builtin_setjmp(after_step)) {
    running_step = -1;
    if ((crash.steps_late & bit) == 0) crash.steps_faulted |= bit;
    return;
  }
  running_step = static_cast<int>(step);
  if (step_to_break == static_cast<int>(step)) *nowhere = 0;
  do_step(step, context, like);
  running_step = -1;  // before this frame ends: a deadline that expires now has nowhere to return to
  crash.steps_done |= bit;
}

// The running step has used up its time: continue with the next one. What it has written remains.
void on_deadline(int, siginfo_t* info, void* raw_context) {
  auto* context = static_cast<ucontext_t*>(raw_context);
  if (info->si_code != SI_TIMER || running_step < 0) return;
  g_box.crash.data->steps_late |= 1u << running_step;
  // The step may be interrupted inside the handler of a checked read, where its signal is blocked.
  uint64_t mask;
  memcpy(&mask, &context->uc_sigmask, sizeof mask);
  mask &= ~our_signals();
  memcpy(&context->uc_sigmask, &mask, sizeof mask);
  resume_at(after_step, context);
}

}  // namespace

void resume_at(void* const (&buffer)[5], ucontext_t* context) noexcept {
  set_fp(context, reinterpret_cast<uint64_t>(buffer[0]));
  set_pc(context, reinterpret_cast<uint64_t>(buffer[1]));
  set_sp(context, reinterpret_cast<uint64_t>(buffer[2]));
}

bool recover_step(ucontext_t* context) noexcept {
  if (running_step < 0) return false;
  if (in_part)
    resume_at(after_part, context);
  else
    resume_at(after_step, context);
  return true;
}

__attribute__((noinline)) bool run_guarded(void (*work)(void*), void* argument) noexcept {
  if (__builtin_setjmp(after_part)) {
    in_part = false;
    return false;
  }
  in_part = true;
  work(argument);
  in_part = false;
  return true;
}

void run_steps(Step first, Step last, ucontext_t* context, const KernelAction& like) noexcept {
  CrashHeader& crash = *g_box.crash.data;
  uint64_t start = now_ns();
  start_deadlines(on_deadline, like);
  for (auto s = static_cast<uint32_t>(first); s <= static_cast<uint32_t>(last); s++) {
    if (now_ns() - start > kAllStepsNs) {
      crash.steps_late |= 1u << s;
      continue;
    }
    set_deadline(kStepNs);
    run_step(static_cast<Step>(s), context, like);
    set_deadline(0);
    crash.step_end_ns[s] = now_ns();
  }
  stop_deadlines();
}

void break_step(int step) noexcept { step_to_break = step; }

void set_node_probe(NodeProbeFn probe) noexcept { node_probe.store(probe, std::memory_order_release); }

}  // namespace pytracer::crashsafe
