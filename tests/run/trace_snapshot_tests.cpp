// What was saved of a run stays as it was, whatever is edited later, and saving is no edit.
#include "gemloupe/base/errors.h"
#include "run/tiny_model.h"

using namespace run_tests;

namespace {

const Prompt& some_prompt() {
  static const Prompt some = prompt({some_ids(5)});
  return some;
}

bool is_part_of_the_run(const at::Tensor& tensor) {
  return tensor.defined() && at::isFloatingType(tensor.scalar_type());
}

}  // namespace

TEST_CASE("snapshots: later edits in place of every value and port do not reach them, but do reach the run") {
  for (const json& config : tiny_families()) {
    const TinyModel model = tiny_model(config);
    CAPTURE(model.plan->family);
    for (bool eager : {false, true}) {
      Trace saved = model.trace(some_prompt(), eager), unsaved = model.trace(some_prompt(), eager);
      std::vector<std::pair<at::Tensor, at::Tensor>> snapshots;  // and what they were
      for (RowId id : rows_in_order(*model.plan)) {
        const Row& row = model.plan->row(id);
        CAPTURE(row.name);
        if (row.spec && row.spec->read_only) continue;
        if (!is_part_of_the_run(unsaved.read(id))) continue;
        snapshots.emplace_back(saved.snapshot(saved.read(id)), at::Tensor());
        snapshots.back().second = snapshots.back().first.clone();
        saved.read(id).mul_(1.01);
        unsaved.read(id).mul_(1.01);
      }
      CHECK(same_bits(saved.read("logits"), unsaved.read("logits")));
      for (const auto& [snapshot, then] : snapshots) CHECK(same_bits(snapshot, then));
    }
  }
}

TEST_CASE("snapshots: later assignments do not reach them") {
  const TinyModel model = tiny_model();
  Trace trace = model.trace(some_prompt());
  const at::Tensor snapshot = trace.snapshot(trace.read("layers.1.layer_output")), then = snapshot.clone();
  trace.write("layers.1.layer_output", at::zeros({1, 5, 32}));
  trace.read("layers.1.layer_output").fill_(5);
  CHECK(same_bits(snapshot, then));
}

TEST_CASE("snapshots: of a temporary no copy is made while nobody writes") {
  const TinyModel model = tiny_model();
  Trace trace = model.trace(some_prompt());
  const void* live = trace.read("layers.1.layer_output").data_ptr();
  const at::Tensor snapshot = trace.snapshot(trace.read("layers.1.layer_output"));
  CHECK(snapshot.data_ptr() == live);
  CHECK(trace.read("layers.1.layer_output").data_ptr() != live);  // from now on the run has its own
  CHECK(same_bits(trace.read("layers.1.layer_output"), snapshot));
}

TEST_CASE("snapshots: of a tensor that the caller keeps, and writes, a copy is made") {
  const TinyModel model = tiny_model();
  Trace trace = model.trace(some_prompt());
  const at::Tensor kept = trace.read("layers.1.layer_output"), then = kept.clone();
  const at::Tensor snapshot = trace.snapshot(kept);
  kept.mul_(2);
  CHECK(same_bits(snapshot, then));
  CHECK(same_bits(trace.read("layers.2.layer_input"), then * 2));
}

TEST_CASE("snapshots: a part is copied, so that it does not keep the whole alive") {
  const TinyModel model = tiny_model();
  Trace trace = model.trace(some_prompt());
  const at::Tensor part = trace.snapshot(trace.read("layers.1.layer_output").select(1, -1));
  CHECK(part.storage().nbytes() == 32 * sizeof(float));
  const at::Tensor then = part.clone();
  trace.read("layers.1.layer_output").fill_(0);
  CHECK(same_bits(part, then));
}

TEST_CASE("snapshots: through one view of a value, writes come through another") {
  const TinyModel model = tiny_model();
  Trace trace = model.trace(some_prompt());
  const std::string block = "layers.1.self_attn.";
  const at::Tensor flat = trace.snapshot(trace.read(block + "q_proj.output")), flat_then = flat.clone();
  trace.read(block + "q_norm.input").fill_(1);
  CHECK(same_bits(flat, flat_then));
  const at::Tensor values = trace.snapshot(trace.read(block + "v_proj.output")), values_then = values.clone();
  trace.read(block + "attention_values").fill_(2);
  CHECK(same_bits(values, values_then));
  const at::Tensor heads = trace.snapshot(trace.read(block + "attention_premix")), heads_then = heads.clone();
  CHECK(heads.sub(2).abs().max().item<double>() < 1e-5);
  trace.read(block + "o_proj.input").fill_(3);
  CHECK(same_bits(heads, heads_then));
  CHECK(trace.read(block + "attention_head_outputs").eq(3).all().item<bool>());
}

TEST_CASE("snapshots: through one view of a value, while the caller keeps another, or the value itself") {
  const TinyModel model = tiny_model();
  const std::string block = "layers.1.self_attn.";
  for (const auto& [kept_name, saved_name] :
       {std::pair{"attention_premix", "o_proj.input"}, {"o_proj.input", "attention_premix"}}) {
    CAPTURE(kept_name);
    Trace trace = model.trace(some_prompt());
    const at::Tensor kept = trace.read(block + kept_name);
    const at::Tensor snapshot = trace.snapshot(trace.read(block + saved_name)), then = snapshot.clone();
    kept.fill_(4);
    CHECK(same_bits(snapshot, then));
    CHECK(trace.read(block + "attention_head_outputs").eq(4).all().item<bool>());
  }
}

