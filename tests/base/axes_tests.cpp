#include <doctest/doctest.h>

#include <set>

#include "gemloupe/base/axes.h"

using namespace gemloupe;

TEST_CASE("axes: every one has the name of its enumerator") {
  CHECK(name_of(Axis::batch) == "batch");
  CHECK(name_of(Axis::seq) == "seq");
  CHECK(name_of(Axis::query) == "query");
  CHECK(name_of(Axis::key) == "key");
  CHECK(name_of(Axis::hidden_size) == "hidden_size");
  CHECK(name_of(Axis::num_heads) == "num_heads");
  CHECK(name_of(Axis::num_kv_heads) == "num_kv_heads");
  CHECK(name_of(Axis::head_dim) == "head_dim");
  CHECK(name_of(Axis::qk_head_dim) == "qk_head_dim");
  CHECK(name_of(Axis::intermediate_size) == "intermediate_size");
  CHECK(name_of(Axis::vocab_size) == "vocab_size");
  CHECK(name_of(Axis::num_experts) == "num_experts");
  CHECK(name_of(Axis::top_k) == "top_k");
}

TEST_CASE("axes: as the pages print them") {
  CHECK(axes_text({}) == "[]");
  CHECK(axes_text({Axis::batch, Axis::num_heads, Axis::query, Axis::key}) == "[batch num_heads query key]");
}

TEST_CASE("axes: shapes in messages name each size") {
  const std::vector<Axis> residual{Axis::batch, Axis::seq, Axis::hidden_size};
  CHECK(named_shape_text(residual, {2, 5, 48}) == "[2, 5, 48] (batch 2, seq 5, hidden_size 48)");
  CHECK(named_shape_text(residual, {5, 48}) == "[5, 48]");  // whose axes they are is not known
  CHECK(named_shape_text(residual, {1, 1, 1, 1}) == "[1, 1, 1, 1]");
}
