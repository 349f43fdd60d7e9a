#include <doctest/doctest.h>

#include <limits>
#include <regex>

#include "gemloupe/report/document.h"
#include "gemloupe/report/width.h"

namespace gemloupe {
namespace {

using Strings = std::vector<std::string>;

Document with_heat_map() {
  Document::HeatMap map{"layer", "after", "hit", {"0"}, {"<b>", "x"}, {}};
  map.cells = {{{"</script>", 0.5, true, {{"</script>", 0.5}, {"\"'&", 1.23456e-5}}},
                {"nan", std::numeric_limits<double>::quiet_NaN(), false, {{"?", 0.0}}}}};
  return {"<title> & more", "", {{"map", "", {map}}}, json{{"schema", "s/1"}, {"ids", {1, 2}}, {"seed", nullptr}}};
}

Document with_table() {
  return {"Title",
          "",
          {{"numbers", "Numbers", {Document::Table{"", "", {"name", "value"}, {{"日本", 1}, {"ab", 0.5}}}}},
           {"", "Only for people", {Document::Paragraph{"text", ""}}}},
          {}};
}

}  // namespace

TEST_CASE("width: wide characters, marks, control characters") {
  CHECK(display_width("abc") == 3);
  CHECK(display_width("日本") == 4);
  CHECK(display_width("e\u0301") == 1);
  CHECK(display_width("🙂") == 2);
  CHECK(padded("日", 4) == "日  ");
  CHECK(on_one_line("a\nb\tc\x1b[31m\u202E") == "a↵b⇥c·[31m·");
  CHECK(on_one_line("\xff") == "\uFFFD");
  CHECK(quoted_token(" Paris") == "\" Paris\"");
}

TEST_CASE("wrap: at spaces, else inside a word, never empty") {
  CHECK(wrap("one two three", 7) == Strings{"one two", "three"});
  CHECK(wrap("abcdefgh", 3) == Strings{"abc", "def", "gh"});
  CHECK(wrap("日本語", 3) == Strings{"日", "本", "語"});
  CHECK(wrap("", 5) == Strings{""});
}

TEST_CASE("values as people read them") {
  CHECK(shown(json(true)) == "True");
  CHECK(shown(json()) == "None");
  CHECK(shown(json(1e-6)) == "1e-06");
  CHECK(shown(json(10000.0)) == "10000.0");
  CHECK(shown(json::parse(R"({"a": {"b": 1}, "c": [1, 2]})")) == "a (b 1), c 1, 2");
}

TEST_CASE("text: columns are as wide as what they hold") {
  CHECK(to_text(with_table()) ==
        "Title\n\nNumbers\n=======\nname  value\n----  -----\n日本      1\nab      0.5\n\nOnly for "
        "people\n===============\ntext\n");
}

TEST_CASE("text: a table that is too wide wraps its longest column") {
  Document document{
      "",
      "",
      {{"", "", {Document::Table{"", "", {"a", "b"}, {{"x", std::string(30, 'y') + " " + std::string(30, 'z')}}}}}},
      {}};
  CHECK(to_text(document, 40) == "a  b\n-  -------------------------------------\nx  " + std::string(30, 'y') +
                                     "\n   " + std::string(30, 'z') + "\n");
}

TEST_CASE("json: sections with a key; a table is a list of objects") {
  CHECK(to_json(with_table()) ==
        json::parse(R"({"numbers": [{"name": "日本", "value": 1}, {"name": "ab", "value": 0.5}]})"));
  CHECK(to_json(with_heat_map())["map"]["columns"] == json{"<b>", "x"});
}

TEST_CASE("html: escaped, and nothing comes from elsewhere") {
  std::string page = to_html(with_heat_map());
  CHECK(page.starts_with("<!doctype html>\n<html lang=\"en\">"));
  CHECK(page.find("<title>&lt;title&gt; &amp; more</title>") != std::string::npos);
  CHECK(page.find("<b>\"") == std::string::npos);
  CHECK(page.find("[[\"\\u003c/script>\",0.5],[\"\\\"'&\",1.23e-05]]") != std::string::npos);
  CHECK_FALSE(std::regex_search(page, std::regex("https?:|src=|@import|url\\(|<link")));
  // As many ends of scripts as beginnings: no text ended one.
  auto count = [&](const char* what) {
    std::regex pattern(what);
    return std::distance(std::sregex_iterator(page.begin(), page.end(), pattern), std::sregex_iterator());
  };
  CHECK(count("<script") == 3);
  CHECK(count("</script>") == 3);
  CHECK(page.find("schema s/1") != std::string::npos);
  CHECK(page.find("\"ids\":[1,2]") != std::string::npos);
}

TEST_CASE("html: a part of another page is no page, and its style stays inside") {
  std::string part = to_html_fragment(with_heat_map());
  CHECK(part.starts_with("<div class=\"gemloupe\">"));
  CHECK(part.find("<body") == std::string::npos);
  std::regex rule("\\n([^ @\\n}][^{\\n]*) \\{");
  std::string style = part.substr(0, part.find("</style>"));
  for (std::sregex_iterator at(style.begin(), style.end(), rule), end; at != end; ++at) {
    std::string selector = (*at)[1];
    CHECK_MESSAGE((selector.starts_with(".gemloupe") || selector.starts_with("body.gemloupe")), selector);
  }
}

}  // namespace gemloupe
