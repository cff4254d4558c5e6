// torch's global post-step hook of optimizers: counts steps, and occasionally lets Python read the state of optimizers.
#pragma once
#include <Python.h>

namespace pytracer::hooks {

/// Functions for the module (pytracer/_native.pyi): optimizer_steps, attend_steps, forget_optimizer. All with the GIL held.
extern PyMethodDef optimizer_step_functions[];

}  // namespace pytracer::hooks
