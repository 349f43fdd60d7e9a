#include "gemloupe/ops/kernels/quantised.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>

#include <algorithm>

#include "gemloupe/ops/kernels/linear.h"
#include "gemloupe/ops/kernels/table.h"
#include "gemloupe/ops/kernels/walk.h"

namespace gemloupe {
inline namespace v0 {
namespace ops {
namespace kernels {
namespace {

constexpr int64_t kFewRows = 8;      // beyond which a tile of the weight is unpacked too often
constexpr int64_t kPanel = 1 << 20;  // numbers of a dequantised panel, which stays in the cache

int64_t width_of(const at::Tensor& bytes, const QuantisedFormatLoops& loops) {
  return bytes.size(1) / loops.block_bytes * loops.block_elements;
}

/// Rows [first, first + out.size(0)) into out.
void dequantise_rows(const at::Tensor& bytes, int64_t first, const QuantisedFormatLoops& loops, at::Tensor& out) {
  const int64_t row_bytes = bytes.size(1), blocks = row_bytes / loops.block_bytes, width = out.size(1);
  const uint8_t* from = bytes.const_data_ptr<uint8_t>() + first * row_bytes;
  void* to = out.mutable_data_ptr();
  const bool narrow = out.scalar_type() == at::kBFloat16;
  at::parallel_for(0, out.size(0), grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      if (narrow)
        loops.dequantise_bf16(from + row * row_bytes, blocks, static_cast<Bfloat16*>(to) + row * width);
      else
        loops.dequantise_f32(from + row * row_bytes, blocks, static_cast<float*>(to) + row * width);
  });
}

template <class Out, class Loop>
void multiply(const at::Tensor& x, const at::Tensor& bytes, at::Tensor& out, Loop loop) {
  const QuantisedProduct<Out> product{x.const_data_ptr<float>(),
                                      bytes.const_data_ptr<uint8_t>(),
                                      static_cast<Out*>(out.mutable_data_ptr()),
                                      x.size(0),
                                      x.size(1),
                                      out.size(1)};
  over_columns(product.width, product.rows * product.in,
               [&](int64_t begin, int64_t end) { loop(product, begin, end); });
}

}  // namespace

at::Tensor dequantised(const at::Tensor& bytes, QuantisedFormat format, at::ScalarType dtype) {
  const QuantisedFormatLoops& loops = table().quantised.of(format);
  const bool narrow = dtype == at::kBFloat16;
  const at::Tensor dense = bytes.contiguous();
  at::Tensor out =
      at::empty({bytes.size(0), width_of(bytes, loops)}, bytes.options().dtype(narrow ? dtype : at::kFloat));
  if (out.numel()) dequantise_rows(dense, 0, loops, out);
  return out.to(dtype);
}

at::Tensor quantised_linear(const at::Tensor& x, const at::Tensor& bytes, QuantisedFormat format) {
  const QuantisedFormatLoops& loops = table().quantised.of(format);
  if (!fits(x) || x.dim() != 2 || x.size(0) < 1 || x.size(1) != width_of(bytes, loops)) return {};
  const int64_t rows = x.size(0), width = bytes.size(0), in = x.size(1);
  at::Tensor out = at::empty({rows, width}, x.options());
  if (rows <= kFewRows) {
    const at::Tensor wide = x.to(at::kFloat).contiguous();
    if (x.scalar_type() == at::kFloat)
      multiply<float>(wide, bytes, out, loops.multiply_f32);
    else
      multiply<Bfloat16>(wide, bytes, out, loops.multiply_bf16);
    return out;
  }
  const int64_t panel = std::min(width, std::max<int64_t>(64, kPanel / in / 64 * 64));
  at::Tensor numbers = at::empty({panel, in}, x.options());
  for (int64_t first = 0; first < width; first += panel) {
    at::Tensor some = numbers.narrow(0, 0, std::min(panel, width - first));
    dequantise_rows(bytes, first, loops, some);
    const at::Tensor product = kernels::linear(x, some);
    out.narrow(1, first, some.size(0)).copy_(product.defined() ? product : at::linear(x, some));
  }
  return out;
}

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
