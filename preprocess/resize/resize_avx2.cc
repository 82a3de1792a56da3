// The resizer's inner loops for AVX2.
//
// If an output needs few inputs, rows are filtered in their own order (resize_windows_avx2.h). If it needs
// many, sixteen rows are filtered at once: a vector holds one channel of one pair of pixels in all rows, so
// that every lane of a multiplication is used and a weight is loaded once for all rows. Rows are transposed
// into that order in steps of sixteen pixels, into a ring with the pairs that the next outputs need.
//
// A weight of more than 16 bits is the sum of two digits. The lower one multiplies words. The upper one
// multiplies bytes, of which one instruction takes twice as many.
#include "preprocess/resize/resize_avx2.h"

#ifdef __x86_64__
#include <algorithm>
#include <cstring>

#include "core/cpu.h"
#include "preprocess/resize/avx2_vectors.h"
#include "preprocess/resize/resize.h"
#include "preprocess/resize/resize_band.h"
#include "preprocess/resize/resize_windows_avx2.h"

namespace evenkeel::preprocess {
namespace {

// Layout of a pair of pixels in all rows: for each channel one vector of bytes, then the same values widened
// to two vectors of words. Both are stored, because the two digits of a weight need different widths.
constexpr size_t kChannelBytes = 2 * kBandRows;
constexpr size_t kPairBytes = 3 * 3 * kChannelBytes;
constexpr uint32_t kStepPairs = kStepPixels / 2;
constexpr uint32_t kSlackPairs = 2 * kStepPairs;  // pairs that are made ahead
constexpr size_t kAhead = 256;                    // distance of the prefetch, in bytes of a row
static_assert(kBandRows == 16);

// Copies one lane to all lanes. Inline assembly, because GCC 12 moves the value through other registers with
// the intrinsic.
EVENKEEL_AVX2_INLINE __m256i Broadcast(const int32_t* lane) {
  __m256i lanes;
  asm("vpbroadcastd %1, %0" : "=x"(lanes) : "m"(*lane));
  return lanes;
}

// Stores a vector of pairs of one channel as bytes, and widened to words: first rows 0-3 and 8-11, then 4-7
// and 12-15.
EVENKEEL_AVX2_INLINE void StoreChannel(__m256i bytes, uint8_t* out) {
  const __m256i zero = _mm256_setzero_si256();
  Store256(out, bytes);
  Store256(out + kChannelBytes, _mm256_unpacklo_epi8(bytes, zero));
  Store256(out + 2 * kChannelBytes, _mm256_unpackhi_epi8(bytes, zero));
}

// Rows at equal distances, so that all addresses come from a few registers, which leaves enough of them for a
// transposition. Sixteen pointers would be loaded from memory again for every step.
class EvenRows {
 public:
  EVENKEEL_AVX2_INLINE EvenRows(const uint8_t* first, ptrdiff_t stride)
      : first_(first),
        ninth_(first + 8 * stride),
        times1_(stride),
        times3_(3 * stride),
        times5_(5 * stride),
        times7_(7 * stride) {}

  // Loads 16 bytes of rows `r` and r + 8, from byte `at`.
  EVENKEEL_AVX2_INLINE __m256i Load(int r, size_t at) const {
    // x86 adds a register and 1, 2, 4 or 8 times another, so these products cost no instruction.
    const ptrdiff_t to = r == 7   ? times7_
                         : r == 6 ? 2 * times3_
                         : r == 5 ? times5_
                         : r == 3 ? times3_
                                  : r * times1_;
    return LoadTwo128(first_ + at + to, ninth_ + at + to);
  }

