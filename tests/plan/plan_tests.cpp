#include <doctest/doctest.h>

#include "gemloupe/plan/plan.h"
#include "plan/invariants.h"
#include "plan/toy.h"
#include "store/files.h"

using namespace plan_tests;

namespace {

Row& row_of(Plan& plan, const std::string& name) {
  return plan.rows[static_cast<size_t>(plan.find_row(name))];
}

void check_broken(const Plan& plan, const std::string& part) {
  const std::string found = faults_of(plan);
  CHECK_MESSAGE(found.find(part) != std::string::npos, "no '", part, "' in:\n", found);
}

}  // namespace

TEST_CASE("plan: the toy is sound, with any number of blocks") {
  for (int layers : {1, 2, 5}) CHECK(faults_of(toy_plan(layers)) == "");
}

TEST_CASE("plan: what would go wrong is seen") {
  Plan plan = toy_plan();
  Step& last = plan.steps.back();
  const Slot probabilities = last.outputs[0], logits = last.inputs[0].slot;
  SUBCASE("a value that is read before it is made") {
    plan.steps[3].inputs[0].slot = probabilities;
    check_broken(plan, "before it is written");
  }
  SUBCASE("two writers") {
    last.outputs[0] = logits;
    check_broken(plan, "is written twice");
  }
  SUBCASE("a wrong producer") {
    plan.producer[static_cast<size_t>(logits)] = 0;
    check_broken(plan, "the producer of slot");
  }
  SUBCASE("an early death") {
    plan.steps[1].dies_after.push_back(plan.steps[1].inputs[1].slot);
    check_broken(plan, "dies twice");
    for (Step& step : plan.steps) std::erase(step.dies_after, plan.steps[1].inputs[1].slot);
    plan.steps[1].dies_after.push_back(plan.steps[1].inputs[1].slot);
    check_broken(plan, "but died after 1");
  }
  SUBCASE("a value that nobody drops") {
    for (Step& step : plan.steps) std::erase(step.dies_after, logits);
    check_broken(plan, "outlives its last reader");
  }
  SUBCASE("an operand that is missing") {
    plan.steps[1].inputs.pop_back();
    check_broken(plan, "step 1 has the wrong number of operands");
  }
  SUBCASE("a fusion that leaves something out") {
    plan.fusions[0].inputs[3] = plan.fusions[0].inputs[0];
    check_broken(plan, "does not read what its steps read");
  }
  SUBCASE("a fusion that is too short") {
    plan.fusions[1].end -= 1;
    check_broken(plan, "does not write what later steps read");
  }
  SUBCASE("a row of the wrong place") {
    row_of(plan, "logits").position = 0;
    check_broken(plan, "logits can be read before it is made");
  }
  SUBCASE("a pattern that is asked for too late") {
    row_of(plan, "layers.0.self_attn.attention_probabilities").position += 1;
    check_broken(plan, "outside the fusion that leaves it out");
  }
  SUBCASE("a consumer outside the module, and one that is forgotten") {
    Row& port = row_of(plan, "layers.0.self_attn.q_proj.input");
    const Row& wider = row_of(plan, "layers.0.self_attn.input");
    REQUIRE(wider.consumers.size() == 3);
    port.consumers = wider.consumers;
    check_broken(plan, "does not reach what reads it inside model.layers.0.self_attn.q_proj");
    port.consumers.clear();
    check_broken(plan, "does not reach what reads it inside model.layers.0.self_attn.q_proj");
  }
  SUBCASE("a value that is forgotten") {
    plan.row_index.erase("layers.1.layer_mid");
    check_broken(plan, "layers.1.layer_mid is neither produced nor absent");
  }
  SUBCASE("a step of another module") {
    plan.steps[0].module = plan.find_module("lm_head");
    check_broken(plan, "step 0 lies outside lm_head");
  }
  SUBCASE("a head that is no chain") {
    last.inputs[0].slot = plan.stream_before_head;
    check_broken(plan, "from the head on the plan is a chain");
  }
}

TEST_CASE("plan: both spellings name the same value") {
  const Plan plan = toy_plan();
  for (const char* name : {"logits", "layers.0.self_attn.attention_output", "layers.1.self_attn.q_proj.input",
                           "embed_tokens.output", "layers.0.input", "layers.0.self_attn.inputs.mask"}) {
    CAPTURE(name);
    CHECK(plan.find_row(name) == plan.find_row("model." + std::string(name)));
    CHECK(plan.row(plan.find_row(name)).name == name);
  }
  CHECK(plan.find_row("lm_head.output") != plan.find_row("logits"));
  CHECK(plan.find_row("layers.0.self_attn.input") == plan.find_row("layers.0.self_attn.inputs.hidden_states"));
  CHECK(plan.find_row("layers.0.input") == plan.find_row("layers.0.inputs.0"));
  CHECK(plan.find_module("layers.1.self_attn.q_proj") == plan.find_module("model.layers.1.self_attn.q_proj"));
  CHECK(plan.find_module("") == 0);
  CHECK(plan.module(plan.find_module("layers")).path == "model.layers");
}

