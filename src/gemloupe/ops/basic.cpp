#include "gemloupe/ops/basic.h"

#include <ATen/ATen.h>

#include "gemloupe/base/errors.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {

at::Tensor embed(const at::Tensor& ids, const Weight& table, double scale, at::ScalarType dtype) {
  at::Tensor factor =
      at::full({}, scale, at::TensorOptions().dtype(at::kFloat).device(table.numbers.device())).to(dtype);
  if (table.numbers.is_meta()) {  // shapes alone; libtorch has this operation's in Python
    auto sizes = ids.sizes().vec();
    sizes.push_back(table.numbers.size(1));
    return at::empty(sizes, table.numbers.options());
  }
  try {
    return table.rows_as(ids, dtype) * factor;
  } catch (const c10::IndexError&) {  // prompts are checked; these were written inside a run
    throw BadValue("the ids that are looked up hold one outside the vocabulary of " +
                   std::to_string(table.numbers.size(0)) + " tokens.");
  }
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return bias.defined() ? at::linear(x, weight, bias) : at::linear(x, weight);
}

at::Tensor gelu_tanh(const at::Tensor& x) {
  return at::gelu(x, "tanh");
}

at::Tensor softcap(const at::Tensor& x, double cap) {
  return at::tanh(x / cap) * cap;
}

at::Tensor last_probabilities(const at::Tensor& logits) {
  return at::softmax(logits.select(1, -1).to(at::kFloat), -1);
}

}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
