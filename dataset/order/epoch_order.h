// The order of one dataset's samples within one epoch: position -> row. docs/datasets.md explains it to
// users.
//
//   none     in order
//   full     a keyed permutation of all samples
//   blocked  blocks of consecutive samples are permuted; the blocks of each window of consecutive permuted
//            blocks are mixed by a permutation of the window's samples. The last block may be short, and so
//            the window with it.
//
// Part of every stream. Thread safety: a plain value.
#pragma once

#include <cstdint>

#include "core/job.h"
#include "dataset/order/permutation.h"

namespace evenkeel::dataset {

class EpochOrder {
 public:
  // num_samples: 1 to 2^62. Cheap: nothing is materialised.
  EpochOrder(const OrderSpec& order, uint64_t seed, uint32_t dataset, uint64_t epoch, uint64_t num_samples);

  // position < num_samples.
  uint64_t At(uint64_t position) const;

 private:
  uint64_t BlockedAt(uint64_t position) const;

  const Shuffle shuffle_;
  const uint64_t key_;
  const uint64_t num_samples_;
  const uint64_t block_;  // samples a block
  const uint64_t num_blocks_;
  const uint64_t window_blocks_;
  const uint64_t missing_;     // samples that the last block lacks
  const Permutation order_;    // full: of samples; blocked: of blocks
  const uint64_t short_slot_;  // place of the last block among the permuted blocks
};

}  // namespace evenkeel::dataset
