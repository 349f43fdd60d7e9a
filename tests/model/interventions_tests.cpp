#include "gemloupe/base/errors.h"
#include "gemloupe/interventions.h"
#include "run/tiny_model.h"

using namespace run_tests;
using namespace gemloupe::interventions;

namespace {

/// A model of every text family, and of Gemma 3 first.
std::vector<Model> models(const std::string& implementation = "eager") {
  std::vector<Model> found;
  for (const json& config : tiny_families()) {
    const TempFolder folder;
    write_checkpoint(folder, config, random_weights(*tiny_plan(config)));
    LoadOptions options;
    options.attn_implementation = implementation;
    found.push_back(Model::load(folder.path().string(), options));
  }
  return found;
}

const Model& gemma3() {
  static const Model model = models().front();
  return model;
}

const Prompt& clean() {
  static const Prompt some = prompt({some_ids(6)});
  return some;
}
const Prompt& corrupted() {
  static const Prompt some = prompt({some_ids(6, 4)});
  return some;
}

at::Tensor margin(const at::Tensor& logits) {
  return (logits.select(1, 7) - logits.select(1, 12)).mean();
}

double metric_of(Trace& trace) {
  return margin(trace.last_logits()).item<double>();
}

}  // namespace

TEST_CASE("interventions: the terms of a logit sum to it, in every family") {
  for (const Model& model : models()) {
    CAPTURE(model.plan().family);
    const Prompt batch = prompt({some_ids(6), some_ids(4, 3)});
    const LogitAttribution terms = direct_logit_attribution(model, batch, {7, 12, 30});
    Trace trace = model.trace(batch);
    const at::Tensor logits = trace.read("lm_head_output").select(1, -1);
    const at::Tensor wanted = logits.index_select(1, at::tensor({7, 12, 30}, at::kLong));
    CHECK(distance(terms.total(), wanted.to(at::kDouble)) < 1e-4);
    CHECK(terms.heads.size(1) == model.plan().num_layers());
  }
  CHECK_THROWS_AS(direct_logit_attribution(gemma3(), clean(), {}), BadOption);
  CHECK_THROWS_AS(direct_logit_attribution(gemma3(), clean(), {61}), BadOption);
}

TEST_CASE("interventions: a patched cell is the run with that edit, whatever the batch") {
  for (const Model& model : models()) {
    CAPTURE(model.plan().family);
    for (const std::string value : {"layer_output", "self_attn.attention_keys"}) {
      for (int64_t batch_size : {1, 4, 32}) {
        const Patching grid =
            activation_patching(model, clean(), corrupted(), margin, value, {{0, -1}, {1, 5}, batch_size});
        Trace source = model.trace(clean()), plain = model.trace(corrupted());
        const std::string name = "layers.0." + value;
        const at::Tensor there = source.snapshot(source.read(name));
        CHECK(grid.clean == doctest::Approx(metric_of(source)).epsilon(1e-5));
        CHECK(grid.corrupted == doctest::Approx(metric_of(plain)).epsilon(1e-5));
        Trace patched = model.trace(corrupted());
        const int64_t axis = value == "layer_output" ? 1 : 2;
        patched.read(name).select(axis, 5).copy_(there.select(axis, 5));
        CHECK(grid.patched[0][1].item<double>() == doctest::Approx(metric_of(patched)).epsilon(1e-4));
      }
    }
  }
  CHECK_THROWS_AS(activation_patching(gemma3(), clean(), prompt({some_ids(5)}), margin), BadPrompt);
  CHECK_THROWS_AS(activation_patching(gemma3(), clean(), corrupted(), margin, "layer_output", {{9}, {}}), BadOption);
  CHECK_THROWS_AS(activation_patching(gemma3(), clean(), corrupted(), margin, "layer_output", {{}, {}, 0}), BadOption);
}

