#include "gemloupe/ops/kernels/quantised.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

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

/// `count` rows from `first` on, each by `unpack`, to `out`.
template <class Out, class Unpack>
void unpack_rows(const at::Tensor& bytes, int64_t first, int64_t count, const QuantisedFormatLoops& loops, Out* out,
                 Unpack unpack) {
  const int64_t row_bytes = bytes.size(1), blocks = row_bytes / loops.block_bytes, width = width_of(bytes, loops);
  const uint8_t* from = bytes.const_data_ptr<uint8_t>() + first * row_bytes;
  at::parallel_for(0, count, grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) unpack(from + row * row_bytes, blocks, out + row * width);
  });
}

template <class Out, class Few, class Many>
at::Tensor multiplied(const at::Tensor& x, const at::Tensor& bytes, const QuantisedFormatLoops& loops, at::Tensor out,
                      Few few, Many many) {
  const int64_t rows = x.size(0), in = x.size(1), width = out.size(1);
  const auto* numbers = x.const_data_ptr<float>();
  auto* to = static_cast<Out*>(out.mutable_data_ptr());
  if (rows <= kFewRows) {
    const QuantisedProduct<Out> product{numbers, bytes.const_data_ptr<uint8_t>(), to, rows, in, width};
    over_columns(width, rows * in, [&](int64_t begin, int64_t end) { few(product, begin, end); });
    return out;
  }
  const int64_t panel = std::min(width, std::max<int64_t>(64, kPanel / in / 64 * 64));
  at::Tensor unpacked = at::empty({panel, in}, x.options());
  for (int64_t first = 0; first < width; first += panel) {
    const int64_t count = std::min(panel, width - first);
    unpack_rows(bytes, first, count, loops, unpacked.mutable_data_ptr<float>(), loops.unpack);
    const Product<float, float, Out> product{numbers, unpacked.const_data_ptr<float>(), to + first, rows, in, width};
    over_columns(count, rows * in, [&](int64_t begin, int64_t end) { many(product, begin, end); });
  }
  return out;
}

}  // namespace

at::Tensor dequantised(const at::Tensor& bytes, QuantisedFormat format, at::ScalarType dtype) {
  const QuantisedFormatLoops& loops = table().quantised.of(format);
  const bool narrow = dtype == at::kBFloat16;
  const at::Tensor dense = bytes.contiguous();
  at::Tensor out =
      at::empty({bytes.size(0), width_of(bytes, loops)}, bytes.options().dtype(narrow ? dtype : at::kFloat));
  if (narrow && out.numel())
    unpack_rows(dense, 0, out.size(0), loops, static_cast<Bfloat16*>(out.mutable_data_ptr()), loops.dequantise_bf16);
  else if (out.numel())
    unpack_rows(dense, 0, out.size(0), loops, out.mutable_data_ptr<float>(), loops.dequantise_f32);
  return out.to(dtype);
}

at::Tensor quantised_linear(const at::Tensor& x, const at::Tensor& bytes, QuantisedFormat format) {
  const QuantisedFormatLoops& loops = table().quantised.of(format);
  if (!fits(x) || x.dim() != 2 || x.size(0) < 1 || x.size(1) != width_of(bytes, loops)) return {};
  const at::Tensor wide = x.to(at::kFloat).contiguous();
  at::Tensor out = at::empty({x.size(0), bytes.size(0)}, x.options());
  const LinearLoops& dense = table().linear;
  if (x.scalar_type() == at::kFloat) return multiplied<float>(wide, bytes, loops, out, loops.multiply_f32, dense.f32);
  return multiplied<Bfloat16>(wide, bytes, loops, out, loops.multiply_bf16, dense.f32_to_bf16);
}

}  // namespace kernels
}  // namespace ops
}  // namespace v0
}  // namespace gemloupe
