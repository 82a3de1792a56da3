// Makes one item as a worker does: probe, measure, allocate, produce.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "preprocess/processor.h"
#include "tests/preprocess/files.h"

namespace evenkeel::preprocess {

// Pictures and video of Qwen2-VL, audio of Qwen2-Audio.
inline ProcessorSpec GoldenSpec() {
  ProcessorSpec spec;
  spec.vision = GoldenPath("processors/qwen2-vl");
  spec.audio = GoldenPath("processors/qwen2-audio");
  return spec;
}

inline ProcessorSpec AudioSpec(const std::string& processor) {
  ProcessorSpec spec;
  spec.audio = GoldenPath("processors/" + processor);
  return spec;
}

struct Item {
  absl::Status status;
  MediaFacts facts;
  ItemLengths lengths;
  ItemNotes notes;
  std::vector<Bytes> fields;
};

inline Item MakeFrom(const Processor& processor, Medium medium, const std::string& suffix, const Bytes& bytes,
                     const MediaFacts& facts) {
  Item item;
  item.facts = facts;
  absl::StatusOr<ItemLengths> lengths = processor.Measure(facts);
  item.status = lengths.status();
  if (!lengths.ok()) return item;
  item.lengths = *lengths;
  for (const FieldSpec& field : processor.fields(medium)) {
    item.fields.emplace_back(field.num_bytes(*lengths), std::byte{0xa5});
  }
  std::vector<std::span<std::byte>> spans(item.fields.begin(), item.fields.end());
  item.status = processor.Produce({medium, suffix, bytes, facts, *lengths, &item.notes}, spans);
  return item;
}

inline Item Make(const ProcessorSpec& spec, Medium medium, const std::string& golden) {
  Item item;
  auto processor = Processor::LoadMedia(spec, Limits{});
  item.status = processor.status();
  if (!processor.ok()) return item;
  Bytes bytes = Golden(golden);
  absl::StatusOr<MediaFacts> facts = (*processor)->Probe(medium, SuffixOf(golden), bytes);
  item.status = facts.status();
  if (!facts.ok()) return item;
  return MakeFrom(**processor, medium, SuffixOf(golden), bytes, *facts);
}

}  // namespace evenkeel::preprocess
