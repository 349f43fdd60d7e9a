#include <thread>

#include "gemloupe/base/errors.h"
#include "gemloupe/run/trace.h"
#include "run/tiny_model.h"

using namespace run_tests;

namespace {

const Prompt& some_prompt() {
  static const Prompt some = prompt({some_ids(5)});
  return some;
}

/// The shape that a row's catalogue entry states, in a run of this size.
std::vector<int64_t> stated_shape(const Row& row, int64_t batch, int64_t seq) {
  std::vector<int64_t> shape = row.sizes;
  for (size_t i = 0; i < shape.size(); ++i)
    if (shape[i] == -1) shape[i] = row.spec->axes[i] == Axis::batch ? batch : seq;
  return shape;
}

void refused_order(Trace& trace, const std::string& name, std::initializer_list<std::string_view> parts) {
  store_tests::check_message(store_tests::message_of<OutOfOrder>([&] { trace.read(name); }), parts);
  store_tests::check_message(store_tests::message_of<OutOfOrder>([&] { trace.write(name, at::zeros({1})); }), parts);
}

}  // namespace

TEST_CASE("trace: every value has the stated shape and dtype, every port is there") {
  for (const json& config : tiny_families()) {
    const TinyModel model = tiny_model(config, at::kBFloat16);
    CAPTURE(model.plan->family);
    const Prompt given = prompt({some_ids(5), some_ids(5, 3)});
    for (bool eager : {false, true}) {
      Trace trace = model.trace(given, eager);
      CHECK(trace.input_size() == std::pair<int64_t, int64_t>(2, 5));
      for (RowId id : rows_in_order(*model.plan)) {
        const Row& row = model.plan->row(id);
        CAPTURE(row.name);
        const at::Tensor tensor = trace.read(row.name);
        const bool is_mask = row.name.ends_with(".attention_mask") && row.name != "model.inputs.attention_mask";
        if (!eager && is_mask && !tensor.defined()) continue;  // "causal" needs none
        REQUIRE(tensor.defined());
        if (!row.spec || row.spec == &values::input_size) continue;
        CHECK(tensor.sizes() == at::IntArrayRef(stated_shape(row, 2, 5)));
        const bool wide = row.spec == &values::next_token_probs || row.spec == &values::expert_weights ||
                          row.spec == &values::expert_outputs;
        CHECK((tensor.scalar_type() == (row.spec->integer ? at::kLong : wide ? at::kFloat : at::kBFloat16)));
      }
    }
  }
}

TEST_CASE("trace: reading every value changes no bit under eager, and little under the default") {
  for (const json& config : tiny_families()) {
    const TinyModel model = tiny_model(config);
    CAPTURE(model.plan->family);
    for (bool eager : {true, false}) {
      const at::Tensor bare = model.logits(some_prompt(), eager);
      Trace trace = model.trace(some_prompt(), eager);
      at::Tensor logits;
      std::vector<at::Tensor> kept;
      for (RowId id : rows_in_order(*model.plan)) {
        kept.push_back(trace.snapshot(trace.read(id)));
        if (id == model.plan->logits) logits = kept.back();
      }
      if (eager)
        CHECK(same_bits(logits, bare));
      else
        CHECK(distance(logits, bare) < 1e-4);
    }
  }
}

TEST_CASE("trace: a value that only passes its neighbours by is the same in a trace of its own") {
  const TinyModel model = tiny_model();
  Trace all = model.trace(some_prompt(), true);
  for (RowId id : rows_in_order(*model.plan)) {
    const at::Tensor kept = all.snapshot(all.read(id));
    CHECK_MESSAGE(same_bits(kept, model.trace(some_prompt(), true).read(id)), model.plan->row(id).name);
  }
}

TEST_CASE("trace: the identity of the page") {
  const TinyModel model = tiny_model();
  for (bool eager : {false, true}) {
    Trace trace = model.trace(some_prompt(), eager);
    for (int i = 0; i < 3; ++i) {
      const std::string block = "layers." + std::to_string(i) + ".";
      const at::Tensor in = trace.read(block + "layer_input");
      const at::Tensor attention = trace.read(block + "self_attn.attention_output");
      const at::Tensor mlp = trace.read(block + "mlp.mlp_output");
      CHECK(same_bits(in + attention + mlp, trace.read(block + "layer_output")));
    }
  }
}

