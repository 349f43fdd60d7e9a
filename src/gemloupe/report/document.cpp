#include "gemloupe/report/document.h"

#include <cmath>
#include <cstdio>

#include "gemloupe/base/text.h"

namespace gemloupe {
inline namespace v0 {

std::string shown(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_number_float()) {
    const double number = value.get<double>();
    const bool is_whole = std::abs(number) < 1e15 && number == std::trunc(number);
    char text[32];
    std::snprintf(text, sizeof text, is_whole ? "%.1f" : "%.6g", number);
    return text;
  }
  if (!value.is_structured()) return value.dump();
  std::vector<std::string> parts;
  for (const auto& [key, item] : value.items())
    parts.push_back(value.is_object() ? key + " " + (item.is_object() ? "(" + shown(item) + ")" : shown(item))
                                      : shown(item));
  return join(parts, ", ");
}

namespace {

struct PartToJson {
  json operator()(const Document::Paragraph& paragraph) const { return paragraph.text; }
  json operator()(const Document::Lines& lines) const { return lines.text; }
  json operator()(const Document::Facts& facts) const {
    json object = json::object();
    for (const auto& [name, value] : facts.entries) object[name] = value;
    return object;
  }
  json operator()(const Document::Table& table) const {
    json list = json::array();
    for (const auto& row : table.rows) {
      json object = json::object();
      for (size_t i = 0; i < table.columns.size(); ++i) object[table.columns[i]] = row[i];
      list.push_back(std::move(object));
    }
    return list;
  }
  json operator()(const Document::HeatMap& map) const {
    json cells = json::array();
    for (const auto& row : map.cells) {
      json list = json::array();
      for (const auto& cell : row) list.push_back({{"text", cell.text}, {"heat", cell.heat}});
      cells.push_back(std::move(list));
    }
    return {{"rows", map.rows}, {"columns", map.columns}, {"cells", std::move(cells)}};
  }
};

std::string title_of(const Document::Part& part) {
  if (const auto* table = std::get_if<Document::Table>(&part)) return table->caption;
  if (const auto* paragraph = std::get_if<Document::Paragraph>(&part)) return paragraph->title;
  return {};
}

}  // namespace

json to_json(const Document& document) {
  json out = json::object();
  for (const auto& section : document.sections) {
    if (section.key.empty()) continue;
    if (section.parts.size() == 1 && title_of(section.parts[0]).empty()) {
      out[section.key] = std::visit(PartToJson{}, section.parts[0]);
      continue;
    }
    json& parts = out[section.key] = json::object();
    for (const auto& part : section.parts) {
      std::string title = title_of(part);
      parts[title.empty() ? std::to_string(parts.size()) : title] = std::visit(PartToJson{}, part);
    }
  }
  return out;
}

}  // namespace v0
}  // namespace gemloupe
