// Every invariant of a plan, stated once. Written against core/plan.h and the job alone: nothing here comes
// from the code that makes plans, so that the two can disagree.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/planned_tokens.h"
#include "core/status.h"
#include "reorder/planner.h"

namespace evenkeel::reorder {
namespace {

template <typename... Parts>
absl::Status Broken(const Parts&... parts) {
  return absl::InternalError(absl::StrCat("plan check: ", parts...));
}

std::string NameOf(const Phase& phase) { return std::string(PhaseName(phase)); }

class Checker {
 public:
  Checker(const Job& job, const StepSamples& step, const Plan& plan) : job_(job), step_(step), plan_(plan) {}

  absl::Status Run() {
    EVENKEEL_RETURN_IF_ERROR(CheckSamples());
    EVENKEEL_RETURN_IF_ERROR(CheckItems());
    EVENKEEL_RETURN_IF_ERROR(CheckGroups());
    EVENKEEL_RETURN_IF_ERROR(CheckPhases());
    EVENKEEL_RETURN_IF_ERROR(CheckBins());
    return CheckRoutes();
  }

 private:
  // --- what the step consists of

  absl::Status CheckSamples() const {
    if (plan_.step != step_.step) return Broken("step ", plan_.step, " instead of ", step_.step);
    if (plan_.samples.size() != step_.refs.size()) {
      return Broken(plan_.samples.size(), " samples instead of ", step_.refs.size());
    }
    uint64_t loss_tokens = 0, items = 0;
    const uint64_t align = std::max(1u, job_.microbatch.align);
    const Batching batching = job_.phase(Phase::kLlm)->batching;
    for (size_t s = 0; s < plan_.samples.size(); ++s) {
      const PlannedSample& sample = plan_.samples[s];
      const SampleLengths& lengths = step_.lengths[s];
      if (sample.llm_length != PlannedTokens(lengths, align, batching).tokens) {
        return Broken("sample ", s, " of ", lengths.llm_length, " tokens is planned as ", sample.llm_length);
      }
      if (sample.loss_tokens != lengths.loss_tokens) return Broken("sample ", s, " has other loss tokens");
      if (sample.first_item != items || sample.num_items != lengths.items.size()) {
        return Broken("sample ", s, " has other items");
      }
      items += lengths.items.size();
      loss_tokens += lengths.loss_tokens;
    }
    if (plan_.loss_tokens != loss_tokens)
      return Broken(plan_.loss_tokens, " loss tokens instead of ", loss_tokens);
    if (plan_.items.size() < items) return Broken("items are missing");
    return absl::OkStatus();
  }

  absl::Status CheckItems() const {
    size_t i = 0;
    for (uint32_t s = 0; s < plan_.samples.size(); ++s) {
      uint32_t media = 0;
      for (const SampleItem& expected : step_.lengths[s].items) {
        const PlannedItem& item = plan_.items[i];
        media += expected.begins_medium() ? 1 : 0;
        if (item.sample != s || item.ordinal != media - 1 || item.medium != expected.medium ||
            item.tower != expected.tower || !(item.lengths == expected.lengths)) {
          return Broken("item ", i, " is not item ", media - 1, " of sample ", s);
        }
        ++i;
      }
    }
    for (; i < plan_.items.size(); ++i) {
      if (plan_.items[i].sample != kDummy)
        return Broken("item ", i, " belongs to no sample and is not a dummy");
    }
    for (i = 0; i < plan_.items.size(); ++i) {
      if (!IsInItsPhase(plan_.items[i])) return Broken("item ", i, " is in a phase that does not encode it");
    }
    return absl::OkStatus();
  }

  // Samples of one bin, and no others, are a microbatch of a rank.
  absl::Status CheckBins() const {
    const std::vector<uint32_t>& begin = step_.bin_begin;
    std::set<std::pair<uint32_t, uint32_t>> taken;
    for (size_t b = 0; b + 1 < begin.size(); ++b) {
      if (begin[b] == begin[b + 1]) continue;
      const Place& first = plan_.samples[begin[b]].place;
      for (uint32_t s = begin[b]; s < begin[b + 1]; ++s) {
        const Place& place = plan_.samples[s].place;
        if (place.rank != first.rank || place.microbatch != first.microbatch)
          return Broken("bin ", b, " is split");
      }
      if (!taken.emplace(first.rank, first.microbatch).second)
        return Broken("bin ", b, " shares its microbatch");
    }
    return absl::OkStatus();
  }

