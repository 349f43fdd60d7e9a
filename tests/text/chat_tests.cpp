#include <doctest/doctest.h>

#include "gemloupe/text/chat.h"
#include "gemloupe/text/jinja/template.h"
#include "vectors.h"

using namespace gemloupe;
using namespace gemloupe::test;

namespace {

/// What a template writes, or which kind of error it ends with.
template <typename Render>
json outcome(Render render) {
  try {
    return {{"text", render()}};
  } catch (const BadPrompt&) {
    return {{"error", "refused"}};
  } catch (const BadTokenizer&) {
    return {{"error", "broken"}};
  }
}

std::string render(const std::string& source, const json& variables = json::object()) {
  return jinja::Template(source).render(variables);
}

}  // namespace

TEST_CASE("pieces of templates, as Jinja renders them") {
  const json vectors = read_vectors("template_vectors.json");
  for (const json& vector : vectors["snippets"]) {
    const std::string source = vector["template"];
    CAPTURE(source);
    const json expected = vector.contains("text") ? json{{"text", vector["text"]}} : json{{"error", vector["error"]}};
    std::string message;
    const json found = outcome([&] {
      try {
        return render(source, vector["variables"]);
      } catch (const Error& error) {
        message = error.what();
        throw;
      }
    });
    CAPTURE(message);
    CHECK(found == expected);
  }
}

TEST_CASE("chats, as transformers renders them") {
  const json chats = read_vectors("chats.json");
  const json vectors = read_vectors("template_vectors.json");
  for (const json& vector : vectors["chats"]) {
    const std::string name = vector["template"];
    const size_t index = vector["chat"];
    CAPTURE(name);
    CAPTURE(index);
    json options = chats[index];
    options.erase("messages");
    options["bos_token"] = "<bos>";
    const std::string source = read_text(("templates/" + name).c_str());
    const json expected = vector.contains("text") ? json{{"text", vector["text"]}} : json{{"error", vector["error"]}};
    CHECK(outcome([&] { return render_chat(source, chats[index]["messages"], options); }) == expected);
  }
}

TEST_CASE("an error names the line and what is not implemented") {
  const auto fails_with = [](const char* source, const char* message) {
    CHECK_THROWS_WITH_AS(render(source), doctest::Contains(message), BadTokenizer);
  };
  fails_with("a\n\n{% include 'x' %}", "line 3: {% include %} is not implemented");
  fails_with("{{ 1 | wordwrap }}", "line 1: the filter 'wordwrap' is not implemented");
  fails_with("\n{{ 1 is escaped }}", "line 2: the test 'escaped' is not implemented");
  fails_with("{% for x in y recursive %}{% endfor %}", "a recursive loop is not implemented");
  fails_with("\n{%- if true %}\n{{ nothing.at_all }}\n{% endif %}", "line 3: 'nothing' is undefined");
  fails_with("{{ lipsum(n=5) }}", "'lipsum' is undefined");
  fails_with("{{ f(*args) }}", "not implemented");
  fails_with("{% if true %}\n\n", "expected {% endif %}");
  CHECK_THROWS_WITH_AS(render("{{ raise_exception('no system message') }}"), doctest::Contains("no system message"),
                       BadPrompt);
}

TEST_CASE("messages have to be a list of objects") {
  CHECK_THROWS_AS(render_chat("", "Hello"), BadPrompt);
  CHECK_THROWS_AS(render_chat("", json::array({"Hello"})), BadPrompt);
  CHECK(render_chat("{{ tools is none }}{{ messages | length }}", json::array()) == "True0");
}

TEST_CASE("a hostile template ends with an error") {
  const auto ends = [](const std::string& source) { CHECK_THROWS_AS(render(source), BadTokenizer); };
  ends("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
  ends("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
  ends("{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}");
  ends("{% set ns = namespace(s=[1]) %}{% for a in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}");
  ends("{% set ns = namespace(s=[]) %}{% for a in range(9999) %}{% set ns.s = [ns.s] %}{% endfor %}");
  ends("{% set ns = namespace(s=[1]) %}{% for a in range(90) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}");
  ends("{% set ns = namespace() %}{% set ns.self = ns %}");
  ends("{% set ns = namespace() %}{% macro f() %}{% endmacro %}{% set ns.f = f %}");
  ends("{{ 'x' * 9999999999 }}");
  ends("{{ ('x' * 6000000) | replace('', 'yyyy') }}");
  ends("{{ range(99999) | join('x' * 99999) }}");
  ends("{{ 'a\n' * 9999 | indent(999999999) }}");
  ends("{{ 9223372036854775807 + 1 }}");
  ends("{{ -9223372036854775807 - 2 }}");
  ends("{{ 99999999999999999999 }}");
  ends("{{ 3 ** 99 }}");
  ends("{{ [1] | tojson(indent=99999999) }}");
  const auto repeated = [](const std::string& unit, size_t count) {
    std::string text;
    while (count-- > 0) text += unit;
    return text;
  };
  for (const std::string unit : {"(", "[", "{'a':", "not ", "-", "1 + ", "1 if ", "x.", "x[", "f(", "x|f|", "1 is "})
    ends("{{ " + repeated(unit, 100'000));
  ends("{{ 1" + repeated(" + 1", 100'000) + " }}");
  ends("{{ x" + repeated(".x", 100'000) + " }}");
  ends("{{ x" + repeated("|list", 100'000) + " }}");
  ends(repeated("{% if 1 %}", 100'000));
  ends("{% if 1 %}" + repeated("{% elif 1 %}", 100'000));
  json deep = json::array();
  for (int i = 0; i < 300; ++i) deep = json::array({deep});
  CHECK_THROWS_AS(render("", {{"deep", deep}}), BadTokenizer);
}

TEST_CASE("every beginning of a template renders or is refused") {
  const std::string source = read_text("templates/gemma4.jinja");
  const json chat = read_vectors("chats.json")[8];
  for (size_t length = 0; length < source.size(); length += 13) {
    outcome([&] { return render_chat(source.substr(0, length), chat["messages"], chat); });
  }
}

TEST_CASE("strftime_now gives the time") {
  CHECK(render("{{ strftime_now('%Y') }}").size() == 4);
}

TEST_CASE("a chat's <bos> is the only one") {
  const Tokenizer tokenizer = tiny_tokenizer();
  const std::string text = render_chat(read_text("templates/gemma3.jinja"), {{{"role", "user"}, {"content", "Hi"}}},
                                       special_token_texts(tokenizer));
  CHECK(text == "<bos><start_of_turn>user\nHi<end_of_turn>\n");
  CHECK(tokenizer.encode(text).ids == tokenizer.encode(text, false).ids);
}
