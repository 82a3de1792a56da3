// Where a sample's text and items are in its shard, and the facts of its items: a row of the index.
//
// Thread safety: plain structs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/job.h"
#include "core/words.h"

namespace evenkeel::dataset {

// The place of one item's bytes, and its facts.
struct ItemPlace {
  uint64_t offset = 0;  // in the sample's shard
  uint64_t size = 0;
  uint64_t checksum = 0;  // ChecksumOf its bytes
  std::string suffix;
  // Empty: the item is in the sample's shard. Otherwise the file that it is: in the index relative to the dataset's
  // folder of media, from Index::places a path for ByteSource.
  std::string file;
  MediaFacts facts;
};

// kRow: a JSON object whose members are the sample, under names that the job may choose. kJsonPair, kRowPair: the same with
// a preference pair, whose items are there twice. The others: ids of tokens, as little-endian numbers of that type.
enum class TextForm : uint8_t {
  kNone = 0,
  kPlain = 1,
  kJson = 2,
  kRow = 3,
  kU8Tokens = 4,
  kI8Tokens = 5,
  kI16Tokens = 6,
  kI32Tokens = 7,
  kI64Tokens = 8,
  kU16Tokens = 9,
  kJsonPair = 10,
  kRowPair = 11,
};
inline constexpr TextForm kLastTextForm = TextForm::kRowPair;
inline bool AreTokens(TextForm form) { return form >= TextForm::kU8Tokens && form <= TextForm::kU16Tokens; }
inline bool IsPair(TextForm form) { return form == TextForm::kJsonPair || form == TextForm::kRowPair; }
// Bytes of an id; 0: not a form of tokens.
constexpr int TokenBytes(TextForm form) {
  switch (form) {
    case TextForm::kU8Tokens:
    case TextForm::kI8Tokens:
      return 1;
    case TextForm::kI16Tokens:
    case TextForm::kU16Tokens:
      return 2;
    case TextForm::kI32Tokens:
      return 4;
    case TextForm::kI64Tokens:
      return 8;
    default:
      return 0;
  }
}

struct SamplePlaces {
  uint32_t dataset = 0;
  std::string key;         // of a tar the WebDataset key, of other formats the line or row
  std::string shard_path;  // as in the job
  TextForm text_form = TextForm::kNone;
  uint64_t text_offset = 0;
  uint64_t text_size = 0;
  uint64_t text_checksum = 0;
  std::vector<ItemPlace> items;        // in the order of their placeholders
  const FieldNames* fields = nullptr;  // of kRow; owned by the index or whoever fills this
};

}  // namespace evenkeel::dataset
