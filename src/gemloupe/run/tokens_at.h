// One token of each row of a batch, counted without padding.
#pragma once

#include <ATen/core/Tensor.h>

namespace gemloupe {
inline namespace v0 {

/// Where each row's token number `index` lies on the seq axis [batch], int64: 0 is a row's first token, -1 its last, on
/// whichever side the padding is. `mask` [batch, seq] is 0 at padding. Errors: BadOption where a row has no such token.
at::Tensor token_columns(const at::Tensor& mask, int64_t index);

/// Of a value [batch, seq, ...] the rows at these columns: [batch, ...].
at::Tensor at_token(const at::Tensor& value, const at::Tensor& columns);

}  // namespace v0
}  // namespace gemloupe
