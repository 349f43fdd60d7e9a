#include <zlib.h>

#include <cstring>

#include "gemloupe/base/errors.h"
#include "gemloupe/store/npy.h"
#include "gemloupe/store/npz.h"
#include "store/files.h"

using namespace gemloupe;
using namespace store_tests;

namespace {

fs::path data(const char* name) {
  return tests_folder() / "store/data" / name;
}

template <class T>
std::vector<T> values(const StoredTensor& tensor) {
  REQUIRE(tensor.bytes % sizeof(T) == 0);
  std::vector<T> out(tensor.bytes / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), tensor.data, tensor.bytes);
  return out;
}

const StoredTensor& named(const NpzFile& file, const std::string& name) {
  for (const StoredTensor& array : file.arrays)
    if (array.name == name) return array;
  FAIL("no array ", name);
  return file.arrays[0];
}

const std::vector<float> kFloats{1.5f, -2.0f, 0.0f, 3.25f, 1e-30f, -0.0f};
const std::vector<int64_t> kIds{1, -2};

std::vector<ArrayToWrite> sample() {
  auto bytes = [](const auto& vector) { return reinterpret_cast<const std::byte*>(vector.data()); };
  return {{"layers.0.output", DType::F32, {2, 3}, bytes(kFloats)},
          {"ids", DType::I64, {2}, bytes(kIds)},
          {"scalar ß", DType::F32, {}, bytes(kFloats)},
          {"empty", DType::F64, {0, 4}, nullptr}};
}

/// A .npy file with this header.
std::string npy(const std::string& header, size_t size, char version = 1) {
  std::string out("\x93NUMPY");
  out += version;
  out += '\0';
  out += version == 1 ? bytes_of(static_cast<uint16_t>(header.size())) : bytes_of(static_cast<uint32_t>(header.size()));
  return out + header + std::string(size, 'x');
}

StoredTensor parse(const std::string& bytes) {
  return parse_npy(in_memory(bytes), 0, bytes.size(), "w", "dir/w.npy");
}

void refused(const std::string& bytes, std::initializer_list<std::string_view> parts) {
  const std::string message = message_of<BadCheckpoint>([&] { parse(bytes); });
  check_message(message, {"dir/w.npy"});
  check_message(message, parts);
}

}  // namespace

TEST_CASE("npz: what numpy stored or deflated is read") {
  for (const char* name : {"numpy_stored.npz", "numpy_deflated.npz"}) {
    const NpzFile file = read_npz(data(name));
    CHECK(file.arrays.size() == 11);
    CHECK(values<uint16_t>(named(file, "f16")) == std::vector<uint16_t>{0x3E00, 0xC000, 0x7C00});
    CHECK(values<float>(named(file, "f32")) == std::vector<float>{0, 1, 2, 3, 4, 5});
    CHECK(named(file, "f32").shape == std::vector<int64_t>{2, 3});
    CHECK(values<double>(named(file, "f64")) == std::vector<double>{0.1});
    CHECK(named(file, "f64").shape.empty());
    CHECK(values<int64_t>(named(file, "i64")) == std::vector<int64_t>{-1, int64_t{1} << 40});
    CHECK(values<int32_t>(named(file, "i32")) == std::vector<int32_t>{INT32_MIN, 7});
    CHECK(values<int16_t>(named(file, "i16")) == std::vector<int16_t>{-300});
    CHECK(values<int8_t>(named(file, "i8")) == std::vector<int8_t>{-128, 127});
    CHECK(values<uint8_t>(named(file, "u8")) == std::vector<uint8_t>{0, 255});
    CHECK(values<uint8_t>(named(file, "bool")) == std::vector<uint8_t>{1, 0, 1});
    CHECK(named(file, "bool").dtype == DType::Bool);
    CHECK(named(file, "empty").shape == std::vector<int64_t>{0, 3});
    const auto fortran = values<int32_t>(named(file, "fortran"));
    REQUIRE(fortran.size() == 24);
    for (int i = 0; i < 24; ++i) CHECK(fortran[static_cast<size_t>(i)] == i);
  }
}

