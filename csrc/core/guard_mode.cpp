// The C face of guard mode: what the core offers to guard/, and guard/'s interface to hooks and Python.
#include "core/core.h"
#include "core/file/journal.h"
#include "core/file/regions.h"
#include "guard/guard.h"

#include <cerrno>
#include <cstdio>

using namespace pytracer;

namespace {

constexpr guard::Host kHost{core::add_region, core::append, core::note};

guard::CallSite site_of(const pytracer_call_site& site) { return {site.id, site.where}; }

}  // namespace

extern "C" {

int pytracer_guard_open(const struct pytracer_guard_settings* settings, char* error, size_t error_bytes) {
  guard::Settings wanted;
  wanted.every = settings->every;
  wanted.min_bytes = settings->min_bytes;
  wanted.budget_bytes = settings->budget_bytes;
  wanted.budget_mappings = settings->budget_mappings;
  wanted.alignment = settings->alignment;
  wanted.records = settings->records;
  wanted.underrun = settings->underrun != 0;
  wanted.protection_only = settings->protection_only != 0;
  const char* what = "nothing is recorded";
  int problem = pytracer_recording() != 0 ? guard::open(wanted, kHost, what) : EINVAL;
  if (problem != 0) snprintf(error, error_bytes, "%s", what);
  return problem;
}
void pytracer_guard_pause(void) { guard::pause(); }
int pytracer_guard_markers(void) { return guard::missing_markers(); }
int pytracer_guard_chooses(size_t nbytes) { return guard::chosen(nbytes); }
void* pytracer_guard_allocate(size_t nbytes, pytracer_call_site site) { return guard::allocate(nbytes, site_of(site)); }
int pytracer_guard_owns(const void* at) { return guard::owns(at); }
void pytracer_guard_free(void* at, pytracer_call_site site) { guard::release(at, site_of(site)); }

}  // extern "C"
