// Tensors for the tests of operations, and their elements as doubles.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace ops_tests {

// Tiny tensors gain nothing from a second thread, and wait for it on a busy machine.
inline const bool kOneThread = (at::set_num_threads(1), true);

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Normal numbers, the same for the same seed.
inline at::Tensor random(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat, uint64_t seed = 1) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::kFloat).to(dtype);
}

inline at::Tensor integers(const std::vector<int64_t>& numbers) {
  return at::tensor(numbers, at::kLong);
}

/// The elements, row by row.
inline std::vector<double> numbers(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kDouble).contiguous();
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

/// Half of the distance between neighbours, relative to the number: what one rounding costs at most.
inline double half_ulp(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? std::ldexp(1, -8) : dtype == at::kHalf ? std::ldexp(1, -11) : std::ldexp(1, -24);
}

/// Each element within `relative` of the oracle's, or within `absolute`; NaN where it is NaN.
inline void check_close(const at::Tensor& found, const std::vector<double>& expected, double relative,
                        double absolute) {
  const std::vector<double> elements = numbers(found);
  REQUIRE(elements.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const double f = elements[i], e = expected[i];
    const bool close = std::isnan(e)   ? std::isnan(f)
                       : std::isinf(e) ? f == e
                                       : std::abs(f - e) <= absolute + relative * std::abs(e);
    if (!close) {
      FAIL_CHECK("element ", i, " is ", f, ", expected ", e);
      return;
    }
  }
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && at::equal(a, b);
}

}  // namespace ops_tests
