// Wraps tensors of a received step as numpy arrays whose base object keeps the step alive.
#include "client/python/src/arrays.h"

#include <string>
#include <utility>
#include <vector>

namespace evenkeel::python {
namespace py = pybind11;
namespace {

py::dtype NumpyType(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return py::dtype::of<uint8_t>();
    case DType::kI32:
      return py::dtype::of<int32_t>();
    case DType::kI64:
      return py::dtype::of<int64_t>();
    case DType::kF32:
      return py::dtype::of<float>();
    case DType::kBf16:
      return py::dtype::of<uint16_t>();
    case DType::kF64:
      return py::dtype::of<double>();
  }
  throw py::value_error("unknown dtype");
}

// The array's base object: releases the step when the last array, or torch tensor over it, is gone.
py::capsule KeepAlive(const std::shared_ptr<const client::StepData>& step) {
  auto owner = std::make_unique<std::shared_ptr<const client::StepData>>(step);
  py::capsule capsule(owner.get(), [](void* pointer) {
    std::unique_ptr<std::shared_ptr<const client::StepData>> released(
        static_cast<std::shared_ptr<const client::StepData>*>(pointer));
  });
  (void)owner.release();  // now owned by the capsule
  return capsule;
}

py::array WrapArray(const std::shared_ptr<const client::StepData>& step, const TensorView& tensor) {
  if (tensor.tokens != nullptr) {
    py::gil_scoped_release released;
    tensor.bytes();  // computes the field; the result is cached in the tensor
  }
  const std::vector<py::ssize_t> shape(tensor.spec.shape.begin(), tensor.spec.shape.end());
  return py::array(NumpyType(tensor.spec.dtype), shape, DenseStrides(shape, DTypeBytes(tensor.spec.dtype)),
                   tensor.bytes().data(), KeepAlive(step));
}

py::object WrapExpansion(const TensorSpec& spec) {
  if (spec.expansion == nullptr) return py::none();
  const PixelExpansion& e = *spec.expansion;
  py::array_t<float> table({static_cast<py::ssize_t>(e.channels), py::ssize_t{256}}, e.table.data());
  return py::make_tuple(e.channels, e.frames, e.frames_on_wire, e.patch, std::move(table), e.patch_width);
}

}  // namespace

std::vector<py::ssize_t> DenseStrides(const std::vector<py::ssize_t>& shape, size_t item_bytes) {
  std::vector<py::ssize_t> strides(shape.size());
  auto bytes = static_cast<py::ssize_t>(item_bytes);
  for (size_t axis = shape.size(); axis-- > 0; bytes *= shape[axis]) strides[axis] = bytes;
  return strides;
}

py::tuple WrapTensor(const std::shared_ptr<const client::StepData>& step, const TensorView& tensor) {
  py::object array;
  if (tensor.tokens == nullptr) {
    array = WrapArray(step, tensor);
  } else {
    array = py::cpp_function([step, &tensor] {
      return WrapArray(step, tensor);
    });  // the step owns `tensor` and is kept alive here
  }
  return py::make_tuple(std::move(array), std::string(DTypeName(tensor.spec.dtype)),
                        WrapExpansion(tensor.spec));
}

}  // namespace evenkeel::python
