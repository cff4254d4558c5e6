// A capture plugin: one per file, listed in hooks.cpp.
#pragma once
#include "blackbox/layout.h"
#include "hooks/support/got_patch.h"

#include <vector>

namespace pytracer::hooks {

using blackbox::Level;

struct Hook {
  const char* name;
  /// Installs; null on success, else a fixed text saying why not. Called with the GIL held.
  const char* (*install)(Level level);
  /// Takes back what can be taken back. Called with the GIL held.
  void (*uninstall)();
  /// The calls between libraries that it wants led elsewhere, null for none. Those of all hooks are led in one walk, before the first
  /// install(): as long as a hook is not installed, also because it refused, its functions only pass calls on.
  std::vector<Redirection> (*redirections)(Level level) = nullptr;
};

}  // namespace pytracer::hooks
