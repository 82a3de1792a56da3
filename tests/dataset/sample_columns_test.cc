// The columns of samples: as they are in the data, in the job's order, within their room.
#include "dataset/format/sample_columns.h"

#include <gtest/gtest.h>

namespace evenkeel::dataset {
namespace {

Job JobOf(std::vector<std::string> columns, uint64_t room = 1024) {
  Job job;
  job.columns = std::move(columns);
  job.limits.max_column_bytes = room;
  return job;
}

absl::StatusOr<std::string> ColumnsOf(const std::string& json, const Job& job) {
  JsonDocument document;
  absl::StatusOr<const JsonValue*> root = document.Parse(json, 64);
  EXPECT_TRUE(root.ok()) << root.status();
  std::string out = "before";
  const absl::Status status = AppendColumns(*root, job, "a/17", out);
  if (status.ok()) return out.substr(6);
  EXPECT_EQ(out, "before");
  return status;
}

TEST(Columns, AreTheNamedMembersInTheJobsOrder) {
  EXPECT_EQ(*ColumnsOf(R"({"id": 17, "messages": [], "source": "web"})", JobOf({"source", "id"})),
            R"({"source": "web", "id": 17})");
}

TEST(Columns, KeepValuesAsTheyAreInTheData) {
  EXPECT_EQ(
      *ColumnsOf(R"({"n":1.50,"big":123456789012345678901234567890,"e":1E+2,"z":-0,"s":"\u00e4\u0001\n\"",)"
                 R"("list":[1, {"a":null}],"flag":true})",
                 JobOf({"n", "big", "e", "z", "s", "list", "flag"})),
      "{\"n\": 1.50, \"big\": 123456789012345678901234567890, \"e\": 1E+2, \"z\": -0, "
      "\"s\": \"\xc3\xa4\\u0001\\n\\\"\", \"list\": [1, {\"a\": null}], \"flag\": true}");
}

TEST(Columns, ThatASampleDoesNotHaveAreNull) {
  EXPECT_EQ(*ColumnsOf(R"({"id": null})", JobOf({"id", "source"})), R"({"id": null, "source": null})");
  EXPECT_EQ(*ColumnsOf(R"([{"id": 1}])", JobOf({"id"})), R"({"id": null})") << "a list of turns";
  std::string out;
  ASSERT_TRUE(AppendColumns(nullptr, JobOf({"id", "__key__"}), "a/17", out).ok());
  EXPECT_EQ(out, R"({"id": null, "__key__": "a/17"})");
}

TEST(Columns, HaveTheSamplesKeyByItsSpecialName) {
  EXPECT_EQ(*ColumnsOf(R"({"__key__": "another"})", JobOf({"__key__"})), R"({"__key__": "a/17"})");
}

TEST(Columns, AreNothingWithoutNames) { EXPECT_EQ(*ColumnsOf(R"({"id": 17})", JobOf({}, 1)), ""); }

TEST(Columns, BeyondTheirRoomAreRefusedWithBothSizes) {
  const std::string object = R"({"id": "0123456789"})";
  EXPECT_EQ(*ColumnsOf(object, JobOf({"id"}, object.size())), object);
  const absl::Status refused = ColumnsOf(object, JobOf({"id"}, object.size() - 1)).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(refused.message(), "20 bytes of columns; limits.max_column_bytes is 19");
}

TEST(Columns, HaveRoomForNullInPlaceOfEveryValue) {
  const std::string nulls = R"({"a": null, "b": null})";
  for (const char* json : {R"({"a": 1, "b": 2})", R"({"a": 1})", R"({"a": "long text", "b": 2})", "{}"}) {
    for (uint64_t room = 0; room < 40; ++room) {
      if (ColumnsOf(json, JobOf({"a", "b"}, room)).ok()) {
        EXPECT_GE(room, nulls.size()) << json;
      }
    }
  }
}

}  // namespace
}  // namespace evenkeel::dataset