  // In every microbatch the groups are of the job's pool and share out the ranks, and samples are on first ranks, within what
  // the group holds.
  absl::Status CheckGroups() const {
    const size_t ranks = job_.phase(Phase::kLlm)->ranks.size(), microbatches = plan_.num_microbatches;
    if (plan_.groups.size() != (job_.groups.given ? ranks * microbatches : 0)) {
      return Broken(plan_.groups.size(), " groups");
    }
    for (size_t r = 0; r < ranks && job_.groups.given; ++r) {
      for (size_t m = 0; m < microbatches; ++m) {
        const RankGroup& group = plan_.groups[r * microbatches + m];
        const bool is_in_it = group.size > 0 && group.first <= r && r - group.first < group.size;
        if (!is_in_it || group.size > ranks - group.first) return Broken("rank ", r, " is not in its group");
        const std::vector<uint32_t>& sizes = job_.groups.sizes;
        if (!std::binary_search(sizes.begin(), sizes.end(), group.size) || group.first % group.size != 0) {
          return Broken("ranks ", group.first, "+", group.size, " are no group of the pool");
        }
        if (!(plan_.groups[group.first * microbatches + m] == group)) {
          return Broken("rank ", r, " and the first rank of its group are in two groups");
        }
      }
    }
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> held;
    for (size_t s = 0; s < plan_.samples.size() && job_.groups.given; ++s) {
      const Place& place = plan_.samples[s].place;
      if (place.rank >= ranks || place.microbatch >= microbatches)
        return Broken("sample ", s, " has no such place");
      const RankGroup& group = plan_.groups[place.rank * microbatches + place.microbatch];
      if (group.first != place.rank) return Broken("sample ", s, " is not on the first rank of its group");
      uint64_t& tokens = held[{place.rank, place.microbatch}];
      tokens += plan_.samples[s].llm_length;
      if (tokens > group.size * job_.groups.tokens_per_rank) {
        return Broken("a group of ", group.size, " ranks has ", tokens, " tokens");
      }
    }
    return absl::OkStatus();
  }

  // Of the llm in groups: every member has its share of the group's cost and tokens.
  absl::Status CheckGroupLoads(const PhaseSpec& spec, const PhasePlan& phase) const {
    uint64_t sum = 0, all = 0;
    for (const PlannedSample& sample : plan_.samples) all += sample.llm_length;
    for (uint32_t r = 0; r < phase.ranks.size(); ++r) {
      double load = 0, tokens = 0;
      for (uint32_t m = 0; m < phase.num_microbatches; ++m) {
        const RankGroup& group = plan_.groups[r * size_t{phase.num_microbatches} + m];
        const size_t b = group.first * size_t{phase.num_microbatches} + m;
        for (uint32_t at = phase.begin[b]; at < phase.begin[b + 1]; ++at) {
          const uint32_t unit = phase.order[at];
          for (uint64_t length : SequencesOf(spec, unit))
            load += Clean(spec.cost(static_cast<double>(length))) / group.size;
          tokens += static_cast<double>(TokensOf(phase.phase, unit)) / group.size;
        }
      }
      if (!(std::abs(phase.load_after[r] - load) <= 1e-9 * load))
        return Broken("rank ", r, " has load ", load);
      if (!(std::abs(static_cast<double>(phase.tokens_after[r]) - tokens) <= phase.num_microbatches)) {
        return Broken("rank ", r, " has ", tokens, " tokens, not as stated");
      }
      sum += phase.tokens_after[r];
    }
    return sum == all ? absl::OkStatus() : Broken("the shares of tokens do not add up");
  }

