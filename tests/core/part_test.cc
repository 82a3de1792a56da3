#include "core/part.h"

#include <random>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/usual_phases.h"

namespace evenkeel {
namespace {

std::shared_ptr<const PixelExpansion> SmallExpansion(uint32_t width = 0) {
  auto expansion = std::make_shared<PixelExpansion>(PixelExpansion{3, 2, 1, 2, {}, width});
  for (int i = 0; i < 3 * 256; ++i) expansion->table.push_back(0.25f * i - 3);
  return expansion;
}

std::vector<std::byte> Filled(const PartLayout& layout, uint32_t seed) {
  std::vector<std::byte> part(layout.total_bytes(), std::byte{0xee});  // what the writer forgets shows
  layout.WriteHeader(part);
  std::mt19937 random(seed);
  for (size_t i = 0; i < layout.tensors().size(); ++i) {
    for (std::byte& byte : layout.tensor(part, i)) byte = static_cast<std::byte>(random());
  }
  return part;
}

std::vector<TensorSpec> RandomTensors(std::mt19937& random) {
  constexpr DType kTypes[] = {DType::kU8, DType::kI32, DType::kI64, DType::kF32, DType::kBf16, DType::kF64};
  std::vector<TensorSpec> tensors;
  size_t count = random() % 6;
  for (size_t i = 0; i < count; ++i) {
    TensorSpec spec;
    spec.name = absl::StrCat("t", i);
    spec.dtype = kTypes[random() % 6];
    for (size_t d = random() % 4; d > 0; --d) spec.shape.push_back(random() % 7);
    tensors.push_back(spec);
  }
  if (random() % 2 == 0)
    tensors.push_back({"pixel_values", DType::kU8, {random() % 5, 12}, SmallExpansion()});
  if (random() % 2 == 0) tensors.push_back({"wide", DType::kU8, {random() % 5, 30}, SmallExpansion(5)});
  return tensors;
}

TEST(Part, RoundTripsWhateverTheShapes) {
  std::mt19937 random(3);
  for (uint32_t round = 0; round < 500; ++round) {
    std::vector<TensorSpec> tensors = RandomTensors(random);
    PartName name{kUsualPhases[random() % 3], random(), static_cast<uint32_t>(random() % 9),
                  static_cast<uint32_t>(random() % 9), static_cast<uint32_t>(random() % 3)};
    std::vector<std::string> keys = {"photos/a.tar/1", "", "bytes that are not UTF-8: \xff\xfe"};
    PartLayout layout(name, 3, tensors, keys);
    std::vector<std::byte> bytes = Filled(layout, round);
    absl::StatusOr<PartView> part = ReadPart(bytes);
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_EQ(part->name, name);
    EXPECT_EQ(part->num_pieces, 3u);
    EXPECT_EQ(part->keys, keys);
    ASSERT_EQ(part->tensors.size(), tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TensorView& view = part->tensors[i];
      EXPECT_EQ(view.spec.name, tensors[i].name);
      EXPECT_EQ(view.spec.dtype, tensors[i].dtype);
      EXPECT_EQ(view.spec.shape, tensors[i].shape);
      ASSERT_EQ(view.spec.expansion == nullptr, tensors[i].expansion == nullptr);
      if (view.spec.expansion != nullptr) {
        EXPECT_EQ(*view.spec.expansion, *tensors[i].expansion);
      }
      std::span<std::byte> written = layout.tensor(bytes, i);
      EXPECT_EQ(view.bytes().data(), written.data());
      EXPECT_EQ(view.bytes().size(), written.size());
      EXPECT_EQ((view.bytes().data() - bytes.data()) % 64, 0);
    }
  }
}

TEST(Part, PatchesThatAreNoSquaresHaveTheirOwnColumns) {
  for (auto [width, columns, fits] :
       {std::tuple(5u, 30u, true), {5u, 12u, false}, {0u, 30u, false}, {1025u, 6150u, false}}) {
    PartLayout layout({kVisionPhase, 1, 2, 3, 0}, 1,
                      {{"pixel_values", DType::kU8, {1, columns}, SmallExpansion(width)}}, {"k"});
    const std::vector<std::byte> part = Filled(layout, 1);
    EXPECT_EQ(ReadPart(part).ok(), fits) << width << " " << columns;
  }
  const auto wide = SmallExpansion(5);
  std::vector<std::byte> bytes(2 * 30);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(7 * i);
  std::vector<float> floats(2 * 60);
  ASSERT_TRUE(ExpandPixels(*wide, bytes, floats).ok());
  for (size_t row = 0; row < 2; ++row) {
    for (size_t c = 0; c < 3; ++c) {
      for (size_t i = 0; i < 10; ++i) {
        const float expected = wide->table[256 * c + static_cast<size_t>(bytes[30 * row + 10 * c + i])];
        EXPECT_EQ(floats[60 * row + 20 * c + i], expected);
        EXPECT_EQ(floats[60 * row + 20 * c + 10 + i], expected);  // the frame that was not on the wire
      }
    }
  }
  EXPECT_FALSE(ExpandPixels(*SmallExpansion(7), bytes, floats).ok());
}

TEST(Part, IsTheSameBytesForTheSameInput) {
  PartLayout layout({kVisionPhase, 1, 2, 3, 0}, 1, {{"pixel_values", DType::kU8, {2, 12}, SmallExpansion()}},
                    {"k"});
  PartLayout again({kVisionPhase, 1, 2, 3, 0}, 1, {{"pixel_values", DType::kU8, {2, 12}, SmallExpansion()}},
                   {"k"});
  EXPECT_EQ(Filled(layout, 1), Filled(again, 1));
}

// The vector of docs/part-format.md.
TEST(Part, HasTheDocumentedBytes) {
  PartLayout layout({Phase::kLlm, 12, 3, 1, 0}, 1, {{"input_ids", DType::kI64, {2}, nullptr}}, {"d/s.tar/k"});
  std::vector<std::byte> part(layout.total_bytes(), std::byte{0xee});
  layout.WriteHeader(part);
  std::fill_n(layout.tensor(part, 0).data(), 16, std::byte{5});
  EXPECT_EQ(part.size(), 128u);
  EXPECT_EQ(DigestOf(part).Hex(), "fad53c9e5b74bf5ae8947e36ceeffc00");
}

TEST(Part, FindsTensorsByName) {
  PartLayout layout({Phase::kLlm, 0, 0, 0, 0}, 1,
                    {{"a", DType::kI32, {1}, nullptr}, {"b", DType::kF64, {}, nullptr}}, {});
  std::vector<std::byte> bytes = Filled(layout, 1);
  absl::StatusOr<PartView> part = ReadPart(bytes);
  ASSERT_TRUE(part.ok()) << part.status();
  ASSERT_NE(part->tensor("b"), nullptr);
  EXPECT_EQ(part->tensor("b")->bytes().size(), 8u);  // no dimensions: one element
  EXPECT_EQ(part->tensor("c"), nullptr);
}

TEST(Part, LongKeysAreDroppedRatherThanMakingThePartUnreadable) {
  std::vector<std::string> keys(20, std::string(1 << 20, 'k'));
  PartLayout layout({Phase::kLlm, 0, 0, 0, 0}, 1, {}, keys);
  std::vector<std::byte> bytes = Filled(layout, 1);
  absl::StatusOr<PartView> part = ReadPart(bytes);
  ASSERT_TRUE(part.ok()) << part.status();
  ASSERT_EQ(part->keys.size(), 20u);
  EXPECT_EQ(part->keys[15], keys[15]);
  EXPECT_EQ(part->keys[16], "");
}

TEST(Part, NamesItselfForMessages) {
  EXPECT_EQ(DescribePart({kVisionPhase, 12, 3, 0, 1}), "step 12 vision rank 3 microbatch 0 piece 1");
}

TEST(Part, DTypesHaveNamesAndSizes) {
  EXPECT_EQ(DTypeName(DType::kU8), "u8");
  EXPECT_EQ(DTypeName(DType::kBf16), "bf16");
  EXPECT_EQ(DTypeBytes(DType::kU8), 1u);
  EXPECT_EQ(DTypeBytes(DType::kBf16), 2u);
  EXPECT_EQ(DTypeBytes(DType::kI32), 4u);
  EXPECT_EQ(DTypeBytes(DType::kF32), 4u);
  EXPECT_EQ(DTypeBytes(DType::kI64), 8u);
  EXPECT_EQ(DTypeBytes(DType::kF64), 8u);
}

std::string DigestOfParts(const std::vector<TensorSpec>& tensors, std::vector<std::string> keys,
                          uint64_t step) {
  PartLayout layout({Phase::kLlm, step, 0, 0, 0}, 1, tensors, std::move(keys));
  std::vector<std::byte> bytes(layout.total_bytes());
  layout.WriteHeader(bytes);
  absl::StatusOr<PartView> part = ReadPart(bytes);
  EXPECT_TRUE(part.ok()) << part.status();
  Digester digester;
  DigestPart(*part, digester);
  return digester.Finish().Hex();
}

TEST(DigestPart, FollowsItsDefinitionAndIgnoresTheHeader) {
  Digester expected;
  expected.UpdateU64(1);
  expected.Update("a");
  expected.UpdateU64(2);  // i32
  expected.UpdateU64(2);
  expected.UpdateU64(2);
  expected.UpdateU64(3);
  expected.UpdateU64(24);
  expected.Update(std::string(24, '\0'));
  TensorSpec tensor{"a", DType::kI32, {2, 3}, nullptr};
  EXPECT_EQ(DigestOfParts({tensor}, {}, 1), expected.Finish().Hex());
  EXPECT_EQ(DigestOfParts({tensor}, {"key"}, 9), expected.Finish().Hex());
}

TEST(DigestPart, TellsNamesTypesAndShapesApart) {
  std::set<std::string> digests = {
      DigestOfParts({}, {}, 0),
      DigestOfParts({{"a", DType::kI32, {2, 3}, nullptr}}, {}, 0),
      DigestOfParts({{"b", DType::kI32, {2, 3}, nullptr}}, {}, 0),
      DigestOfParts({{"a", DType::kF32, {2, 3}, nullptr}}, {}, 0),
      DigestOfParts({{"a", DType::kI32, {3, 2}, nullptr}}, {}, 0),
      DigestOfParts({{"a", DType::kI32, {6}, nullptr}}, {}, 0),
  };
  EXPECT_EQ(digests.size(), 6u);
}

}  // namespace
}  // namespace evenkeel