TEST_CASE("trace: what has passed is refused with both places and the remedy") {
  const TinyModel model = tiny_model();
  Trace trace = model.trace(some_prompt());
  trace.at("notebook.py:3");
  trace.read("layers.1.layer_mid");
  trace.at("notebook.py:7");
  refused_order(
      trace, "layers.0.layer_output",
      {"'layers.0.layer_output'", "(notebook.py:7)", "'layers.1.layer_mid'", "(notebook.py:3)", "second trace"});
  trace.at("");
  refused_order(trace, "model.layers.0.mlp.input", {"'layers.0.mlp.input' comes before 'layers.1.layer_mid'"});
  CHECK(trace.read("layers.1.layer_mid").defined());  // again, and what shares its place
  CHECK(trace.read("layers.1.pre_feedforward_layernorm.input").defined());
  CHECK(trace.read("layers.1.layer_output").defined());
}

TEST_CASE("trace: a failed access moves nothing") {
  const TinyModel model = tiny_model();
  Trace trace = model.trace(some_prompt());
  trace.read("layers.0.layer_output");
  CHECK_THROWS_AS(trace.read("layers.0.layer_outpt"), UnknownName);
  CHECK_THROWS_AS(trace.write("layers.9.layer_output", at::zeros({1})), UnknownName);
  CHECK_THROWS_AS(trace.read(static_cast<RowId>(model.plan->rows.size())), InternalError);
  CHECK_THROWS_AS(trace.write(-1, at::zeros({1})), InternalError);
  CHECK_THROWS_AS(trace.read("layers.0.layer_input"), OutOfOrder);
  CHECK_THROWS_AS(trace.write("next_token_probs", at::zeros({1, 61})), ReadOnly);
  CHECK(trace.read("layers.0.layer_output").defined());
  CHECK(same_bits(trace.read("logits"), model.logits(some_prompt())));
}

TEST_CASE("trace: values of one place are read in any order") {
  const TinyModel model = tiny_model();
  Trace trace = model.trace(some_prompt());
  const at::Tensor after = trace.read("layers.1.layer_input"), before = trace.read("layers.0.layer_output");
  CHECK(after.is_same(before));
  for (const char* name : {"attention_values", "attention_queries", "attention_keys"})
    CHECK(trace.read("layers.1.self_attn." + std::string(name)).defined());
  CHECK(trace.read("layers.1.self_attn.attention_queries").defined());
  // A run's inputs.
  Trace inputs = model.trace(some_prompt());
  CHECK(inputs.read("attention_mask").defined());
  CHECK(inputs.read("input_ids").defined());
}

TEST_CASE("trace: its size can be read at any time, and cannot be written") {
  const TinyModel model = tiny_model();
  Trace trace = model.trace(prompt({some_ids(5), some_ids(4)}));
  trace.read("logits");
  CHECK(same_bits(trace.read("input_size"), at::tensor({2, 5}, at::kLong)));
  CHECK_REFUSED(ReadOnly, trace.write("input_size", at::tensor({2, 5}, at::kLong)), "'input_size'", "derived");
  CHECK_REFUSED(ReadOnly, trace.write("next_token_probs", at::zeros({2, 61})), "'next_token_probs'", "write logits");
}

TEST_CASE("trace: after its end everything is refused") {
  const TinyModel model = tiny_model();
  for (bool stopped : {false, true}) {
    Trace trace = model.trace(some_prompt());
    const at::Tensor kept = trace.read("layers.0.layer_output"), before = kept.clone();
    CHECK(!trace.finished());
    stopped ? trace.stop() : trace.finish();
    CHECK(trace.finished());
    CHECK_REFUSED(OutsideTrace, trace.read("logits"), "ended", ".save()");
    CHECK_THROWS_AS(trace.read("input_size"), OutsideTrace);
    CHECK_THROWS_AS(trace.write("logits", before), OutsideTrace);
    CHECK_THROWS_AS(trace.edit("logits", [](at::Tensor t) { return t; }), OutsideTrace);
    CHECK_THROWS_AS(trace.read("no such value"), UnknownName);
    CHECK(!trace.rows_are_lazy(model.plan->logits));
    trace.finish();
    CHECK(same_bits(kept, before));
    CHECK(!trace.snapshot(trace.snapshot(kept)).is_same(kept));
  }
}

// ------------------------------------------------------------------------------------------------------------- edits

