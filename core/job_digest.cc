// Writes the canonical texts of a job, whose hashes are the stream and layout digests. docs/digests.md
// specifies the text: change this file, the document and the fixed vectors together, and with them
// kStreamVersion.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/implied_media.h"
#include "core/job.h"

namespace evenkeel {
namespace {

std::string_view ShuffleName(Shuffle shuffle) {
  constexpr std::string_view kNames[] = {"none", "full", "blocked"};
  return kNames[static_cast<size_t>(shuffle)];
}

std::string_view WireName(Wire wire) {
  constexpr std::string_view kNames[] = {"u8", "bf16", "f32"};
  return kNames[static_cast<size_t>(wire)];
}

void AddNumber(CanonicalText* text, std::string_view key, uint64_t value) { text->Add(key, value); }

void AddGiven(CanonicalText* text, std::string_view key, const std::string& value) {
  if (!value.empty()) text->Add(key, std::string_view(value));
}

void AddDatasets(const Job& job, CanonicalText* text) {
  for (const DatasetSpec& dataset : job.datasets) {
    text->Add("dataset.name", std::string_view(dataset.name));
    text->Add(dataset.repeats ? "dataset.repeat" : "dataset.weight", dataset.weight);
    for (const WeightChange& change : dataset.changes) {
      AddNumber(text, "dataset.from_draw", change.from_draw);
      text->Add("dataset.weight", change.weight);
    }
    // Younger than the first release, as changes of weights and the split are: named only where they are set, so that older
    // jobs keep their digests.
    if (dataset.max_epochs > 0) text->Add("dataset.max_epochs", dataset.max_epochs);
    AddConditions(dataset.where, text);
  }
  AddSplit(job.SplitRange(), job.split_seed, text);
}

void AddProcessor(const ProcessorSpec& processor, CanonicalText* text) {
  text->Add("processor.chat", std::string_view(processor.chat));
  text->Add("processor.system", std::string_view(processor.system));
  AddGiven(text, "processor.labels", processor.labels);
  if (processor.loss_weights) text->Add("processor.loss_weights", std::string_view("data"));
  AddGiven(text, "processor.date", processor.date);
  for (const std::string& token : processor.added_tokens) {
    text->Add("processor.added_token", std::string_view(token));
  }
  AddGiven(text, "processor.like", processor.like);
  AddGiven(text, "processor.resampler", processor.resampler);
  // A key that is not given and one that is given with the default's value read alike here. Where they yield
  // other bytes (the checkpoint has another value), the processor's own text, which is part of the stream,
  // differs.
  AddNumber(text, "processor.min_pixels", processor.min_pixels.value_or(0));
  AddNumber(text, "processor.max_pixels", processor.max_pixels.value_or(0));
  text->Add("processor.fps", processor.fps.value_or(kVideoDefaults.fps));
  AddNumber(text, "processor.min_frames", processor.min_frames.value_or(kVideoDefaults.min_frames));
  AddNumber(text, "processor.max_frames", processor.max_frames.value_or(kVideoDefaults.max_frames));
  AddNumber(text, "processor.video_min_pixels",
            processor.video_min_pixels.value_or(kVideoDefaults.min_pixels));
  AddNumber(text, "processor.video_max_pixels",
            processor.video_max_pixels.value_or(kVideoDefaults.max_pixels));
  text->Add("processor.frames", std::string_view(processor.frames));
  // Younger than the first release: named only where they are set, so that older jobs keep their digests.
  if (processor.truncate != "none") text->Add("processor.truncate", std::string_view(processor.truncate));
  if (!processor.frame_rule.empty())
    text->Add("processor.frame_rule", std::string_view(processor.frame_rule));
  if (!processor.apply_video_rotation) text->Add("processor.video_rotation", std::string_view("ignore"));
  if (processor.use_audio_in_video) AddNumber(text, "processor.use_audio_in_video", 1);
  AddGiven(text, "processor.alpha", processor.alpha);
  AddGiven(text, "processor.exif_orientation", processor.exif_orientation);
  AddGiven(text, "processor.sixteen_bit", processor.sixteen_bit);
  AddGiven(text, "processor.cmyk", processor.cmyk);
  AddGiven(text, "processor.palette", processor.palette);
  if (processor.approximate) AddNumber(text, "processor.approximate", 1);
  AddGiven(text, "processor.python", processor.python);
}

void AddLimits(const Limits& limits, CanonicalText* text) {
  AddNumber(text, "limits.max_image_bytes", limits.max_image_bytes);
  AddNumber(text, "limits.max_audio_bytes", limits.max_audio_bytes);
  AddNumber(text, "limits.max_video_bytes", limits.max_video_bytes);
  AddNumber(text, "limits.max_text_bytes", limits.max_text_bytes);
  AddNumber(text, "limits.max_image_pixels", limits.max_image_pixels);
  AddNumber(text, "limits.max_image_side", limits.max_image_side);
  AddNumber(text, "limits.max_jpeg_scans", limits.max_jpeg_scans);
  AddNumber(text, "limits.max_decode_ratio", limits.max_decode_ratio);
  AddNumber(text, "limits.max_video_pixels", limits.max_video_pixels);
  AddNumber(text, "limits.max_video_frames", limits.max_video_frames);
  AddNumber(text, "limits.max_streams", limits.max_streams);
  AddNumber(text, "limits.max_audio_seconds", limits.max_audio_seconds);
  AddNumber(text, "limits.max_llm_length", limits.max_llm_length);
  AddNumber(text, "limits.max_json_depth", limits.max_json_depth);
  AddNumber(text, "limits.max_items", limits.max_items);
  // Younger than the first release: named only where it is set, so that older jobs keep their digests.
  if (limits.max_jpeg_coefficient_bytes != Limits().max_jpeg_coefficient_bytes) {
    AddNumber(text, "limits.max_jpeg_coefficient_bytes", limits.max_jpeg_coefficient_bytes);
  }
}

std::string_view BatchingName(const PhaseSpec& phase) {
  if (phase.padded_attention) return "padded_attention";
  return phase.batching == Batching::kPacked ? "packed" : "padded";
}

// Whether the name implies the media: named only where it does not, so that older jobs keep their digests.
bool EncodesImpliedMedia(const Phase& phase) {
  const std::optional<Phase> implied = PhaseOfImpliedMedia(phase.name());
  return implied.has_value() && MediaNames(phase) == MediaNames(*implied);
}

void AddPhase(const PhaseSpec& phase, CanonicalText* text) {
  text->Add("phase.name", PhaseName(phase.phase));
  if (!EncodesImpliedMedia(phase.phase)) {
    text->Add("phase.media", std::string_view(MediaNames(phase.phase)));
  }
  if (phase.phase.is_generator()) text->Add("phase.kind", std::string_view("generator"));
  text->Add("phase.ranks", std::string_view(absl::StrJoin(phase.ranks, ",")));
  if (!phase.mesh.is_data_alone()) {
    text->Add("phase.mesh.order", std::string_view(MeshOrderName(phase.mesh.order)));
    text->Add("phase.mesh.sizes", std::string_view(absl::StrJoin(phase.mesh.sizes, ",")));
    text->Add("phase.mesh.ranks", std::string_view(absl::StrJoin(phase.mesh.ranks, ",")));
  }
  text->Add("phase.cost.constant", phase.cost.constant);
  text->Add("phase.cost.linear", phase.cost.linear);
  text->Add("phase.cost.quadratic", phase.cost.quadratic);
  text->Add("phase.cost.mask_factor", phase.cost.mask_factor);
  text->Add("phase.batching", BatchingName(phase));
  text->Add("phase.runs",
            std::string_view(phase.runs == Runs::kOncePerStep ? "once_per_step" : "once_per_microbatch"));
  text->Add("phase.algorithm", std::string_view(phase.algorithm));
  AddNumber(text, "phase.min_items", phase.min_items);
  if (phase.tolerance) text->Add("phase.tolerance", *phase.tolerance);
  if (phase.equal_counts) AddNumber(text, "phase.equal_counts", 1);
  if (phase.node_wise) AddNumber(text, "phase.node_wise", 1);
  if (phase.capacity != 0) AddNumber(text, "phase.capacity", phase.capacity);
}

CanonicalText StreamText(const Job& job, const Digest& index, const Digest& processor) {
  CanonicalText text("evenkeel stream");
  AddNumber(&text, "stream_version", kStreamVersion);
  text.Add("index", std::string_view(index.Hex()));
  text.Add("processor", std::string_view(processor.Hex()));
  AddNumber(&text, "seed", job.seed);
  AddDatasets(job, &text);
  AddNumber(&text, "batch.samples", job.batch.samples);
  AddNumber(&text, "batch.llm_tokens", job.batch.llm_tokens);
  AddNumber(&text, "batch.window_samples", job.batch.window_samples);
  AddPack(job.batch.pack, &text);
  AddChunk(job.batch.chunk, &text);
  text.Add("order.shuffle", ShuffleName(job.order.shuffle));
  AddNumber(&text, "order.block_samples", job.order.block_samples);
  AddNumber(&text, "order.window_blocks", job.order.window_blocks);
  if (job.order.heavy > 0) {
    AddNumber(&text, "order.level", job.order.level_steps);
    text.Add("order.heavy", job.order.heavy);
  }
  AddProcessor(job.processor, &text);
  AddLimits(job.limits, &text);
  for (const std::string& line : job.exclude) text.Add("exclude", std::string_view(line));
  // Younger than the first release: named only where they are set, so that older jobs keep their digests.
  for (const std::string& name : job.columns) text.Add("column", std::string_view(name));
  if (!job.columns.empty()) AddNumber(&text, "limits.max_column_bytes", job.limits.max_column_bytes);
  return text;
}

void AddGroups(const GroupSpec& groups, CanonicalText* text) {
  if (!groups.given) return;
  text->Add("topology.groups.sizes", std::string_view(absl::StrJoin(groups.sizes, ",")));
  AddNumber(text, "topology.groups.tokens_per_rank", groups.tokens_per_rank);
  text->Add("topology.groups.algorithm", std::string_view(groups.algorithm));
  text->Add("topology.groups.ring", groups.ring);
  text->Add("topology.groups.ring_between_nodes", groups.ring_between_nodes);
  text->Add("topology.groups.ring_constant", groups.ring_constant);
  AddNumber(text, "topology.groups.media_attention", groups.media_attend_fully ? 1 : 0);
}

CanonicalText LayoutText(const Job& job) {
  CanonicalText text("evenkeel layout");
  AddNumber(&text, "topology.ranks_per_node", job.ranks_per_node);
  AddNumber(&text, "topology.pipeline_stages", job.pipeline_stages);
  AddNumber(&text, "topology.virtual_stages", job.virtual_stages);
  for (const PhaseSpec& phase : job.phases) AddPhase(phase, &text);
  if (job.phases_add_up) text.Add("ranks_meet", std::string_view("end_of_step"));
  AddNumber(&text, "microbatch.capacity_tokens", job.microbatch.capacity_tokens);
  AddNumber(&text, "microbatch.pad_to", job.microbatch.pad_to);
  AddNumber(&text, "microbatch.align", job.microbatch.align);
  AddNumber(&text, "microbatch.count_multiple", job.microbatch.count_multiple);
  text.Add("wire", WireName(job.processor.wire));
  if (job.sequences != Sequences::kWhole) text.Add("topology.sequences", SequencesName(job.sequences));
  AddPipeline(job.pipeline, &text);
  AddGroups(job.groups, &text);
  return text;
}

}  // namespace

void AddPack(const PackSpec& pack, CanonicalText* text) {
  if (pack.bins == 0) return;
  AddNumber(text, "batch.pack.bins", pack.bins);
  text->Add("batch.pack.algorithm", std::string_view(pack.algorithm));
  for (const BinCapacity& capacity : pack.capacities) {
    text->Add("batch.pack.capacity.phase", std::string_view(capacity.phase));
    AddNumber(text, "batch.pack.capacity.length", capacity.length);
  }
}

void AddChunk(const ChunkSpec& chunk, CanonicalText* text) {
  if (chunk.count == 0) return;
  AddNumber(text, "batch.chunk.length", chunk.length);
  AddNumber(text, "batch.chunk.count", chunk.count);
}

Digest StreamDigest(const Job& job, const Digest& index, const Digest& processor) {
  return StreamText(job, index, processor).digest();
}

std::string StreamCanonicalText(const Job& job, const Digest& index, const Digest& processor) {
  return StreamText(job, index, processor).text();
}

Digest LayoutDigest(const Job& job) { return LayoutText(job).digest(); }

std::string LayoutCanonicalText(const Job& job) { return LayoutText(job).text(); }

}  // namespace evenkeel
