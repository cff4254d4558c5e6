// at::from_blob() for the generated crashes: a tensor over memory that somebody else owns.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/python_variable.h>

extern "C" PyObject* from_blob(long at, long count) {
  return THPVariable_Wrap(at::from_blob(reinterpret_cast<void*>(at), {count}, at::kFloat));
}
