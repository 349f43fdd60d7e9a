#include "gemloupe/base/errors.h"
#include "gemloupe/store/printable.h"
#include "gemloupe/store/strict_json.h"
#include "store/files.h"

using namespace gemloupe;
using namespace store_tests;

TEST_CASE("strict JSON is ordered JSON") {
  const json value = parse_json(R"({"b": [1, -2, 3.5, null, true], "a": {"c": "ß", "d": {}}, "e": []})", "f.json");
  CHECK(value.dump() == R"({"b":[1,-2,3.5,null,true],"a":{"c":"ß","d":{}},"e":[]})");
  CHECK(parse_json("3", "f.json") == 3);
}

TEST_CASE("a key of the outermost object can be left out") {
  const char* text = R"({"a": 1, "big": {"x": [1, {"big": 2}], "x": 2}, "b": {"big": 3}})";
  CHECK(parse_json(text, "f", {}, "big").dump() == R"({"a":1,"b":{"big":3}})");
  CHECK(parse_json(R"({"big": 1, "a": 2})", "f", {}, "big").dump() == R"({"a":2})");
  CHECK(parse_json(R"(["big", 1])", "f", {}, "big").dump() == R"(["big",1])");
}

TEST_CASE("broken JSON is refused with its place") {
  CHECK_REFUSED(BadCheckpoint, parse_json("{\n  \"a\": tru\n}", "dir/config.json"), "dir/config.json", "not valid JSON",
                "line 3, column 0");
  CHECK_REFUSED(BadCheckpoint, parse_json("", "f.json", "the header"), "f.json: the header", "not valid JSON");
  CHECK_REFUSED(BadCheckpoint, parse_json("{} x", "f.json"), "f.json", "line 1");
  CHECK_REFUSED(BadCheckpoint, parse_json("[1e999]", "f.json"), "f.json", "not valid JSON");
}

TEST_CASE("what is no UTF-8 is refused, in a message that is") {
  const std::string message = message_of<BadCheckpoint>([] { parse_json("{\"a\xff\": 1}", "f.json"); });
  check_message(message, {"f.json", "UTF-8"});
  CHECK(is_utf8(message));
}

TEST_CASE("a key twice, and a depth bomb, are refused") {
  CHECK_REFUSED(BadCheckpoint, parse_json(R"({"x": {"a": 1, "b": 2, "a": 3}})", "f.json"), "f.json", "'a' twice");
  CHECK_REFUSED(BadCheckpoint, parse_json(std::string(1'000'000, '['), "f.json"), "f.json", "deeper than 64");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  CHECK_REFUSED(BadCheckpoint, parse_json(objects, "f.json"), "f.json", "deeper than 64");
  CHECK_REFUSED(BadCheckpoint, parse_json(objects, "f.json", {}, "a"), "f.json", "deeper than 64");
}

TEST_CASE("a large object takes linear time") {
  std::string text = "{\"first\": 0";
  for (int i = 0; i < 100'000; ++i) text += ", \"" + std::to_string(i) + "\": 1";
  CHECK(parse_json(text + "}", "f.json").size() == 100'001);
}

TEST_CASE("printable text") {
  CHECK(printable("ß\n\xff") == "ß\\x0a\\xff");
  CHECK(printable("abcdef", 3) == "abc…");
  CHECK(in_quotes("a") == "'a'");
  for (const char* good : {"", "a", "é", "€", "🔍", "\xF4\x8F\xBF\xBF"}) CHECK(is_utf8(good));
  for (const char* bad : {"\x80", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80", "\xF4\x90\x80\x80",
                          "\xF5\x80\x80\x80", "\xE2\x82", "\xC3("})
    CHECK(!is_utf8(bad));
}