TEST_CASE("npz: what is written is read back, with and without 64-bit fields") {
  TempFolder folder;
  const fs::path path = folder.path() / "a.npz";
  for (uint64_t zip64_from : {uint64_t{0xFFFFFFFF}, uint64_t{0}}) {
    write_npz(path, sample(), {{"digest", "abc"}, {"note", "ß"}}, zip64_from);
    const NpzFile file = read_npz(path);
    CHECK(file.metadata == std::map<std::string, std::string>{{"digest", "abc"}, {"note", "ß"}});
    CHECK(file.arrays.size() == 4);
    CHECK(values<float>(named(file, "layers.0.output")) == kFloats);
    CHECK(named(file, "layers.0.output").shape == std::vector<int64_t>{2, 3});
    CHECK(values<int64_t>(named(file, "ids")) == kIds);
    CHECK(named(file, "scalar ß").shape.empty());
    CHECK(named(file, "empty").shape == std::vector<int64_t>{0, 4});
    for (const StoredTensor& array : file.arrays) CHECK(reinterpret_cast<uintptr_t>(array.data) % 64 == 0);
  }
  CHECK(folder.count() == 1);
}

TEST_CASE("npz and npy: the bytes are those that numpy has been seen to read") {
  TempFolder folder;
  const char* golden = std::getenv("GEMLOUPE_GOLDEN");
  const fs::path to = golden ? fs::path(golden) : folder.path();
  write_npz(to / "written.npz", sample(), {{"digest", "abc"}});
  write_npz(to / "written_64.npz", sample(), {{"digest", "abc"}}, 0);
  write_npy(to / "written.npy", sample()[0]);
  for (const char* name : {"written.npz", "written_64.npz", "written.npy"})
    CHECK(content(to / name) == content(data(name)));
}

TEST_CASE("npy: what is written is read back") {
  TempFolder folder;
  const fs::path path = folder.path() / "a.npy";
  write_npy(path, sample()[0]);
  const StoredTensor array = read_npy(path);
  CHECK(array.name == "a");
  CHECK(array.shape == std::vector<int64_t>{2, 3});
  CHECK(values<float>(array) == kFloats);
  CHECK(values<int32_t>(read_npy(data("numpy_fortran.npy")))[1] == 1);
}

TEST_CASE("npy: headers of all versions and spellings") {
  const StoredTensor old = parse(npy("{'shape': (2L, 3L), 'descr': \"=f4\", 'fortran_order': False}\n", 24, 2));
  CHECK(old.shape == std::vector<int64_t>{2, 3});
  CHECK(parse(npy("{'descr':'<i1','fortran_order':True,'shape':(4,)}", 4, 3)).dtype == DType::I8);
}

TEST_CASE("npy: files that are wrong are refused by name") {
  CHECK_REFUSED(BadCheckpoint, read_npy(data("numpy_big_endian.npy")), "numpy_big_endian.npy", "'>f4'",
                "little-endian");
  CHECK_REFUSED(BadCheckpoint, read_npy(data("numpy_text.npy")), "numpy_text.npy", "'<U1'");
  CHECK_REFUSED(BadCheckpoint, read_npy(data("numpy_fields.npy")), "numpy_fields.npy", "fields");
  refused("", {"cut short", "magic"});
  refused("PK\x03\x04xxxxxxx", {"this is no numpy array"});
  refused(npy("", 0, 9), {"format version 9", "1 to 3"});
  refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", 24).substr(0, 40),
          {"cut short", "the header"});
  refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", 23), {"[2, 3] takes 24 bytes", "found 23"});
  refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", 25), {"[2, 3] takes 24 bytes", "found 25"});
  refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}", 4), {"more than 2^63"});
  refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 4), {"a size beyond 2^63"});
  for (const char* header :
       {"", "{", "{}", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3}", "{'descr': '<f4",
        "{'descr': '<f4', 'fortran_order': None, 'shape': ()}", "{'descr' '<f4', 'fortran_order': False, 'shape': ()}",
        "{'descr': '<f4' 'fortran_order': False, 'shape': ()}", "{'x': 3, 'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 3}"})
    refused(npy(header, 4), {"its header should be {'descr'"});
}

