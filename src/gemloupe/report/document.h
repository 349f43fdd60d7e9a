// A small tree of parts that is rendered as text, as JSON for machines, or as a page of its own.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gemloupe/store/checkpoint.h"

namespace gemloupe {
inline namespace v0 {

struct Document {
  struct Paragraph {
    std::string text;
    std::string title;  ///< may be empty
  };
  /// Kept as written, in a fixed pitch: code, trees.
  struct Lines {
    std::string text;
  };
  /// Names and what they are. Values are any JSON.
  struct Facts {
    std::vector<std::pair<std::string, json>> entries;
  };
  struct Table {
    std::string caption;  ///< names the table where a section has several
    std::string note;     ///< said beside the caption
    std::vector<std::string> columns;
    std::vector<std::vector<json>> rows;
  };
  /// A grid of short texts, coloured by a number from 0 to 1; the details of a cell are shown when it is pointed at.
  struct HeatMap {
    struct Detail {
      std::string text;
      double value;
    };
    struct Cell {
      std::string text;
      double heat = 0;
      bool marked = false;
      std::vector<Detail> details;
    };
    std::string row_title, column_title, mark_meaning;
    std::vector<std::string> rows, columns;
    std::vector<std::vector<Cell>> cells;  ///< [row][column]
  };
  using Part = std::variant<Paragraph, Lines, Facts, Table, HeatMap>;
  struct Section {
    std::string key;  ///< its name in JSON; empty where JSON leaves it out
    std::string title;
    std::vector<Part> parts;
  };

  std::string title, subtitle;
  std::vector<Section> sections;
  json origin;  ///< where it comes from (Provenance): a page's footer, and in it for machines
};

/// `width` is where lines wrap. Tokens and titles of any script keep their columns.
std::string to_text(const Document& document, size_t width = 100);

/// An object with a member for each section that has a key: its part, or, of several, an object by their titles.
/// A table is a list of objects by its columns.
json to_json(const Document& document);

/// One file that needs no other: no script, style, font or picture comes from elsewhere. Light and dark, and usable
/// from a keyboard.
std::string to_html(const Document& document);
/// The same as a part of another page, for notebooks.
std::string to_html_fragment(const Document& document);

/// How a value is shown to people: True, None, 1e-06, text as it is, lists with commas.
std::string shown(const json& value);

}  // namespace v0
}  // namespace gemloupe
