// Computes the filter weights of one axis in doubles, rounds them to the resampler's fixed point, and packs
// them into the lanes that the vector instructions take.
#include "preprocess/resize/axis_weights.h"

#include <algorithm>
#include <cmath>

namespace evenkeel::preprocess {
namespace {

// Pillow's PRECISION_BITS: a weight times a byte, plus two bits for filters with negative lobes, fits 32
// bits.
constexpr int kPilPrecision = 32 - 8 - 2;
constexpr double kPi = 3.14159265358979323846;

// Both filters are free of branches on x, so that the compiler computes several weights at once.
double Bilinear(double x) {
  x = std::fabs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

// Pillow's and ATen's bicubic, a = -0.5: one polynomial up to distance 1, another up to 2, 0 beyond.
double Bicubic(double x) {
  constexpr double a = -0.5;
  x = std::fabs(x);
  const double near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  const double far = (((x - 5) * x + 8) * x - 4) * a;
  const double outer = x < 2.0 ? far : 0.0;
  return x < 1.0 ? near : outer;
}

// The sum of the alternating series first * (1 - t2/(n(n+1)) * (1 - t2/((n+2)(n+3)) * ...)), |t2| < 0.7.
double Alternating(double first, double t2, int n) {
  double sum = 1;
  for (int k = n + 16; k >= n; k -= 2) sum = 1 - t2 / (k * (k + 1)) * sum;
  return first * sum;
}

// sin(pi * x), to 1e-16.
// The argument is reduced exactly to [-0.5, 0.5]; there the series for the sine or, near 0.5, that of the
// cosine of the complement converges fast. The C library's sin is not used, because its last bit depends on
// the CPU.
double SinPi(double x) {
  const double whole = std::nearbyint(x);
  const double rest = x - whole;  // exact
  const double size = std::fabs(rest);
  double t = kPi * (size > 0.25 ? 0.5 - size : size);
  double sine = size > 0.25 ? Alternating(1, t * t, 1) : Alternating(t, t * t, 2);
  const bool odd = std::fmod(std::fabs(whole), 2.0) == 1;
  return (rest < 0) != odd ? -sine : sine;
}

double Sinc(double x) { return x == 0.0 ? 1.0 : SinPi(x) / (x * kPi); }

double Lanczos(double x) { return -3.0 <= x && x < 3.0 ? Sinc(x) * Sinc(x / 3) : 0.0; }

double Box(double x) { return -0.5 < x && x <= 0.5 ? 1.0 : 0.0; }

double Hamming(double x) {
  x = std::fabs(x);
  return x < 1.0 ? Sinc(x) * (0.54 + 0.46 * SinPi(x + 0.5)) : 0.0;
}

// values[k] = the filter at (k + begin - center + 0.5) * inverse: the centre of input pixel begin + k.
template <double (*kValue)(double)>
void Sample(int begin, int count, double center, double inverse, double* values) {
  for (int k = 0; k < count; ++k) values[k] = kValue((k + begin - center + 0.5) * inverse);
}

struct Kernel {
  double support;
  void (*sample)(int begin, int count, double center, double inverse, double* values);
};

Kernel KernelOf(ResizeFilter filter) {
  switch (filter) {
    case ResizeFilter::kBilinear:
      return {1, Sample<Bilinear>};
    case ResizeFilter::kBicubic:
      return {2, Sample<Bicubic>};
    case ResizeFilter::kLanczos:
      return {3, Sample<Lanczos>};
    case ResizeFilter::kBox:
      return {0.5, Sample<Box>};
    case ResizeFilter::kHamming:
      return {1, Sample<Hamming>};
    case ResizeFilter::kNearest:  // has no weights
      break;
  }
  return {2, Sample<Bicubic>};
}

// out[k] = values[k] * 2^precision, rounded with halves away from zero like both originals.
void ToFixed(const double* values, uint32_t count, int precision, int32_t* out) {
  const double scale = 1 << precision;
  for (uint32_t k = 0; k < count; ++k) {
    out[k] = static_cast<int32_t>((values[k] < 0 ? -0.5 : 0.5) + values[k] * scale);
  }
}

// ATen's precision: the largest number of fraction bits, at most 22, with which the largest weight stays
// below 2^15.
int AtenPrecision(double largest) {
  int precision = 0;
  while (precision < 22 && static_cast<int32_t>(std::floor(0.5 + largest * (1 << (precision + 1)))) < 1 << 15)
    ++precision;
  return precision;
}

// The exact weights of every output: `first` is its first input, `values` has `taps` entries for each output,
// of which `count` are used.
struct ExactWeights {
  uint32_t taps = 0;
  std::vector<uint32_t> first;
  std::vector<uint32_t> count;
  std::vector<double> values;

  double largest() const { return std::max(0.0, *std::max_element(values.begin(), values.end())); }
};

// An output is the input in which its centre is. Pillow's centres (ImagingScaleAffine) are sums of steps with their
// roundings, ATen's (nearest_exact_idx) products, rounded to f32.
void MakeNearest(const Axis& axis, ExactWeights* exact) {
  exact->taps = 1;
  exact->first.resize(axis.count);
  exact->count.assign(axis.count, 1);
  exact->values.assign(axis.count, 1);
  const double step = axis.extent / axis.out;
  const float scale = static_cast<float>(axis.in) / static_cast<float>(axis.out);
  double center = step * 0.5;
  for (uint32_t i = 0; i < axis.begin + axis.count; ++i, center += step) {
    if (i < axis.begin) continue;
    const double place =
        axis.resampler == Resampler::kAtenU8 ? static_cast<float>((i + 0.5) * scale) : center;
    exact->first[i - axis.begin] = std::min(static_cast<uint32_t>(place), axis.in - 1);
  }
}

// As precompute_coeffs: the filter is widened by the reduction (`stretch`), so that an output covers all
// inputs that it replaces, and is evaluated at the distance of each input's centre from the output's centre.
// Weights are normalised to a sum of 1, because the borders cut the filter off.
void MakeExactWeights(const Axis& axis, ExactWeights* exact) {
  if (axis.filter == ResizeFilter::kNearest) return MakeNearest(axis, exact);
  const Kernel kernel = KernelOf(axis.filter);
  const double scale = axis.extent / axis.out;
  const double stretch = std::max(scale, 1.0);
  const double support = kernel.support * stretch;
  const double inverse = 1.0 / stretch;
  exact->taps = static_cast<uint32_t>(std::ceil(support)) * 2 + 1;
  exact->first.resize(axis.count);
  exact->count.resize(axis.count);
  exact->values.assign(size_t{axis.count} * exact->taps, 0);
  for (uint32_t i = 0; i < axis.count; ++i) {
    const double center = (i + axis.begin + 0.5) * scale;
    const int begin = std::max(0, static_cast<int>(std::floor(center - support + 0.5)));
    const int end = std::min(static_cast<int>(axis.in), static_cast<int>(std::floor(center + support + 0.5)));
    double* values = &exact->values[size_t{i} * exact->taps];
    kernel.sample(begin, end - begin, center, inverse, values);
    double total = 0;
    for (int k = 0; k < end - begin; ++k) total += values[k];
    if (total == 0.0) total = 1;
    for (int k = 0; k < end - begin; ++k) values[k] /= total;
    exact->first[i] = static_cast<uint32_t>(begin);
    exact->count[i] = static_cast<uint32_t>(end - begin);
  }
}

// The number of digits in `form` that can hold all weights from `least` to `most`.
uint32_t DigitsFor(WeightForm form, int32_t least, int32_t most) {
  if (form == WeightForm::kWords) return least >= -0x8000 && most <= 0x7fff ? 1 : 2;
  // n signed digits of 8 bits reach from -0x80...80 to 0x7f...7f.
  return least >= -0x8080 && most <= 0x7f7f ? 2 : 3;
}

void PackWords(const int32_t* values, size_t count, uint32_t digits, int32_t* packed) {
  auto lower = [](int32_t value) { return static_cast<uint32_t>(value) & 0xffff; };
  // The rest after the lower digit, which is signed, was subtracted: hence the rounding by 0x8000.
  auto upper = [](int32_t value) { return static_cast<uint32_t>((value + 0x8000) >> 16) & 0xff; };
  // The upper digits of both inputs are stored twice in a lane: they multiply bytes, of which a lane has
  // four.
  for (size_t i = 0; i < count; i += 2, values += 2) {
    if (digits == 2) *packed++ = static_cast<int32_t>((upper(values[0]) | upper(values[1]) << 8) * 0x10001);
    *packed++ = static_cast<int32_t>(lower(values[0]) | lower(values[1]) << 16);
  }
}

// Adding 0x80 to every byte and flipping those bits again turns a two's complement number into signed digits:
// the carry that a negative digit needs is made by the addition.
void PackBytes(const int32_t* values, size_t count, uint32_t digits, int32_t* packed) {
  constexpr uint32_t kBias = 0x808080;
  for (size_t i = 0; i < count; i += 4, values += 4) {
    uint32_t bytes[4];
    for (int k = 0; k < 4; ++k) bytes[k] = (static_cast<uint32_t>(values[k]) + kBias) ^ kBias;
    for (uint32_t shift = 8 * (digits - 1); true; shift -= 8) {
      uint32_t lane = 0;
      for (int k = 0; k < 4; ++k) lane |= (bytes[k] >> shift & 0xff) << (8 * k);
      *packed++ = static_cast<int32_t>(lane);
      if (shift == 0) break;
    }
  }
}

void Pack(WeightForm form, AxisWeights* weights) {
  const std::vector<int32_t>& values = weights->values;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  weights->digits = DigitsFor(form, *least, *most);
  weights->packed.resize(values.size() / weights->group * weights->digits);
  (form == WeightForm::kWords ? PackWords : PackBytes)(values.data(), values.size(), weights->digits,
                                                       weights->packed.data());
}

}  // namespace

// Groups begin at multiples of their size, so an output's first group may begin before its first input. The
// weights of such inputs are 0.
void MakeAxisWeights(const Axis& axis, WeightForm form, AxisWeights* weights) {
  static thread_local ExactWeights exact;
  MakeExactWeights(axis, &exact);
  const uint32_t group = GroupOf(form);
  weights->in = axis.in;
  weights->shift = kPilPrecision;
  if (axis.resampler == Resampler::kAtenU8) {
    // ATen's precision depends on the whole axis, even if only a window of it is resized.
    static thread_local ExactWeights whole;
    Axis all = axis;
    all.begin = 0, all.count = axis.out;
    if (axis.count != axis.out) MakeExactWeights(all, &whole);
    weights->shift = AtenPrecision((axis.count != axis.out ? whole : exact).largest());
  }
  weights->half = weights->shift > 0 ? 1 << (weights->shift - 1) : 0;
  weights->group = group;
  weights->groups_per_output = 0;
  weights->first_group.resize(axis.count);
  weights->num_groups.resize(axis.count);
  for (uint32_t i = 0; i < axis.count; ++i) {
    weights->first_group[i] = exact.first[i] / group;
    weights->num_groups[i] = (exact.first[i] % group + exact.count[i] + group - 1) / group;
    weights->groups_per_output = std::max(weights->groups_per_output, weights->num_groups[i]);
  }
  const size_t stride = size_t{weights->groups_per_output} * group;
  weights->values.assign(axis.count * stride, 0);
  for (uint32_t i = 0; i < axis.count; ++i) {
    ToFixed(&exact.values[size_t{i} * exact.taps], exact.count[i], weights->shift,
            &weights->values[i * stride + exact.first[i] % group]);
  }
  Pack(form, weights);
}

}  // namespace evenkeel::preprocess
