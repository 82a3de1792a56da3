// The figures of microbatch orders: bench_planner --order [DRAWS] [FILE.csv ...].
#pragma once

#include <vector>

#include "core/words.h"

// Prints a table in Markdown: per shape of a pipeline, iteration times over the best order known (a search of
// eight times as many orders), and the share of the gap from a random order to the best one that is closed.
void PrintOrders(const std::vector<std::vector<evenkeel::SampleLengths>>& traces, int draws);