 private:
  const uint8_t* first_;
  const uint8_t* ninth_;
  ptrdiff_t times1_, times3_, times5_, times7_;
};

// Transposes four interleaved pixels of 16 rows into two pairs. Reads 16 bytes of each row.
EVENKEEL_AVX2_INLINE void MakeTwoPairs(const EvenRows& rows, size_t at, uint8_t* out) {
  // The order of channels within a row: r0 r1 g0 g1 b0 b1 r2 r3 g2 g3 b2 b3.
  const __m256i order = _mm256_setr_epi8(0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11, -1, -1, -1, -1,  //
                                         0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11, -1, -1, -1, -1);
  __m256i a[8], b[8];
  // A 16x6 transposition of 16-bit elements in three rounds of unpacking: 16, 32, then 64 bits.
  for (int r = 0; r < 8; ++r) a[r] = _mm256_shuffle_epi8(rows.Load(r, at), order);
  for (int r = 0; r < 4; ++r) {
    b[2 * r] = _mm256_unpacklo_epi16(a[2 * r], a[2 * r + 1]);
    b[2 * r + 1] = _mm256_unpackhi_epi16(a[2 * r], a[2 * r + 1]);
  }
  for (int half = 0; half < 2; ++half) {  // elements 0 to 3, then 4 and 5
    const __m256i low01 = _mm256_unpacklo_epi32(b[half], b[half + 2]);
    const __m256i low23 = _mm256_unpacklo_epi32(b[half + 4], b[half + 6]);
    a[4 * half] = _mm256_unpacklo_epi64(low01, low23);
    a[4 * half + 1] = _mm256_unpackhi_epi64(low01, low23);
    if (half == 1) break;
    const __m256i high01 = _mm256_unpackhi_epi32(b[half], b[half + 2]);
    const __m256i high23 = _mm256_unpackhi_epi32(b[half + 4], b[half + 6]);
    a[2] = _mm256_unpacklo_epi64(high01, high23);
    a[3] = _mm256_unpackhi_epi64(high01, high23);
  }
  for (int i = 0; i < 6; ++i, out += 3 * kChannelBytes) StoreChannel(a[i], out);
}

// Transposes sixteen pixels of one plane of 16 rows into that channel of eight pairs, as 16-bit elements.
EVENKEEL_AVX2_INLINE void MakeChannel(const EvenRows& rows, size_t at, uint8_t* out) {
  __m256i a[8], b[8];
  for (int r = 0; r < 8; r += 2) {
    const __m256i even = rows.Load(r, at), odd = rows.Load(r + 1, at);
    a[r] = _mm256_unpacklo_epi16(even, odd);  // pairs 0 to 3 of two rows
    a[r + 1] = _mm256_unpackhi_epi16(even, odd);
  }
  for (int half = 0; half < 2; ++half) {
    b[half] = _mm256_unpacklo_epi32(a[half], a[half + 2]);  // pairs 0 and 1 of rows 0 to 3
    b[half + 2] = _mm256_unpackhi_epi32(a[half], a[half + 2]);
    b[half + 4] = _mm256_unpacklo_epi32(a[half + 4], a[half + 6]);
    b[half + 6] = _mm256_unpackhi_epi32(a[half + 4], a[half + 6]);
  }
  for (int half = 0; half < 2; ++half) {
    for (int two = 0; two < 2; ++two, out += 2 * kPairBytes) {
      const __m256i upper = b[half + 2 * two], lower = b[half + 2 * two + 4];
      StoreChannel(_mm256_unpacklo_epi64(upper, lower), out);
      StoreChannel(_mm256_unpackhi_epi64(upper, lower), out + kPairBytes);
    }
  }
}

// Makes the pairs of one step from pixel `x`, of rows at equal distances.
template <bool kPlanes>
EVENKEEL_AVX2_INLINE void MakePairs(const BandRows& band, uint32_t x, uint8_t* out) {
  if constexpr (kPlanes) {
    for (int c = 0; c < 3; ++c) MakeChannel({band.plane[c][0], band.stride}, x, out + 3 * kChannelBytes * c);
  } else {
    const EvenRows rows(band.plane[0][0], band.stride);
    for (uint32_t i = 0; i < kStepPixels; i += kQuadPixels) {
      MakeTwoPairs(rows, size_t{3} * (x + i), out + kPairBytes * i / 2);
    }
  }
}

// A ring of the pairs that the next outputs need. It is hardly larger than one output's inputs: they fill
// most of the first-level cache, and copying them to the front of a buffer would take measurable time.
class PairRing {
 public:
  // Has room for the inputs of one output of `axis` and a few steps. The first pairs are those of the first
  // output.
  PairRing(AlignedMemory& memory, const AxisWeights& axis)
      : capacity_(StepOf(axis.groups_per_output + 2 * kStepPairs - 1 + kSlackPairs)),
        memory_(memory.Get<uint8_t>(capacity_ * kPairBytes)),
        lap_(StepOf(axis.first_group[0])),
        end_(lap_) {}