  // Of the job's phases that encode the medium, the one of the item's tower; a dummy may be of any.
  bool IsInItsPhase(const PlannedItem& item) const {
    if (item.phase >= job_.phases.size()) return false;
    uint8_t before = 0;
    for (size_t p = 0; p < item.phase; ++p) before += job_.phases[p].phase.encodes(item.medium) ? 1 : 0;
    const Phase& phase = job_.phases[item.phase].phase;
    if (phase == Phase::kLlm) return false;
    if (item.sample == kDummy) return true;
    if (item.tower == kTargetTower) return phase.generates(item.medium);
    return phase.encodes(item.medium) && before == item.tower;
  }

  // --- where everything is

  absl::Status CheckPhases() const {
    if (plan_.phases.size() != job_.phases.size()) return Broken("it has ", plan_.phases.size(), " phases");
    const uint32_t multiple = std::max(1u, job_.microbatch.count_multiple);
    if (plan_.num_microbatches == 0 || plan_.num_microbatches % multiple != 0) {
      return Broken(plan_.num_microbatches, " microbatches are not a multiple of ", multiple);
    }
    for (size_t p = 0; p < job_.phases.size(); ++p) {
      if (absl::Status status = CheckPhase(job_.phases[p], plan_.phases[p]); !status.ok()) {
        return AddContext(status, NameOf(job_.phases[p].phase));
      }
    }
    return absl::OkStatus();
  }

  bool IsOf(const PlannedItem& item, const Phase& phase) const {
    return job_.phases[item.phase].phase == phase;
  }
  const Place& PlaceOf(const Phase& phase, uint32_t unit) const {
    return phase == Phase::kLlm ? plan_.samples[unit].place : plan_.items[unit].place;
  }
  uint64_t TokensOf(const Phase& phase, uint32_t unit) const {
    return phase == Phase::kLlm ? plan_.samples[unit].llm_length : plan_.items[unit].lengths.cost_length;
  }

  absl::Status CheckPhase(const PhaseSpec& spec, const PhasePlan& phase) const {
    if (phase.phase != spec.phase || phase.ranks != spec.ranks) return Broken("its ranks are not the job's");
    const bool per_microbatch = spec.phase == Phase::kLlm || spec.runs == Runs::kOncePerMicrobatch;
    if (phase.num_microbatches != (per_microbatch ? plan_.num_microbatches : 1)) {
      return Broken(phase.num_microbatches, " microbatches");
    }
    const size_t buckets = phase.ranks.size() * phase.num_microbatches;
    if (phase.begin.size() != buckets + 1 || phase.begin.front() != 0 ||
        phase.begin.back() != phase.order.size() || !std::is_sorted(phase.begin.begin(), phase.begin.end())) {
      return Broken("`begin` does not cut `order` into ", buckets, " batches");
    }
    const size_t units = spec.phase == Phase::kLlm ? plan_.samples.size() : plan_.items.size();
    std::vector<bool> seen(units, false);
    for (size_t b = 0; b < buckets; ++b) EVENKEEL_RETURN_IF_ERROR(CheckBatch(spec, phase, b, seen));
    for (size_t u = 0; u < units; ++u) {
      const bool belongs = spec.phase == Phase::kLlm || IsOf(plan_.items[u], spec.phase);
      if (seen[u] != belongs) return Broken("unit ", u, belongs ? " is in no batch" : " is of another phase");
    }
    return CheckLoads(spec, phase);
  }

