#include <doctest/doctest.h>

#include "gemloupe/family/family.h"
#include "gemloupe/family/released.h"
#include "plan/invariants.h"

namespace gemloupe {

TEST_CASE("every released config makes a plan in which all holds that holds in every plan") {
  CHECK(released().size() == 27);
  for (const Released& one : released()) {
    CAPTURE(one.name);
    const Family& family = find_family(one.config["model_type"].get<std::string>(), one.name);
    const Plan plan = family.recipe(family.read_config(one.config, one.name, {}), {});
    CHECK(plan_tests::faults_of(plan) == "");
    CHECK(plan.warnings.empty());
  }
}

TEST_CASE("a released config is found by its name and by its hub ids") {
  REQUIRE(find_released("gemma-3-4b"));
  CHECK(find_released("google/gemma-3-4b-it") == find_released("gemma-3-4b"));
  CHECK(find_released("gemma-3-4") == nullptr);
  CHECK(near_released("gemma-3-4").find("'gemma-3-4b'") != std::string::npos);
}

TEST_CASE("towers have parameters, and neither steps nor ports") {
  const Released* e2b = find_released("gemma-4-E2B");
  const Family& family = find_family("gemma4", "");
  const Plan plan = family.recipe(family.read_config(e2b->config, "", {}), {});
  const Module& projection = plan.module(plan.find_module("vision.layers.3.mlp.up_proj"));
  CHECK(projection.path == "model.vision_tower.encoder.layers.3.mlp.up_proj");
  CHECK(projection.weights.size() == 4);
  CHECK(projection.first == projection.end);
  CHECK_FALSE(projection.runs);
  CHECK_THROWS_AS(plan.find_row("vision.layers.3.mlp.up_proj.output"), NotInThisRun);
  CHECK_THROWS_AS(plan.find_row("model.vision_tower.encoder.layers.3.layer_output"), NotInThisRun);
  CHECK_THROWS_AS(plan.find_row("layers.0.mlp.router_logits"), Absent);
  CHECK_THROWS_AS(plan.find_row("vision.layers.16.layer_output"), UnknownName);
  CHECK(plan.row(plan.find_row("vision.image_token_mask")).spec == &values::vision::image_token_mask);
  CHECK(plan.find_module("projector") == plan.find_module("model.embed_vision"));
}

}  // namespace gemloupe
