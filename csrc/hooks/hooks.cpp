#include "hooks/hooks.h"

#include "hooks/support/call_site.h"

namespace pytracer::hooks {
namespace {

const Hook* const kHooks[] = {&kCpuAllocator, &kRegisteredAllocator, &kForeign, &kMapped, &kPinned,   &kAutograd,
                              &kOperators,    &kCollectives,         &kFsdp,    &kRanges, &kTerminate};
bool installed = false;

}  // namespace

std::vector<std::pair<std::string, std::string>> install_all(Level level, const std::vector<std::string>& library_directories) {
  std::vector<std::pair<std::string, std::string>> result;
  if (installed) return result;
  installed = true;
  prepare_who(library_directories);
  std::vector<Redirection> redirections;
  for (const Hook* hook : kHooks) {
    if (hook->redirections == nullptr) continue;
    for (const Redirection& one : hook->redirections(level)) redirections.push_back(one);
  }
  redirect(redirections);
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