TEST_CASE("trace: of every value, an edit in place and an assignment do the same") {
  for (const json& config : tiny_families()) {
    const TinyModel model = tiny_model(config);
    CAPTURE(model.plan->family);
    for (bool eager : {false, true})
      for (RowId id : rows_in_order(*model.plan)) {
        const Row& row = model.plan->row(id);
        if (!row.spec || row.spec->integer || row.spec->read_only) continue;
        CAPTURE(row.name);
        auto change = [](const at::Tensor& tensor) { return at::where(tensor < -1e30, tensor, tensor * 0.75 + 0.25); };
        Trace in_place = model.trace(some_prompt(), eager), assigned = model.trace(some_prompt(), eager),
              edited = model.trace(some_prompt(), eager);
        const at::Tensor live = in_place.read(id);
        live.copy_(change(live));
        assigned.write(id, change(assigned.read(id)));
        edited.edit(row.name, change);
        const at::Tensor logits = in_place.read("logits");
        CHECK(same_bits(logits, assigned.read("logits")));
        CHECK(same_bits(logits, edited.read("logits")));
        CHECK(distance(logits, model.logits(some_prompt(), eager)) > 1e-6);
      }
  }
}

TEST_CASE("trace: edits of everything leave the weights and the prompt as they were") {
  for (const json& config : tiny_families()) {
    const TinyModel model = tiny_model(config);
    CAPTURE(model.plan->family);
    std::vector<at::Tensor> before;
    for (size_t i = 0; i < model.plan->weights.size(); ++i)
      before.push_back(model.weights->at(static_cast<WeightId>(i)).clone());
    const Prompt given{some_prompt().ids.clone(), at::ones({1, 5}, at::kLong), at::arange(5).unsqueeze(0)};
    for (bool eager : {false, true}) {
      Trace trace = model.trace(given, eager);
      for (RowId id : rows_in_order(*model.plan))
        if (at::Tensor live = trace.read(id); live.defined() && live.scalar_type() != at::kBool) live.fill_(1);
    }
    for (size_t i = 0; i < before.size(); ++i) CHECK(same_bits(model.weights->at(static_cast<WeightId>(i)), before[i]));
    CHECK(same_bits(given.ids, some_prompt().ids));
    CHECK(same_bits(*given.position_ids, at::arange(5).unsqueeze(0)));
  }
}

TEST_CASE("trace: an assigned value is what is read from then on, in its place and in every alias") {
  const TinyModel model = tiny_model();
  Trace trace = model.trace(some_prompt());
  const at::Tensor mine = at::randn({1, 5, 32});
  trace.write("layers.0.layer_output", mine);
  CHECK(same_bits(trace.read("layers.1.layer_input"), mine));
  CHECK(same_bits(trace.read("layers.1.input_layernorm.input"), mine));
  trace.write("layers.1.layer_input", mine * 2);
  CHECK(same_bits(trace.read("layers.0.layer_output"), mine * 2));
  // Heads and the flat form of them are one tensor.
  const at::Tensor heads = trace.read("layers.1.self_attn.attention_premix");
  CHECK(same_bits(trace.read("layers.1.self_attn.o_proj.input"), heads.flatten(2)));
  heads.select(2, 3).fill_(8);
  CHECK(trace.read("layers.1.self_attn.o_proj.input").narrow(2, 18, 6).eq(8).all().item<bool>());
  trace.read("layers.1.self_attn.o_proj.input").fill_(3);
  CHECK(trace.read("layers.1.self_attn.attention_head_outputs").eq(3).all().item<bool>());
}

TEST_CASE("trace: a module's input, assigned, reaches that module; written in place, everyone who shares it") {
  const TinyModel model = tiny_model();
  const std::string block = "layers.1.self_attn.";
  Trace plain = model.trace(some_prompt());
  const at::Tensor q = plain.read(block + "q_proj.output").clone(), k = plain.read(block + "k_proj.output").clone();

  Trace assigned = model.trace(some_prompt());
  assigned.write(block + "q_proj.input", assigned.read(block + "q_proj.input") * 2);
  CHECK(distance(assigned.read(block + "q_proj.output"), q) > 1e-2);
  CHECK(same_bits(assigned.read(block + "k_proj.output"), k));

  Trace in_place = model.trace(some_prompt());
  in_place.read(block + "q_proj.input").mul_(2);
  CHECK(same_bits(in_place.read(block + "q_proj.output"),
                  assigned.read(block + "q_norm.input").transpose(1, 2).flatten(2)));
  CHECK(distance(in_place.read(block + "k_proj.output"), k) > 1e-2);

  // The whole attention's input: all three projections, but not the norm's output, which nobody else reads here.
  Trace outer = model.trace(some_prompt());
  const at::Tensor normed = outer.read("layers.1.attention_norm_output").clone();
  outer.write(block + "input", at::zeros({1, 5, 32}));
  CHECK(same_bits(outer.read("layers.1.attention_norm_output"), normed));
  CHECK(outer.read(block + "q_proj.input").eq(0).all().item<bool>());
  CHECK(outer.read(block + "v_proj.output").eq(0).all().item<bool>());
}

