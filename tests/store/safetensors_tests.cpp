#include <cstring>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/safetensors.h"
#include "store/files.h"

using namespace gemloupe;
using namespace store_tests;

namespace {

/// A file with this header and `size` bytes of data that count up.
std::string with_header(const std::string& header, size_t size) {
  std::string file = bytes_of<uint64_t>(header.size()) + header;
  for (size_t i = 0; i < size; ++i) file += static_cast<char>(i);
  return file;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, size_t begin,
                  size_t end) {
  return "\"" + name + R"(": {"dtype": ")" + dtype + R"(", "shape": )" + shape + R"(, "data_offsets": [)" +
         std::to_string(begin) + ", " + std::to_string(end) + "]}";
}

SafetensorsFile parse(const std::string& header, size_t size) {
  return parse_safetensors(in_memory(with_header(header, size), "dir/model.safetensors"));
}

/// The tensors that both directions of the format are tested with; the golden file was written from them.
struct Sample {
  std::vector<float> floats{1.5f, -2.0f, 0.0f, 3.25f, 1e-30f, -0.0f};
  std::vector<uint16_t> bfloats{0x3F80, 0xC000, 0x7FC0};
  std::vector<int64_t> ids{1, -2};
  std::vector<uint8_t> flags{1, 0, 1};

  std::vector<ArrayToWrite> arrays() const {
    auto bytes = [](const auto& vector) { return reinterpret_cast<const std::byte*>(vector.data()); };
    return {{"z.flags", DType::Bool, {3}, bytes(flags)},      {"floats", DType::F32, {2, 3}, bytes(floats)},
            {"bfloats", DType::BF16, {3, 1}, bytes(bfloats)}, {"ids", DType::I64, {2}, bytes(ids)},
            {"scalar", DType::F32, {}, bytes(floats)},        {"empty", DType::F32, {0, 4}, nullptr}};
  }
};

}  // namespace

TEST_CASE("safetensors: written tensors are read back") {
  TempFolder folder;
  const fs::path path = folder.path() / "a.safetensors";
  const Sample sample;
  write_safetensors(path, sample.arrays(), {{"format", "pt"}, {"note", "ß"}});
  const SafetensorsFile file = read_safetensors(path);
  CHECK(file.metadata == std::map<std::string, std::string>{{"format", "pt"}, {"note", "ß"}});
  REQUIRE(file.tensors.size() == 6);
  for (const ArrayToWrite& array : sample.arrays()) {
    CAPTURE(array.name);
    const auto found = std::find_if(file.tensors.begin(), file.tensors.end(),
                                    [&](const StoredTensor& tensor) { return tensor.name == array.name; });
    REQUIRE(found != file.tensors.end());
    CHECK(found->dtype == array.dtype);
    CHECK(found->shape == array.shape);
    CHECK(found->path == path);
    if (array.data) CHECK(std::memcmp(found->data, array.data, found->bytes) == 0);
  }
  CHECK(folder.count() == 1);
}

TEST_CASE("safetensors: the bytes are those that the Python package has been seen to read") {
  TempFolder folder;
  const char* golden = std::getenv("GEMLOUPE_GOLDEN");
  const fs::path path = (golden ? fs::path(golden) : folder.path()) / "written.safetensors";
  write_safetensors(path, Sample().arrays(), {{"format", "pt"}});
  CHECK(content(path) == content(tests_folder() / "store/data/written.safetensors"));
}

TEST_CASE("safetensors: tensors are views of the file, misaligned ones copies") {
  const std::string aligned = "{" + entry("a", "F32", "[1]", 0, 4) + "}";
  for (size_t pad = 0; pad < 8; ++pad) {
    const auto file = in_memory(with_header(aligned + std::string(pad, ' '), 4));
    const StoredTensor tensor = parse_safetensors(file).tensors.at(0);
    const bool view = tensor.data == file->data() + file->size() - 4;
    CHECK(view == ((aligned.size() + pad) % 4 == 0));
    CHECK(reinterpret_cast<uintptr_t>(tensor.data) % 4 == 0);
    CHECK(std::memcmp(tensor.data, "\x00\x01\x02\x03", 4) == 0);
  }
}

TEST_CASE("safetensors: a broken file is refused by name") {
  auto refused = [](const std::string& header, size_t size, std::initializer_list<std::string_view> parts) {
    const std::string message = message_of<BadCheckpoint>([&] { parse(header, size); });
    check_message(message, {"dir/model.safetensors"});
    check_message(message, parts);
  };
  const std::string a = entry("a", "F32", "[2]", 0, 8);

  SUBCASE("offsets") {
    refused("{" + a + "}", 7, {"tensor 'a'", "8", "7 bytes of data", "cut short"});
    refused("{" + a + "}", 9, {"1 bytes at the end", "belong to no tensor"});
    refused("{" + entry("a", "F32", "[2]", 8, 0) + "}", 8, {"tensor 'a'", "[8, 0]", "[begin, end]"});
    refused("{" + entry("a", "F32", "[2]", 0, 4) + "}", 4, {"'a'", "float32 of shape [2] takes 8 bytes", "span 4"});
    refused(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}})", 4, {"'a'", "data_offsets"});
    refused(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 99999999999999999999]}})", 4, {"'a'"});
  }
  SUBCASE("overlaps and holes") {
    refused("{" + a + ", " + entry("b", "F32", "[2]", 4, 12) + "}", 12, {"'a' and 'b' overlap", "byte"});
    refused("{" + a + ", " + entry("b", "F32", "[2]", 0, 8) + "}", 8, {"'a' and 'b' overlap"});
    refused("{" + a + ", " + entry("b", "F32", "[1]", 12, 16) + "}", 16, {"4 bytes before tensor 'b'"});
  }
  SUBCASE("names, types and shapes") {
    refused("{" + a + ", " + a + "}", 8, {"the header", "'a' twice"});
    refused("{" + entry("a", "F8_E4M3", "[8]", 0, 8) + "}", 8, {"tensor 'a'", "'F8_E4M3'", "gemloupe reads"});
    refused("{" + entry("a", "F32", "[-2]", 0, 8) + "}", 8, {"'a'", "'shape' is [-2]"});
    refused("{" + entry("a", "F32", "[4294967296, 4294967296]", 0, 8) + "}", 8, {"'a'", "more than 2^63"});
    refused("{" + entry("a", "F32", "[9223372036854775807]", 0, 8) + "}", 8, {"'a'", "more than 2^63"});
    refused("{" + entry("a", "F32", "2", 0, 8) + "}", 8, {"'a'", "'shape' is 2", "a list of sizes"});
    refused(R"({"a": {"shape": [2], "data_offsets": [0, 8]}})", 8, {"'a'", "'dtype' is missing"});
    refused(R"({"a": {"dtype": 3, "shape": [2], "data_offsets": [0, 8]}})", 8, {"'a'", "dtype is 3"});
    refused(R"({"a": 3})", 8, {"'a'", "expected an object"});
    refused(R"({"__metadata__": {"x": 3}})", 0, {"__metadata__", "'x' is 3", "a string"});
    refused(R"({"__metadata__": 3})", 0, {"__metadata__ is no object"});
  }
  SUBCASE("headers") {
    refused("[]", 0, {"does not begin with '{'"});
    refused("{\"a\": ", 0, {"the header", "not valid JSON"});
    refused("{\"\xff\": 1}", 0, {"the header", "UTF-8"});
    refused("{\"a\": " + std::string(100'000, '['), 0, {"the header", "deeper than 64"});
  }
  SUBCASE("lengths") {
    auto whole = [](const std::string& bytes, std::initializer_list<std::string_view> parts) {
      check_message(message_of<BadCheckpoint>([&] { parse_safetensors(in_memory(bytes, "m.safetensors")); }), parts);
    };
    whole("", {"m.safetensors", "cut short", "the header's length", "found 0"});
    whole("abc", {"m.safetensors", "cut short", "found 3"});
    whole(bytes_of<uint64_t>(100) + "{}", {"m.safetensors", "expected 100 bytes for the header", "found 2"});
    whole(bytes_of<uint64_t>(1) + "{", {"m.safetensors", "not valid JSON"});
    whole(bytes_of<uint64_t>(uint64_t{1} << 60), {"m.safetensors", "1152921504606846976", "no safetensors file"});
  }
}

TEST_CASE("safetensors: what cannot be written leaves nothing behind") {
  TempFolder folder;
  const fs::path path = folder.path() / "a.safetensors";
  const float one = 1;
  const ArrayToWrite good{"a", DType::F32, {1}, reinterpret_cast<const std::byte*>(&one)};
  auto refused = [&](std::vector<ArrayToWrite> arrays, std::initializer_list<std::string_view> parts) {
    check_message(message_of<CannotWrite>([&] { write_safetensors(path, arrays); }), parts);
  };
  refused({good, good}, {"a.safetensors", "'a' is given twice"});
  refused({{"\xff", DType::F32, {1}, good.data}}, {"a.safetensors", "'\\xff' cannot be written under that name"});
  refused({{"__metadata__", DType::F32, {1}, good.data}}, {"__metadata__"});
  refused({{"q", DType::Q4_K, {256}, good.data}}, {"'q'", "Q4_K", "dequantise"});
  refused({{"n", DType::F32, {-1}, good.data}}, {"'n'", "impossible shape [-1]"});
  CHECK_REFUSED(CannotWrite, write_safetensors(path, {}, {{"k", "\xff"}}), "a.safetensors", "UTF-8");
  CHECK(folder.count() == 0);
}

namespace {

/// A folder with two shards: `a` in the first, `b` in the second.
struct Shards {
  TempFolder folder;
  fs::path index = folder.path() / "model.safetensors.index.json";

  Shards() {
    shard("one.safetensors", {"a"});
    shard("two.safetensors", {"b"});
    map(R"({"a": "one.safetensors", "b": "two.safetensors"})");
  }

  void shard(const std::string& file, std::vector<std::string> names) {
    const float value = 1;
    std::vector<ArrayToWrite> arrays;
    for (const std::string& name : names)
      arrays.push_back({name, DType::F32, {1}, reinterpret_cast<const std::byte*>(&value)});
    write_safetensors(folder.path() / file, arrays);
  }

  void map(const std::string& map) { folder.add(index.filename(), R"({"metadata": {}, "weight_map": )" + map + "}"); }
};

}  // namespace

TEST_CASE("safetensors: shards are read as one") {
  Shards shards;
  const std::vector<StoredTensor> tensors = read_safetensors_shards(shards.index);
  REQUIRE(tensors.size() == 2);
  CHECK(tensors[0].name == "a");
  CHECK(tensors[1].path.filename() == "two.safetensors");
}

TEST_CASE("safetensors: broken sets of shards are refused by name") {
  Shards shards;
  SUBCASE("a shard is missing") {
    fs::remove(shards.folder.path() / "two.safetensors");
    CHECK_REFUSED(BadCheckpoint, read_safetensors_shards(shards.index), "index.json", "1 of 2 shards are missing",
                  "'two.safetensors'");
  }
  SUBCASE("a tensor is not in its shard") {
    shards.shard("two.safetensors", {"c"});
    CHECK_REFUSED(BadCheckpoint, read_safetensors_shards(shards.index), "tensor 'b' should be in 'two.safetensors'");
  }
  SUBCASE("a tensor is in two shards") {
    shards.shard("two.safetensors", {"a", "b"});
    CHECK_REFUSED(BadCheckpoint, read_safetensors_shards(shards.index), "'a' is in two shards", "'one.safetensors'");
  }
  SUBCASE("a path leaves the folder") {
    for (const char* name : {"../one.safetensors", "/etc/passwd", "..", "", "a\\u0000b"}) {
      shards.map(R"({"a": ")" + std::string(name) + "\"}");
      CHECK_REFUSED(BadCheckpoint, read_safetensors_shards(shards.index), "tensor 'a' is placed in",
                    "a file in the same folder");
    }
  }
  SUBCASE("the map is no map") {
    for (const char* map : {"3", "{}", R"({"a": 3})"}) {
      shards.map(map);
      CHECK_REFUSED(BadCheckpoint, read_safetensors_shards(shards.index), "index.json");
    }
    shards.folder.add(shards.index.filename(), "[]");
    CHECK_REFUSED(BadCheckpoint, read_safetensors_shards(shards.index), "index.json", "'weight_map' is missing");
  }
}