  absl::Status CheckBatch(const PhaseSpec& spec, const PhasePlan& phase, size_t bucket,
                          std::vector<bool>& seen) const {
    const uint32_t rank = static_cast<uint32_t>(bucket / phase.num_microbatches);
    const uint32_t microbatch = static_cast<uint32_t>(bucket % phase.num_microbatches);
    const uint32_t begin = phase.begin[bucket], end = phase.begin[bucket + 1];
    Medium last = Medium::kText;
    for (uint32_t at = begin; at < end; ++at) {
      const uint32_t unit = phase.order[at];
      if (unit >= seen.size() || seen[unit])
        return Broken("unit ", unit, " is in two batches or none at all");
      seen[unit] = true;
      if (!(PlaceOf(phase.phase, unit) == Place{rank, microbatch, at - begin})) {
        return Broken("unit ", unit, " has another place than `order` says");
      }
      if (phase.phase == Phase::kLlm) continue;
      const PlannedItem& item = plan_.items[unit];
      if (item.medium < last) {
        return Broken(std::string(MediumName(item.medium)), " ", unit, " comes after ",
                      std::string(MediumName(last)), " items");
      }
      last = item.medium;
      if (spec.runs == Runs::kOncePerMicrobatch && item.sample != kDummy &&
          plan_.samples[item.sample].place.microbatch != microbatch) {
        return Broken("item ", unit, " is encoded in microbatch ", microbatch, ", not in that of its sample");
      }
    }
    if (phase.phase != Phase::kLlm && end - begin < spec.min_items) {
      return Broken("rank ", rank, " microbatch ", microbatch, " has ", end - begin, " items, fewer than ",
                    spec.min_items);
    }
    return absl::OkStatus();
  }

  // The lengths of a unit's sequences: one, or of a preference pair two.
  std::vector<uint64_t> SequencesOf(const PhaseSpec& spec, uint32_t unit) const {
    const uint64_t length = TokensOf(spec.phase, unit);
    if (spec.phase != Phase::kLlm || step_.lengths[unit].chosen_length == 0) return {length};
    const uint64_t align = std::max(1u, job_.microbatch.align);
    const uint64_t chosen = PlannedTokens(step_.lengths[unit], align, spec.batching).chosen;
    return {chosen, length - chosen};
  }

  static double Clean(double cost) { return std::min(1e200, std::max(0.0, cost)); }
  static double WithoutAttention(Cost cost, uint64_t length) {
    cost.quadratic = 0;
    return Clean(cost(static_cast<double>(length)));
  }
  static double AttentionOf(const Cost& cost, uint64_t length) {
    const auto n = static_cast<double>(length);
    return Clean(cost.quadratic * n * n * (1 + cost.mask_factor));
  }

  // What a rank has to do, recomputed from the plan, and what a batch of the llm holds. Sums in another order
  // may differ in the last digits.
  absl::Status CheckLoads(const PhaseSpec& spec, const PhasePlan& phase) const {
    const size_t ranks = phase.ranks.size();
    if (phase.load_before.size() != ranks || phase.load_after.size() != ranks ||
        phase.tokens_before.size() != ranks || phase.tokens_after.size() != ranks) {
      return Broken("loads and tokens are not one per rank");
    }
    const bool padded_attention = spec.padded_attention && spec.batching == Batching::kPacked;
    const bool is_grouped = spec.phase == Phase::kLlm && job_.groups.given;
    uint64_t before = 0, after = 0;
    for (size_t r = 0; r < ranks; ++r) {
      after += phase.tokens_before[r];
      double load = 0;
      uint64_t tokens = 0;
      for (uint32_t m = 0; m < phase.num_microbatches; ++m) {
        double sum = 0, heaviest = 0, attention = 0;
        uint64_t of_batch = 0, longest = 0, of_items = 0, longest_item = 0, num_items = 0;
        const size_t b = r * phase.num_microbatches + m;
        for (uint32_t at = phase.begin[b]; at < phase.begin[b + 1]; ++at) {
          const uint64_t length = TokensOf(phase.phase, phase.order[at]);
          double cost = 0, of_attention = 0;
          for (uint64_t n : SequencesOf(spec, phase.order[at])) {
            cost += Clean(spec.cost(static_cast<double>(n)));
            sum +=
                padded_attention ? WithoutAttention(spec.cost, n) : Clean(spec.cost(static_cast<double>(n)));
            of_attention += AttentionOf(spec.cost, n);
          }
          of_batch += length;
          longest = std::max(longest, length);
          heaviest = std::max(heaviest, cost);
          attention = std::max(attention, of_attention);
          if (phase.phase == Phase::kLlm || plan_.items[phase.order[at]].sample != kDummy) {
            of_items += length;
            longest_item = std::max(longest_item, length);
            ++num_items;
          }
        }
        before += of_items;
        const bool is_packed = spec.batching == Batching::kPacked;
        const uint64_t encoded = is_packed ? of_items : num_items * longest_item;
        if (spec.phase != Phase::kLlm && spec.capacity != 0 && encoded > spec.capacity) {
          return Broken("batch ", b, " has ", encoded, " tokens; it may have ", spec.capacity);
        }
        const uint32_t count = phase.begin[b + 1] - phase.begin[b];
        const uint64_t held = is_packed ? of_batch : count * longest;
        if (spec.phase == Phase::kLlm && held > Capacity()) {
          return Broken("batch ", b, " has ", held, " tokens; it may have ", Capacity());
        }
        tokens += of_batch;
        load += is_packed ? sum : count * heaviest;
        if (padded_attention) load += count * attention;
      }
      if (is_grouped) continue;
      if (phase.tokens_after[r] != tokens)
        return Broken("rank ", r, " has ", tokens, " tokens, not as stated");
      if (!(std::abs(phase.load_after[r] - load) <= 1e-9 * load))
        return Broken("rank ", r, " has load ", load);
    }
    if (before != after) return Broken("tokens before balancing do not add up");
    return is_grouped ? CheckGroupLoads(spec, phase) : absl::OkStatus();
  }

