#include <doctest/doctest.h>

#include "gemloupe/report/lens.h"

namespace gemloupe {
namespace {

Lens two_layers() {
  Lens::Cell first{{7, " b", 0.75}, {8, "\n", 0.25}}, last{{9, " Paris", 0.497}, {3, "<x>", 0.1}};
  return {{2, 7}, {"<bos>", " b"}, 0, {{first, last}, {last, last}}};
}

}  // namespace

TEST_CASE("the table has a row a layer and speaks of the last position") {
  std::string text = to_text(lens_table(two_layers()));
  CHECK(text.starts_with("<bos> b\n"));
  CHECK(text.find("    1  0.497 \" Paris\"") != std::string::npos);
  CHECK(text.find("0.750") == std::string::npos);
}

TEST_CASE("the page marks the cells that foresee the prompt's own next token") {
  Document page = lens_page(two_layers());
  const auto& map = std::get<Document::HeatMap>(page.sections[0].parts[0]);
  CHECK(map.columns == std::vector<std::string>{"<bos>", "·b"});
  CHECK(map.cells[0][0].marked);
  CHECK_FALSE(map.cells[1][0].marked);
  CHECK_FALSE(map.cells[0][1].marked);
  CHECK(map.cells[0][0].details[1].text == "↵");
  CHECK(map.cells[1][1].heat == doctest::Approx(0.497));
}

TEST_CASE("the last position alone keeps its place in the prompt") {
  Lens lens = two_layers();
  lens.first_position = 1;
  for (auto& layer : lens.layers) layer.erase(layer.begin());
  Document page = lens_page(lens);
  CHECK(std::get<Document::HeatMap>(page.sections[0].parts[0]).columns == std::vector<std::string>{"·b"});
  CHECK(lens_json(lens)["first_position"] == 1);
  CHECK(lens_json(lens)["layers"][1][0][0]["token"] == " Paris");
}

}  // namespace gemloupe
