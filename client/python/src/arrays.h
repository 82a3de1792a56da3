// Tensors of a received step as numpy arrays that keep the step alive. Tensors in the receive memory are not
// copied; token fields (core/token_fields.h) are computed on first use. Works with NumPy 1 and 2. Thread
// safety: call with the GIL held.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

#include "client/consumer.h"

namespace evenkeel::python {

// The strides in bytes of a dense array in C order. Every array is made with explicit strides: pybind11
// before 2.12 reads the element size where NumPy 1 stores it, and with NumPy 2 computes strides of 0.
std::vector<pybind11::ssize_t> DenseStrides(const std::vector<pybind11::ssize_t>& shape, size_t item_bytes);

// Returns (array, dtype, expansion or None), where expansion is (channels, frames, frames_on_wire, patch,
// table, patch_width). numpy has no bf16: such an array is uint16 and `dtype` is "bf16". For a token field
// the first element is a function that returns the array; it releases the GIL while it computes.
pybind11::tuple WrapTensor(const std::shared_ptr<const client::StepData>& step, const TensorView& tensor);

}  // namespace evenkeel::python
