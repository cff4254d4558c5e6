// Every operator, at level "ops", through RecordFunction's FUNCTION scope.
#include "blackbox/layout.h"
#include "core/core.h"
#include "hooks/hooks.h"
#include "hooks/support/stream.h"
#include "hooks/support/tensors.h"

namespace pytracer::hooks {
namespace {

at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

// Never throws: torch would turn an exception into a warning per operator.
std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& function) {
  try {
    blackbox::NodeRecord record{};
    copy_name(record.name, function.name());
    record.sequence_nr = function.seqNr();
    note_stream(record);
    if (record.device != 0 && pytracer_device_operators_followed() != 0) return nullptr;
    pytracer_record(static_cast<uint32_t>(blackbox::RecordKind::kOp), &record, sizeof record);
  } catch (...) {
    pytracer_count_hook_error();
  }
  return nullptr;
}

const char* install(Level level) {
  if (level == Level::kOps) handle = at::addGlobalCallback(at::RecordFunctionCallback(on_operator).scopes({at::RecordScope::FUNCTION}));
  return nullptr;
}

void uninstall() {
  if (handle != at::INVALID_CALLBACK_HANDLE) at::removeCallback(handle);
  handle = at::INVALID_CALLBACK_HANDLE;
}

}  // namespace

const Hook kOperators{"operators", install, uninstall};

}  // namespace pytracer::hooks
