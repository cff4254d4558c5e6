// The explicit list of hooks, installed and uninstalled together.
#pragma once
#include "hooks/hook.h"

#include <string>
#include <utility>
#include <vector>

namespace pytracer::hooks {

/// Installs every hook; one that cannot work is left out. Returns (name, reason) for each, the reason empty when it works.
/// `library_directories`: frames of files below them are not the user's own (torch, and pytracer itself).
std::vector<std::pair<std::string, std::string>> install_all(Level level, const std::vector<std::string>& library_directories);

void uninstall_all();

extern const Hook kCpuAllocator;
extern const Hook kRegisteredAllocator;
extern const Hook kExternal;
extern const Hook kMapped;
extern const Hook kPinned;
extern const Hook kAutograd;
extern const Hook kOperators;
extern const Hook kCollectives;
extern const Hook kFsdp;
extern const Hook kRanges;
extern const Hook kTerminate;

}  // namespace pytracer::hooks
