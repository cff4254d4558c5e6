// Call sites: the Python line or the autograd node that the calling thread executes. A few nanoseconds, no lock, no GIL, no allocation
// after a thread's first call.
#pragma once
#include "core/core.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pytracer::hooks {

/// A journal id and the place in it (schema.py: CODE, NODE or SITE).
using CallSite = pytracer_call_site;

/// With the GIL held. Files below `library_directories` are not the user's own.
void prepare_call_sites(const std::vector<std::string>& library_directories);

/// The functions for the CPython that runs, chosen by prepare_call_sites(); until then there are no Python lines.
struct CallSites {
  CallSite (*current)() noexcept;     ///< for small storages: the innermost Python frame, or the running autograd node
  CallSite (*detailed)() noexcept;    ///< for large ones: both, and the first Python frame of the user's own code
  CallSite (*with_stack)() noexcept;  ///< for guarded storages, which are few, or slow anyway: up to kStackPlaces Python frames, and the node
};
extern CallSites call_sites __attribute__((visibility("hidden")));

inline CallSite current_call_site() noexcept { return call_sites.current(); }
inline CallSite detailed_call_site() noexcept { return call_sites.detailed(); }
inline CallSite call_site_with_stack() noexcept { return call_sites.with_stack(); }

/// An autograd node begins on the calling thread: from here on torch is asked for the running node, until there is none.
void node_begins() noexcept;

/// True when torch's thread-locals exist on the calling thread: a query for its node allocates nothing. For the crash handler.
bool has_torch_thread_locals() noexcept;

}  // namespace pytracer::hooks
