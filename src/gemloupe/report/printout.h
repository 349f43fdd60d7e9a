// What print(model) shows: the native modules under their standard names, and every standard value with its layout.
#pragma once

#include <string>

#include "gemloupe/plan/plan.h"

namespace gemloupe {
inline namespace v0 {

/// Blocks that print alike are one entry, "(0-25): 26 x Gemma3DecoderLayer(".
std::string printout(const Plan& plan);

/// The same for machines: every module with its class, its parameters with their shapes, and its values.
json printout_json(const Plan& plan);

/// "layers.3.self_attn" of "layers.3.self_attn.attention_output"; "" of "logits".
std::string host_of(const std::string& value_name);

}  // namespace v0
}  // namespace gemloupe
