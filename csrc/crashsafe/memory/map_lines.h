// The lines of /proc/self/maps as write_maps stored them in the black box.
#pragma once
#include "crashsafe/file/black_box.h"

#include <cstdint>
#include <cstring>

namespace pytracer::crashsafe {

/// One mapping. `path` points into MAPS and is not terminated.
struct MapLine {
  uint64_t start, end, offset, inode;
  bool executable;
  const char* path;
  uint32_t path_nbytes;

  bool path_begins(const char* text) const noexcept { return path_nbytes >= strlen(text) && memcmp(path, text, strlen(text)) == 0; }
  bool path_ends(const char* text) const noexcept {
    return path_nbytes >= strlen(text) && memcmp(path + path_nbytes - strlen(text), text, strlen(text)) == 0;
  }
};

/// Reads digits in `base` and one character behind them.
inline uint64_t take_number(const char*& at, const char* end, unsigned base) noexcept {
  uint64_t value = 0;
  for (; at < end; at++) {
    unsigned digit = *at >= '0' && *at <= '9'   ? static_cast<unsigned>(*at - '0')
                     : *at >= 'a' && *at <= 'f' ? static_cast<unsigned>(*at - 'a' + 10)
                                                : 99;
    if (digit >= base) break;
    value = value * base + digit;
  }
  if (at < end) at++;
  return value;
}

/// `start-end rwxp offset major:minor inode   path` (proc(5)).
inline MapLine parse_map_line(const char* at, const char* end) noexcept {
  MapLine line{};
  line.start = take_number(at, end, 16);
  line.end = take_number(at, end, 16);
  line.executable = end - at > 4 && at[2] == 'x';
  at += end - at > 5 ? 5 : end - at;
  line.offset = take_number(at, end, 16);
  take_number(at, end, 16);
  take_number(at, end, 16);
  line.inode = take_number(at, end, 10);
  while (at < end && *at == ' ') at++;
  line.path = at;
  line.path_nbytes = static_cast<uint32_t>(end - at);
  return line;
}

/// Calls visit(line) for each whole line until it returns false.
template <class Visit>
void each_mapping(Visit visit) noexcept {
  const char *at = g_box.maps.data, *all = at + g_box.crash.data->maps_used;
  while (at < all) {
    const char* end = at;
    while (end < all && *end != '\n') end++;
    if (end == all || !visit(parse_map_line(at, end))) return;
    at = end + 1;
  }
}

}  // namespace pytracer::crashsafe
