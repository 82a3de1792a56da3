// The planner for Python: the functions that evenkeel/plan.py calls.
#pragma once

#include <pybind11/pybind11.h>

namespace evenkeel::python {

// Adds `solve_json` and `balance_arrays` to the module. Both release the GIL while they work.
void BindPlan(pybind11::module_& module);

}  // namespace evenkeel::python
