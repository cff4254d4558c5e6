#include "crashsafe/unwind/native_stack.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/platform/arch.h"
#include "crashsafe/platform/large.h"
#include "crashsafe/platform/safe_read.h"
#include "crashsafe/unwind/images.h"

#include <atomic>
#include <csignal>

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

constexpr uint64_t kWalkLimit = 2'000'000;  // an overflowed stack has tens of thousands: 90 ns each
constexpr int kScanWords = 4096, kScanFrames = 32, kChainFrames = 64, kEnoughFrames = 4;
constexpr uint32_t kCfi = 1, kPoppedWildPc = 2, kFramePointers = 4, kScan = 8, kComplete = 16;

// In a loaded image and just after a call instruction.
bool is_return_address(uint64_t addr) {
  if (!in_image(addr)) return false;
#if defined(__x86_64__)
  unsigned char b[7];
  if (!read_bytes(b, addr - 7, 7)) return false;
  if (b[2] == 0xe8) return true;
  auto indirect = [&](int i) { return b[i] == 0xff && (b[i + 1] & 0x38) == 0x10; };
  return indirect(5) || indirect(4) || indirect(1) || indirect(0);
#else
  uint32_t word = 0;
  if (!read_value(word, addr - 4)) return false;
  return (word >> 26) == 0x25 || (word & 0xfffffc1f) == 0xd63f0000 || (word & 0xfefff800) == 0xd63f0800;  // bl, blr, blraa and the like
#endif
}

PYTRACER_LARGE uint64_t stack_pointers[kNativeHeadFrames];  // beside the first entries of NATIVE_FRAMES

NativeFrame& frame_at(uint32_t index) { return g_box.native_frames.data[index]; }

void add(uint64_t pc, uint64_t sp, uint32_t found) {
  CrashHeader& crash = *g_box.crash.data;
  uint64_t n = crash.native_total++;
  if (n < kNativeHeadFrames) {
    frame_at(static_cast<uint32_t>(n)) = {pc, 0, found};
    stack_pointers[n] = sp;
    crash.native_count = static_cast<uint32_t>(n) + 1;
  } else {  // keep both ends of a deep stack; the reader rotates the tail by native_total
    frame_at(kNativeHeadFrames + static_cast<uint32_t>(n - kNativeHeadFrames) % kNativeTailFrames) = {pc, 0, found};
    if (crash.native_tail < kNativeTailFrames) crash.native_tail++;
  }
}

constexpr Unwinder kLinkedIn{_Unwind_Backtrace, _Unwind_GetIPInfo, _Unwind_GetCFA};
constinit std::atomic<const Unwinder*> in_use{&kLinkedIn};

struct Walk {
  const Unwinder& unwinder;
  uint64_t from;
  bool crossed_signal_frame, complete;
  FrameFn visit;
  void* argument;
};

_Unwind_Reason_Code on_frame(_Unwind_Context* context, void* raw_walk) {
  auto* walk = static_cast<Walk*>(raw_walk);
  int before = 0;
  uint64_t pc = walk->unwinder.ip_info(context, &before);
  if (pc == 0) {  // the caller of a thread's first function
    walk->complete = true;
    return _URC_END_OF_STACK;
  }
  bool first = !walk->crossed_signal_frame;
  if (first) {  // our own handler's frames come first
    if (pc != walk->from) return _URC_NO_REASON;
    walk->crossed_signal_frame = true;
  }
  bool inside_call = before == 0;  // a return address: move it into the call
  // While libgcc visits a frame, its CFA is that of the frame's callee: the stack pointer at the call.
  uint64_t sp = walk->unwinder.cfa(context);
  return walk->visit(walk->argument, pc - (inside_call ? 1 : 0), sp, first ? kExact : kUnwound) ? _URC_NO_REASON : _URC_END_OF_STACK;
}

_Unwind_Reason_Code no_frame(_Unwind_Context*, void*) { return _URC_NO_REASON; }

// Of the crashed thread.
bool keep_frame(void*, uint64_t pc, uint64_t sp, uint32_t found) {
  add(pc, sp, found);
  return g_box.crash.data->native_total <= kWalkLimit;
}

void unwind_from(uint64_t pc, FrameFn keep) {
  if (walk_stack(pc, keep, nullptr)) g_box.crash.data->native_how |= kComplete;
}

}  // namespace

