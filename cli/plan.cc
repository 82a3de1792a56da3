// `evenkeel plan`: prints the plan of one step, or how alike the bins of several are.
#include <iostream>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/job_arguments.h"
#include "cli/pack_report.h"
#include "cli/plan_report.h"
#include "cli/progress.h"
#include "cli/python.h"
#include "core/status.h"
#include "reorder/planner.h"
#include "stream/stream.h"

namespace evenkeel::cli {
namespace {

struct PlanArguments {
  JobArguments job;
  uint64_t step = 0;
  uint64_t steps = 0;  // whose bins are measured; 0: one step is planned
  bool json = false;
  PythonArguments python;
};

absl::Status ShowPlan(const PlanArguments& arguments) {
  EVENKEEL_ASSIGN_OR_RETURN(Job job, LoadJobOf(arguments.job));
  EVENKEEL_ASSIGN_OR_RETURN(std::shared_ptr<isolation::PythonPool> python,
                            StartPython(arguments.python, job));
  EVENKEEL_ASSIGN_OR_RETURN(const std::unique_ptr<stream::Stream> stream,
                            stream::OpenStream(std::move(job), std::move(python)));
  if (arguments.steps > 0) {
    EVENKEEL_ASSIGN_OR_RETURN(const std::string report,
                              PackReport(*stream, arguments.step, arguments.steps, arguments.json));
    std::cout << report;
    return absl::OkStatus();
  }
  EVENKEEL_RETURN_IF_ERROR(stream::ReachSamples(*stream, arguments.step, PrintEveryFewSeconds()).status());
  EVENKEEL_ASSIGN_OR_RETURN(const stream::StepPlan plan, stream::PlanStep(*stream, arguments.step));
  EVENKEEL_RETURN_IF_ERROR(reorder::PlanCheck(stream->job, plan.samples, plan.plan));
  if (!arguments.json) {
    std::cout << PlanTable(*stream, plan);
    return absl::OkStatus();
  }
  EVENKEEL_ASSIGN_OR_RETURN(const std::string json, PlanJson(*stream, plan));
  std::cout << json << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddPlanCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("plan", kPlanDescription);
  auto arguments = std::make_shared<PlanArguments>();
  AddJobOptions(*command, arguments->job);
  command->add_option("--step", arguments->step, "The step")->required();
  command
      ->add_option(
          "--steps", arguments->steps,
          "With batch.pack: instead of a plan, how full and how alike the bins of this many steps are")
      ->check(CLI::Range(1, 1000000));
  AddInterpreterOption(*command, arguments->python);
  command->add_flag("--json", arguments->json, "One JSON document: samples, items, loads, routes");
  command->callback([arguments, exit_code] { *exit_code = Report(ShowPlan(*arguments)); });
}

}  // namespace evenkeel::cli