TEST_CASE("trace: an assigned input is read back, and edits of it stay where it reaches") {
  const TinyModel model = tiny_model();
  Trace trace = model.trace(some_prompt());
  trace.write("layers.0.mlp.gate_proj.input", at::ones({1, 5, 32}));
  trace.read("layers.0.mlp.gate_proj.input").mul_(3);
  CHECK(trace.read("layers.0.mlp.gate_proj.input").eq(3).all().item<bool>());
  CHECK(trace.read("layers.0.mlp.up_proj.input").ne(3).any().item<bool>());
  // Then the value itself: it reaches every consumer, also that one.
  Trace both = model.trace(some_prompt());
  both.write("layers.0.mlp.gate_proj.input", at::ones({1, 5, 32}));
  both.write("layers.0.mlp.input", at::full({1, 5, 32}, 2.0f));
  CHECK(both.read("layers.0.mlp.gate_proj.input").eq(2).all().item<bool>());
  both.write("layers.0.mlp_input", at::full({1, 5, 32}, 4.0f));
  CHECK(both.read("layers.0.mlp.gate_proj.input").eq(4).all().item<bool>());
}

TEST_CASE("trace: a value assigned to itself is no edit") {
  const TinyModel model = tiny_model();
  Trace trace = model.trace(some_prompt());
  at::Tensor live = trace.read("layers.0.layer_output");
  live.mul_(2);
  trace.write("layers.0.layer_output", live);
  CHECK(trace.read("layers.1.layer_input").is_same(live));
  at::Tensor port = trace.read("layers.1.self_attn.q_proj.input");
  trace.write("layers.1.self_attn.q_proj.input", port);
  port.fill_(0);
  CHECK(trace.read("layers.1.self_attn.k_proj.output").eq(0).all().item<bool>());  // still shared
  // Another view of the same memory is an edit.
  Trace turned = model.trace(prompt({some_ids(32)}));
  const at::Tensor square = turned.read("layers.0.layer_output"), expected = square.transpose(1, 2).clone();
  turned.write("layers.0.layer_output", square.transpose(1, 2));
  CHECK(same_bits(turned.read("layers.1.layer_input"), expected));
}

TEST_CASE("trace: patching from run to run") {
  const TinyModel model = tiny_model();
  Trace clean = model.trace(some_prompt());
  const at::Tensor patch = clean.read("layers.1.layer_output");
  Trace other = model.trace(prompt({some_ids(5, 3)}));
  CHECK(distance(model.logits(prompt({some_ids(5, 3)})), model.logits(some_prompt())) > 1e-2);
  other.write("layers.1.layer_output", patch);
  CHECK(same_bits(other.read("logits"), clean.read("logits")));
}

TEST_CASE("trace: the run's own inputs can be written") {
  const TinyModel model = tiny_model();
  const Prompt masked{some_prompt().ids, at::tensor({0, 0, 1, 1, 1}, at::kLong), at::arange(5)};
  for (bool eager : {false, true}) {
    const at::Tensor real = at::tensor({0.0f, 0.0f, 1.0f, 1.0f, 1.0f}).view({1, 5, 1});
    const at::Tensor expected = model.logits(masked, eager) * real;
    CHECK(distance(model.logits(some_prompt(), eager) * real, expected) > 1e-3);
    Trace assigned = model.trace(some_prompt(), eager), in_place = model.trace(some_prompt(), eager),
          port = model.trace(some_prompt(), eager), back = model.trace(masked, eager);
    assigned.write("attention_mask", at::tensor({0, 0, 1, 1, 1}, at::kLong).unsqueeze(0));
    CHECK(same_bits(assigned.read("logits") * real, expected));
    in_place.read("attention_mask").narrow(1, 0, 2).fill_(0);
    CHECK(same_bits(in_place.read("logits") * real, expected));
    port.write("model.inputs.attention_mask", at::tensor({0, 0, 1, 1, 1}, at::kLong).unsqueeze(0));
    CHECK(same_bits(port.read("logits") * real, expected));
    back.write("attention_mask", at::ones({1, 5}, at::kLong));
    back.read("layers.0.self_attn.attention_scores");  // step by step from here
    CHECK(distance(back.read("logits"), model.logits(some_prompt(), eager)) < 1e-5);

    Trace ids = model.trace(some_prompt(), eager);
    ids.write("input_ids", prompt({some_ids(5, 3)}).ids);
    CHECK(same_bits(ids.read("logits"), model.logits(prompt({some_ids(5, 3)}), eager)));
    Trace positions = model.trace(some_prompt(), eager);
    positions.write("model.inputs.position_ids", at::arange(5).mul(3).unsqueeze(0));
    CHECK(same_bits(positions.read("logits"),
                    model.logits({some_prompt().ids, std::nullopt, at::arange(5).mul(3)}, eager)));
  }
}

