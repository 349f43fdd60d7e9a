#include "gemloupe/base/errors.h"
#include "gemloupe/base/interrupt.h"
#include "gemloupe/run/cursor.h"
#include "run/tiny_model.h"

using namespace run_tests;

namespace {

const Prompt& some_prompt() {
  static const Prompt some = prompt({some_ids(7), some_ids(7, 5)});
  return some;
}

Cursor cursor_of(const TinyModel& model, bool eager = false, const Prompt& given = some_prompt()) {
  return Cursor(model.plan, model.weights, model.inputs(given), eager);
}

at::Tensor value(const Cursor& cursor, const TinyModel& model, const std::string& name) {
  return cursor.get(model.plan->row(model.plan->find_row(name)).value);
}

at::Tensor run_to(const TinyModel& model, const std::string& name, bool eager = false) {
  Cursor cursor = cursor_of(model, eager);
  cursor.advance(position_of(*model.plan, name));
  return value(cursor, model, name);
}

/// The most values that are alive at once, on the way to the end.
int most_alive(const TinyModel& model, bool eager) {
  Cursor cursor = cursor_of(model, eager);
  int most = 0;
  for (Position at = 0; at <= static_cast<Position>(model.plan->steps.size()); ++at) {
    cursor.advance(at);
    int alive = 0;
    for (Slot slot = 0; slot < model.plan->slots; ++slot) alive += cursor.slot(slot).defined();
    most = std::max(most, alive);
  }
  return most;
}

}  // namespace

TEST_CASE("cursor: it runs up to a position and no further") {
  const TinyModel model = tiny_model();
  Cursor cursor = cursor_of(model);
  CHECK(cursor.position() == 0);
  const Position mid = position_of(*model.plan, "layers.1.layer_mid");
  cursor.advance(mid);
  CHECK(cursor.position() == mid);
  CHECK(value(cursor, model, "layers.1.layer_mid").defined());
  CHECK(!value(cursor, model, "layers.1.layer_output").defined());
  CHECK(!value(cursor, model, "layers.0.layer_mid").defined());
  cursor.advance(mid);
  CHECK(cursor.position() == mid);
  CHECK_THROWS_AS(cursor.advance(mid - 1), InternalError);
  CHECK_THROWS_AS(cursor.advance(static_cast<Position>(model.plan->steps.size()) + 1), InternalError);
}

TEST_CASE("cursor: how far it runs at a time changes no bit under eager") {
  for (const json& config : tiny_families()) {
    const TinyModel model = tiny_model(config);
    CAPTURE(model.plan->family);
    const at::Tensor at_once = run_to(model, "logits", true);
    Cursor cursor = cursor_of(model, true);
    for (Position at = 0; at <= position_of(*model.plan, "logits"); ++at) cursor.advance(at);
    CHECK(same_bits(value(cursor, model, "logits"), at_once));
  }
}

TEST_CASE("cursor: fused or step by step, the same values") {
  std::vector<json> configs = tiny_families();
  configs.push_back(tiny_config({{"use_bidirectional_attention", true}}));
  configs.push_back(tiny_config({{"sliding_window", nullptr}}));
  configs.push_back(tiny_config({{"num_key_value_heads", 1}, {"attention_bias", true}}));
  for (const json& config : configs) {
    const TinyModel model = tiny_model(config);
    for (const Prompt& given : {some_prompt(), prompt({some_ids(9), some_ids(3)}), prompt({{5}})}) {
      Cursor fused = cursor_of(model, false, given), stepwise = cursor_of(model, false, given),
             eager = cursor_of(model, true, given);
      const Position end = position_of(*model.plan, "logits");
      fused.advance(end);
      for (Position at = 0; at <= end; ++at) stepwise.advance(at);
      eager.advance(end);
      const at::Tensor real = model.inputs(given).mask.to(at::kFloat).unsqueeze(-1);
      const at::Tensor expected = value(eager, model, "logits") * real;
      CHECK(distance(value(fused, model, "logits") * real, expected) < 1e-4);
      CHECK(distance(value(stepwise, model, "logits") * real, expected) < 1e-4);
      CHECK(value(fused, model, "logits").isfinite().all().item<bool>());
    }
  }
}