TEST_CASE("plan: a name that is not there gets the nearest, an absent one its reason") {
  const Plan plan = toy_plan();
  CHECK_REFUSED(UnknownName, plan.find_row("logit"), "value 'logit'", "did you mean", "'logits'");
  CHECK_REFUSED(UnknownName, plan.find_row("layers.1.self_attn.attention_outptu"),
                "'layers.1.self_attn.attention_output'");
  CHECK_REFUSED(UnknownName, plan.find_row("model.layers.1.layer_outputs"), "'model.layers.1.layer_output'");
  CHECK_REFUSED(UnknownName, plan.find_row("qwertyuiop[]"), "there is no value 'qwertyuiop[]'.", "support()");
  CHECK_REFUSED(UnknownName, plan.find_row(""), "''");
  CHECK_REFUSED(UnknownName, plan.find_module("layers.0.self_atn"), "module 'layers.0.self_atn'",
                "'layers.0.self_attn'");
  for (const char* name : {"layers.1.mlp.mlp_output", "model.layers.1.mlp.mlp_output", "layers.0.mlp_input"})
    CHECK_REFUSED(Absent, plan.find_row(name), name, kNoMlp);
}

TEST_CASE("plan: a block that is not there is said to be so") {
  const Plan plan = toy_plan();
  for (const char* name :
       {"layers.2.layer_output", "model.layers.99.self_attn.q_proj.input", "layers.2", "layers.007.x"}) {
    CAPTURE(name);
    CHECK_REFUSED(UnknownName, plan.find_row(name), name, "2 blocks, 0 to 1");
    CHECK_REFUSED(UnknownName, plan.find_module(name), name, "2 blocks, 0 to 1");
  }
  for (const char* name : {"layers.-1.layer_output", "layers.0x.layer_output", "layers..layer_output", "layers.",
                           "layers.99999999999999999999.layer_output"}) {
    CAPTURE(name);
    CHECK_REFUSED(UnknownName, plan.find_row(name), name, "there is no value");
  }
}

TEST_CASE("builder: modules in the order of printing, ports, weights") {
  const Plan plan = toy_plan();
  auto names = [&](const char* path) {
    std::vector<std::string> out;
    for (ModuleId child : plan.module(plan.find_module(path)).children) out.push_back(plan.module(child).name);
    return out;
  };
  CHECK(names("model") == std::vector<std::string>{"norm", "layers", "embed_tokens"});
  CHECK(names("layers.0.self_attn") == std::vector<std::string>{"o_proj", "q_proj", "k_proj", "v_proj"});

  const Module& attention = plan.module(plan.find_module("layers.1.self_attn"));
  CHECK(attention.attributes["layer_idx"] == 1);
  REQUIRE(attention.arguments.size() == 3);
  CHECK(attention.arguments[1].keyword == "rotary");
  CHECK(attention.arguments[1].part.is_tuple);
  CHECK(plan.row(attention.arguments[1].part.members[1].row).name == "layers.1.self_attn.inputs.rotary.1");
  REQUIRE(attention.result);
  CHECK(attention.result->members.size() == 2);
  const Module& whole = plan.module(plan.find_module("model"));
  CHECK(whole.result->names == std::vector<std::string>{"last_hidden_state"});
  CHECK(plan.find_row("model.output.last_hidden_state") == whole.result->members[0].row);

  std::vector<std::string> weights;
  for (const WeightSlot& weight : plan.weights) weights.push_back(weight.name);
  CHECK(weights ==
        std::vector<std::string>{"model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
                                 "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.q_proj.bias",
                                 "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight",
                                 "model.layers.0.self_attn.o_proj.weight", "model.layers.1.input_layernorm.weight",
                                 "model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.bias",
                                 "model.layers.1.self_attn.k_proj.weight", "model.layers.1.self_attn.v_proj.weight",
                                 "model.layers.1.self_attn.o_proj.weight", "lm_head.weight"});
  CHECK(plan.weights[1].gguf == "blk.norm.weight");
  CHECK(plan.weights[1].gguf_adds_one);
  CHECK(!plan.weights[2].gguf_adds_one);
  CHECK(plan.weights[3].shape == std::vector<int64_t>{24});
  CHECK(plan.weights.back().tied_to == 0);
  CHECK(plan.weights.back().gguf.empty());
}

