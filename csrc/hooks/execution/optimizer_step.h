// torch's global post-step hook of optimizers: counts steps, and occasionally lets Python read the state of optimizers. All with the GIL held.
#pragma once
#include "hooks/support/python.h"

namespace pytracer::hooks {

/// A new object; assigning an optimizer that has stepped to its attribute `last` counts the steps of the first one. Null: a Python error.
PyObject* optimizer_steps();

/// `attend` is called with an optimizer that is new, and after the CLOCK_MONOTONIC time in ns that it returned last. Null ends that; either
/// starts counting anew.
void attend_steps(PyObject* attend);

/// The optimizer at that address was destroyed.
void forget_optimizer(const void* optimizer);

}  // namespace pytracer::hooks
