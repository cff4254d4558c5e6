// A capture plugin: one per file, listed in hooks.cpp.
#pragma once
#include "blackbox/layout.h"
#include "hooks/support/got_patch.h"

#include <vector>

namespace pytracer::hooks {

using blackbox::Level;

struct Hook {
  const char* name;
  /// Null on success, otherwise a fixed text: the reason why not. Called with the GIL held.
  const char* (*install)(Level level);
  /// Reverts what can be reverted. Called with the GIL held.
  void (*uninstall)();
  /// The cross-library calls that it redirects, null for none. The patches of all hooks are made in one walk, before the first
  /// install(): as long as a hook is not installed, or when it refused, its functions only forward calls.
  std::vector<GotPatch> (*patches)(Level level) = nullptr;
};

}  // namespace pytracer::hooks
