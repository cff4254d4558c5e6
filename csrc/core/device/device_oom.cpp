#include "core/device/device_oom.h"

#include "core/file/journal.h"
#include "crashsafe/platform/large.h"

namespace pytracer::core {
namespace {

using namespace blackbox;

constexpr uint32_t kPlaces = 1024;  // different places that allocate; further ones are counted in the sums only
constexpr uint32_t kShown = 12;
constexpr uint32_t kNoNode = ~0u;  // blocks of many autograd nodes, of which a site could name one

PYTRACER_LARGE DeviceOomUser places[kPlaces];  // under the lock of the tables

void add_to_place(const DeviceBlock& block) {
  uint32_t pool = block.pool_graph != 0 || block.pool_number != 0;
  uint32_t at = static_cast<uint32_t>((block.alloc_site_id * 0x9E3779B97F4A7C15ull) >> 54) & (kPlaces - 1);
  for (uint32_t i = 0; i < kPlaces; i++, at = (at + 1) & (kPlaces - 1)) {
    DeviceOomUser& place = places[at];
    if (place.count != 0 && (place.site_id != block.alloc_site_id || place.pool != pool)) continue;
    place = {block.alloc_site_id, kNoNode, place.nbytes + block.nbytes, place.count + 1, pool};
    return;
  }
}

}  // namespace

void write_device_oom(const pytracer_device_event& event, const DeviceBlock* blocks, uint32_t block_slots, const DeviceSegment* segments,
                      uint32_t segment_slots) noexcept {
  DeviceOomEntry entry{};
  entry.device = event.device;
  entry.wanted_nbytes = event.nbytes;
  entry.free_nbytes = event.addr;
  entry.site_id = event.site_id;
  entry.site_where = event.site_where;
  for (DeviceOomUser& place : places) place = {};
  for (uint32_t i = 0; i < block_slots; i++) {
    const DeviceBlock& block = blocks[i];
    auto state = static_cast<BlockState>(block.state);
    if (block.device != event.device || (state != BlockState::kLive && state != BlockState::kAwaited)) continue;
    (state == BlockState::kLive ? entry.live_nbytes : entry.awaited_nbytes) += block.nbytes;
    entry.live_count++;
    add_to_place(block);
  }
  for (uint32_t i = 0; i < segment_slots; i++) {
    const DeviceSegment& segment = segments[i];
    if (segment.device != event.device || segment.state != static_cast<uint16_t>(SegmentState::kLive)) continue;
    entry.segment_nbytes += segment.nbytes;
    entry.segment_count++;
  }
  DeviceOomUser largest[kShown];
  for (; entry.user_count < kShown; entry.user_count++) {
    DeviceOomUser* best = places;
    for (DeviceOomUser& place : places)
      if (place.nbytes > best->nbytes) best = &place;
    if (best->count == 0) break;
    largest[entry.user_count] = *best;
    *best = {};
  }
  Piece pieces[] = {{&entry, sizeof entry}, {largest, entry.user_count * sizeof(DeviceOomUser)}};
  append(EntryKind::kDeviceOom, pieces, 2);
}

}  // namespace pytracer::core
