#include "gemloupe/ops/rotary.h"
#include "ops/tensors.h"

using namespace gemloupe;
using namespace ops_tests;

namespace {

double angle(const RotaryFrequencies& f, int64_t position, int64_t pair) {
  return static_cast<double>(position) *
         std::pow(f.theta, -2.0 * static_cast<double>(pair) / static_cast<double>(f.head_dim)) / f.linear_factor;
}

at::Tensor rotated(const RotaryFrequencies& f, const at::Tensor& x, const at::Tensor& positions) {
  auto [cos, sin] = ops::rotary_table(positions, ops::rotary_frequencies(f, at::kCPU), x.scalar_type());
  return ops::rotate(x, cos, sin);
}

}  // namespace

TEST_CASE("rotary: frequencies fall from 1 by theta, a linear factor divides them") {
  for (double factor : {1.0, 8.0})
    for (double theta : {1e4, 1e6}) {
      const RotaryFrequencies f{10, theta, factor};
      const at::Tensor frequencies = ops::rotary_frequencies(f, at::kCPU);
      CHECK((frequencies.scalar_type() == at::kFloat));
      std::vector<double> expected;
      for (int64_t pair = 0; pair < 5; ++pair) expected.push_back(angle(f, 1, pair));
      check_close(frequencies, expected, 1e-6, 0);
    }
}

TEST_CASE("rotary: the tables hold each pair's cosine and sine twice") {
  const RotaryFrequencies f{6, 1e4, 2.0};
  const at::Tensor positions = integers({0, 1, 7, 500, 3, 4, 5, 6}).view({2, 4});
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    auto [cos, sin] = ops::rotary_table(positions, ops::rotary_frequencies(f, at::kCPU), dtype);
    CHECK((cos.scalar_type() == dtype));
    CHECK(cos.sizes() == at::IntArrayRef({2, 4, 6}));
    std::vector<double> cosines, sines;
    for (double position : numbers(positions))
      for (int64_t i = 0; i < 6; ++i) {
        cosines.push_back(std::cos(angle(f, static_cast<int64_t>(position), i % 3)));
        sines.push_back(std::sin(angle(f, static_cast<int64_t>(position), i % 3)));
      }
    // The angle itself is a float32: 500 radians are known to 3e-5.
    check_close(cos, cosines, half_ulp(dtype), 6e-5);
    check_close(sin, sines, half_ulp(dtype), 6e-5);
  }
}

TEST_CASE("rotary: rotate turns each pair (i, i + head_dim / 2) by its angle") {
  const RotaryFrequencies f{8, 1e4, 1.0};
  const at::Tensor positions = integers({0, 2, 9}).unsqueeze(0);
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = random({2, 3, 3, 8}, dtype), out = rotated(f, x, positions);
    CHECK((out.scalar_type() == dtype));
    CHECK(out.sizes() == x.sizes());
    const std::vector<double> in = numbers(x), place = numbers(positions);
    std::vector<double> expected(in.size());
    for (size_t row = 0; row < in.size() / 8; ++row)
      for (size_t i = 0; i < 4; ++i) {
        const double a = in[row * 8 + i], b = in[row * 8 + i + 4];
        const double turn = angle(f, static_cast<int64_t>(place[row % 3]), static_cast<int64_t>(i));
        expected[row * 8 + i] = a * std::cos(turn) - b * std::sin(turn);
        expected[row * 8 + i + 4] = b * std::cos(turn) + a * std::sin(turn);
      }
    // Table, two products and a sum round one after the other.
    check_close(out, expected, 0, dtype == at::kFloat ? 5e-6 : 0.05);
  }
}

TEST_CASE("rotary: position 0 changes no bit, and scores depend on distances only") {
  const RotaryFrequencies f{16, 1e4, 1.0};
  const at::Tensor q = random({1, 1, 1, 16}), k = random({1, 1, 1, 16}, at::kFloat, 2);
  CHECK(same_bits(rotated(f, q, integers({0}).unsqueeze(0)), q));
  auto score = [&](int64_t at_q, int64_t at_k) {
    return (rotated(f, q, integers({at_q}).unsqueeze(0)) * rotated(f, k, integers({at_k}).unsqueeze(0)))
        .sum()
        .item<double>();
  };
  CHECK(score(5, 2) == doctest::Approx(score(103, 100)).epsilon(1e-4));
  CHECK(std::abs(score(5, 2) - score(5, 3)) > 1e-3);
}

TEST_CASE("rotary: each row of a batch has its own positions, one row of positions serves all") {
  const RotaryFrequencies f{4, 1e4, 1.0};
  const at::Tensor x = random({2, 1, 3, 4});
  const at::Tensor both = integers({0, 1, 2, 4, 5, 6}).view({2, 3}), one = both.slice(0, 0, 1);
  CHECK(same_bits(rotated(f, x, both)[0], rotated(f, x, one)[0]));
  CHECK(same_bits(rotated(f, x, one), rotated(f, x, one.expand({2, 3}))));
  CHECK(!same_bits(rotated(f, x, both)[1], rotated(f, x, one)[1]));
}
