// What every bindings file needs: tensors cross with their autograd history (an undefined one is None), errors become
// the classes of gemloupe.errors.
#pragma once

#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <nlohmann/json.hpp>

#include "gemloupe/run/trace.h"
#include "gemloupe/store/checkpoint.h"

namespace gemloupe {
inline namespace v0 {

namespace py = pybind11;

py::object to_python(const json& value);
json from_python(const py::handle& value);
/// Lone surrogates, which are no text, read as U+FFFD, like bytes that are not UTF-8.
std::string utf8_of(const py::str& text);

/// A Python function of the live tensor, called with the interpreter's lock; None leaves the value. Its exceptions pass
/// through the run that calls it.
Action action_of(py::function function);

void bind_errors(py::module_& m);
void bind_plan(py::module_& m);
void bind_model(py::module_& m);
void bind_trace(py::module_& m);
void bind_report(py::module_& m);
void bind_tokenizer(py::module_& m);

}  // namespace v0
}  // namespace gemloupe