  // Tokens that a batch of the llm may have.
  uint64_t Capacity() const {
    const uint64_t capacity = job_.microbatch.capacity_tokens, pad_to = job_.microbatch.pad_to;
    return std::min(capacity == 0 ? UINT64_MAX : capacity, pad_to == 0 ? UINT64_MAX : pad_to);
  }

  // --- how the rows travel

  absl::Status CheckRoutes() const {
    size_t next = 0;
    for (const PhasePlan& encoder : plan_.phases) {
      if (encoder.phase == Phase::kLlm) continue;
      for (uint32_t exchange = 0; exchange < encoder.num_microbatches; ++exchange, ++next) {
        if (next >= plan_.routes.size()) return Broken("a route is missing");
        const Route& route = plan_.routes[next];
        if (route.from != encoder.phase || route.to != Phase::kLlm || route.microbatch != exchange) {
          return Broken("route ", next, " is not that of ", NameOf(encoder.phase), " microbatch ", exchange);
        }
        if (absl::Status status = CheckRoute(route, encoder); !status.ok()) {
          return AddContext(status, absl::StrCat("route ", next, " from ", NameOf(encoder.phase)));
        }
      }
    }
    if (next != plan_.routes.size())
      return Broken("it has ", plan_.routes.size(), " routes instead of ", next);
    return absl::OkStatus();
  }

  // Consecutive rows that belong to one item, on one rank.
  struct Rows {
    uint64_t first = 0;
    uint64_t rows = 0;
    uint32_t item = 0;  // for senders, also dummies
  };
  using Buffer = std::vector<Rows>;

