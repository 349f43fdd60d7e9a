#include <random>

#include "store/files.h"
#include "store/fuzz/targets.h"
#include "store/gguf_builder.h"

using namespace store_tests;

namespace {

/// The same mutations on every run and machine: the engine's numbers are standardised, the library's distributions are
/// not.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string mutated(std::string bytes) {
    for (size_t changes = 1 + below(3); changes > 0; --changes) change(bytes);
    return bytes;
  }

 private:
  size_t below(size_t limit) { return limit ? static_cast<size_t>(random_() % limit) : 0; }

  template <class T>
  void overwrite(std::string& bytes, T value) {
    if (bytes.size() < sizeof(T)) return;
    bytes.replace(below(bytes.size() - sizeof(T) + 1), sizeof(T), bytes_of(value));
  }

  void change(std::string& bytes) {
    constexpr uint64_t kNumbers[] = {0,          1,          0x7F,       0x80,      0xFFFF,
                                     0x7FFFFFFF, 0xFFFFFFFF, 1ull << 60, INT64_MAX, UINT64_MAX};
    const uint64_t number = kNumbers[below(std::size(kNumbers))];
    const size_t from = below(bytes.size()), length = below(16);
    switch (below(8)) {
      case 0:
        return overwrite(bytes, static_cast<uint8_t>(random_()));
      case 1:
        return overwrite(bytes, static_cast<uint8_t>("0123456789-[]{}\",:\\"[below(19)]));
      case 2:
        return overwrite(bytes, static_cast<uint16_t>(number));
      case 3:
        return overwrite(bytes, static_cast<uint32_t>(number));
      case 4:
        return overwrite(bytes, number);
      case 5:
        return bytes.resize(from);
      case 6:
        bytes.erase(from, length);
        return;
      default:
        bytes.insert(below(bytes.size()), bytes.substr(from, length));
        return;
    }
  }

  std::mt19937_64 random_;
};

/// Two mutations of three stand in the header, where the decisions are.
void run(const std::string& valid, void (*target)(const uint8_t*, size_t), size_t header, int times) {
  Mutator mutator(2026);
  for (int i = 0; i < times; ++i) {
    const std::string bytes =
        i % 3 ? mutator.mutated(valid.substr(0, header)) + valid.substr(std::min(header, valid.size()))
              : mutator.mutated(valid);
    target(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
}

}  // namespace

TEST_CASE("mutated safetensors files are read or refused") {
  const std::string valid = content(tests_folder() / "store/data/written.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, valid.data(), sizeof(length));
  run(valid, store_fuzz::safetensors, sizeof(length) + length, 6000);
}

TEST_CASE("mutated GGUF files are read or refused") {
  run(content(tests_folder() / "data/gguf/metadata.gguf"), store_fuzz::gguf, 1600, 6000);
  const std::string blocks = GgufBuilder()
                                 .pair("general.alignment", kU32, bytes_of<uint32_t>(8))
                                 .array("a", kString, 2, GgufBuilder::text("x") + GgufBuilder::text("y"))
                                 .tensor("q4", {256, 2}, 12, 0)
                                 .tensor("q8", {32}, 8, 288)
                                 .tensor("f16", {3}, 1, 328)
                                 .file(336, 8);
  run(blocks, store_fuzz::gguf, blocks.size() - 336, 6000);
}

TEST_CASE("mutated npz files are read or refused") {
  for (const char* name : {"numpy_stored.npz", "numpy_deflated.npz", "written_64.npz"}) {
    const std::string valid = content(tests_folder() / "store/data" / name);
    run(valid, store_fuzz::npz, valid.size(), 2000);
    // And mutations of the directory alone, which comes last in the file.
    const size_t directory = valid.find("PK\x01\x02");
    Mutator mutator(7);
    for (int i = 0; i < 2000; ++i) {
      const std::string bytes = valid.substr(0, directory) + mutator.mutated(valid.substr(directory));
      store_fuzz::npz(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    }
  }
}
