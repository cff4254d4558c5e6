#include "hooks/hooks.h"

#include "hooks/support/call_site.h"

namespace pytracer::hooks {
namespace {

const Hook* const kHooks[] = {&kCpuAllocator, &kRegisteredAllocator, &kExternal, &kMapped, &kPinned,   &kAutograd,
                              &kOperators,    &kCollectives,         &kFsdp,     &kRanges, &kTerminate};
bool installed = false;

}  // namespace

std::vector<std::pair<std::string, std::string>> install_all(Level level, const std::vector<std::string>& library_directories) {
  std::vector<std::pair<std::string, std::string>> result;
  if (installed) return result;
  installed = true;
  prepare_call_sites(library_directories);
  std::vector<GotPatch> patches;
  for (const Hook* hook : kHooks) {
    if (hook->patches == nullptr) continue;
    for (const GotPatch& one : hook->patches(level)) patches.push_back(one);
  }
  patch_got(patches);
  for (const Hook* hook : kHooks) {
    const char* reason = hook->install(level);
    result.emplace_back(hook->name, reason != nullptr ? reason : "");
  }
  return result;
}

void uninstall_all() {
  if (!installed) return;
  installed = false;
  for (const Hook* hook : kHooks) hook->uninstall();
}

}  // namespace pytracer::hooks
