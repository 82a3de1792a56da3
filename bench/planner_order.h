// The figures of microbatch orders: bench_planner --order [DRAWS] [FILE.csv ...], --pipelines.
#pragma once

#include <vector>

#include "core/words.h"

// Over all draws. The best order known is the best of a search of eight times as many orders and of ours.
struct OrderFigures {
  int draws = 0;
  int not_worse = 0;  // draws in which ours takes no longer than the given order and DistTrain's
  double closed = 0;  // by ours, of the gap from a random order to the best known one
  double disttrain_closed = 0;
  double over_optimum = 0;      // mean time over that of the best of all orders, 8 microbatches on 4 stages
  double few_over_optimum = 0;  // the same of a search that may try an eighth of them
};

// Prints a table in Markdown, with a row for each shape of a pipeline: iteration times over the best order
// known, and the share of the gap from a random order to it that is closed.
OrderFigures MeasureOrders(const std::vector<std::vector<evenkeel::SampleLengths>>& traces, int draws,
                           bool print);

// Prints what planning a step of a job with pipelines takes, and how much of that the order of the
// microbatches does: 153,600 samples, three phases.
void PrintPipelinePlans();
