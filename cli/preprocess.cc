// `evenkeel preprocess`: media files to the tensors of a model's processor, for comparison and debugging. It
// needs no tokenizer.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/commands.h"
#include "cli/preprocess_compare.h"
#include "cli/python.h"
#include "cli/quoted.h"
#include "cli/safetensors.h"
#include "core/status.h"
#include "dataset/source/byte_source.h"
#include "preprocess/processor.h"

namespace evenkeel::cli {
namespace {

struct Options {
  std::string processor;
  std::string audio_processor;
  ProcessorSpec pictures;  // only its options for images and video frames
  std::string wire = "f32";
  std::string out;
  bool json = false;
  bool one_sample = false;
  bool compare = false;
  PythonArguments python;
  std::vector<std::string> media;
};

struct MediaFile {
  std::string path;
  std::string suffix;
  Medium medium = Medium::kImage;
  uint32_t pictures_of_sample = 0;  // where the files are of one sample
};

// A tensor to which items are appended.
struct Field {
  preprocess::FieldSpec spec;
  uint64_t rows = 0;
  std::vector<std::byte> bytes;
};

std::optional<Medium> MediumOf(const std::string& suffix) {
  auto is_one_of = [&](std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), suffix) != names.end();
  };
  if (is_one_of({"jpg", "jpeg", "png", "webp", "gif", "tif", "tiff", "avif", "heic", "heif"}))
    return Medium::kImage;
  if (is_one_of({"mp4", "m4v", "mov", "avi", "mkv", "webm"})) return Medium::kVideo;
  if (is_one_of(
          {"wav", "flac", "mp3", "m4a", "aac", "ac3", "ogg", "oga", "opus", "mka", "aiff", "aif", "aifc"}))
    return Medium::kAudio;
  return std::nullopt;
}

absl::StatusOr<std::vector<MediaFile>> ListMedia(const Options& options) {
  std::vector<MediaFile> files;
  for (const std::string& path : options.media) {
    std::string suffix = std::filesystem::path(path).extension().string();
    suffix = absl::AsciiStrToLower(absl::string_view(suffix).substr(suffix.empty() ? 0 : 1));
    std::optional<Medium> medium = MediumOf(suffix);
    if (!medium)
      return absl::InvalidArgumentError(absl::StrCat(path, ": unknown file suffix; no medium has it"));
    files.push_back({path, suffix, *medium});
  }
  return files;
}

ProcessorSpec SpecOf(const Options& options, const std::vector<MediaFile>& files) {
  ProcessorSpec spec = options.pictures;
  spec.wire = options.compare          ? Wire::kF32
              : options.wire == "f32"  ? Wire::kF32
              : options.wire == "bf16" ? Wire::kBf16
                                       : Wire::kU8;
  for (const MediaFile& file : files) {
    if (file.medium == Medium::kAudio) {
      spec.audio = options.audio_processor.empty() ? options.processor : options.audio_processor;
    } else {
      spec.vision = options.processor;
    }
  }
  return spec;
}

Field& FieldOf(std::vector<Field>& fields, const preprocess::FieldSpec& spec) {
  for (Field& field : fields) {
    if (field.spec.name == spec.name) return field;
  }
  return fields.emplace_back(Field{spec, 0, {}});
}

// Appends the item's tensors to `fields` and returns its lengths.
absl::StatusOr<ItemLengths> AddItem(const preprocess::Processor& processor, const MediaFile& file,
                                    std::span<const std::byte> bytes, std::vector<Field>& fields) {
  EVENKEEL_ASSIGN_OR_RETURN(MediaFacts facts, processor.Probe(file.medium, file.suffix, bytes));
  if (file.medium == Medium::kImage) facts.pictures_in_sample = file.pictures_of_sample;
  EVENKEEL_ASSIGN_OR_RETURN(ItemLengths lengths, processor.Measure(facts));
  const std::vector<preprocess::FieldSpec>& specs = processor.fields(file.medium);
  for (const preprocess::FieldSpec& spec : specs) {
    Field& field = FieldOf(fields, spec);
    field.bytes.resize(field.bytes.size() + spec.num_bytes(lengths));
    field.rows += spec.extent(lengths);
  }
  std::vector<std::span<std::byte>> spans;
  spans.reserve(specs.size());
  for (const preprocess::FieldSpec& spec : specs) {
    spans.push_back(std::span(FieldOf(fields, spec).bytes).last(spec.num_bytes(lengths)));
  }
  EVENKEEL_RETURN_IF_ERROR(processor.Produce({file.medium, file.suffix, bytes, facts, lengths}, spans));
  return lengths;
}

