// What a step computes: data only. run/execute.cpp maps each of these to the function of ops/ that does it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gemloupe/ops/parameters.h"

namespace gemloupe {
inline namespace v0 {

namespace op {
struct Replace {
  std::vector<int64_t> ids;
  int64_t by;
};  ///< ids -> the same, with `by` for each of `ids`
struct IsId {
  int64_t id;
};  ///< ids -> where they are `id`
struct Embed {
  double scale;
};  ///< ids, table -> rows · scale (rounded to the table's dtype)
struct Rotary {
  RotaryFrequencies frequencies;
};  ///< position_ids, any value of the model's dtype -> cos, sin
struct Mask {
  MaskRule rule;
};  ///< attention_mask, position_ids, stream -> additive mask
struct RmsNorm {
  double eps;
  Gain gain;
};                 ///< x[, weight]
struct Linear {};  ///< x, weight[, bias]
struct Rotate {
  int64_t head_axis = 1;
};  ///< queries or keys, cos, sin
struct Extend {
  int cache;  ///< whose keys and values these are: a block's, or what later blocks borrow of it
  std::optional<int64_t> window;
  bool copies = false;  ///< shares no storage with its inputs, also without a cache
};                      ///< keys, values -> the same behind what the cache keeps
struct Borrow {};       ///< keys, values -> the same, of which a trace makes copies private to the block
struct Scores {
  double scale;
  std::optional<double> softcap;
  MaskRule rule;
};                  ///< queries, keys, mask
struct Softmax {};  ///< scores -> pattern
struct Mix {};      ///< pattern, values -> head outputs
/// queries, keys, values, mask -> head outputs: Scores, Softmax and Mix.
struct FusedAttention {
  double scale;
  std::optional<double> softcap;
  MaskRule rule;
};
/// gate, x; up -> neurons: GeluTanh of the gate, Linear of x, and their product.
struct GatedUp {};
/// x; gate, up, down -> all of it: Linear, GatedUp, Linear.
struct GatedMlp {};
/// x, residual[; weight] -> residual + RmsNorm of x.
struct NormAdd {
  double eps;
  Gain gain;
};
struct GeluTanh {};
struct Multiply {};  ///< x, y, or x and a weight
struct Scale {
  double factor;
};  ///< x · factor
struct Add {};
struct Split {};                ///< x [batch, seq, parts, …] -> its parts
struct RouterProbabilities {};  ///< router logits -> softmax over experts, float32
struct Route {
  int64_t top_k;
};                        ///< probabilities, each expert's scale (a weight) -> expert weights, expert indices
struct ExpertsGateUp {};  ///< x, indices; gate_up -> gate and up, a row a slot, sorted by expert
struct ExpertsDown {};    ///< neurons, indices, weights; down -> each slot's weighted output
struct SumSlots {};       ///< each slot's output, any value of the model's dtype -> their sum
struct Softcap {
  double cap;
};                            ///< cap · tanh(x / cap)
struct LastProbabilities {};  ///< logits -> softmax of the last row, float32
}  // namespace op

using Op = std::variant<op::Replace, op::IsId, op::Embed, op::Rotary, op::Mask, op::RmsNorm, op::Linear, op::Rotate,
                        op::Extend, op::Borrow, op::Scores, op::Softmax, op::Mix, op::FusedAttention, op::GatedUp,
                        op::GatedMlp, op::NormAdd, op::GeluTanh, op::Multiply, op::Scale, op::Add, op::Split,
                        op::RouterProbabilities, op::Route, op::ExpertsGateUp, op::ExpertsDown, op::SumSlots,
                        op::Softcap, op::LastProbabilities>;

/// How a tensor is looked at without copying it.
struct View {
  enum class Kind : uint8_t {
    Same,
    Heads,       ///< [batch, seq, heads · dim] as [batch, seq, heads, dim]
    HeadsFirst,  ///< [batch, seq, heads · dim] as [batch, heads, seq, dim]
    Flat,        ///< [batch, seq, heads, dim] as [batch, seq, heads · dim]
    Transposed,  ///< [batch, seq, heads, dim] as [batch, heads, seq, dim]
    Rows,        ///< [batch, seq, …] as [batch · seq, …]
  };
  Kind kind = Kind::Same;
  int64_t head_dim = 0;
};

}  // namespace v0
}  // namespace gemloupe
