// Redirects cross-library calls by patching GOT entries. Works without preloading, and for functions that torch's own libraries call in
// each other.
#pragma once
#include <vector>

namespace pytracer::hooks {

struct GotPatch {
  void* from;  ///< null: a function that this torch does not have
  void* to;
};

/// Patches every GOT entry of every loaded library except ours that holds `from`; swap the two to undo it. Libraries that are loaded
/// later are not patched. One walk over 150 000 entries, however many patches. Called with the GIL held.
void patch_got(const std::vector<GotPatch>& patches);

/// How many entries held that function after the last call of patch_got(), patched then or earlier.
int patched_slots(const void* function);

}  // namespace pytracer::hooks
