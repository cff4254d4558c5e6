// Redirects cross-library calls by patching GOT entries. Works without preloading, and for functions that torch's own libraries call in
// each other.
#pragma once
#include <atomic>
#include <vector>

namespace pytracer::hooks {

struct GotPatch {
  void* from;  ///< null: a function that this torch does not have
  void* to;
};

/// Patches every GOT entry of every loaded library except ours that holds `from`; swap the two to undo it. Libraries that are loaded
/// later are not patched. One walk over 150 000 entries, however many patches. Called with the GIL held.
void patch_got(const std::vector<GotPatch>& patches);

/// Leads the calls of `function` by the one loaded library `name` to `to`, also where its entry has not been bound yet. `original`, if
/// given, is what was called until now, before the first call is led. Nothing is changed if the library is not loaded or does not call it.
void lead_calls(const char* name, const char* function, void* to, std::atomic<void*>* original = nullptr);

/// How many entries held that function after the last call of patch_got(), patched then or earlier.
int patched_slots(const void* function);

}  // namespace pytracer::hooks
