#include "crashsafe/memory/unmappings.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/file/seq_slot.h"
#include "crashsafe/platform/large.h"
#include "crashsafe/platform/sys.h"

#include <atomic>

namespace pytracer::crashsafe {
namespace {

constexpr uint32_t kUnmappings = 512;
constexpr uint64_t kPageBytes = 4096;

struct Unmapping {
  uint64_t order, addr, nbytes, mono_ns, caller;
  int32_t tid;
  uint32_t stack_id;
};
PYTRACER_LARGE Unmapping unmappings[kUnmappings];
Ring<Unmapping, kUnmappings> ring() { return Ring<Unmapping, kUnmappings>(unmappings); }
std::atomic<uint64_t> noted{0}, without_stacks{0};

}  // namespace

uint64_t note_unmapping(uint64_t addr, uint64_t nbytes, uint64_t caller, uint32_t stack_id) noexcept {
  uint64_t number = noted.fetch_add(1, std::memory_order_relaxed) + 1;
  ring().assign(number, {0, addr, nbytes, now_ns(), caller, sys_gettid(), stack_id});
  return number;
}

void forget_unmapping(uint64_t number) noexcept { ring().assign(number, {}); }

// In most children there is none: a page that is not written is not copied.
void forget_unmapping_stacks() noexcept {
  uint64_t now = noted.load(std::memory_order_relaxed);
  if (now != 0) without_stacks.store(now, std::memory_order_relaxed);
}

void write_unmapping(uint64_t addr) noexcept {
  uint64_t latest = 0;
  for (Unmapping& item : unmappings) {
    Unmapping copy;
    uint64_t number = SeqSlot<Unmapping>(item).read(copy);
    if (number <= latest || addr < copy.addr || addr - copy.addr >= copy.nbytes) continue;
    latest = number;
    blackbox::CrashHeader& crash = *g_box.crash.data;
    crash.unmapped_addr = copy.addr;
    crash.unmapped_pages = static_cast<uint32_t>((copy.nbytes + kPageBytes - 1) / kPageBytes);
    crash.unmapped_ns = copy.mono_ns;
    crash.unmapped_by = copy.caller;
    crash.unmapped_tid = copy.tid;
    crash.unmapped_stack = number > without_stacks.load(std::memory_order_relaxed) ? copy.stack_id : 0;
  }
}

}  // namespace pytracer::crashsafe