void warm_up_unwinder() noexcept { in_use.load(std::memory_order_relaxed)->backtrace(no_frame, nullptr); }

void use_unwinder(const Unwinder& unwinder) noexcept {
  unwinder.backtrace(no_frame, nullptr);
  in_use.store(&unwinder, std::memory_order_release);
}

bool walk_stack(uint64_t from, FrameFn visit, void* argument) noexcept {
  const Unwinder& unwinder = *in_use.load(std::memory_order_acquire);
  Walk walk{unwinder, from, false, false, visit, argument};
  unwinder.backtrace(on_frame, &walk);
  return walk.complete;
}

void write_native_stack(ucontext_t* context) noexcept {
  CrashHeader& crash = *g_box.crash.data;
  uint64_t pc = pc_of(context), sp = sp_of(context);
  crash.native_how = kCfi;
  // A program counter in the data of a loaded library is wild, too: then the fault is that of the instruction fetch.
  bool jumped = crash.code > 0 && crash.fault_addr == pc && crash.signal == SIGSEGV;
  if (!images_are_known() || (in_image(pc) && !jumped)) {
    unwind_from(pc, keep_frame);
    if (crash.native_total == 0) add(pc, sp, kExact);
    return;
  }
  add(pc, sp, kExact);
#if defined(__x86_64__)
  // A jump to a wild address has no frame of its own: the caller is on top of the stack. libgcc reads the registers from
  // the signal frame in memory, so edit them there for the time of the walk.
  uint64_t caller = 0;
  if (!read_value(caller, sp) || !is_return_address(caller)) return;
  crash.native_how |= kPoppedWildPc;
  set_pc(context, caller - 1);
  set_sp(context, sp + 8);
  unwind_from(caller - 1, [](void*, uint64_t frame, uint64_t frame_sp, uint32_t) { return keep_frame(nullptr, frame, frame_sp, kUnwound); });
  set_pc(context, pc);
  set_sp(context, sp);
#else
  // The call left its return address in the link register. After a jump or a return to a wild address that holds something older.
  uint64_t caller = link_of(context);
  if (caller == pc || !is_return_address(caller)) return;
  crash.native_how |= kPoppedWildPc;
  set_pc(context, caller - 1);
  unwind_from(caller - 1, [](void*, uint64_t frame, uint64_t frame_sp, uint32_t) { return keep_frame(nullptr, frame, frame_sp, kUnwound); });
  set_pc(context, pc);
#endif
}

uint32_t walk_without_cfi(uint64_t fp, uint64_t sp, FrameFn visit, void* argument) noexcept {
  uint64_t pair[2];
  int found = 0;
  for (uint64_t low = sp; found < kChainFrames && fp >= low && fp - low < (8u << 20) && read_bytes(pair, fp, sizeof pair) &&
                          is_return_address(pair[1] = without_signature(pair[1]));
       low = fp, fp = pair[0]) {
    found++;
    if (!visit(argument, pair[1] - 1, fp + sizeof pair, kFromFramePointer)) break;
  }
  if (found > 0) return kFromFramePointer;
  for (int i = 0; i < kScanWords && found < kScanFrames; i++) {
    uint64_t word = 0;
    if (!read_value(word, sp + static_cast<uint64_t>(i) * 8)) break;
    word = without_signature(word);
    if (!is_return_address(word)) continue;
    found++;
    if (!visit(argument, word - 1, sp + static_cast<uint64_t>(i) * 8 + 8, kScanned)) break;
  }
  return found > 0 ? kScanned : 0;
}

uint64_t stack_pointer_of_frame(uint32_t index) noexcept {
  return index < g_box.crash.data->native_count && index < kNativeHeadFrames ? stack_pointers[index] : 0;
}

void write_native_fallback(const ucontext_t* context) noexcept {
  CrashHeader& crash = *g_box.crash.data;
  if (crash.native_total > kEnoughFrames || (crash.native_how & kComplete) != 0) return;
  uint32_t how = walk_without_cfi(fp_of(context), sp_of(context), keep_frame, nullptr);
  if (how == kFromFramePointer) crash.native_how |= kFramePointers;
  if (how == kScanned) crash.native_how |= kScan;
}

}  // namespace pytracer::crashsafe