TEST_CASE("interventions: an ablated head is the run without it") {
  for (const Model& model : models()) {
    const HeadAblation found = head_ablation(model, clean(), margin, {{1}, {}});
    Trace trace = model.trace(clean());
    trace.read("layers.1.self_attn.attention_premix").select(2, 3).zero_();
    CHECK(found.ablated[1][3].item<double>() == doctest::Approx(metric_of(trace)).epsilon(1e-4));
    CHECK(found.ablated[0].isnan().all().item<bool>());
    CHECK(found.effect()[1][3].item<double>() == doctest::Approx(found.ablated[1][3].item<double>() - found.clean));
  }
}

TEST_CASE("interventions: an estimate is the patch where little changes") {
  for (const Model& model : models()) {
    if (model.plan().family == "gemma4_text" && model.plan().sizes.num_experts) continue;  // routing jumps
    CAPTURE(model.plan().family);
    const Patching same = attribution_patching(model, clean(), clean(), margin);
    CHECK(distance(same.patched, at::full_like(same.patched, same.corrupted)) == 0);
    // Towards the clean stream by a hundredth: the slope times a hundredth.
    const Patching slope = attribution_patching(model, clean(), corrupted(), margin, "layer_output", {{1}, {2}});
    Trace source = model.trace(clean()), trace = model.trace(corrupted());
    const at::Tensor there = source.snapshot(source.read("layers.1.layer_output"));
    at::Tensor live = trace.read("layers.1.layer_output").select(1, 2);
    live.lerp_(there.select(1, 2), 0.01);
    const double moved = metric_of(trace) - slope.corrupted;
    CHECK(moved == doctest::Approx(0.01 * (slope.patched[0][0].item<double>() - slope.corrupted)).epsilon(0.1));
  }
}

TEST_CASE("interventions: integrated gradients sum to the metric's difference") {
  const Model& model = gemma3();
  Trace other = model.trace(corrupted()), own = model.trace(clean());
  const at::Tensor baseline = other.read("token_embeddings").clone();
  const at::Tensor found = integrated_gradients(model, clean(), margin, baseline, 64);
  CHECK(found.sizes() == at::IntArrayRef({1, 6, 32}));
  CHECK(found.sum().item<double>() == doctest::Approx(metric_of(own) - metric_of(other)).epsilon(0.02));
  CHECK_THROWS_AS(integrated_gradients(model, clean(), margin, baseline, 0), BadOption);
}

TEST_CASE("interventions: lenses and activations at one token, on whichever side the padding is") {
  const Model& model = gemma3();
  const Prompt left = prompt({some_ids(6), some_ids(3, 2)});
  const Prompt right{left.ids.clone(), left.attention_mask->clone(), std::nullopt};
  right.ids[1].copy_(left.ids[1].roll(3, 0));
  right.attention_mask.value()[1].copy_(left.attention_mask.value()[1].roll(3, 0));
  const at::Tensor alone = token_activations(model, prompt({some_ids(3, 2)}), {2, 0}, 1);
  for (const Prompt& batch : {left, right}) {
    const at::Tensor found = token_activations(model, batch, {2, 0}, 1);
    CHECK(distance(found.select(1, 1), alone.select(1, 0)) < 1e-4);
  }
  CHECK_THROWS_AS(token_activations(model, left, {}, 3), BadOption);

  const at::Tensor lens = logit_lens(model, clean());
  Trace trace = model.trace(clean());
  CHECK(distance(lens.select(1, -1), trace.read("next_token_probs")) < 1e-5);

  const at::Tensor said = patchscope_lens(model, clean(), corrupted(), 2, {1});
  Trace source = model.trace(clean()), target = model.trace(corrupted());
  const at::Tensor stream = source.snapshot(source.read("layers.1.layer_output").select(1, -1));
  target.read("layers.1.layer_output").select(1, 2).copy_(stream);
  CHECK(distance(said.select(1, 0), target.read("next_token_probs")) < 1e-5);
  CHECK_THROWS_AS(patchscope_lens(model, left, corrupted()), BadOption);
}

