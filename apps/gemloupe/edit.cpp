#include "edit.h"

#include <ATen/ATen.h>
#include <ATen/TensorIndexing.h>
#include <c10/util/Exception.h>

#include <charconv>
#include <cmath>
#include <filesystem>

#include "gemloupe/base/errors.h"
#include "gemloupe/base/text.h"
#include "gemloupe/run/weights.h"
#include "gemloupe/store/npz.h"
#include "gemloupe/store/safetensors.h"
#include "selection.h"

namespace gemloupe::cli {
namespace {

std::string trimmed(const std::string& text) {
  size_t first = text.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  throw BadOption("the edit '" + text + "' cannot be read: " + why +
                  ". An edit is NAME=NUMBER, NAME*=NUMBER or NAME[:, -1] += @FILE.safetensors:TENSOR.");
}

template <class Number>
std::optional<Number> number_of(const std::string& text) {
  Number number{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// A tensor of a file, which stays mapped as long as it is used.
at::Tensor as_tensor(const StoredTensor& stored) {
  auto options = at::TensorOptions(scalar_type(stored.dtype));
  return at::from_blob(
      stored.data, stored.shape, [file = stored.file](void*) {}, options);
}

at::Tensor read_tensor(const std::string& path, const std::string& name) {
  std::vector<StoredTensor> tensors = path.ends_with(".npz") ? read_npz(path).arrays : read_safetensors(path).tensors;
  std::vector<std::string> names;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.name == name) return as_tensor(tensor);
    names.push_back(tensor.name);
  }
  auto near = nearest(name, names);
  throw NotFound(path + ": it has no tensor '" + name + "'" +
                 (near.empty() ? "." : "; did you mean " + quoted_list(near) + "?"));
}

}  // namespace

Edit::Edit(const Plan& plan, const std::string& text) : text_(text) {
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) refuse(text, "it has no =");
  bool has_operator = std::string("*+-/").find(text[equals - 1]) != std::string::npos;
  operator_ = has_operator ? text.substr(equals - 1, 1) : "";
  std::string name = trimmed(text.substr(0, equals - (has_operator ? 1 : 0)));
  if (size_t bracket = name.find('['); bracket != std::string::npos) {
    if (!name.ends_with(']')) refuse(text, "a [ is not closed");
    parse_slices(name.substr(bracket + 1, name.size() - bracket - 2));
    name = trimmed(name.substr(0, bracket));
  }
  if (name.empty()) refuse(text, "it names no value");
  parse_operand(trimmed(text.substr(equals + 1)));
  rows_ = rows_of(plan, name);
  for (RowId row : rows_)
    if (const ValueSpec* spec = plan.row(row).spec; spec && spec->read_only)
      throw ReadOnly("'" + plan.row(row).name + "' is derived from other values and cannot be written.");
}

void Edit::parse_slices(const std::string& text) {
  has_slices_ = true;
  for (const std::string& part : split(text, ',')) {
    std::string one = trimmed(part);
    Index index;
    if (one == "...") {
      index.kind = Index::Kind::Ellipsis;
    } else if (one.find(':') == std::string::npos) {
      index.kind = Index::Kind::Number;
      if (!(index.first = number_of<int64_t>(one))) refuse(text_, "'" + one + "' is no index");
    } else {
      std::vector<std::string> bounds = split(one, ':');
      std::optional<int64_t>* places[] = {&index.first, &index.end, &index.step};
      if (bounds.size() > 3) refuse(text_, "'" + one + "' is no slice");
      for (size_t i = 0; i < bounds.size(); ++i)
        if (!trimmed(bounds[i]).empty() && !(*places[i] = number_of<int64_t>(trimmed(bounds[i]))))
          refuse(text_, "'" + one + "' is no slice");
      if (index.step && *index.step < 1) refuse(text_, "a step is 1 or more");
    }
    slices_.push_back(index);
  }
}

void Edit::parse_operand(const std::string& text) {
  if (!text.starts_with('@')) {
    auto number = number_of<double>(text);
    if (!number) refuse(text_, "'" + text + "' is neither a number nor @FILE:TENSOR");
    number_ = *number;
    return;
  }
  size_t colon = text.rfind(':');
  if (colon == std::string::npos) refuse(text_, "'" + text + "' names no tensor of the file");
  tensor_ = read_tensor(text.substr(1, colon - 1), text.substr(colon + 1));
}

at::Tensor Edit::part(const at::Tensor& value) const {
  using at::indexing::Slice;
  std::vector<at::indexing::TensorIndex> indices;
  for (const Index& index : slices_) {
    if (index.kind == Index::Kind::Ellipsis)
      indices.emplace_back("...");
    else if (index.kind == Index::Kind::Number)
      indices.emplace_back(*index.first);
    else
      indices.emplace_back(Slice(index.first ? std::optional<c10::SymInt>(*index.first) : std::nullopt,
                                 index.end ? std::optional<c10::SymInt>(*index.end) : std::nullopt,
                                 index.step ? std::optional<c10::SymInt>(*index.step) : std::nullopt));
  }
  return value.index(indices);
}

at::Tensor Edit::changed(const Row& row, const at::Tensor& value) const {
  const std::string& name = row.name;
  if (!value.defined()) throw BadValue("'" + name + "' is not made in this run; with --attn eager it is.");
  // The whole of a value is replaced with all the checks of an assignment.
  if (!has_slices_ && operator_.empty() && tensor_.defined()) return tensor_;
  const bool is_fraction =
      tensor_.defined() ? at::isFloatingType(tensor_.scalar_type()) : number_ != std::floor(number_);
  if (!at::isFloatingType(value.scalar_type()) && (is_fraction || operator_ == "/"))
    throw BadValue("the edit '" + text_ + "' does not fit '" + name + "', which holds integers.");
  try {
    at::Tensor target = has_slices_ ? part(value) : value;
    at::Tensor operand = tensor_.defined() ? tensor_.to(target.device()) : at::scalar_tensor(number_, at::kDouble);
    if (operator_.empty())
      target.copy_(operand);
    else if (operator_ == "*")
      target.mul_(operand);
    else if (operator_ == "/")
      target.div_(operand);
    else if (operator_ == "+")
      target.add_(operand);
    else
      target.sub_(operand);
  } catch (const c10::Error& error) {
    std::string shape = shape_text(value.sizes().vec());
    if (row.spec && !row.spec->axes.empty()) shape = named_shape_text(row.spec->axes, value.sizes().vec());
    throw BadValue("the edit '" + text_ + "' does not fit '" + name + "', which has the shape " + shape + ": " +
                   error.what_without_backtrace());
  }
  return value;
}

Model with_edits(const Model& model, const std::vector<std::string>& texts) {
  std::vector<StandingEdit> standing;
  for (const std::string& text : texts) {
    auto edit = std::make_shared<const Edit>(model.plan(), text);
    for (RowId id : edit->rows()) {
      const Row& row = model.plan().row(id);
      standing.push_back({id, [edit, &row](at::Tensor value) { return edit->changed(row, value); }, text});
    }
  }
  return model.with_edits(std::move(standing));
}

}  // namespace gemloupe::cli
