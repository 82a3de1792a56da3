// Positions to rows for the three orders; blocked order permutes blocks, then the samples of each window.
#include "dataset/order/epoch_order.h"

#include <algorithm>

namespace evenkeel::dataset {
namespace {

// Separates the keys of different uses.
constexpr uint64_t kOrderKey = 1, kWindowKey = 2;

}  // namespace

EpochOrder::EpochOrder(const OrderSpec& order, uint64_t seed, uint32_t dataset, uint64_t epoch,
                       uint64_t num_samples)
    : shuffle_(order.shuffle),
      key_(MixKey({seed, dataset, epoch})),
      num_samples_(num_samples),
      block_(std::clamp<uint64_t>(order.block_samples, 1, num_samples)),
      num_blocks_((num_samples - 1) / block_ + 1),
      window_blocks_(std::clamp<uint64_t>(order.window_blocks, 1, num_blocks_)),
      missing_(num_blocks_ * block_ - num_samples),
      order_(MixKey({key_, kOrderKey}), shuffle_ == Shuffle::kBlocked ? num_blocks_ : num_samples_),
      short_slot_(shuffle_ == Shuffle::kBlocked ? order_.PositionOf(num_blocks_ - 1) : 0) {}

uint64_t EpochOrder::At(uint64_t position) const {
  switch (shuffle_) {
    case Shuffle::kNone:
      return position;
    case Shuffle::kFull:
      return order_.At(position);
    case Shuffle::kBlocked:
      return BlockedAt(position);
  }
  return position;
}

uint64_t EpochOrder::BlockedAt(uint64_t position) const {
  const uint64_t window_samples = window_blocks_ * block_;
  const uint64_t short_window = short_slot_ / window_blocks_;
  // Positions are computed as if the last block were full, so everything after its window is shifted by
  // `missing_`.
  const uint64_t short_end = std::min((short_window + 1) * window_samples, num_blocks_ * block_) - missing_;
  const uint64_t whole = position < short_end ? position : position + missing_;
  const uint64_t window =
      position < short_end ? std::min(position / window_samples, short_window) : whole / window_samples;
  const uint64_t first_slot = window * window_blocks_;
  const uint64_t slots = std::min(window_blocks_, num_blocks_ - first_slot);
  const uint64_t samples = slots * block_ - (window == short_window ? missing_ : 0);

  Permutation mix(MixKey({key_, kWindowKey, window}), samples);
  uint64_t mixed = mix.At(whole - window * window_samples);
  if (window == short_window && mixed >= (short_slot_ - first_slot + 1) * block_ - missing_)
    mixed += missing_;
  return order_.At(first_slot + mixed / block_) * block_ + mixed % block_;
}

}  // namespace evenkeel::dataset
