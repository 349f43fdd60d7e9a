#include "gemloupe/report/lens.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "gemloupe/base/errors.h"
#include "gemloupe/report/width.h"

namespace gemloupe {
inline namespace v0 {
namespace {

// Rows projected at once, of several layers where they are few: each projection reads all of the head's weights. 32
// distributions over 262,144 tokens are 32 MB.
constexpr int64_t kRows = 32;
constexpr size_t kTitle = 100;

std::vector<int64_t> integers(const at::Tensor& tensor) {
  at::Tensor flat = tensor.to(at::kCPU, at::kLong).contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

// The best tokens of rows that come layer by layer.
class Readings {
 public:
  explicit Readings(const LensOptions& options) : options_(options) {}

  /// `rows` [positions, hidden_size] of the next layer.
  void add(const at::Tensor& rows) {
    for (int64_t first = 0; first < rows.size(0);) {
      int64_t end = std::min(rows.size(0), first + kRows - waiting_rows_);
      waiting_.push_back(rows.slice(0, first, end));
      waiting_rows_ += end - first;
      first = end;
      if (waiting_rows_ == kRows) project();
    }
  }

  std::vector<std::vector<Lens::Cell>> by_layer(size_t positions) {
    if (waiting_rows_ > 0) project();
    std::vector<std::vector<Lens::Cell>> layers;
    for (size_t at = 0; at < cells_.size(); at += positions)
      layers.emplace_back(std::make_move_iterator(cells_.begin() + static_cast<ptrdiff_t>(at)),
                          std::make_move_iterator(cells_.begin() + static_cast<ptrdiff_t>(at + positions)));
    return layers;
  }

 private:
  void project() {
    at::Tensor logits = options_.project(at::cat(waiting_)).to(at::kFloat);
    auto [best, indices] = logits.topk(std::min<int64_t>(options_.top, logits.size(-1)), -1);
    at::Tensor probabilities = (best - logits.logsumexp(-1, true)).exp().to(at::kCPU, at::kDouble).contiguous();
    std::vector<int64_t> ids = integers(indices);
    const double* probability = probabilities.const_data_ptr<double>();
    auto id = ids.begin();
    for (int64_t row = 0; row < waiting_rows_; ++row) {
      Lens::Cell& cell = cells_.emplace_back();
      for (int64_t rank = 0; rank < best.size(-1); ++rank, ++id)
        cell.push_back({*id, options_.token_text(*id), *probability++});
    }
    waiting_.clear();
    waiting_rows_ = 0;
  }

  const LensOptions& options_;
  std::vector<at::Tensor> waiting_;
  int64_t waiting_rows_ = 0;
  std::vector<Lens::Cell> cells_;
};

std::string probability_text(double value) {
  char text[16];
  std::snprintf(text, sizeof text, "%.3f", value);
  return text;
}

// Leading spaces can be seen, as a token's text often differs in them alone.
std::string cell_text(const std::string& token) {
  std::string text = on_one_line(token);
  size_t spaces = std::min(text.find_first_not_of(' '), text.size());
  std::string out;
  for (size_t i = 0; i < spaces; ++i) out += "·";
  return out + text.substr(spaces);
}

std::string prompt_text(const Lens& lens) {
  std::string text;
  for (const std::string& token : lens.tokens) text += token;
  return on_one_line(text);
}

// What fits a heading; the columns show all of it.
std::string title_text(const Lens& lens) {
  std::string text = prompt_text(lens);
  return display_width(text) <= kTitle ? text : wrap(text, kTitle)[0] + " …";
}

}  // namespace

Lens read_lens(Trace& trace, const LensOptions& options) {
  if (options.top < 1) throw BadOption("top must be 1 or more.");
  if (trace.input_size().first != 1) throw BadPrompt("a lens looks at one prompt at a time.");
  Lens lens;
  const Plan& plan = trace.plan();
  lens.ids = integers(trace.read(std::string(values::input_ids.name)));
  for (int64_t id : lens.ids) lens.tokens.push_back(options.token_text(id));
  lens.first_position = options.every_position ? 0 : trace.input_size().second - 1;
  Readings readings(options);
  for (size_t id = 0; id < plan.rows.size(); ++id) {
    const Row& row = plan.rows[id];
    if (row.spec != &values::layer_output) continue;
    if (options.on_layer) options.on_layer(row.layer);
    readings.add(trace.read(static_cast<RowId>(id))[0].slice(0, lens.first_position));
  }
  trace.finish();
  lens.layers = readings.by_layer(lens.ids.size() - static_cast<size_t>(lens.first_position));
  return lens;
}

Document lens_table(const Lens& lens) {
  Document document{title_text(lens), "", {}, {}};
  Document::Table table{"", "", {"layer"}, {}};
  for (size_t rank = 0; rank < lens.layers[0].back().size(); ++rank)
    table.columns.push_back(rank ? std::to_string(rank + 1) : "most likely next token");
  for (size_t layer = 0; layer < lens.layers.size(); ++layer) {
    std::vector<json> row{layer};
    for (const auto& guess : lens.layers[layer].back())
      row.emplace_back(probability_text(guess.probability) + " " + quoted_token(guess.token));
    table.rows.push_back(std::move(row));
  }
  document.sections.push_back({"lens", "", {table}});
  return document;
}

Document lens_page(const Lens& lens) {
  Document document{title_text(lens),
                    "The logit lens: what each block's residual stream would say next. The last row "
                    "is the model's own output.",
                    {},
                    {}};
  Document::HeatMap map{"layer", "after", "the prompt's own next token", {}, {}, {}};
  for (size_t at = static_cast<size_t>(lens.first_position); at < lens.tokens.size(); ++at)
    map.columns.push_back(cell_text(lens.tokens[at]));
  for (size_t layer = 0; layer < lens.layers.size(); ++layer) {
    map.rows.push_back(std::to_string(layer));
    auto& cells = map.cells.emplace_back();
    for (size_t i = 0; i < lens.layers[layer].size(); ++i) {
      const Lens::Cell& guesses = lens.layers[layer][i];
      size_t next = static_cast<size_t>(lens.first_position) + i + 1;
      Document::HeatMap::Cell cell{cell_text(guesses[0].token),
                                   guesses[0].probability,
                                   next < lens.ids.size() && guesses[0].id == lens.ids[next],
                                   {}};
      for (const auto& guess : guesses) cell.details.push_back({cell_text(guess.token), guess.probability});
      cells.push_back(std::move(cell));
    }
  }
  document.sections.push_back({"lens", "", {map}});
  return document;
}

json lens_json(const Lens& lens) {
  json layers = json::array();
  for (const auto& positions : lens.layers) {
    json list = json::array();
    for (const auto& cell : positions) {
      json top = json::array();
      for (const auto& guess : cell)
        top.push_back({{"id", guess.id}, {"token", guess.token}, {"probability", guess.probability}});
      list.push_back(std::move(top));
    }
    layers.push_back(std::move(list));
  }
  return {{"prompt", {{"ids", lens.ids}, {"tokens", lens.tokens}}},
          {"first_position", lens.first_position},
          {"layers", std::move(layers)}};
}

}  // namespace v0
}  // namespace gemloupe
