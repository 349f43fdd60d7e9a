#include "gemloupe/ops/norm.h"
#include "ops/tensors.h"

using namespace gemloupe;
using namespace ops_tests;

namespace {

std::vector<double> oracle(const at::Tensor& x, const at::Tensor& weight, double eps, Gain gain) {
  const auto width = static_cast<size_t>(x.size(-1));
  std::vector<double> out = numbers(x), w;
  if (weight.defined()) w = numbers(weight);
  for (size_t row = 0; row < out.size(); row += width) {
    double squares = 0;
    for (size_t i = 0; i < width; ++i) squares += out[row + i] * out[row + i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + eps);
    for (size_t i = 0; i < width; ++i) {
      out[row + i] *= scale;
      if (gain == Gain::OnePlusWeight) out[row + i] *= 1 + w[i];
      if (gain == Gain::Weight) out[row + i] *= w[i];
    }
  }
  return out;
}

}  // namespace

TEST_CASE("rms_norm: every shape, dtype and gain, rounded once") {
  const std::vector<std::vector<int64_t>> shapes{{1, 1, 1}, {2, 3, 7}, {1, 5, 48}, {3, 4, 2, 31}, {1, 640}, {13}};
  for (const auto& shape : shapes)
    for (at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf})
      for (Gain gain : {Gain::OnePlusWeight, Gain::Weight, Gain::None}) {
        CAPTURE(shape.back());
        CAPTURE(at::toString(dtype));
        const at::Tensor x = random(shape, dtype), weight = random({shape.back()}, dtype, 2);
        const at::Tensor given = gain == Gain::None ? at::Tensor() : weight;
        const at::Tensor out = ops::rms_norm(x, given, 1e-6, gain);
        CHECK((out.scalar_type() == dtype));
        CHECK(out.sizes() == x.sizes());
        // float32's own sums err by a few ulps; the narrow dtypes are rounded once from there.
        const double allowed = dtype == at::kFloat ? 1e-6 : half_ulp(dtype) + 1e-6;
        check_close(out, oracle(x, given, 1e-6, gain), allowed, dtype == at::kHalf ? 3e-8 : 1e-30);
      }
}

TEST_CASE("rms_norm: the weight may have another dtype than the stream") {
  const at::Tensor x = random({2, 9}, at::kBFloat16), weight = random({9}, at::kFloat, 2);
  const at::Tensor out = ops::rms_norm(x, weight, 1e-6, Gain::OnePlusWeight);
  CHECK((out.scalar_type() == at::kBFloat16));
  check_close(out, oracle(x, weight, 1e-6, Gain::OnePlusWeight), half_ulp(at::kBFloat16) + 1e-6, 1e-30);
}

TEST_CASE("rms_norm: eps decides small rows") {
  const at::Tensor x = at::full({1, 4}, 1e-3), weight = at::zeros({4});
  check_close(ops::rms_norm(x, weight, 1e-6, Gain::OnePlusWeight), oracle(x, weight, 1e-6, Gain::OnePlusWeight), 1e-6,
              0);
  const at::Tensor zero = ops::rms_norm(at::zeros({1, 4}), weight, 1e-6, Gain::OnePlusWeight);
  CHECK(same_bits(zero, at::zeros({1, 4})));
}

TEST_CASE("rms_norm: a broken row breaks no other, a view is as good as a copy") {
  const at::Tensor weight = random({6}, at::kFloat, 2), clean = random({3, 6});
  at::Tensor broken = clean.clone();
  broken[1][2] = kNaN;
  broken[2][0] = kInfinity;
  const at::Tensor expected = ops::rms_norm(clean, weight, 1e-6, Gain::OnePlusWeight);
  const at::Tensor found = ops::rms_norm(broken, weight, 1e-6, Gain::OnePlusWeight);
  CHECK(same_bits(found[0], expected[0]));
  CHECK(found[1].isnan().all().item<bool>());
  CHECK(found[2][0].isnan().item<bool>());
  const at::Tensor turned = clean.t().contiguous().t();
  CHECK(same_bits(ops::rms_norm(turned, weight, 1e-6, Gain::OnePlusWeight), expected));
  CHECK(ops::rms_norm(at::empty({1, 0, 6}), weight, 1e-6, Gain::OnePlusWeight).numel() == 0);
}