  uint32_t end() const { return end_; }  // after the last pair that was made
  // The largest end() while `first` and the pairs after it are needed. Pairs are made in whole steps.
  uint32_t limit(uint32_t first) const { return StepOf(first) + capacity_; }
  // Pairs before `first` are no longer needed. `first` never decreases and is at most end().
  void KeepFrom(uint32_t first) {
    if (first - lap_ >= capacity_) lap_ += capacity_;
  }
  // Appends a step and returns its memory.
  uint8_t* AddStep() {
    const uint32_t at = end_ - lap_;
    end_ += kStepPairs;
    return memory_ + kPairBytes * (at < capacity_ ? at : at - capacity_);
  }
  // Of `wanted` pairs from `first` on, `count` are at `from` and the others at begin().
  struct Run {
    const uint8_t* from;
    uint32_t count;
  };
  Run From(uint32_t first, uint32_t wanted) const {
    const uint32_t at = first - lap_;
    return {memory_ + kPairBytes * at, std::min(wanted, capacity_ - at)};
  }
  const uint8_t* begin() const { return memory_; }

 private:
  static constexpr uint32_t StepOf(uint32_t pair) { return pair / kStepPairs * kStepPairs; }

  const uint32_t capacity_;  // whole steps
  uint8_t* const memory_;
  uint32_t lap_;  // the pair that begin() had when the first kept pair was stored
  uint32_t end_;
};

// Accumulates products of bytes and upper digits. 16-bit sums suffice: higher bits would be shifted out.
EVENKEEL_AVX2_INLINE void AccumulateUpper(__m256i& sum, __m256i bytes, __m256i digits) {
  asm("vpaddw %1, %0, %0" : "+x"(sum) : "x"(_mm256_maddubs_epi16(bytes, digits)));
}

// Sums of a vector of byte pairs: `first` for those that unpacklo widens, `second` for those of unpackhi.
template <bool kSplit>
struct Sums {
  __m256i upper, first, second;

  EVENKEEL_AVX2_INLINE explicit Sums(__m256i half)
      : upper(_mm256_setzero_si256()), first(half), second(half) {}
  EVENKEEL_AVX2_INLINE void AddWords(__m256i first_words, __m256i second_words, __m256i digits) {
    Accumulate(first, first_words, digits);
    Accumulate(second, second_words, digits);
  }
  // The results as words before clipping, in the order of the bytes.
  EVENKEEL_AVX2_INLINE __m256i Words(const Rounding<kSplit>& rounding) const {
    return rounding.Words(first, second, upper);
  }
};

// One output pixel of 16 rows, as words before clipping, for each channel.
template <bool kSplit>
EVENKEEL_AVX2_INLINE void SumBand(const PairRing& ring, const AxisWeights& axis, uint32_t x,
                                  __m256i (&out)[3]) {
  const int32_t* weights = axis.packed_of(x);
  uint32_t left = axis.num_groups[x];
  PairRing::Run run = ring.From(axis.first_group[x], left);
  const Rounding<kSplit> rounding(axis);
  Sums<kSplit> red(rounding.half), green(rounding.half), blue(rounding.half);
  // The inputs are in one or two contiguous runs of the ring. Every pair costs three byte vectors for the
  // upper digit (if it is not 0) and six word vectors for the lower one.
  while (true) {
    left -= run.count;
    for (const uint8_t* at = run.from; run.count > 0; --run.count, at += kPairBytes) {
      auto values = [at](size_t vector)
                        EVENKEEL_AVX2_INLINE_LAMBDA { return Load256(at + vector * kChannelBytes); };
      if constexpr (kSplit) {
        if (*weights != 0) {  // with a large reduction most outer weights have no upper digit
          const __m256i upper = Broadcast(weights);
          AccumulateUpper(red.upper, values(0), upper);
          AccumulateUpper(green.upper, values(3), upper);
          AccumulateUpper(blue.upper, values(6), upper);
        }
        ++weights;
      }
      const __m256i lower = Broadcast(weights++);
      red.AddWords(values(1), values(2), lower);
      green.AddWords(values(4), values(5), lower);
      blue.AddWords(values(7), values(8), lower);
    }
    if (left == 0) break;
    run = {ring.begin(), left};
  }
  out[0] = red.Words(rounding), out[1] = green.Words(rounding), out[2] = blue.Words(rounding);
}

// Makes pairs while there is room, keeping those from `first` on.
template <bool kPlanes>
EVENKEEL_AVX2 void Extend(const BandRows& band, uint32_t first, PairRing& ring) {
  const uint32_t total = (band.width + kStepPixels - 1) / kStepPixels * kStepPairs;
  const uint32_t end = std::min(total, ring.limit(first));
  // The last step of a row may read beyond its end, so it is taken from a copy.
  while (ring.end() < end) {
    const uint32_t x = 2 * ring.end();
    uint8_t* out = ring.AddStep();
    PrefetchStep<kPlanes, kAhead>(band, x);
    if (band.complete && band.has_step(x)) {
      MakePairs<kPlanes>(band, x, out);
    } else {
      MakePairs<kPlanes>(BandTail(band, x).rows(), 0, out);
    }
  }
}

EVENKEEL_AVX2_INLINE void StoreLanes(__m256i lanes, uint32_t* low, uint32_t* high) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(low), _mm256_castsi256_si128(lanes));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(high), _mm256_extracti128_si256(lanes, 1));
}