TEST_CASE("cursor: a fused block leaves the pattern out, one that is looked into does not") {
  const TinyModel model = tiny_model();
  const Slot pattern = slot_of(*model.plan, "layers.1.self_attn.attention_probabilities");
  const Position after = position_of(*model.plan, "layers.1.self_attn.output.1");
  Cursor fused = cursor_of(model);
  fused.advance(after);
  CHECK(!fused.slot(pattern).defined());
  Cursor looked = cursor_of(model);
  looked.advance(position_of(*model.plan, "layers.1.self_attn.attention_scores"));
  looked.advance(after);
  REQUIRE(looked.slot(pattern).defined());
  CHECK(distance(looked.slot(pattern).sum(-1), at::ones({2, 4, 7})) < 1e-5);
  Cursor eager = cursor_of(model, true);
  eager.advance(after);
  CHECK(distance(eager.slot(pattern), looked.slot(pattern)) < 1e-5);
}

TEST_CASE("cursor: few values are alive at once, however many blocks there are") {
  const TinyModel small = tiny_model(), large = tiny_model(tiny_config({{"num_hidden_layers", 12}}));
  for (bool eager : {false, true}) {
    CHECK(most_alive(small, eager) == most_alive(large, eager));
    CHECK(most_alive(small, eager) <= 20);
  }
  Cursor cursor = cursor_of(large);
  cursor.advance(static_cast<Position>(large.plan->steps.size()));
  int alive = 0;
  for (Slot slot = 0; slot < large.plan->slots; ++slot) alive += cursor.slot(slot).defined();
  CHECK(alive == 1);
}

TEST_CASE("cursor: a replaced value reaches what is still to run") {
  const TinyModel model = tiny_model();
  for (const char* name : {"layers.1.layer_input", "layers.1.self_attn.attention_queries",
                           "layers.0.self_attn.attention_scores", "layers.2.mlp.mlp_output"}) {
    CAPTURE(name);
    const Row& row = model.plan->row(model.plan->find_row(name));
    Cursor replaced = cursor_of(model), in_place = cursor_of(model), plain = cursor_of(model);
    for (Cursor* cursor : {&replaced, &in_place, &plain}) cursor->advance(row.position);
    replaced.set(row.value, plain.get(row.value) * 0.5);
    in_place.get(row.value).mul_(0.5);
    const Position end = position_of(*model.plan, "logits");
    for (Cursor* cursor : {&replaced, &in_place, &plain}) cursor->advance(end);
    CHECK(same_bits(value(replaced, model, "logits"), value(in_place, model, "logits")));
    CHECK(distance(value(replaced, model, "logits"), value(plain, model, "logits")) > 1e-4);
  }
}

TEST_CASE("cursor: a replaced input reaches that operand only, until its step has run") {
  const TinyModel model = tiny_model();
  const Row& port = model.plan->row(model.plan->find_row("layers.1.self_attn.k_proj.input"));
  auto [step, index] = port.consumers.at(0);
  Cursor cursor = cursor_of(model);
  cursor.advance(port.position);
  const at::Tensor before = cursor.get_input(step, index, {});
  CHECK(same_bits(before, cursor.get(port.value)));
  cursor.set_input(step, index, {}, at::zeros_like(before));
  CHECK(cursor.get_input(step, index, {}).eq(0).all().item<bool>());
  CHECK(same_bits(cursor.get(port.value), before));
  cursor.advance(step + 1);
  CHECK(value(cursor, model, "layers.1.self_attn.k_proj.output").eq(0).all().item<bool>());
  CHECK(same_bits(cursor.get_input(step, index, {}), before));  // dropped after its use
  cursor.advance(position_of(*model.plan, "layers.1.self_attn.v_proj.output"));
  CHECK(value(cursor, model, "layers.1.self_attn.v_proj.output").ne(0).any().item<bool>());
}

