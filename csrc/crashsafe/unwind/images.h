// Loaded shared objects and the memory map.
#pragma once
#include <cstdint>

namespace pytracer::crashsafe {

/// Whether glibc can look up loaded images without a lock (2.35 and later).
bool images_are_known() noexcept;

/// Whether `addr` lies in a loaded shared object or in the program.
bool in_image(uint64_t addr) noexcept;

/// Whether two addresses lie in the same one.
bool in_same_image(uint64_t addr, uint64_t other) noexcept;

/// The path of the image that `addr` lies in, copied without a terminator, and the address as the image's file has it. Returns the
/// size of the path; 0: not known.
uint32_t copy_image_path(uint64_t addr, char* to, uint32_t room, uint64_t& offset) noexcept;

/// Crash step: path, load bias and build-id of every image that has a frame of the crashed thread.
void write_frame_images() noexcept;

/// Crash step: /proc/self/maps as it is.
void write_maps() noexcept;

/// Crash step, after write_maps: the same for everything else that is loaded.
void write_loaded_images() noexcept;

}  // namespace pytracer::crashsafe
