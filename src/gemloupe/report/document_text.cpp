// A document on a terminal.
#include <algorithm>
#include <numeric>

#include "gemloupe/base/text.h"
#include "gemloupe/report/document.h"
#include "gemloupe/report/width.h"

namespace gemloupe {
inline namespace v0 {
namespace {

constexpr size_t kGap = 2, kNarrowest = 16;

using Texts = std::vector<std::string>;

Texts shown_row(const std::vector<json>& row) {
  Texts texts;
  for (const json& value : row) texts.push_back(on_one_line(shown(value)));
  return texts;
}

size_t longest_word(const std::string& text) {
  size_t longest = 0;
  for (const std::string& word : split(text, ' ')) longest = std::max(longest, display_width(word));
  return longest;
}

// The natural widths, the widest made narrower until all fit; words stay whole where there is any room for them.
std::vector<size_t> column_widths(const std::vector<Texts>& rows, size_t room) {
  std::vector<size_t> widths, words;
  for (const Texts& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    words.resize(widths.size());
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], display_width(row[i]));
      words[i] = std::max(words[i], longest_word(row[i]));
    }
  }
  auto narrow = [&](const std::vector<size_t>& least) {
    for (;;) {
      if (std::accumulate(widths.begin(), widths.end(), kGap * (widths.size() - 1)) <= room) return;
      size_t widest = widths.size();
      for (size_t i = 0; i < widths.size(); ++i)
        if (widths[i] > least[i] && (widest == widths.size() || widths[i] > widths[widest])) widest = i;
      if (widest == widths.size()) return;
      --widths[widest];
    }
  };
  narrow(words);
  narrow(std::vector<size_t>(widths.size(), kNarrowest));
  return widths;
}

using Columns = std::vector<bool>;

// Columns of numbers stand to the right.
Columns columns_of_numbers(const Document::Table& table) {
  Columns numbers(table.columns.size(), !table.rows.empty());
  for (const auto& row : table.rows)
    for (size_t i = 0; i < row.size(); ++i) numbers[i] = numbers[i] && (row[i].is_number() || row[i].is_null());
  return numbers;
}

std::string set(const std::string& text, size_t width, bool to_the_right) {
  return to_the_right ? padded("", width - std::min(width, display_width(text))) + text : padded(text, width);
}

void append_row(std::string& out, const Texts& row, const std::vector<size_t>& widths, const Columns& numbers = {}) {
  std::vector<Texts> cells;
  size_t height = 1;
  for (size_t i = 0; i < row.size(); ++i) {
    cells.push_back(display_width(row[i]) <= widths[i] ? Texts{row[i]} : wrap(row[i], widths[i]));
    height = std::max(height, cells.back().size());
  }
  for (size_t line = 0; line < height; ++line) {
    std::string text;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (i) text += std::string(kGap, ' ');
      text += set(line < cells[i].size() ? cells[i][line] : "", widths[i], i < numbers.size() && numbers[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
}

void append_wrapped(std::string& out, const std::string& text, size_t width, const std::string& indent = "") {
  for (const std::string& line : wrap(text, width - indent.size())) out += indent + line + "\n";
}

struct AppendText {
  std::string& out;
  size_t width;

  void operator()(const Document::Paragraph& paragraph) const {
    if (!paragraph.title.empty()) append_wrapped(out, paragraph.title, width);
    append_wrapped(out, paragraph.text, width, paragraph.title.empty() ? "" : "  ");
  }
  void operator()(const Document::Lines& lines) const {
    out += lines.text;
    if (!lines.text.ends_with('\n')) out += "\n";
  }
  void operator()(const Document::Facts& facts) const {
    std::vector<Texts> rows;
    for (const auto& [name, value] : facts.entries) rows.push_back({name, on_one_line(shown(value))});
    auto widths = column_widths(rows, width);
    for (const Texts& row : rows) append_row(out, row, widths);
  }
  void operator()(const Document::Table& table) const {
    if (!table.caption.empty()) out += table.caption + (table.note.empty() ? "" : "  " + table.note) + "\n";
    std::vector<Texts> rows{table.columns};
    for (const auto& row : table.rows) rows.push_back(shown_row(row));
    auto widths = column_widths(rows, width);
    Texts rule;
    for (size_t column : widths) rule.push_back(std::string(column, '-'));
    rows.insert(rows.begin() + 1, rule);
    Columns numbers = columns_of_numbers(table);
    for (const Texts& row : rows) append_row(out, row, widths, numbers);
  }
  void operator()(const Document::HeatMap& map) const {
    Document::Table table;
    table.columns = {map.row_title};
    table.columns.insert(table.columns.end(), map.columns.begin(), map.columns.end());
    for (size_t i = 0; i < map.rows.size(); ++i) {
      std::vector<json> row{map.rows[i]};
      for (const auto& cell : map.cells[i]) row.emplace_back(cell.text);
      table.rows.push_back(std::move(row));
    }
    (*this)(table);
  }
};

}  // namespace

std::string to_text(const Document& document, size_t width) {
  width = std::max<size_t>(width, 40);
  std::string out;
  if (!document.title.empty()) out += document.title + "\n";
  if (!document.subtitle.empty()) append_wrapped(out, document.subtitle, width);
  for (const auto& section : document.sections) {
    if (!out.empty()) out += "\n";
    if (!section.title.empty()) out += section.title + "\n" + std::string(display_width(section.title), '=') + "\n";
    for (size_t i = 0; i < section.parts.size(); ++i) {
      if (i) out += "\n";
      std::visit(AppendText{out, width}, section.parts[i]);
    }
  }
  return out;
}

}  // namespace v0
}  // namespace gemloupe
