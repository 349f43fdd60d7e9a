// A document as a page of its own.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "gemloupe/base/text.h"
#include "gemloupe/report/document.h"
#include "gemloupe/report/html_page.h"
#include "gemloupe/report/width.h"

namespace gemloupe {
inline namespace v0 {
namespace {

std::string element(const std::string& tag, std::string_view text, const std::string& attributes = "") {
  std::string out = "<";
  out += tag;
  if (!attributes.empty()) out += " " + attributes;
  return out + ">" + html_escaped(text) + "</" + tag + ">";
}

std::string three_digits(double value) {
  char text[16];
  std::snprintf(text, sizeof text, "%.3f", value);
  return text;
}

// As many digits as are shown: a page of 100 positions holds 10,000 numbers.
double rounded(double value) {
  char text[16];
  std::snprintf(text, sizeof text, "%.3g", value);
  return std::strtod(text, nullptr);
}

struct AppendHtml {
  std::string& out;

  void operator()(const Document::Paragraph& paragraph) const {
    if (!paragraph.title.empty()) out += element("h3", paragraph.title) + "\n";
    out += element("p", paragraph.text) + "\n";
  }
  void operator()(const Document::Lines& lines) const { out += element("pre", lines.text) + "\n"; }
  void operator()(const Document::Facts& facts) const {
    out += "<dl>\n";
    for (const auto& [name, value] : facts.entries)
      out += element("dt", name, "class=\"mono\"") + element("dd", shown(value)) + "\n";
    out += "</dl>\n";
  }
  void operator()(const Document::Table& table) const {
    if (!table.caption.empty())
      out += "<h3>" + html_escaped(table.caption) + (table.note.empty() ? "" : " " + element("small", table.note)) +
             "</h3>\n";
    out += "<div class=\"scroll\" tabindex=\"0\"><table class=\"data\">\n<thead><tr>";
    for (const std::string& column : table.columns) out += element("th", column, "scope=\"col\"");
    out += "</tr></thead>\n<tbody>\n";
    for (const auto& row : table.rows) {
      out += "<tr>";
      for (const json& value : row) out += element("td", shown(value), value.is_number() ? "class=\"n\"" : "");
      out += "</tr>\n";
    }
    out += "</tbody></table></div>\n";
  }
  void operator()(const Document::HeatMap& map) const {
    out += "<div class=\"legend\"><span>0<i></i>1</span>";
    if (!map.mark_meaning.empty()) out += "<span><b></b>" + html_escaped(map.mark_meaning) + "</span>";
    out +=
        "<span>Point at a cell, or use the arrow keys.</span></div>\n<div class=\"lens\">\n<div "
        "class=\"map\"><table>\n";
    out += "<thead><tr>" + element("th", map.row_title, "scope=\"col\"");
    for (size_t i = 0; i < map.columns.size(); ++i)
      out += "<th scope=\"col\" title=\"" + html_escaped(map.columns[i]) + "\"><small>" + std::to_string(i) +
             "</small>" + html_escaped(map.columns[i]) + "</th>";
    out += "</tr></thead>\n<tbody>\n";
    for (size_t r = 0; r < map.rows.size(); ++r) append_row(map, r);
    out += "</tbody></table></div>\n<div class=\"detail\" aria-live=\"polite\"></div>\n";
    out += "<script type=\"application/json\">" + script_escaped(details(map).dump()) + "</script>\n</div>\n";
  }

 private:
  void append_row(const Document::HeatMap& map, size_t row) const {
    out += "<tr>" + element("th", map.rows[row], "scope=\"row\"");
    for (const auto& cell : map.cells[row])
      out += element(
          "td", cell.text,
          "style=\"--p:" + three_digits(cell.heat) + "\" tabindex=\"-1\"" + (cell.marked ? " class=\"hit\"" : ""));
    out += "</tr>\n";
  }

  static json details(const Document::HeatMap& map) {
    json cells = json::array();
    for (const auto& row : map.cells) {
      json list = json::array();
      for (const auto& cell : row) {
        json of_cell = json::array();
        for (const auto& detail : cell.details) of_cell.push_back({detail.text, rounded(detail.value)});
        list.push_back(std::move(of_cell));
      }
      cells.push_back(std::move(list));
    }
    return {{"row", map.row_title},
            {"column", map.column_title},
            {"rows", map.rows},
            {"columns", map.columns},
            {"cells", std::move(cells)}};
  }
};

// Short facts for people, all of it for machines.
void append_origin(std::string& out, const json& origin) {
  std::vector<std::string> facts;
  for (const auto& [key, value] : origin.items())
    if (!value.is_null() && !value.is_array()) facts.push_back(key + " " + shown(value));
  out += element("footer", join(facts, " · ")) + "\n";
  out += "<script type=\"application/json\" id=\"origin\">" + script_escaped(origin.dump()) + "</script>\n";
}

struct Body {
  std::string html;
  bool has_heat_map = false;
};

Body body_of(const Document& document) {
  Body body{"<main>\n" + element("h1", document.title) + "\n"};
  if (!document.subtitle.empty()) body.html += element("p", document.subtitle, "class=\"subtitle\"") + "\n";
  for (const auto& section : document.sections) {
    body.html += "<section>\n";
    if (!section.title.empty()) body.html += element("h2", section.title) + "\n";
    for (const auto& part : section.parts) {
      body.has_heat_map = body.has_heat_map || std::holds_alternative<Document::HeatMap>(part);
      std::visit(AppendHtml{body.html}, part);
    }
    body.html += "</section>\n";
  }
  body.html += "</main>\n";
  if (!document.origin.is_null()) append_origin(body.html, document.origin);
  return body;
}

}  // namespace

std::string to_html(const Document& document) {
  Body body = body_of(document);
  return html_page(document.title, body.html, body.has_heat_map);
}

std::string to_html_fragment(const Document& document) {
  Body body = body_of(document);
  return html_fragment(body.html, body.has_heat_map);
}

}  // namespace v0
}  // namespace gemloupe
