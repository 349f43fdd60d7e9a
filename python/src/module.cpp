#include "bindings.h"
#include "gemloupe/version.h"

PYBIND11_MODULE(_core, m) {
  m.doc() = "The C++ engine of gemloupe.";
  m.attr("version") = gemloupe::kVersion;
  m.attr("torch_version") = gemloupe::kTorchVersion;
  gemloupe::bind_errors(m);
  gemloupe::bind_plan(m);
  gemloupe::bind_trace(m);
  gemloupe::bind_model(m);
  gemloupe::bind_report(m);
  gemloupe::bind_tokenizer(m);
}
