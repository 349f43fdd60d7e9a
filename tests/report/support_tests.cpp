#include <doctest/doctest.h>

#include "gemloupe/report/support.h"
#include "tiny_plan.h"

namespace gemloupe {

TEST_CASE("layers are written as ranges") {
  CHECK(ranges_text({}).empty());
  CHECK(ranges_text({3}) == "3");
  CHECK(ranges_text({0, 1, 2, 4, 6, 7}) == "0-2, 4, 6-7");
}

TEST_CASE("support: sizes, kinds of blocks, values by host, config, identity, notes") {
  json said = to_json(support(test::tiny_plan()));
  CHECK(said["model"]["family"] == "tiny");
  CHECK(said["model"]["model.num_layers"] == 3);
  // Only the size in which blocks differ is a column.
  CHECK(said["blocks"] == json::parse(R"([{"kind": "sliding", "layers": "0-1", "intermediate_size": 8},
                                          {"kind": "full", "layers": "2", "intermediate_size": 16}])"));
  CHECK(said["identity"] == "x + y == z");
  CHECK(said["config"]["rms_norm_eps"] == 1e-6);
  CHECK(said["notes"]["To know"] == "What a note says.");
  std::vector<std::string> hosts;
  for (const auto& [host, values] : said["values"].items()) hosts.push_back(host);
  CHECK(hosts == std::vector<std::string>{"model", "model.layers[i]", "model.layers[i].mlp"});
}

TEST_CASE("support: where each is read, by layer where layers differ, and why one is absent") {
  json values = to_json(support(test::tiny_plan()))["values"];
  const json& input = values["model.layers[i]"][0];
  CHECK(input["value"] == "layer_input");
  CHECK(input["axes"] == "[batch seq hidden_size]");
  CHECK(input["read at"] == "layer 0: the output of embed_tokens; layers 1-2: the output of layers[i].mlp.down_proj");
  const json& neurons = values["model.layers[i].mlp"][0];
  CHECK(neurons["value"] == "mlp_neurons");
  CHECK(neurons["read at"].get<std::string>().find("layer 0: absent: its <first> block has none") != std::string::npos);
}

TEST_CASE("support as text and as a page") {
  Document document = support(test::tiny_plan());
  std::string text = to_text(document, 80);
  CHECK(text.find("rms_norm_eps  1e-06") != std::string::npos);
  CHECK(text.find("tied   True") != std::string::npos);  // no key of the pages' tables
  CHECK(text.find("kinds  a, b") != std::string::npos);
  CHECK(to_html(document).find("its &lt;first&gt; block") != std::string::npos);
}

}  // namespace gemloupe
