// Edits as they are typed: "layers.5.mlp.mlp_output[:, -1] *= 0.5".
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "gemloupe/model.h"

namespace gemloupe::cli {

class Edit {
 public:
  /// NAME[SLICES] OP OPERAND: NAME may be a glob, OP is =, *=, +=, -= or /=, OPERAND a number or @FILE:NAME, a tensor
  /// in a safetensors or npz file. Errors: BadOption, UnknownName, Absent, ReadOnly, NotFound, BadCheckpoint.
  Edit(const Plan& plan, const std::string& text);

  const std::vector<RowId>& rows() const { return rows_; }
  const std::string& text() const { return text_; }

  /// What takes the place of the value of that row, or the value itself after writing into it. Errors: BadValue where
  /// the slices or the shape do not fit it.
  at::Tensor changed(const Row& row, const at::Tensor& value) const;

 private:
  struct Index {
    enum class Kind { Number, Range, Ellipsis } kind = Kind::Range;
    std::optional<int64_t> first, end, step;
  };
  void parse_slices(const std::string& text);
  void parse_operand(const std::string& text);
  at::Tensor part(const at::Tensor& value) const;

  std::string text_, operator_;
  std::vector<RowId> rows_;
  std::vector<Index> slices_;
  bool has_slices_ = false;
  double number_ = 0;
  at::Tensor tensor_;  // undefined where the operand is a number
};

/// The model with these edits in every run. Errors: as `Edit`.
Model with_edits(const Model& model, const std::vector<std::string>& texts);

}  // namespace gemloupe::cli
