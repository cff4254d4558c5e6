// The syndrome of an exception on aarch64, as a signal frame has it; for every processor, so that it can be tested on each.
#pragma once
#include <cstdint>
#include <cstring>

namespace pytracer::crashsafe {

inline constexpr uint64_t kNoSyndrome = ~0ull;

/// ESR_EL1, from the records behind the general registers (asm/sigcontext.h); kNoSyndrome when there is none. The kernel writes it after
/// a fault, a user-mode emulator does not.
inline uint64_t syndrome_in(const unsigned char* records, uint32_t nbytes) {
  constexpr uint32_t kMagic = 0x45535201, kRecordBytes = 16;
  uint32_t head[2];  // magic, size
  for (uint32_t at = 0; at <= nbytes && nbytes - at >= kRecordBytes; at += head[1]) {
    memcpy(head, records + at, sizeof head);
    if (head[0] == 0 || head[1] < sizeof head || head[1] > nbytes) break;
    if (head[0] != kMagic || head[1] != kRecordBytes) continue;
    uint64_t syndrome;
    memcpy(&syndrome, records + at + sizeof head, sizeof syndrome);
    return syndrome;
  }
  return kNoSyndrome;
}

}  // namespace pytracer::crashsafe