TEST_CASE("builder: rows say what they are and where they are read") {
  const Plan plan = toy_plan();
  const Row& output = plan.row(plan.find_row("layers.1.self_attn.attention_output"));
  CHECK(output.spec == &values::attention_output);
  CHECK(output.layer == 1);
  CHECK(output.meaning == std::string(values::attention_output.meaning) + ": the output projection's");
  CHECK(output.read_at == "the output of layers.1.self_attn.o_proj");
  CHECK(output.sizes == std::vector<int64_t>{-1, -1, 10});
  CHECK(plan.row(plan.find_row("layers.0.layer_mid")).read_at == "after the residual add");
  CHECK(plan.row(plan.find_row("input_ids")).read_at == "the run's input");
  CHECK(plan.row(plan.find_row("layers.0.self_attn.attention_queries")).sizes == std::vector<int64_t>{-1, 6, -1, 4});
  CHECK(plan.row(plan.find_row("layers.0.self_attn.attention_keys")).sizes == std::vector<int64_t>{-1, 3, -1, 4});
  CHECK(plan.row(plan.find_row("logits")).sizes == std::vector<int64_t>{-1, -1, 30});
}

TEST_CASE("builder: a family's slips are found when its plan is made") {
  auto builder = [] {
    return std::make_unique<PlanBuilder>("toy", "Toy", Config(), std::vector<std::pair<std::string, std::string>>{});
  };
  SUBCASE("one name twice") {
    auto b = builder();
    b->value(values::input_ids, {b->input_ids(), {}});
    CHECK_REFUSED(InternalError, b->value(values::input_ids, {b->input_ids(), {}}), "named once", "input_ids");
  }
  SUBCASE("a module that is still open") {
    auto b = builder();
    auto scope = b->module("model", "ToyModel");
    CHECK_REFUSED(InternalError, b->finish(), "every module is closed");
  }
  SUBCASE("a head tied to nothing") {
    auto b = builder();
    CHECK_THROWS_AS(b->tied_linear("lm_head", {b->input_ids(), {}}, 2, 3, "embed.weight"), InternalError);
  }
  SUBCASE("no logits") {
    auto b = builder();
    CHECK_THROWS_AS(b->finish(), UnknownName);
  }
}

TEST_CASE("attention is one operation, and its softcap goes along") {
  PlanBuilder b("toy", "Toy", Config(), {});
  b.plan().sizes = {10, 6, 3, 4, 4, 7, 30};
  b.begin_layer(0, b.plan().sizes, "full_attention");
  auto [q, k] = b.step2(op::Extend{0, std::nullopt}, {{b.input_ids(), {}}, {b.input_ids(), {}}});
  b.attention({q, {}}, k, k, b.attention_mask(), 1.0, 50.0, {});
  REQUIRE(b.plan().fusions.size() == 1);
  CHECK(std::get<op::FusedAttention>(b.plan().fusions[0].op).softcap == 50.0);
}

TEST_CASE("catalogue: every value once, in its host, with axes and a meaning") {
  std::set<std::string_view> names, of_tower;
  for (const ValueSpec* spec : catalogue()) {
    CAPTURE(spec->name);
    CHECK((is_vision(spec->host) ? of_tower : names).insert(spec->name).second);
    CHECK(!spec->meaning.empty());
    CHECK(spec->meaning.back() != '.');  // families end the sentence
    CHECK(!spec->layout.empty());
    CHECK(spec->axes.empty() == (spec->layout == "scalar"));
    if (!spec->axes.empty() && !is_vision(spec->host)) CHECK(spec->axes[0] == Axis::batch);
  }
  CHECK(names.size() == 32);
  CHECK(of_tower.size() == 21);
  CHECK(values::next_token_probs.read_only);
  CHECK(values::input_size.read_only);
  CHECK(!values::logits.read_only);
  CHECK(values::input_ids.integer);
}

namespace {
template <size_t... index>
std::vector<Op> every_op(std::index_sequence<index...>) {
  return {Op(std::in_place_index<index>)...};
}
}  // namespace

TEST_CASE("every op has words") {
  const std::vector<Op> all = every_op(std::make_index_sequence<std::variant_size_v<Op>>());
  std::set<std::string> names;
  for (const Op& op : all) CHECK(names.insert(op_name(op)).second);
}
