// Which variables of the environment a box may hold: exact names, so that no secret slips in by its prefix.
#pragma once

namespace pytracer::recorder {

/// Whether `entry`, NAME=VALUE, is one of pytracer/blackbox/environment_names.py.
bool is_recorded(const char* entry) noexcept;

}  // namespace pytracer::recorder