TEST_CASE("cursor: a replaced value undoes an input that was replaced on its own") {
  const TinyModel model = tiny_model();
  const Row& port = model.plan->row(model.plan->find_row("layers.1.self_attn.q_proj.input"));
  auto [step, index] = port.consumers.at(0);
  Cursor cursor = cursor_of(model);
  cursor.advance(port.position);
  cursor.set_input(step, index, {}, at::zeros_like(cursor.get(port.value)));
  cursor.set(port.value, at::ones_like(cursor.get(port.value)));
  CHECK(cursor.get_input(step, index, {}).eq(1).all().item<bool>());
}

TEST_CASE("cursor: an input of fused attention that is replaced on its own counts") {
  const TinyModel model = tiny_model();
  const Position scores = position_of(*model.plan, "layers.0.self_attn.attention_queries");
  Cursor cursor = cursor_of(model);
  cursor.advance(scores);
  cursor.set_input(scores, 0, {}, at::zeros_like(cursor.get_input(scores, 0, {})));
  cursor.advance(position_of(*model.plan, "layers.0.self_attn.output.1"));
  const at::Tensor pattern = cursor.slot(slot_of(*model.plan, "layers.0.self_attn.attention_probabilities"));
  REQUIRE(pattern.defined());
  CHECK(distance(pattern.select(2, 1).narrow(-1, 0, 2), at::full({2, 4, 2}, 0.5)) < 1e-6);  // no score, no preference
}

TEST_CASE("cursor: views look at the slot, and what is set through one lies in the slot's form") {
  const TinyModel model = tiny_model();
  Cursor cursor = cursor_of(model);
  const Row& heads = model.plan->row(model.plan->find_row("layers.0.self_attn.q_proj.output"));
  cursor.advance(heads.position);
  CHECK(cursor.get(heads.value).sizes() == at::IntArrayRef({2, 7, 24}));
  const Operand first{heads.value.slot, {View::Kind::HeadsFirst, 6}}, each{heads.value.slot, {View::Kind::Heads, 6}};
  CHECK(cursor.get(first).sizes() == at::IntArrayRef({2, 4, 7, 6}));
  CHECK(same_bits(cursor.get(first).transpose(1, 2), cursor.get(each)));
  const at::Tensor other = at::randn({2, 4, 7, 6});
  cursor.set(first, other);
  CHECK(same_bits(cursor.get(first), other));
  CHECK(cursor.slot(heads.value.slot).sizes() == at::IntArrayRef({2, 7, 24}));
  cursor.get(each)[1][3][2].fill_(9);
  CHECK(other[1][2][3].eq(9).all().item<bool>() == cursor.slot(heads.value.slot).is_alias_of(other));
  CHECK(cursor.get(first)[1][2][3].eq(9).all().item<bool>());
  for (View::Kind kind : {View::Kind::Same, View::Kind::Heads, View::Kind::HeadsFirst}) {
    const at::Tensor flat = at::randn({2, 3, 12});
    CHECK(same_bits(look_back(look(flat, {kind, 4}), {kind, 4}, 2), flat));
  }
  const at::Tensor split = at::randn({2, 3, 5, 4});
  CHECK(look(split, {View::Kind::Flat, 4}).sizes() == at::IntArrayRef({2, 3, 20}));
  CHECK(same_bits(look_back(look(split, {View::Kind::Flat, 4}), {View::Kind::Flat, 4}, 2), split));
  CHECK(!look(at::Tensor(), {View::Kind::Heads, 4}).defined());
}

