#include "gemloupe/family/tower.h"

namespace gemloupe {
inline namespace v0 {
namespace tower {

void leaf(PlanBuilder& b, const std::string& name, const std::string& class_name, const std::string& summary) {
  b.module(name, class_name).summary(summary);
}

void linear(PlanBuilder& b, const std::string& name, int64_t in, int64_t out, bool bias) {
  auto scope = b.module(name, "Linear");
  scope.summary(linear_summary(in, out, bias));
  scope.attribute("in_features", in);
  scope.attribute("out_features", out);
  b.parameter("weight", {out, in}, "");
  if (bias) b.parameter("bias", {out}, "");
}

void layer_norm(PlanBuilder& b, const std::string& name, int64_t size, double eps, bool bias) {
  auto scope = b.module(name, "LayerNorm");
  scope.summary("(" + std::to_string(size) + ",), eps=" + json(eps).dump() +
                ", elementwise_affine=True, bias=" + (bias ? "True" : "False"));
  scope.attribute("eps", eps);
  b.parameter("weight", {size}, "");
  if (bias) b.parameter("bias", {size}, "");
}

void rms_norm(PlanBuilder& b, const std::string& name, const std::string& class_name, int64_t size,
              const std::string& summary) {
  auto scope = b.module(name, class_name);
  scope.summary(summary);
  if (size > 0) b.parameter("weight", {size}, "");
}

void conv(PlanBuilder& b, const std::string& name, const std::string& class_name, std::vector<int64_t> weight,
          bool bias, const std::string& summary) {
  auto scope = b.module(name, class_name);
  scope.summary(summary);
  const int64_t channels = weight[0];
  b.parameter("weight", std::move(weight), "");
  if (bias) b.parameter("bias", {channels}, "");
}

void embedding(PlanBuilder& b, const std::string& name, int64_t rows, int64_t width) {
  auto scope = b.module(name, "Embedding");
  scope.summary(std::to_string(rows) + ", " + std::to_string(width));
  b.parameter("weight", {rows, width}, "");
}

}  // namespace tower

void image_token_mask(PlanBuilder& b, int64_t image_id) {
  b.value(values::vision::image_token_mask, {b.step(op::IsId{image_id}, {{b.input_ids(), {}}}), {}});
}

}  // namespace v0
}  // namespace gemloupe