  absl::Status CheckRoute(const Route& route, const PhasePlan& encoder) const {
    const PhasePlan& llm = *plan_.phase(Phase::kLlm);
    std::set<uint32_t> group(encoder.ranks.begin(), encoder.ranks.end());
    group.insert(llm.ranks.begin(), llm.ranks.end());
    if (route.ranks != std::vector<uint32_t>(group.begin(), group.end()) ||
        route.per_rank.size() != group.size()) {
      return Broken("its group is not the union of both phases' ranks");
    }
    std::map<uint32_t, uint32_t> encoder_of, llm_of;
    for (uint32_t r = 0; r < encoder.ranks.size(); ++r) encoder_of[encoder.ranks[r]] = r;
    for (uint32_t r = 0; r < llm.ranks.size(); ++r) llm_of[llm.ranks[r]] = r;
    std::vector<Buffer> outputs(group.size()), inputs(group.size());
    for (size_t g = 0; g < route.ranks.size(); ++g) {
      const RankRoute& mine = route.per_rank[g];
      uint64_t rows_in = 0, rows_out = 0;
      if (auto it = encoder_of.find(route.ranks[g]); it != encoder_of.end()) {
        const bool is_shared = job_.IsSharedByGroups(*job_.phase(encoder.phase));
        const uint32_t rank = is_shared ? plan_.FirstOfGroup(it->second, route.microbatch) : it->second;
        rows_in = LayOutOutput(encoder, rank, route.microbatch, outputs[g]);
      }
      std::vector<uint64_t> offsets(plan_.num_microbatches + 1, 0);
      if (auto it = llm_of.find(route.ranks[g]); it != llm_of.end()) {
        const bool all = encoder.num_microbatches == 1;
        rows_out = LayOutInput(encoder.phase, llm, it->second, all, route.microbatch, inputs[g], offsets);
      }
      if (mine.rows_in != rows_in)
        return Broken("rank ", g, " has ", mine.rows_in, " rows in, not ", rows_in);
      if (mine.rows_out != rows_out)
        return Broken("rank ", g, " has ", mine.rows_out, " rows out, not ", rows_out);
      if (mine.microbatch_offsets != offsets) return Broken("rank ", g, " has other microbatch offsets");
    }
    for (uint32_t g = 0; g < group.size(); ++g) EVENKEEL_RETURN_IF_ERROR(CheckOrder(route, g));
    std::vector<size_t> next(group.size(), 0);
    for (uint32_t g = 0; g < group.size(); ++g) {
      EVENKEEL_RETURN_IF_ERROR(Simulate(route, g, outputs, inputs[g], next));
    }
    for (uint32_t g = 0; g < group.size(); ++g) {
      const std::vector<RouteSegment>& send = route.per_rank[g].send;
      if (next[g] < send.size()) {
        return Broken("rank ", g, " sends to ", send[next[g]].peer, " what is not received");
      }
    }
    bool all_stay = true;
    for (uint32_t g = 0; g < group.size(); ++g) {
      for (const RouteSegment& segment : route.per_rank[g].send) all_stay = all_stay && segment.peer == g;
    }
    if (route.all_stay != all_stay)
      return Broken("rows ", all_stay ? "all stay" : "move", ", and it says otherwise");
    return absl::OkStatus();
  }

  uint64_t LayOutOutput(const PhasePlan& encoder, uint32_t rank, uint32_t exchange, Buffer& buffer) const {
    uint64_t row = 0;
    const size_t b = rank * size_t{encoder.num_microbatches} + exchange;
    for (uint32_t at = encoder.begin[b]; at < encoder.begin[b + 1]; ++at) {
      const uint64_t rows = plan_.items[encoder.order[at]].lengths.output_rows;
      if (rows > 0) buffer.push_back({row, rows, encoder.order[at]});
      row += rows;
    }
    return row;
  }

  bool IsInLastRows(const PlannedSample& sample, uint32_t number, uint32_t item) const {
    return job_.phase(Phase::kLlm)->batching == Batching::kPadded &&
           step_.lengths[number].chosen_length != 0 && 2 * (item - sample.first_item) >= sample.num_items;
  }

  uint64_t LayOutInput(const Phase& phase, const PhasePlan& llm, uint32_t rank, bool all, uint32_t exchange,
                       Buffer& buffer, std::vector<uint64_t>& offsets) const {
    uint64_t row = 0;
    for (uint32_t m = 0; m < llm.num_microbatches; ++m) {
      const size_t b = plan_.FirstOfGroup(rank, m) * size_t{llm.num_microbatches} + m;
      // In padded batches the rejected sequences follow all others.
      for (const bool last : {false, true}) {
        for (uint32_t at = llm.begin[b]; (all || m == exchange) && at < llm.begin[b + 1]; ++at) {
          const PlannedSample& sample = plan_.samples[llm.order[at]];
          for (uint32_t i = sample.first_item; i < sample.first_item + sample.num_items; ++i) {
            const uint64_t rows = plan_.items[i].lengths.output_rows;
            if (!IsOf(plan_.items[i], phase) || rows == 0 || IsInLastRows(sample, llm.order[at], i) != last)
              continue;
            buffer.push_back({row, rows, i});
            row += rows;
          }
        }
      }
      offsets[m + 1] = row;
    }
    return row;
  }

