// Calls between loaded libraries, led elsewhere: the slots of their global offset tables that hold a function's address. Works
// without preloading, and for functions that torch's own libraries call in each other.
#pragma once
#include <vector>

namespace pytracer::hooks {

struct Redirection {
  void* from;  ///< null: a function that this torch does not have
  void* to;
};

/// Leads each slot of each loaded library but ours from one function to the other; swap them for the way back. Libraries that are
/// loaded later are not seen. One walk over 150 000 slots, however many redirections. Called with the GIL held.
void redirect(const std::vector<Redirection>& redirections);

/// How many slots led to that function after the last call of redirect(): newly, or since an earlier one.
int slots_led_to(const void* function);

}  // namespace pytracer::hooks
