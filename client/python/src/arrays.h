// Tensors of a received step as numpy arrays that keep the step alive. Tensors that lie in the receive memory
// are not copied; token fields (core/token_fields.h) are computed when they are first asked for. NumPy 1
// and 2. Thread safety: call with the GIL held.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

#include "client/consumer.h"

namespace evenkeel::python {

// Bytes from one element to the next along each axis of a dense array in C order. They are given to every
// array that is made: pybind11 before 2.12 looks for the size of an element where NumPy 1 has it, and with
// NumPy 2 makes arrays that repeat their first element.
std::vector<pybind11::ssize_t> DenseStrides(const std::vector<pybind11::ssize_t>& shape, size_t item_bytes);

// bf16 has no numpy type: its array is uint16, and `dtype` of the tuple says "bf16".
// (array, dtype, expansion or None) where expansion is (channels, frames, frames_on_wire, patch, table). For
// a token field a function that returns the array stands in the array's place; it releases the GIL while the
// field is computed.
pybind11::tuple WrapTensor(const std::shared_ptr<const client::StepData>& step, const TensorView& tensor);

}  // namespace evenkeel::python
