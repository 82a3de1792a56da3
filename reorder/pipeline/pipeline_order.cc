// Computes every rank's microbatch costs, orders them, and renumbers microbatches.
#include "reorder/pipeline/pipeline_order.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/status.h"
#include "reorder/loads.h"
#include "reorder/pipeline/microbatch_costs.h"

namespace evenkeel::reorder {
namespace {

// As if all items were kept with their samples.
MicrobatchCosts CostsOf(const PipelineModel& model, const Layout& layout,
                        const std::vector<EncoderUnits>& encoders, const LlmUnits& llm,
                        uint32_t num_microbatches) {
  const size_t ranks = layout.llm_ranks.size();
  const auto batch = [&](uint32_t s) { return size_t{llm.rank[s]} * num_microbatches + llm.microbatch[s]; };
  MicrobatchCosts costs(model.num_columns(), std::vector<double>(ranks * num_microbatches, 0));
  costs[0] = LlmCosts(layout, llm, num_microbatches);
  for (size_t e = 0; e < encoders.size(); ++e) {
    const std::optional<uint32_t> column = model.ColumnOfEncoder(e);
    if (!column.has_value()) continue;
    const double per_llm_rank = static_cast<double>(ranks) / layout.encoder_ranks[e].size();
    for (size_t i = 0; i < encoders[e].item.size(); ++i) {
      costs[*column][batch(encoders[e].sample[i])] +=
          CleanCost(layout.encoders[e]->cost, encoders[e].length[i]) * per_llm_rank;
    }
  }
  return costs;
}

// Orders the microbatches of all llm ranks.
class RankOrders {
 public:
  using Order = std::vector<uint32_t>;

  RankOrders(const PipelineModel& model, MicrobatchCosts costs, OrderProblem order, size_t ranks,
             uint32_t num_microbatches)
      : model_(model),
        costs_(std::move(costs)),
        order_(std::move(order)),
        ranks_(ranks),
        num_microbatches_(num_microbatches) {}

  // [ranks]
  absl::StatusOr<std::vector<Order>> Run() {
    order_.pipeline = model_.Problem(OfRank(0));
    EVENKEEL_RETURN_IF_ERROR(CheckPipeline(order_.pipeline));
    clock_.emplace(order_.pipeline);
    order_.alike = &*clock_;
    EVENKEEL_ASSIGN_OR_RETURN(std::vector<Order> alone, EachAlone());
    const bool searches = order_.algorithm != "given" && order_.algorithm != "random";
    if (!searches || ranks_ == 1 || !model_.HasShared()) return alone;
    EVENKEEL_ASSIGN_OR_RETURN(Order one, OneForAll());
    const std::vector<Order> together(ranks_, one);
    return StepTime(together) < StepTime(alone) ? together : alone;
  }

 private:
  // [columns][microbatches]
  MicrobatchCosts OfRank(size_t rank) const { return CostsOfRank(costs_, rank, num_microbatches_); }

  // The pipelines of all ranks have the same schedule, which is laid out once.
  absl::StatusOr<std::vector<Order>> EachAlone() {
    OrderProblem order = order_;
    order.iterations = std::max<uint32_t>(1, static_cast<uint32_t>(order.iterations / ranks_));
    std::vector<Order> orders;
    for (size_t r = 0; r < ranks_; ++r) {
      order.pipeline = model_.Problem(OfRank(r));
      EVENKEEL_ASSIGN_OR_RETURN(orders.emplace_back(), OrderMicrobatches(order));
    }
    return orders;
  }

  // Of the pipeline with the mean times of all ranks.
  absl::StatusOr<Order> OneForAll() {
    MicrobatchCosts mean(model_.num_columns(), std::vector<double>(num_microbatches_, 0));
    for (uint32_t c = 0; c < model_.num_columns(); ++c) {
      for (size_t i = 0; i < costs_[c].size(); ++i) {
        mean[c][i % num_microbatches_] += costs_[c][i] / static_cast<double>(ranks_);
      }
    }
    order_.pipeline = model_.Problem(mean);
    return OrderMicrobatches(order_);
  }

  // Of the slowest rank. The work of encoders on ranks of their own is level among those within an index, so all llm
  // ranks wait equally long for it.
  double StepTime(const std::vector<Order>& orders) const {
    MicrobatchCosts shared(model_.num_columns());
    for (uint32_t c = 0; c < model_.num_columns(); ++c) {
      if (!model_.IsShared(c)) continue;
      shared[c].assign(num_microbatches_, 0);
      for (size_t i = 0; i < ranks_ * num_microbatches_; ++i) {
        const size_t rank = i / num_microbatches_, k = i % num_microbatches_;
        shared[c][k] += costs_[c][rank * num_microbatches_ + orders[rank][k]] / static_cast<double>(ranks_);
      }
    }
    const std::vector<uint32_t> in_order = InOrder(num_microbatches_);
    double slowest = 0;
    for (size_t r = 0; r < ranks_; ++r) {
      MicrobatchCosts costs = shared;
      for (uint32_t c = 0; c < model_.num_columns(); ++c) {
        if (model_.IsShared(c)) continue;
        for (uint32_t m : orders[r]) costs[c].push_back(costs_[c][r * num_microbatches_ + m]);
      }
      slowest = std::max(slowest, PipelineClock(model_.Problem(costs), &*clock_).Try(in_order, 0));
    }
    return slowest;
  }

  const PipelineModel& model_;
  const MicrobatchCosts costs_;
  OrderProblem order_;
  const size_t ranks_;
  const uint32_t num_microbatches_;
  std::optional<PipelineClock> clock_;
};

}  // namespace

absl::Status OrderForPipeline(const PipelineModel& model, const Layout& layout,
                              const std::vector<EncoderUnits>& encoders, OrderProblem order,
                              uint32_t num_microbatches, LlmUnits& llm) {
  const size_t ranks = layout.llm_ranks.size();
  RankOrders rank_orders(model, CostsOf(model, layout, encoders, llm, num_microbatches), std::move(order),
                         ranks, num_microbatches);
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<RankOrders::Order> orders, rank_orders.Run());
  std::vector<uint32_t> place(ranks * num_microbatches);
  for (size_t r = 0; r < ranks; ++r) {
    for (uint32_t k = 0; k < num_microbatches; ++k) place[r * num_microbatches + orders[r][k]] = k;
  }
  for (size_t s = 0; s < llm.rank.size(); ++s) {
    llm.microbatch[s] = place[size_t{llm.rank[s]} * num_microbatches + llm.microbatch[s]];
  }
  return absl::OkStatus();
}

}  // namespace evenkeel::reorder
