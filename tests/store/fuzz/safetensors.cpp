#include "store/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  store_fuzz::safetensors(data, size);
  return 0;
}
