// Chats -> sequences, for test_parity_text.py: each line of the standard input is a JSON object with a
// processor, a sample's JSON text and the facts of its media; each line of the output is what the model gets,
// or the error. Of a line with a template's text alone: whether a style stands for it.
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dataset/format/sample_parser.h"
#include "preprocess/processor.h"
#include "preprocess/text/known_templates.h"

namespace evenkeel::preprocess {
namespace {

using Json = nlohmann::json;

struct Loaded {
  Limits limits;
  std::unique_ptr<Processor> processor;
};

absl::StatusOr<Loaded> Load(const Json& of) {
  ProcessorSpec spec;
  spec.vision = of.value("vision", "");
  spec.audio = of.value("audio", "");
  spec.tokenizer = of.at("tokenizer");
  spec.chat = of.at("chat");
  spec.labels = of.value("labels", spec.labels);
  spec.date = of.value("date", "");
  spec.resampler = of.value("resampler", spec.resampler);
  spec.system = of.value("system", "");
  spec.added_tokens = of.value("added_tokens", std::vector<std::string>());
  spec.truncate = of.value("truncate", spec.truncate);
  Loaded loaded;
  loaded.limits.max_llm_length = of.value("max_llm_length", uint64_t{loaded.limits.max_llm_length});
  absl::StatusOr<std::unique_ptr<Processor>> processor = Processor::Load(spec, loaded.limits);
  if (!processor.ok()) return processor.status();
  loaded.processor = *std::move(processor);
  return loaded;
}

MediaFacts FactsOf(Medium medium, const Json& of) {
  MediaFacts facts;
  facts.medium = medium;
  facts.width = of.value("width", 0u);
  facts.height = of.value("height", 0u);
  facts.num_frames = of.value("frames", 0u);
  facts.fps_num = of.value("fps", 0u);
  facts.fps_den = 1;
  facts.sample_rate = of.value("sample_rate", 0u);
  facts.channels = 1;
  facts.num_samples = of.value("samples", uint64_t{0});
  return facts;
}

absl::StatusOr<Json> SequenceOf(const Loaded& loaded, const Json& request) {
  dataset::TextParser parser;
  const std::string text = request.at("sample");
  absl::StatusOr<const dataset::ParsedText*> parsed = parser.ParseChat(text, loaded.limits);
  if (!parsed.ok()) return parsed.status();
  std::vector<MediaFacts> facts;
  std::vector<SampleItem> items;
  for (const dataset::MediaReference& reference : (*parsed)->references) {
    facts.push_back(FactsOf(reference.medium, request.at("facts").at(facts.size())));
    if (reference.medium == Medium::kImage) {  // as the index counts
      for (const dataset::MediaReference& other : (*parsed)->references) {
        facts.back().pictures_in_sample += other.medium == Medium::kImage;
      }
    }
    absl::StatusOr<ItemLengths> lengths = loaded.processor->Measure(facts.back());
    if (!lengths.ok()) return lengths.status();
    items.push_back({reference.medium, *lengths});
  }
  Sequence sequence;
  const absl::Status built = loaded.processor->BuildSequence((*parsed)->conversation, items, facts, sequence);
  if (!built.ok()) return built;
  return Json{{"ids", sequence.input_ids}, {"labels", sequence.labels}, {"types", sequence.token_types}};
}

void Answer(const std::string& line) {
  static std::map<std::string, absl::StatusOr<Loaded>> processors;
  const Json request = Json::parse(line);
  if (request.contains("template")) {
    std::cout << Json{{"known", KnownTemplateOf(request.at("template").get<std::string>()) != nullptr}}
              << std::endl;
    return;
  }
  const std::string name = request.at("processor").dump();
  auto found = processors.find(name);
  if (found == processors.end()) found = processors.emplace(name, Load(request.at("processor"))).first;
  const absl::StatusOr<Json> answer =
      found->second.ok() ? SequenceOf(*found->second, request) : found->second.status();
  const Json out = answer.ok() ? *answer : Json{{"error", answer.status().ToString()}};
  std::cout << out.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) << std::endl;
}

}  // namespace
}  // namespace evenkeel::preprocess

int main() {
  for (std::string line; std::getline(std::cin, line);) evenkeel::preprocess::Answer(line);
}
