// The large headers of torch, which most files here include: compiled once for each torch, which takes as long as it takes a file to
// include them. None of them includes Python.h, whose stable interface hooks/support/python.h asks for first.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/library.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>
