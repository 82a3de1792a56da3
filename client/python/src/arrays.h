// Tensors of a received step as numpy arrays that keep the step alive: no copy.
// Thread safety: call with the GIL held.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>

#include "client/consumer.h"

namespace evenkeel::python {

// bf16 has no numpy type: its array is uint16, and `dtype` of the tuple says "bf16".
// (array, dtype, expansion or None) where expansion is (channels, frames, frames_on_wire, patch, table).
pybind11::tuple WrapTensor(const std::shared_ptr<const StepData>& step, const TensorView& tensor);

}  // namespace evenkeel::python