void PrintSummary(const Options& options, const std::vector<MediaFile>& files,
                  const std::vector<ItemLengths>& lengths, const std::vector<TensorView>& tensors) {
  std::vector<std::string> items, fields;
  for (size_t i = 0; i < files.size(); ++i) {
    std::string medium(MediumName(files[i].medium));
    items.push_back(options.json ? absl::StrCat("{\"file\":", Quoted(files[i].path), ",\"medium\":\"", medium,
                                                "\",\"input_rows\":", lengths[i].input_rows,
                                                ",\"output_rows\":", lengths[i].output_rows, "}")
                                 : absl::StrCat(files[i].path, ": ", medium, ", ", lengths[i].input_rows,
                                                " rows, ", lengths[i].output_rows, " tokens"));
  }
  for (const TensorView& tensor : tensors) {
    std::string dtype(DTypeName(tensor.spec.dtype));
    std::string shape = absl::StrJoin(tensor.spec.shape, ",");
    fields.push_back(options.json ? absl::StrCat("{\"name\":\"", tensor.spec.name, "\",\"dtype\":\"", dtype,
                                                 "\",\"shape\":[", shape, "]}")
                                  : absl::StrCat(tensor.spec.name, " ", dtype, " [", shape, "]"));
  }
  if (options.json) {
    std::cout << "{\"items\":[" << absl::StrJoin(items, ",") << "],\"tensors\":["
              << absl::StrJoin(fields, ",") << "],\"out\":" << Quoted(options.out) << "}\n";
  } else {
    std::cout << absl::StrJoin(items, "\n") << "\n" << absl::StrJoin(fields, "\n") << "\n";
  }
}

absl::StatusOr<std::vector<std::byte>> ReadFile(const std::string& path) {
  const std::unique_ptr<dataset::ByteSource> source = dataset::MakeFileSource();
  EVENKEEL_ASSIGN_OR_RETURN(const uint64_t size, source->Size(path));
  std::vector<std::byte> bytes(size);
  EVENKEEL_RETURN_IF_ERROR(source->ReadAt(path, 0, bytes));
  return bytes;
}

// The fields of one file by one processor.
absl::StatusOr<std::vector<ComparedField>> FieldsOf(const preprocess::Processor& processor,
                                                    const MediaFile& file, std::span<const std::byte> bytes) {
  std::vector<Field> fields;
  EVENKEEL_RETURN_IF_ERROR(AddItem(processor, file, bytes, fields).status());
  std::vector<ComparedField> out;
  for (Field& field : fields) out.push_back({field.spec.name, field.spec.dtype, std::move(field.bytes)});
  return out;
}

// Native against transformers, file by file. True: no value differs.
absl::StatusOr<bool> Compare(const Options& options, const std::vector<MediaFile>& files) {
  ProcessorSpec spec = SpecOf(options, files);
  EVENKEEL_ASSIGN_OR_RETURN(const auto native, preprocess::Processor::LoadMedia(spec, Limits{}));
  Job job;
  job.processor = spec;
  job.processor.python = "transformers";
  EVENKEEL_ASSIGN_OR_RETURN(auto python, StartPython(options.python, job));
  EVENKEEL_ASSIGN_OR_RETURN(const auto theirs,
                            preprocess::Processor::LoadMedia(job.processor, Limits{}, std::move(python)));
  bool equal = true;
  for (const MediaFile& file : files) {
    EVENKEEL_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, ReadFile(file.path));
    const Comparison compared = CompareFields(FieldsOf(*native, file, bytes), FieldsOf(*theirs, file, bytes));
    equal = equal && compared.equal;
    for (const std::string& line : compared.lines) std::cout << file.path << ": " << line << "\n";
  }
  return equal;
}

absl::Status Run(const Options& options) {
  EVENKEEL_ASSIGN_OR_RETURN(std::vector<MediaFile> files, ListMedia(options));
  if (options.out.empty())
    return absl::InvalidArgumentError("--out is missing: the .safetensors file to write");
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<preprocess::Processor> processor,
                            preprocess::Processor::LoadMedia(SpecOf(options, files), Limits{}));
  std::vector<Field> fields;
  std::vector<ItemLengths> lengths;
  if (options.one_sample) {
    const auto pictures = std::count_if(files.begin(), files.end(),
                                        [](const MediaFile& file) { return file.medium == Medium::kImage; });
    for (MediaFile& file : files) file.pictures_of_sample = static_cast<uint32_t>(pictures);
  }
  for (const MediaFile& file : files) {
    EVENKEEL_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, ReadFile(file.path));
    absl::StatusOr<ItemLengths> item = AddItem(*processor, file, bytes, fields);
    if (!item.ok()) return AddContext(item.status(), file.path);
    lengths.push_back(*item);
  }
  std::vector<TensorView> tensors;
  for (const Field& field : fields) {
    TensorSpec spec{field.spec.name, field.spec.dtype, {field.rows}, nullptr};
    spec.shape.insert(spec.shape.end(), field.spec.trailing.begin(), field.spec.trailing.end());
    tensors.push_back({.spec = std::move(spec), .wire = field.bytes, .tokens = nullptr});
  }
  EVENKEEL_RETURN_IF_ERROR(WriteSafetensors(options.out, tensors));
  PrintSummary(options, files, lengths, tensors);
  return absl::OkStatus();
}

