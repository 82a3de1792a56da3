// The planner for Python: what is behind evenkeel/plan.py.
#pragma once

#include <pybind11/pybind11.h>

namespace evenkeel::python {

// Adds `solve_json` and `balance_arrays` to the module. Both let go of the GIL while they work.
void BindPlan(pybind11::module_& module);

}  // namespace evenkeel::python