TEST_CASE("trace: what does not fit is refused by the axes' names") {
  const TinyModel model = tiny_model();
  Trace trace = model.trace(some_prompt());
  auto refused = [&](const char* name, const at::Tensor& tensor, std::initializer_list<std::string_view> parts) {
    store_tests::check_message(store_tests::message_of<BadValue>([&] { trace.write(name, tensor); }), parts);
  };
  refused("token_embeddings", at::zeros({1, 4, 32}),
          {"'token_embeddings'", "[1, 5, 32] (batch 1, seq 5, hidden_size 32)",
           "[1, 4, 32] (batch 1, seq 4, hidden_size 32)", "slice"});
  refused("token_embeddings", at::zeros({5, 32}), {"(batch 1, seq 5, hidden_size 32)", "[5, 32]"});
  refused("token_embeddings", at::zeros({}), {"[1, 5, 32]", "[]"});
  refused("token_embeddings", at::zeros({1, 5, 32}, at::kLong), {"Float", "Long"});
  refused("token_embeddings", at::zeros({1, 5, 32}, at::kBool), {"Float", "Bool"});
  refused("token_embeddings", at::zeros({1, 5, 32}, at::kComplexFloat), {"Float", "Complex"});
  refused("token_embeddings", at::Tensor(), {"'token_embeddings'", "None", "a tensor"});
  refused("layers.0.self_attn.q_norm.input", at::zeros({1, 5, 24}),
          {"'layers.0.self_attn.q_norm.input'", "[1, 4, 5, 6]"});
  refused("layers.0.self_attn.attention_keys", at::zeros({1, 4, 5, 6}), {"num_kv_heads 2", "num_kv_heads 4"});
  refused("layers.0.self_attn.attention_scores", at::zeros({1, 4, 5, 4}), {"query 5, key 5", "query 5, key 4"});
  CHECK(same_bits(trace.read("layers.0.self_attn.attention_scores"), [&] {
    Trace other = model.trace(some_prompt());
    return other.read("layers.0.self_attn.attention_scores");
  }()));  // nothing of this was written
  Trace ids = model.trace(some_prompt());
  CHECK_REFUSED(BadValue, ids.write("input_ids", at::zeros({1, 5})), "'input_ids'", "Long", "Float");
}

TEST_CASE("trace: what is not made in this run cannot be replaced") {
  const TinyModel model = tiny_model();
  Trace trace = model.trace(some_prompt());
  CHECK(!trace.read("layers.1.self_attn.inputs.attention_mask").defined());
  CHECK_REFUSED(BadValue, trace.write("layers.1.self_attn.inputs.attention_mask", at::zeros({1, 1, 5, 5})),
                "not made in this run");
  CHECK(!trace.read("layers.1.self_attn.output.1").defined());
  CHECK_REFUSED(BadValue, trace.write("layers.1.self_attn.output.1", at::zeros({1, 4, 5, 5})), "not made in this run");
  CHECK(!trace.snapshot(trace.read("layers.1.self_attn.output.1")).defined());
}

TEST_CASE("trace: another floating dtype is cast") {
  const TinyModel model = tiny_model(tiny_config(), at::kBFloat16);
  Trace trace = model.trace(some_prompt());
  const at::Tensor mine = at::randn({1, 5, 32}, at::kDouble);
  trace.write("layers.0.layer_output", mine);
  CHECK(same_bits(trace.read("layers.0.layer_output"), mine.to(at::kBFloat16)));
  trace.write("layers.1.self_attn.inputs.position_embeddings.0", at::ones({1, 5, 6}));
  CHECK((trace.read("logits").scalar_type() == at::kBFloat16));
}