// Whose pixels an image becomes: the choices that differ between versions of the libraries.
void AddImageOptions(CLI::App& command, ProcessorSpec& pictures) {
  command
      .add_option("--like", pictures.like,
                  "Whose choice of image processors: transformers-5.23 (default) | transformers-4.57 | slow")
      ->check(CLI::IsMember({"transformers-5.23", "transformers-4.57", "slow"}));
  command
      .add_option(
          "--resampler", pictures.resampler,
          "Instead of --like: whose resize, bit for bit: pil (Pillow's) | pil13 (since its release 13) | "
          "aten_u8 (torchvision's)")
      ->check(CLI::IsMember({"pil", "pil13", "aten_u8"}))
      ->excludes("--like");
  command.add_option("--alpha", pictures.alpha, "Transparency: drop | white | r,g,b");
  command.add_option("--exif-orientation", pictures.exif_orientation, "ignore | apply");
  command.add_option("--sixteen-bit", pictures.sixteen_bit, "refuse_grey | clip_grey | high_byte | refuse");
  command.add_option("--cmyk", pictures.cmyk, "convert | refuse");
  command.add_option("--palette", pictures.palette, "convert | refuse");
  command.add_flag("--approximate", pictures.approximate, "Scale JPEGs in the DCT domain first");
}

// Which frames of a video become pictures, and of what size.
void AddVideoOptions(CLI::App& command, ProcessorSpec& pictures) {
  command.add_option("--frame-rule", pictures.frame_rule,
                     "qwen_vl_utils | fetch_video | transformers | uniform");
  command.add_option("--frames", pictures.frames, "Whose frames: torchcodec | pyav | decord | accurate")
      ->check(CLI::IsMember({"torchcodec", "pyav", "decord", "accurate"}))
      ->capture_default_str();
  command.add_option("--fps", pictures.fps, "Frames of a second of video; else the checkpoint's, else 2");
  command.add_option("--min-frames", pictures.min_frames, "At least; else the checkpoint's, else 4");
  command.add_option("--max-frames", pictures.max_frames, "At most; else the checkpoint's, else 768");
  command.add_option("--video-min-pixels", pictures.video_min_pixels,
                     "Of a frame; else the checkpoint's, else 100352");
  command.add_option("--video-max-pixels", pictures.video_max_pixels,
                     "Of a frame; else the checkpoint's, else 602112");
  command
      .add_option("--video-rotation", pictures.apply_video_rotation,
                  "What rotation metadata does: apply (turn frames) | ignore")
      ->transform(CLI::CheckedTransformer(std::map<std::string, bool>{{"apply", true}, {"ignore", false}}))
      ->default_str("apply");
}

}  // namespace

void AddPreprocessCommand(CLI::App& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("preprocess", kPreprocessDescription);
  command->add_option("--processor", options->processor, "Folder with preprocessor_config.json")->required();
  command->add_option("--audio-processor", options->audio_processor,
                      "Folder with the feature extractor's configuration; else --processor");
  AddImageOptions(*command, options->pictures);
  AddVideoOptions(*command, options->pictures);
  command->add_flag("--one-sample", options->one_sample,
                    "The files are media of one sample, on whose number some processors' cuts depend");
  command->add_option("--wire", options->wire, "Form of the pixels: f32 | bf16 | u8")
      ->check(CLI::IsMember({"f32", "bf16", "u8"}))
      ->capture_default_str();
  command->add_option("--min-pixels", options->pictures.min_pixels, "Override the checkpoint's");
  command->add_option("--max-pixels", options->pictures.max_pixels, "Override the checkpoint's");
  command->add_option("--out", options->out, "The .safetensors file to write; required without --compare");
  command->add_flag(
      "--compare", options->compare,
      "Compare each file's values with those of the folder's own processor in transformers, which "
      "--python needs; the exit code is 5 if any differ");
  AddInterpreterOption(*command, options->python);
  command->add_flag("--json", options->json, "Print the summary as JSON");
  command->add_option("media", options->media, "Images, audio clips, videos")->required();
  command->callback([options, exit_code] {
    if (!options->compare) {
      *exit_code = Report(Run(*options));
      return;
    }
    const absl::StatusOr<std::vector<MediaFile>> files = ListMedia(*options);
    const absl::StatusOr<bool> equal = files.ok() ? Compare(*options, *files) : files.status();
    *exit_code = !equal.ok() ? Report(equal.status()) : *equal ? kOk : kBadData;
  });
}

}  // namespace evenkeel::cli
