// Conversations made of arbitrary bytes: never a crash; what is built has the measured lengths.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "preprocess/text/positions.h"
#include "preprocess/text/sequence_builder.h"
#include "tests/source_dir.h"

namespace evenkeel::preprocess {
namespace {

std::unique_ptr<SequenceBuilder> LoadBuilder(const char* chat) {
  ProcessorSpec spec;
  spec.added_tokens = {"<|begin_of_text|>",
                       "<|start_header_id|>",
                       "<|end_header_id|>",
                       "<|eot_id|>",
                       "<s>",
                       "</s>",
                       "<bos>",
                       "<start_of_turn>",
                       "<end_of_turn>",
                       "[INST]",
                       "[/INST]",
                       "[SYSTEM_PROMPT]",
                       "[/SYSTEM_PROMPT]"};
  spec.truncate = "text";
  spec.tokenizer = SourceDir() + "/tests/golden/tokenizer";
  spec.chat = chat;
  SequenceStyle style{.media = {{Medium::kImage, "<|vision_start|>", "<|image_pad|>", "<|vision_end|>", true},
                                {Medium::kAudio, "<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>", false}},
                      .merge_size = 2,
                      .tokens_per_second = 2};
  Limits limits;
  limits.max_llm_length = 4096;
  absl::StatusOr<std::unique_ptr<SequenceBuilder>> builder = SequenceBuilder::Load(spec, limits, style);
  if (!builder.ok()) std::abort();
  return *std::move(builder);
}

std::vector<std::unique_ptr<SequenceBuilder>> LoadBuilders() {
  std::vector<std::unique_ptr<SequenceBuilder>> out;
  for (const char* chat : {"chatml", "gemma", "internvl", "llama3", "llava", "mistral", "pixtral", "plain",
                           "qwen2_audio", "template", "vicuna"}) {
    out.push_back(LoadBuilder(chat));
  }
  return out;
}

struct Sample {
  Conversation conversation;
  std::vector<SampleItem> items;
  std::vector<ItemPlaceholders> placeholders;
};

// A byte of the input says what comes next: a turn, a medium, or that many bytes of text.
Sample Parse(const uint8_t* data, size_t size) {
  Sample out;
  out.conversation.turns.emplace_back();
  for (size_t at = 0; at < size;) {
    uint8_t what = data[at++];
    Turn& turn = out.conversation.turns.back();
    if (what < 8) {
      out.conversation.turns.push_back({static_cast<Role>(what % 4), {}});
    } else if (what == 8) {
      out.conversation.plain = !out.conversation.plain;
    } else if (what < 16) {
      VisionGrid grid{what % 3u, 2u * (what % 4u), 2u * (what % 5u), 0.5f * static_cast<float>(what)};
      Medium medium = what % 2 == 0 ? Medium::kImage : Medium::kAudio;
      turn.spans.push_back({medium, "", static_cast<uint32_t>(out.items.size())});
      out.items.push_back({medium, {0, 0, static_cast<uint32_t>(*MergedTokens(grid, 2))}});
      const uint32_t rows = out.items.back().lengths.output_rows;
      if (grid.t == 2) {  // told apart, as timed videos are
        VisionGrid half{1, grid.h, grid.w, grid.second_per_grid};
        out.placeholders.push_back({{"<0.5 s>", rows / 2, half}, {"\n", rows / 2, half}});
      } else {
        out.placeholders.push_back({{"", rows, grid}});
      }
    } else {
      size_t bytes = std::min<size_t>(what - 15, size - at);
      turn.spans.push_back({Medium::kText, {reinterpret_cast<const char*>(data + at), bytes}, 0});
      at += bytes;
    }
  }
  return out;
}

void Check(const SequenceBuilder& builder, const Sample& sample) {
  Sequence sequence;
  const absl::Status built = builder.Build(sample.conversation, sample.items, sample.placeholders, sequence);
  absl::StatusOr<SequenceLengths> lengths =
      builder.Measure(sample.conversation, sample.items, sample.placeholders);
  if (built.ok() != lengths.ok()) std::abort();
  if (!built.ok()) {
    if (absl::IsInternal(built)) std::abort();
    return;
  }
  uint64_t loss = 0;
  for (int64_t label : sequence.labels) loss += label != -100;
  if (lengths->llm_length != sequence.input_ids.size() || lengths->loss_tokens != loss) std::abort();
}

}  // namespace
}  // namespace evenkeel::preprocess

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<std::unique_ptr<evenkeel::preprocess::SequenceBuilder>> builders =
      evenkeel::preprocess::LoadBuilders();
  evenkeel::preprocess::Sample sample = evenkeel::preprocess::Parse(data, size);
  for (const auto& builder : builders) evenkeel::preprocess::Check(*builder, sample);
  return 0;
}
