// Other sets of CPU features for FFmpeg's codecs and dav1d than the one that preprocess/ gives them.
//
// Decode something first: the first use sets the flags that are put back.
#pragma once

extern "C" {
#include <libavutil/cpu.h>
}

// dav1d's, by way of video_test.cc.
extern "C" void dav1d_set_cpu_flags_mask(unsigned flags);

namespace evenkeel::preprocess {

// What preprocess/ lets FFmpeg have on every x86-64.
inline constexpr int kX8664V2 = AV_CPU_FLAG_MMX | AV_CPU_FLAG_MMXEXT | AV_CPU_FLAG_CMOV | AV_CPU_FLAG_SSE |
                                AV_CPU_FLAG_SSE2 | AV_CPU_FLAG_SSE3 | AV_CPU_FLAG_SSSE3 | AV_CPU_FLAG_SSE4 |
                                AV_CPU_FLAG_SSE42;

class ForcedCpuFlags {
 public:
  explicit ForcedCpuFlags(int flags) : before_(av_get_cpu_flags()) { av_force_cpu_flags(flags); }
  ~ForcedCpuFlags() { av_force_cpu_flags(before_); }
  ForcedCpuFlags(const ForcedCpuFlags&) = delete;
  ForcedCpuFlags& operator=(const ForcedCpuFlags&) = delete;

 private:
  const int before_;
};

class ForcedDav1dFlags {
 public:
  static constexpr unsigned kUsual = 7;  // SSE2, SSSE3, SSE4.1

  explicit ForcedDav1dFlags(unsigned flags) { dav1d_set_cpu_flags_mask(flags); }
  ~ForcedDav1dFlags() { dav1d_set_cpu_flags_mask(kUsual); }
  ForcedDav1dFlags(const ForcedDav1dFlags&) = delete;
  ForcedDav1dFlags& operator=(const ForcedDav1dFlags&) = delete;
};

}  // namespace evenkeel::preprocess