TEST_CASE("cursor: a chain of steps applied to something else moves nothing") {
  const TinyModel model = tiny_model();
  const Plan& plan = *model.plan;
  Cursor cursor = cursor_of(model, true);
  cursor.advance(plan.head);
  const at::Tensor stream = cursor.slot(plan.stream_before_head);
  const Position end = plan.row(plan.logits).position;
  const at::Tensor applied = cursor.apply(plan.head, end, plan.stream_before_head, stream);
  CHECK(cursor.position() == plan.head);
  cursor.advance(end);
  CHECK(same_bits(value(cursor, model, "logits"), applied));
  CHECK(same_bits(cursor.apply(plan.head, plan.head, plan.stream_before_head, stream), stream));
  CHECK_THROWS_AS(cursor.apply(1, 2, plan.attention_mask, stream), InternalError);  // the mask reads more
}

TEST_CASE("cursor: Ctrl-C between two steps, and the run can go on") {
  const TinyModel model = tiny_model();
  Cursor cursor = cursor_of(model);
  cursor.advance(5);
  request_interrupt();
  CHECK_THROWS_AS(cursor.advance(position_of(*model.plan, "logits")), Interrupted);
  CHECK(cursor.position() == 5);
  cursor.advance(position_of(*model.plan, "logits"));
  CHECK(same_bits(value(cursor, model, "logits"), run_to(model, "logits")));
}

TEST_CASE("cursor: a graph is kept if something asks for one, and only then") {
  const TinyModel model = tiny_model();
  CHECK(!run_to(model, "logits").requires_grad());
  Cursor cursor = cursor_of(model);
  cursor.advance(position_of(*model.plan, "layers.0.layer_input"));
  value(cursor, model, "layers.0.layer_input").requires_grad_(true);
  const at::Tensor leaf = value(cursor, model, "layers.0.layer_input");
  cursor.advance(position_of(*model.plan, "layers.1.layer_output"));
  const at::Tensor out = value(cursor, model, "layers.1.layer_output");
  REQUIRE(out.requires_grad());
  out.sum().backward();
  REQUIRE(leaf.grad().defined());
  CHECK(leaf.grad().isfinite().all().item<bool>());
  CHECK(leaf.grad().abs().max().item<double>() > 0);
}

namespace {

/// The logits of a run that is cut into passes over one cache.
at::Tensor in_passes(const TinyModel& model, const Prompt& whole, const std::vector<int64_t>& counts, bool eager) {
  const PassInputs all = model.inputs(whole);
  KvCache cache(model.plan->num_layers());
  std::vector<at::Tensor> logits;
  int64_t seen = 0;
  for (int64_t count : counts) {
    const PassInputs pass{all.ids.narrow(1, seen, count), all.mask.narrow(1, 0, seen + count),
                          all.positions.narrow(1, seen, count)};
    Cursor cursor(model.plan, model.weights, pass, eager, &cache);
    cursor.advance(position_of(*model.plan, "logits"));
    logits.push_back(value(cursor, model, "logits"));
    cursor.end_pass();
    seen += count;
  }
  return at::cat(logits, 1);
}

}  // namespace

TEST_CASE("cursor: a run cut into passes over a cache is the same run") {
  for (const json& config : tiny_families()) {
    const TinyModel model = tiny_model(config);
    CAPTURE(model.plan->family);
    for (const Prompt& whole : {prompt({some_ids(13)}), prompt({some_ids(13), some_ids(6)})}) {
      const at::Tensor real = model.inputs(whole).mask.to(at::kFloat).unsqueeze(-1);
      for (bool eager : {false, true}) {
        const at::Tensor expected = model.logits(whole, eager) * real;
        for (const std::vector<int64_t>& counts :
             {std::vector<int64_t>{13}, {12, 1}, {1, 12}, {5, 4, 4}, {3, 1, 1, 1, 7}, std::vector<int64_t>(13, 1)}) {
          if (whole.ids.size(0) > 1 && counts[0] < 8) continue;  // a pass of nothing but padding means nothing
          CHECK(distance(in_passes(model, whole, counts, eager) * real, expected) < 1e-4);
        }
      }
    }
  }
}