// --------------------------------------------------------------------------------------------------------- lazy rows

TEST_CASE("trace: rows of the logits on their own") {
  const TinyModel model = tiny_model();
  const Plan& plan = *model.plan;
  const RowId head_output = plan.find_row("lm_head_output"), final_norm = plan.find_row("final_norm_output");
  Trace trace = model.trace(some_prompt());
  for (RowId row : {plan.logits, head_output, plan.next_token_probs}) CHECK(trace.rows_are_lazy(row));
  CHECK(!trace.rows_are_lazy(final_norm));
  const at::Tensor stream = trace.head_input(plan.logits);
  CHECK(stream.sizes() == at::IntArrayRef({1, 5, 32}));
  const at::Tensor rows = trace.apply_head(plan.logits, stream.slice(1, 3));
  const at::Tensor uncapped = trace.apply_head(head_output, stream.slice(1, 3));
  CHECK(trace.rows_are_lazy(plan.logits));  // nothing has moved past the head
  CHECK(distance(trace.read("lm_head_output").slice(1, 3), uncapped) < 1e-5);
  CHECK(distance(trace.read("logits").slice(1, 3), rows) < 1e-5);
  CHECK(distance(at::tanh(uncapped / 30) * 30, rows) < 1e-5);
  CHECK(!trace.rows_are_lazy(plan.logits));
  CHECK_THROWS_AS(trace.head_input(plan.logits), InternalError);
  refused_order(trace, "final_norm_output", {"'final_norm_output'", "'logits'"});
  CHECK(!model.trace(some_prompt(), true).rows_are_lazy(plan.logits));
}

TEST_CASE("trace: lazy rows follow edits, and are a place in the order") {
  const TinyModel model = tiny_model();
  const Plan& plan = *model.plan;
  Trace edited = model.trace(some_prompt());
  edited.edit("final_norm_output", [](at::Tensor t) { return t * 0.5; });
  const at::Tensor rows = edited.apply_head(plan.logits, edited.head_input(plan.logits));
  CHECK(distance(rows, edited.read("logits")) < 1e-5);
  Trace port = model.trace(some_prompt());
  port.write("lm_head.input", at::zeros({1, 5, 32}));
  CHECK(port.head_input(plan.logits).eq(0).all().item<bool>());
  CHECK(port.read("logits").eq(0).all().item<bool>());
  Trace order = model.trace(some_prompt());
  order.at("here");
  order.head_input(plan.logits);
  refused_order(order, "layers.2.layer_mid", {"'layers.2.layer_mid'", "'logits' (here)"});
}

TEST_CASE("trace: probabilities are the last row's, before and after the logits are edited") {
  const TinyModel model = tiny_model();
  const Prompt given = prompt({some_ids(5), some_ids(5, 3)});
  for (bool eager : {false, true}) {
    Trace lazy = model.trace(given, eager);
    const at::Tensor probabilities = lazy.read("next_token_probs");
    CHECK(probabilities.sizes() == at::IntArrayRef({2, 61}));
    CHECK(distance(probabilities, at::softmax(model.logits(given, eager).select(1, -1), -1)) < 1e-6);
    if (!eager) CHECK(lazy.read("logits").defined());  // that had not run yet
    Trace edited = model.trace(given, eager);
    edited.read("logits").select(2, 17).fill_(1e4);
    CHECK(edited.read("next_token_probs").select(1, 17).eq(1).all().item<bool>());
  }
}

// ------------------------------------------------------------------------------------------------------------ threads

TEST_CASE("trace: two threads read and edit runs of one model at once") {
  const TinyModel model = tiny_model();
  const Prompt prompts[] = {prompt({some_ids(9)}), prompt({some_ids(6, 3), some_ids(4)})};
  auto run = [&](int which, bool eager) {
    Trace trace = model.trace(prompts[which], eager);
    trace.edit("layers.1.layer_output", [&](at::Tensor t) { return t * (1.5 + which); });
    return trace.read("logits");
  };
  at::Tensor expected[2][2];
  for (int which : {0, 1})
    for (int eager : {0, 1}) expected[which][eager] = run(which, eager).clone();
  int differ[2] = {0, 0};
  std::vector<std::thread> threads;
  for (int which : {0, 1})
    threads.emplace_back([&, which] {
      for (int i = 0; i < 20; ++i) differ[which] += distance(run(which, i % 2), expected[which][i % 2]) > 1e-5;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(differ[0] == 0);
  CHECK(differ[1] == 0);
}