// Filters output `x`, or the last one if there are fewer: outputs are stored four at a time.
template <bool kSplit, bool kPlanes>
EVENKEEL_AVX2_INLINE void FilterOne(const BandRows& band, const AxisWeights& axis, uint32_t x, PairRing& ring,
                                    __m256i (&out)[3]) {
  x = std::min(x, axis.outputs() - 1);
  const uint32_t first = axis.first_group[x];
  ring.KeepFrom(first);
  if (first + axis.num_groups[x] > ring.end()) Extend<kPlanes>(band, first, ring);
  SumBand<kSplit>(ring, axis, x, out);
}

// Stores one channel of four outputs, as lanes of two rows each: packs words to bytes (saturating, which is
// the clip to 0..255), brings the four outputs of a row together, and widens the bytes so that rows r and r +
// 1 share a lane as words.
EVENKEEL_AVX2_INLINE void StoreFour(const __m256i (&first)[3], const __m256i (&second)[3],
                                    const __m256i (&third)[3], const __m256i (&fourth)[3], int c, size_t to,
                                    uint32_t* const* out) {
  const __m256i zero = _mm256_setzero_si256();
  // Bytes of rows 0 to 7 of one output, then of the other | rows 8 to 15.
  const __m256i left = _mm256_packus_epi16(first[c], second[c]);
  const __m256i right = _mm256_packus_epi16(third[c], fourth[c]);
  const __m256i low = _mm256_unpacklo_epi16(left, right), high = _mm256_unpackhi_epi16(left, right);
  const __m256i upper = _mm256_unpacklo_epi16(low, high), lower = _mm256_unpackhi_epi16(low, high);
  StoreLanes(_mm256_unpacklo_epi8(upper, zero), out[0] + to, out[4] + to);
  StoreLanes(_mm256_unpackhi_epi8(upper, zero), out[1] + to, out[5] + to);
  StoreLanes(_mm256_unpacklo_epi8(lower, zero), out[2] + to, out[6] + to);
  StoreLanes(_mm256_unpackhi_epi8(lower, zero), out[3] + to, out[7] + to);
}

// The horizontal filter of a band: four outputs at a time, because a store takes four lanes.
template <bool kSplit, bool kPlanes>
EVENKEEL_AVX2 void FilterRows(const PixelBand& pixels, const AxisWeights& axis, BandScratch& scratch,
                              size_t plane, uint32_t* const* out) {
  const BandRows band(pixels, axis.in);
  PairRing ring(scratch.groups, axis);
  for (uint32_t x = 0; x < axis.outputs(); x += 4) {
    __m256i first[3], second[3], third[3], fourth[3];
    FilterOne<kSplit, kPlanes>(band, axis, x, ring, first);
    FilterOne<kSplit, kPlanes>(band, axis, x + 1, ring, second);
    FilterOne<kSplit, kPlanes>(band, axis, x + 2, ring, third);
    FilterOne<kSplit, kPlanes>(band, axis, x + 3, ring, fourth);
    for (int c = 0; c < 3; ++c) StoreFour(first, second, third, fourth, c, plane * c + x, out);
  }
}

// Lanes of two rows, the first in the lower word: from bytes, and back. Scalar: the compiler vectorises both
// loops.
void GroupRows(const uint8_t* const* rows, size_t count, uint32_t* out) {
  for (size_t i = 0; i < count; ++i) out[i] = rows[0][i] | uint32_t{rows[1][i]} << 16;
}

void SplitGroup(const uint32_t* lanes, size_t count, uint8_t* const* rows) {
  for (size_t i = 0; i < count; ++i) {
    rows[0][i] = static_cast<uint8_t>(lanes[i]);
    rows[1][i] = static_cast<uint8_t>(lanes[i] >> 16);
  }
}