TEST_CASE("npz: files that are wrong are refused by name") {
  TempFolder folder;
  const fs::path path = folder.path() / "a.npz";
  write_npz(path, sample());
  const std::string good = content(path);
  auto broken = [](const std::string& bytes, std::initializer_list<std::string_view> parts) {
    check_message(message_of<BadCheckpoint>([&] { parse_npz(in_memory(bytes, "dir/a.npz")); }), {"dir/a.npz"});
    check_message(message_of<BadCheckpoint>([&] { parse_npz(in_memory(bytes, "dir/a.npz")); }), parts);
  };
  auto changed = [&](size_t at, std::string_view bytes) {
    std::string copy = good;
    return copy.replace(at, bytes.size(), bytes);
  };
  const size_t row = good.find("PK\x01\x02"), end = good.rfind("PK\x05\x06");
  for (size_t length = 0; length < good.size(); ++length)
    CHECK_THROWS_AS(parse_npz(in_memory(good.substr(0, length))), BadCheckpoint);
  broken("", {"no end-of-archive record"});
  broken(changed(130, "\x77"), {"array 'layers.0.output'", "checksum"});
  broken(changed(row + 8, "\x01"), {"array 'layers.0.output' is encrypted"});
  broken(changed(row + 10, "\x0c"), {"array 'layers.0.output'", "method 12"});
  broken(changed(row + 20, "\x01"), {"array 'layers.0.output' has two different sizes"});
  broken(changed(row + 42, "\x05"), {"the header of 'layers.0.output.npy' is broken"});
  broken(changed(row + 46, "x"), {"the header of 'xayers.0.output.npy' is broken"});
  broken(changed(row + 46 + 16, "x"), {"member 'layers.0.output.xpy' is no array"});
  broken(changed(row, "xx"), {"its directory is broken"});
  broken(changed(end + 10, "\xff\x7f"), {"would have 32767 members"});
  broken(changed(row + 20, "\xff\xff\xff\x7f"), {"its members overlap, or are longer than the file"});
}

TEST_CASE("npz: deflated members that lie are refused") {
  std::string good = content(data("numpy_deflated.npz"));
  const size_t row = good.find("PK\x01\x02");
  auto with_size = [&](uint32_t size) { return std::string(good).replace(row + 24, 4, bytes_of(size)); };
  CHECK_REFUSED(BadCheckpoint, parse_npz(in_memory(with_size(0xFFFFFFF0))), "array 'f16'", "4294967280");
  CHECK_REFUSED(BadCheckpoint, parse_npz(in_memory(with_size(1000))), "'f16' cannot be unpacked",
                "expected 1000 bytes");
  CHECK_REFUSED(BadCheckpoint, parse_npz(in_memory(with_size(10))), "'f16' cannot be unpacked", "expected 10 bytes");
}

TEST_CASE("npz and npy: what cannot be written leaves nothing behind") {
  TempFolder folder;
  const ArrayToWrite bfloat{"b", DType::BF16, {1}, reinterpret_cast<const std::byte*>(kFloats.data())};
  CHECK_REFUSED(CannotWrite, write_npy(folder.path() / "a.npy", bfloat), "a.npy", "'b' is bfloat16", "widen it");
  CHECK_REFUSED(CannotWrite, write_npz(folder.path() / "a.npz", std::vector{sample()[0], bfloat}), "a.npz", "'b'");
  CHECK_REFUSED(CannotWrite, write_npz(folder.path() / "a.npz", std::vector{sample()[0], sample()[0]}), "a.npz",
                "unique");
  CHECK(folder.count() == 0);
  const std::vector<uint16_t> bits{0x3FC0, 0xC000};
  CHECK(widen_bfloat16({"b", DType::BF16, {2, 1}, reinterpret_cast<const std::byte*>(bits.data())}) ==
        std::vector<float>{1.5f, -2.0f});
}
