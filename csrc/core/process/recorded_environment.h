// Which environment variables a black box may contain: exact names, so that no secret slips in by its prefix.
#pragma once

namespace pytracer::core {

/// Whether `entry`, NAME=VALUE, is one of pytracer/blackbox/environment_names.py.
bool is_recorded(const char* entry) noexcept;

}  // namespace pytracer::core
