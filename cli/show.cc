// `evenkeel show`: the samples of a step for people, in the terminal and as a page.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands.h"
#include "cli/job_arguments.h"
#include "cli/progress.h"
#include "cli/python.h"
#include "cli/show_page.h"
#include "cli/show_terminal.h"
#include "cli/shown_sample.h"
#include "core/status.h"
#include "reorder/planner.h"
#include "stream/stream.h"

namespace evenkeel::cli {
namespace {

constexpr uint64_t kSamplesShown = 8;  // without --sample

struct ShowArguments {
  JobArguments job;
  uint64_t step = 0;
  std::optional<uint64_t> sample;
  std::string html;
  std::string colour = "auto";
  uint32_t width = 80;
  PythonArguments python;
};

// Colours are for a terminal whose user has not refused them (https://no-color.org), or where they are asked for.
bool WantsColour(const std::string& wish) {
  if (wish != "auto") return wish == "always";
  const char* refused = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool is_refused =
      (refused != nullptr && *refused != '\0') || (terminal != nullptr && std::string(terminal) == "dumb");
  return !is_refused && isatty(STDOUT_FILENO) == 1;
}

absl::Status WritePage(const std::string& path, const std::string& page) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << page;
  file.close();
  if (!file)
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": cannot be written; check the folder and its permissions"));
  return absl::OkStatus();
}

absl::Status Show(const ShowArguments& arguments) {
  EVENKEEL_ASSIGN_OR_RETURN(Job job, LoadJobOf(arguments.job));
  EVENKEEL_ASSIGN_OR_RETURN(std::shared_ptr<isolation::PythonPool> python,
                            StartPython(arguments.python, job));
  EVENKEEL_ASSIGN_OR_RETURN(const std::unique_ptr<stream::Stream> stream,
                            stream::OpenStream(std::move(job), std::move(python)));
  const ProcessorSpec& spec = stream->job.processor;
  EVENKEEL_ASSIGN_OR_RETURN(
      const auto tokenizer,
      preprocess::Tokenizer::Load(spec.tokenizer, spec.added_tokens, stream->job.limits.max_text_bytes));
  EVENKEEL_RETURN_IF_ERROR(stream::ReachSamples(*stream, arguments.step, PrintEveryFewSeconds()).status());
  EVENKEEL_ASSIGN_OR_RETURN(const stream::StepPlan plan, stream::PlanStep(*stream, arguments.step));
  const uint64_t count = plan.plan.samples.size();
  if (arguments.sample.has_value() && *arguments.sample >= count) {
    return absl::InvalidArgumentError(absl::StrCat("--sample ", *arguments.sample, ": step ", arguments.step,
                                                   " has samples 0 to ", count - 1));
  }
  const uint64_t begin = arguments.sample.value_or(0);
  const uint64_t end = arguments.sample.has_value() ? begin + 1 : std::min(count, kSamplesShown);
  const std::string title = absl::StrCat("step ", arguments.step, " of ", stream->job.name);
  const std::string note =
      absl::StrFormat("%d of its %d samples; %d microbatches a rank, %d tokens with loss in the step",
                      end - begin, count, plan.plan.num_microbatches, plan.plan.loss_tokens);
  const TerminalStyle style{.colour = WantsColour(arguments.colour), .width = arguments.width};
  std::cout << Visible(title) << ": " << note << "\n";
  std::vector<ShownSample> shown;
  for (uint64_t number = begin; number < end; ++number) {
    EVENKEEL_ASSIGN_OR_RETURN(ShownSample sample, ShowSample(*stream, plan, *tokenizer, number));
    std::cout << "\n" << SampleLines(sample, style);
    if (!arguments.html.empty()) shown.push_back(std::move(sample));
  }
  if (end < count && !arguments.sample.has_value())
    std::cout << "\n" << count - end << " more: --sample " << end << " and so on\n";
  if (arguments.html.empty()) return absl::OkStatus();
  return WritePage(arguments.html, ShowPage(title, note, shown));
}

}  // namespace

void AddShowCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("show", kShowDescription);
  auto arguments = std::make_shared<ShowArguments>();
  AddJobOptions(*command, arguments->job);
  command->add_option("--step", arguments->step, "The step")->required();
  command->add_option("--sample", arguments->sample,
                      "One sample, by its number in the step (default: the first 8)");
  command->add_option("--html", arguments->html, "Also write a page that needs no other file");
  command
      ->add_option("--colour", arguments->colour,
                   "Colours and pictures: auto (on a terminal, unless NO_COLOR is set) | always | never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  command->add_option("--width", arguments->width, "Columns of the terminal")
      ->check(CLI::Range(20, 1000))
      ->capture_default_str();
  AddInterpreterOption(*command, arguments->python);
  command->callback([arguments, exit_code] { *exit_code = Report(Show(*arguments)); });
}

}  // namespace evenkeel::cli