TEST_CASE("snapshots: of an assigned input, and of what is assigned") {
  const TinyModel model = tiny_model();
  Trace trace = model.trace(some_prompt());
  trace.write("layers.0.mlp.gate_proj.input", at::ones({1, 5, 32}));
  const at::Tensor port = trace.snapshot(trace.read("layers.0.mlp.gate_proj.input"));
  trace.read("layers.0.mlp.gate_proj.input").fill_(2);
  CHECK(port.eq(1).all().item<bool>());
  CHECK(trace.read("layers.0.mlp.gate_proj.input").eq(2).all().item<bool>());
}

TEST_CASE("assigned tensors stay the caller's: edits of the run do not write into them") {
  const TinyModel model = tiny_model();
  const at::Tensor mine = at::ones({1, 5, 32});
  Trace value = model.trace(some_prompt());
  value.write("layers.0.layer_output", mine);
  value.read("layers.0.layer_output").fill_(2);
  value.read("layers.1.layer_input").mul_(2);
  CHECK(mine.eq(1).all().item<bool>());
  CHECK(value.read("layers.0.layer_output").eq(4).all().item<bool>());

  Trace port = model.trace(some_prompt());
  port.write("layers.0.self_attn.input", mine);
  port.read("layers.0.self_attn.q_proj.input").fill_(2);
  port.read("layers.0.self_attn.k_proj.input").fill_(3);
  CHECK(mine.eq(1).all().item<bool>());

  Trace twice = model.trace(some_prompt());
  twice.write("layers.0.layer_output", mine);
  twice.write("layers.1.layer_output", mine);
  twice.read("layers.1.layer_output").fill_(2);
  twice.write("layers.2.self_attn.attention_output", mine);
  twice.edit("layers.2.self_attn.attention_output", [](at::Tensor t) { return t.mul_(3); });
  CHECK(mine.eq(1).all().item<bool>());

  const at::Tensor one = at::ones({1, 1, 1});
  Trace expanded = model.trace(some_prompt());
  expanded.write("layers.0.layer_output", one.expand({1, 5, 32}));
  expanded.read("layers.0.layer_output").select(1, 2).fill_(2);  // each place its own
  CHECK(expanded.read("layers.1.layer_input").sum().item<double>() == 5 * 32 + 32);
  CHECK(one.item<double>() == 1);
}

TEST_CASE("snapshots outlive the trace, the prompt and the model") {
  at::Tensor snapshot, then;
  {
    const TinyModel model = tiny_model();
    Trace trace = model.trace(some_prompt());
    snapshot = trace.snapshot(trace.read("layers.1.layer_output"));
    then = snapshot.clone();
  }
  CHECK(same_bits(snapshot, then));
  snapshot.zero_();
}

TEST_CASE("snapshots: with a cache, keys and values of earlier passes are copied") {
  const TinyModel model = tiny_model();
  KvCache cache(3);
  const Prompt whole = prompt({some_ids(6)});
  const PassInputs all = model.inputs(whole);
  at::Tensor snapshot, then;
  for (int64_t seen : {0, 5}) {
    const int64_t count = seen ? 1 : 5;
    Trace trace(
        model.plan, model.weights,
        {all.ids.narrow(1, seen, count), all.mask.narrow(1, 0, seen + count), all.positions.narrow(1, seen, count)},
        false, &cache);
    if (seen) {
      trace.read("layers.1.self_attn.attention_keys").narrow(2, 0, 5).fill_(9);
    } else {
      snapshot = trace.snapshot(trace.read("layers.1.self_attn.attention_keys"));
      then = snapshot.clone();
    }
    trace.read("logits");
    trace.finish();
  }
  CHECK(same_bits(snapshot, then));
}

TEST_CASE("with a cache, edits of keys and values last, in place, assigned, and in place after that") {
  const TinyModel model = tiny_model();
  const PassInputs all = model.inputs(prompt({some_ids(6)}));
  auto keys_later = [&](const std::function<void(Trace&)>& edit) {
    KvCache cache(3);
    Trace first(model.plan, model.weights,
                {all.ids.narrow(1, 0, 5), all.mask.narrow(1, 0, 5), all.positions.narrow(1, 0, 5)}, false, &cache);
    edit(first);
    first.read("logits");
    first.finish();
    Trace second(model.plan, model.weights, {all.ids.narrow(1, 5, 1), all.mask, all.positions.narrow(1, 5, 1)}, false,
                 &cache);
    return second.read("layers.1.self_attn.attention_keys").narrow(2, 0, 5).clone();
  };
  const std::string name = "layers.1.self_attn.attention_keys";
  CHECK(keys_later([&](Trace& t) { t.read(name).fill_(2); }).eq(2).all().item<bool>());
  const at::Tensor mine = at::full({1, 2, 5, 6}, 3.0f);
  CHECK(keys_later([&](Trace& t) { t.write(name, mine); }).eq(3).all().item<bool>());
  CHECK(keys_later([&](Trace& t) {
          t.write(name, mine);
          t.read(name).mul_(2);
        })
            .eq(6)
            .all()
            .item<bool>());
  CHECK(mine.eq(3).all().item<bool>());
}

TEST_CASE("with a cache, a pass that was stopped half-way cannot be followed by another") {
  const TinyModel model = tiny_model();
  const PassInputs all = model.inputs(prompt({some_ids(6)}));
  KvCache cache(3);
  Trace first(model.plan, model.weights,
              {all.ids.narrow(1, 0, 5), all.mask.narrow(1, 0, 5), all.positions.narrow(1, 0, 5)}, false, &cache);
  first.read("layers.1.layer_input");
  first.stop();
  Trace second(model.plan, model.weights, {all.ids.narrow(1, 5, 1), all.mask, all.positions.narrow(1, 5, 1)}, false,
               &cache);
  CHECK_THROWS_AS(second.read("logits"), CannotSkip);
}