TEST_CASE("interventions: steering adds to a stream") {
  const Model& model = gemma3();
  const at::Tensor vector = at::arange(32, at::kFloat) / 10;
  Trace trace = model.trace(clean()), plain = model.trace(clean());
  steer(trace, -2, vector, 3, -1);
  const at::Tensor moved = trace.read("layers.1.layer_output") - plain.read("layers.1.layer_output");
  CHECK(distance(moved.select(1, -1)[0], 3 * vector) < 1e-4);
  CHECK(moved.select(1, 0).eq(0).all().item<bool>());
  CHECK_THROWS_AS(steer(trace, 2, at::ones({3})), BadValue);
}

TEST_CASE("model: standing edits are in every run of that model, and in no other") {
  const Model& model = gemma3();
  const RowId row = model.plan().find_row("layers.1.mlp.mlp_output");
  const Model edited = model.with_edits({{row, [](at::Tensor live) { return live * 0.5; }, "halved"}});
  CHECK(edited.edits().size() == 1);
  CHECK(model.edits().empty());
  Trace by_hand = model.trace(clean()), standing = edited.trace(clean()), plain = model.trace(clean());
  by_hand.edit("layers.1.mlp.mlp_output", [](at::Tensor value) { return value * 0.5; });
  const at::Tensor expected = by_hand.read("logits");
  CHECK(same_bits(standing.read("logits"), expected));
  CHECK(!same_bits(plain.read("logits"), expected));
  Trace first = edited.trace(clean());
  const auto point = first.point(model.plan().find_row("layers.0.layer_output"));
  CHECK(same_bits(edited.trace(*point).read("logits"), expected));
  CHECK_THROWS_AS(model.trace(*point), BadOption);
  Trace scan = model.scan(clean());
  CHECK_THROWS_AS(model.trace(*scan.point(row)), BadOption);
  GenerateOptions options;
  options.max_new_tokens = 3;
  options.end_tokens.emplace();
  const at::Tensor ids = edited.generate(clean(), options);
  Generation passes = model.generation(clean(), options);
  while (!passes.finished()) {
    Trace pass = passes.pass();
    pass.edit("layers.1.mlp.mlp_output", [](at::Tensor value) { return value * 0.5; });
    passes.finish(pass);
  }
  // Of keys, too, it is made once a pass, of what they are without it.
  const RowId keys = model.plan().find_row("layers.1.self_attn.attention_keys");
  const Model doubled = model.with_edits({{keys, [](at::Tensor live) { return live.mul_(2); }, "doubled"}});
  at::Tensor grown = clean().ids;
  for (int64_t i = 0; i < 3; ++i) {
    const at::Tensor next = doubled.trace(Prompt{grown, {}, {}}).last_logits().argmax(-1, true);
    grown = at::cat({grown, next}, 1);
  }
  CHECK(at::equal(doubled.generate(clean(), options), grown));
  Trace ending = model.trace(clean());
  ending.when(keys, [&](at::Tensor) { return ending.finish(), at::Tensor(); });
  CHECK_THROWS_AS(ending.read("logits"), OutsideTrace);
  CHECK(at::equal(ids, passes.ids()));
  CHECK(passes.pass().finished());
}

TEST_CASE("model: a scan has a run's shapes and no numbers") {
  std::vector<Model> all = models();
  for (Model& model : models("sdpa")) all.push_back(std::move(model));
  for (const Model& model : all) {
    CAPTURE(model.plan().family);
    Trace through = model.scan(prompt({some_ids(6), some_ids(3)}));  // with a mask, and no step of attention looked at
    CHECK(through.read("logits").sizes() == at::IntArrayRef({2, 6, 61}));
    CHECK(model.scan(clean()).read("logits").sizes() == at::IntArrayRef({1, 6, 61}));
    Trace scan = model.scan(clean()), trace = model.trace(clean());
    for (RowId id : rows_in_order(model.plan())) {
      CAPTURE(model.plan().row(id).name);
      const at::Tensor shape = scan.read(id), value = trace.read(id);
      REQUIRE(shape.defined() == value.defined());
      if (!value.defined()) continue;
      CHECK(shape.sizes() == value.sizes());
      CHECK((shape.scalar_type() == value.scalar_type()));
      CHECK((shape.is_meta() || model.plan().row(id).spec == &values::input_size));
    }
  }
}