  // Segments are by peer, then in the receiver's order, and no two of them could have been one.
  absl::Status CheckOrder(const Route& route, uint32_t g) const {
    const RankRoute& mine = route.per_rank[g];
    for (const auto* side : {&mine.send, &mine.receive}) {
      for (size_t i = 0; i < side->size(); ++i) {
        const RouteSegment& segment = (*side)[i];
        if (segment.peer >= route.ranks.size()) return Broken("rank ", g, " names peer ", segment.peer);
        if (segment.rows == 0) return Broken("rank ", g, " has a segment of no rows");
        if (i > 0 && segment.peer < (*side)[i - 1].peer)
          return Broken("segments of rank ", g, " are not by peer");
        if (side == &mine.receive && i > 0 && segment.peer == (*side)[i - 1].peer &&
            segment.row < (*side)[i - 1].row + (*side)[i - 1].rows) {
          return Broken("rank ", g, " does not receive in its own order");
        }
      }
    }
    return absl::OkStatus();
  }

  // Carries every row that `g` receives from its sender's buffer to its own, and compares item and row. Runs
  // of rows of one item are carried at once: the same as row by row, for any number of rows. Senders'
  // segments are by peer and receivers come in that order: `next` has every sender's first segment that is
  // not received.
  absl::Status Simulate(const Route& route, uint32_t g, const std::vector<Buffer>& outputs,
                        const Buffer& input, std::vector<size_t>& next) const {
    std::vector<std::pair<uint64_t, uint64_t>> taken;  // rows of the input
    for (const RouteSegment& segment : route.per_rank[g].receive) {
      const std::vector<RouteSegment>& send = route.per_rank[segment.peer].send;
      const size_t at = next[segment.peer]++;
      if (at >= send.size() || send[at].peer != g || send[at].rows != segment.rows) {
        return Broken("rank ", g, " receives from ", segment.peer, " what is not sent");
      }
      EVENKEEL_RETURN_IF_ERROR(
          SimulateSegment(outputs[segment.peer], send[at].row, input, segment.row, segment.rows));
      taken.emplace_back(segment.row, segment.row + segment.rows);
    }
    std::sort(taken.begin(), taken.end());
    uint64_t row = 0;
    for (const auto& [begin, end] : taken) {
      if (begin != row) return Broken("rank ", g, " receives row ", row, " twice or never");
      row = end;
    }
    if (row != route.per_rank[g].rows_out) return Broken("rank ", g, " receives ", row, " rows only");
    return absl::OkStatus();
  }

  static const Rows* At(const Buffer& buffer, uint64_t row) {
    auto it = std::upper_bound(buffer.begin(), buffer.end(), row,
                               [](uint64_t value, const Rows& rows) { return value < rows.first; });
    if (it == buffer.begin()) return nullptr;
    --it;
    return row < it->first + it->rows ? &*it : nullptr;
  }

  absl::Status SimulateSegment(const Buffer& output, uint64_t from, const Buffer& input, uint64_t to,
                               uint64_t rows) const {
    while (rows > 0) {
      const Rows* sent = At(output, from);
      const Rows* wanted = At(input, to);
      if (sent == nullptr || wanted == nullptr) return Broken("a segment reaches beyond its buffer");
      if (sent->item != wanted->item || from - sent->first != to - wanted->first) {
        return Broken("row ", to, " should be of item ", wanted->item, " but is of item ", sent->item);
      }
      const uint64_t run = std::min(rows, sent->first + sent->rows - from);
      from += run;
      to += run;
      rows -= run;
    }
    return absl::OkStatus();
  }

  const Job& job_;
  const StepSamples& step_;
  const Plan& plan_;
};

}  // namespace

absl::Status PlanCheck(const Job& job, const StepSamples& samples, const Plan& plan) {
  return Checker(job, samples, plan).Run();
}

}  // namespace evenkeel::reorder
