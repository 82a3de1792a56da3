// Gives every row of a picture to two sinks.
//
// Thread safety: as its sinks.
#pragma once

#include "preprocess/resize/resize.h"

namespace evenkeel::preprocess {

class BothSinks final : public RowSink {
 public:
  BothSinks(RowSink& first, RowSink& second) : first_(first), second_(second) {}
  void Take(const PlanarRow& row) override {
    first_.Take(row);
    second_.Take(row);
  }

 private:
  RowSink& first_;
  RowSink& second_;
};

}  // namespace evenkeel::preprocess