constexpr size_t kColumnStep = 32;
static_assert(kColumnBlock % kColumnStep == 0);

// The sums of kColumnStep columns, in two halves.
template <bool kSplit>
struct ColumnSums {
  Sums<kSplit> left, right;

  EVENKEEL_AVX2_INLINE explicit ColumnSums(__m256i half) : left(half), right(half) {}
  EVENKEEL_AVX2_INLINE void Add(const uint32_t* lanes, __m256i upper, __m256i lower) {
    const __m256i a = Load256(lanes), b = Load256(lanes + 8);
    const __m256i c = Load256(lanes + 16), d = Load256(lanes + 24);
    if constexpr (kSplit) {
      AccumulateUpper(left.upper, _mm256_packus_epi16(a, b), upper);
      AccumulateUpper(right.upper, _mm256_packus_epi16(c, d), upper);
    }
    left.AddWords(a, b, lower);
    right.AddWords(c, d, lower);
  }
  EVENKEEL_AVX2_INLINE void Put(const Rounding<kSplit>& rounding, uint8_t* out) const {
    const __m256i bytes = _mm256_packus_epi16(left.Words(rounding), right.Words(rounding));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    Store256(out, _mm256_permutevar8x32_epi32(bytes, order));
  }
};

// The vertical filter for output row `y`: every lane has two source rows of a column, so one madd per lane
// adds both. Columns are taken kColumnStep at a time, so that the sums stay in registers while the groups
// change.
template <bool kSplit>
EVENKEEL_AVX2 void SumColumns(const uint32_t* const* groups, const AxisWeights& axis, uint32_t y,
                              size_t count, uint8_t* out) {
  const uint32_t num_groups = axis.num_groups[y];
  const Rounding<kSplit> rounding(axis);
  for (size_t at = 0; at < count; at += kColumnStep) {
    const int32_t* weights = axis.packed_of(y);
    ColumnSums<kSplit> sums(rounding.half);
    for (uint32_t k = 0; k < num_groups; ++k, weights += axis.digits) {
      const __m256i upper = Broadcast(weights), lower = Broadcast(weights + kSplit);
      sums.Add(groups[k] + at, upper, lower);
    }
    sums.Put(rounding, out + at);
  }
}

// The weights of kCount groups, kept in registers.
template <bool kSplit, uint32_t kCount>
struct FewWeights {
  __m256i upper[kCount] = {}, lower[kCount];

  EVENKEEL_AVX2_INLINE explicit FewWeights(const int32_t* packed) {
    for (uint32_t k = 0; k < kCount; ++k) {
      if constexpr (kSplit) upper[k] = Broadcast(packed++);
      lower[k] = Broadcast(packed++);
    }
  }
};

// The same for a small number of groups, as at nearly the original size: then all weights fit into registers
// and are broadcast once for the whole row.
template <bool kSplit, uint32_t kCount>
EVENKEEL_AVX2 void SumFewColumns(const uint32_t* const* groups, const AxisWeights& axis, uint32_t y,
                                 size_t count, uint8_t* out) {
  const Rounding<kSplit> rounding(axis);
  const FewWeights<kSplit, kCount> weights(axis.packed_of(y));
  const uint32_t* lanes[kCount];
  std::copy_n(groups, kCount, lanes);
  for (size_t at = 0; at < count; at += kColumnStep) {
    ColumnSums<kSplit> sums(rounding.half);
    for (uint32_t k = 0; k < kCount; ++k) sums.Add(lanes[k] + at, weights.upper[k], weights.lower[k]);
    sums.Put(rounding, out + at);
  }
}

template <bool kSplit>
void SumColumnsOf(const uint32_t* const* groups, const AxisWeights& axis, uint32_t y, size_t count,
                  uint8_t* out) {
  switch (axis.num_groups[y]) {
    case 2:
      return SumFewColumns<kSplit, 2>(groups, axis, y, count, out);
    case 3:
      return SumFewColumns<kSplit, 3>(groups, axis, y, count, out);
    default:
      return SumColumns<kSplit>(groups, axis, y, count, out);
  }
}

void SumAnyColumns(const uint32_t* const* groups, const AxisWeights& axis, uint32_t y, size_t count,
                   uint8_t* out) {
  (axis.digits == 2 ? SumColumnsOf<true> : SumColumnsOf<false>)(groups, axis, y, count, out);
}

