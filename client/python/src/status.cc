// Maps a status to an exception class by asking evenkeel/errors.py, so that the classes are defined once, in
// Python.
#include "client/python/src/status.h"

#include <pybind11/pybind11.h>

#include <string>

namespace evenkeel::python {
namespace py = pybind11;

void Check(const absl::Status& status) {
  if (status.ok()) return;
  py::object error =
      py::module_::import("evenkeel.errors")
          .attr("make")(absl::StatusCodeToString(status.code()), std::string(status.message()));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

}  // namespace evenkeel::python
