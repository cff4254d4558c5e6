// Test-only: functions without state, for tests/native/test_decisions.py and test_processors.py.
#include "crashsafe/signals/decision.h"

#include "crashsafe/platform/arch.h"

#include "testing/testing.h"

using namespace pytracer::crashsafe;

EXPORT int testing_decide(int disposition, int fault, int blocked, int is_init) {
  return static_cast<int>(decide({static_cast<Disposition>(disposition), fault != 0, blocked != 0, is_init != 0}));
}

EXPORT int testing_report_of_handled(int handler, int may_be_abort) {
  return static_cast<int>(report_of_handled(static_cast<ReportedHandler>(handler), may_be_abort != 0));
}

EXPORT int testing_report_of_death(int handler) { return static_cast<int>(report_of_death(static_cast<ReportedHandler>(handler))); }

EXPORT int testing_after_handler(int by_abort, int preloaded, int is_default, int fault, int raised) {
  return static_cast<int>(after_handler({by_abort != 0, preloaded != 0, is_default != 0, fault != 0, raised != 0}));
}

EXPORT int testing_route_of(int handled, int termination, int preloaded, int installed, int own_process) {
  return static_cast<int>(route_of({handled != 0, termination != 0, preloaded != 0, installed != 0, own_process != 0}));
}

EXPORT int testing_restarts_calls(int disposition, int asked) { return restarts_calls(static_cast<Disposition>(disposition), asked != 0); }

EXPORT uint64_t testing_syndrome(const unsigned char* records, uint32_t nbytes) { return syndrome_in(records, nbytes); }

/// A return address, signed where the processor can, and without its signature.
EXPORT uint64_t testing_return_address(int is_signed) {
  auto addr = reinterpret_cast<uint64_t>(&testing_syndrome);
#if defined(__aarch64__)
  asm("mov x30, %0\n\thint #25\n\tmov %0, x30" : "+r"(addr) : : "x30");  // PACIASP
#endif
  return is_signed != 0 ? addr : without_signature(addr);
}