// Interleaves 16 pixels at a time: each of the three output vectors gathers its bytes from the three planes.
EVENKEEL_AVX2 void JoinPlanesAvx2(const uint8_t* const* planes, uint32_t width, uint8_t* rgb) {
  alignas(16) uint8_t order[3][3][16];
  for (int v = 0; v < 3; ++v) {
    for (int c = 0; c < 3; ++c) {
      for (int i = 0; i < 16; ++i) {
        const int to = 16 * v + i;
        order[v][c][i] = to % 3 == c ? static_cast<uint8_t>(to / 3) : 0x80;
      }
    }
  }
  uint32_t x = 0;
  for (; x + 16 <= width; x += 16, rgb += 48) {
    const __m128i r = Load128(planes[0] + x), g = Load128(planes[1] + x), b = Load128(planes[2] + x);
    for (int v = 0; v < 3; ++v) {
      const __m128i joined = _mm_or_si128(
          _mm_or_si128(_mm_shuffle_epi8(r, Load128(order[v][0])), _mm_shuffle_epi8(g, Load128(order[v][1]))),
          _mm_shuffle_epi8(b, Load128(order[v][2])));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(rgb + 16 * v), joined);
    }
  }
  for (; x < width; ++x, rgb += 3) {
    for (int c = 0; c < 3; ++c) rgb[c] = planes[c][x];
  }
}

// Tables of SplitPlanesAvx2: for each channel, which bytes of the second and of the third vector belong to
// it, and the order of its bytes.
struct SplitTables {
  alignas(32) uint8_t second[3][32] = {}, third[3][32] = {}, order[3][32] = {};

  constexpr SplitTables() {
    for (int c = 0; c < 3; ++c) {
      for (int i = 0; i < 32; ++i) {
        second[c][i] = (i % 16 + 16) % 3 == c ? 0xff : 0;
        third[c][i] = (i % 16 + 32) % 3 == c ? 0xff : 0;
        order[c][i] = static_cast<uint8_t>((3 * (i % 16) + c) % 16);
      }
    }
  }
};

// Splits 32 pixels at a time, 16 in each half of three vectors. No two bytes of one plane are at the same
// position in these vectors, so they are blended into one vector without being moved, and one shuffle puts
// them in order.
EVENKEEL_AVX2 void SplitPlanesAvx2(const uint8_t* rgb, uint32_t width, uint8_t* planes) {
  static constexpr SplitTables kTables;
  uint32_t x = 0;
  for (; x + 32 <= width; x += 32) {
    const uint8_t* from = rgb + size_t{3} * x;
    const __m256i v0 = LoadTwo128(from, from + 48), v1 = LoadTwo128(from + 16, from + 64),
                  v2 = LoadTwo128(from + 32, from + 80);
    for (uint32_t c = 0; c < 3; ++c) {
      const __m256i bytes = _mm256_blendv_epi8(_mm256_blendv_epi8(v0, v1, Load256(kTables.second[c])), v2,
                                               Load256(kTables.third[c]));
      Store256(planes + size_t{c} * width + x, _mm256_shuffle_epi8(bytes, Load256(kTables.order[c])));
    }
  }
  for (; x < width; ++x) {
    for (uint32_t c = 0; c < 3; ++c) planes[size_t{c} * width + x] = rgb[size_t{3} * x + c];
  }
}

void FilterBand(const PixelBand& band, const AxisWeights& axis, BandScratch& scratch, size_t plane,
                uint32_t* const* out) {
  if (!axis.windows.blocks.empty()) {
    FilterWindows(band, axis, plane, out);
    return;
  }
  const bool split = axis.digits == 2;
  if (band.interleaved()) {
    (split ? FilterRows<true, false> : FilterRows<false, false>)(band, axis, scratch, plane, out);
  } else {
    (split ? FilterRows<true, true> : FilterRows<false, true>)(band, axis, scratch, plane, out);
  }
}

}  // namespace

const ResizeKernels* Avx2Kernels() {
  static constexpr ResizeKernels kKernels = {
      WeightForm::kWords, 2, FilterBand, GroupRows, SplitGroup, SumAnyColumns, SplitPlanesAvx2,
      JoinPlanesAvx2};
  return MayUseAvx2() ? &kKernels : nullptr;
}

}  // namespace evenkeel::preprocess

#else

namespace evenkeel::preprocess {

const ResizeKernels* Avx2Kernels() { return nullptr; }

}  // namespace evenkeel::preprocess

#endif
