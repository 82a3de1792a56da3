#include "preprocess/audio/audio.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>

extern "C" {
#include <libavcodec/avcodec.h>
}

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/digest.h"
#include "tests/preprocess/allocations.h"
#include "tests/preprocess/cpu_flags.h"
#include "tests/preprocess/files.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint64_t kThirtySeconds = 480000;

struct Clip {
  std::vector<float> samples;
  uint64_t filled = 0, trimmed = 0;
};

absl::StatusOr<Clip> Decode(const std::string& name, const Bytes& bytes) {
  Limits limits;
  limits.max_audio_seconds = 60;
  absl::StatusOr<MediaFacts> facts = ProbeAudio(SuffixOf(name), bytes, limits);
  if (!facts.ok()) return facts.status();
  absl::StatusOr<DecodedAudio> audio = DecodeSpeech(SuffixOf(name), bytes, limits, *facts, kThirtySeconds);
  if (!audio.ok()) return audio.status();
  return Clip{{audio->samples.begin(), audio->samples.end()}, audio->filled, audio->trimmed};
}

// `in` fed in pieces of `piece` samples.
std::vector<float> Resampled(std::span<const float> in, uint32_t rate, uint64_t num_out, size_t piece,
                             uint32_t to = kSpeechRate) {
  std::vector<float> out(num_out, -7.0f);
  absl::StatusOr<SpeechResampler> resampler = SpeechResampler::Start(rate, out, to);
  EXPECT_TRUE(resampler.ok()) << resampler.status();
  for (; !in.empty(); in = in.subspan(std::min(piece, in.size()))) {
    EXPECT_TRUE(resampler->Feed(in.first(std::min(piece, in.size()))).ok());
  }
  EXPECT_TRUE(resampler->Finish().ok());
  return out;
}

const std::vector<std::string>& Files() {
  static const std::vector<std::string> files = {
      "stereo.wav",       "stereo.flac",         "stereo-alac.m4a",  "stereo.mp3",        "stereo.m4a",
      "stereo.ac3",       "stereo.opus",         "mulaw.wav",        "float.wav",         "voice.wav",
      "stereo.ogg",       "vorbis.mka",          "opus.webm",        "flac.mka",          "aac.mka",
      "aac-cut.m4a",      "variable.mp3",        "pages.ogg",        "aac.avi",           "alac.mka",
      "fragments.mp4",    "aac-48-khz.mka",      "aac-48-khz.avi",   "vorbis-48-khz.mka", "24-khz.mp3",
      "24-khz-noise.mp3", "24-khz-variable.mp3", "24-khz-plain.mp3", "stereo.aiff",       "backwards.aiff",
      "doubles.aiff"};
  return files;
}

// Of APEv2 as mp3gain and taggers write it: a header, an item of `size` bytes, a footer; of Lyrics3 its ends.
std::string ApeTag(size_t size) {
  auto number = [](size_t value) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
    return bytes;
  };
  const std::string item = number(size) + number(0) + std::string("Cover\0", 6) + std::string(size, '\xAB');
  auto end = [&](size_t flags) {
    return "APETAGEX" + number(2000) + number(item.size() + 32) + number(1) + number(flags) +
           std::string(8, '\0');
  };
  return end(0xA0000000) + item + end(0x80000000);
}

TEST(Audio, TagsBehindTheLastFrameAreNoSound) {
  for (const std::string name : {"stereo.mp3", "variable.mp3", "stereo.flac", "stereo.aac"}) {
    absl::StatusOr<Clip> plain = Decode(name, Golden("audio/" + name));
    ASSERT_TRUE(plain.ok()) << plain.status();
    for (const std::string& tag :
         {ApeTag(20), ApeTag(3000), ApeTag(200000), "LYRICSBEGIN" + std::string(500, 'x') + "000511LYRICS200",
          "LYRICSBEGIN" + std::string(5, 'x') + "000016LYRICS200" + ApeTag(0) + ApeTag(64) + "TAG" +
              std::string(125, ' '),
          ApeTag(700) + "TAG" + std::string(125, ' ')}) {
      Bytes bytes = Golden("audio/" + name);
      for (char c : tag) bytes.push_back(static_cast<std::byte>(c));
      absl::StatusOr<Clip> tagged = Decode(name, bytes);
      ASSERT_TRUE(tagged.ok()) << name << " and " << tag.size() << " bytes: " << tagged.status();
      EXPECT_EQ(tagged->samples, plain->samples) << name << " and " << tag.size() << " bytes";
      EXPECT_EQ(tagged->filled, plain->filled);
    }
  }
}

Bytes Joined(Bytes first, const Bytes& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// As files that were joined or cut out of a stream have it.
TEST(Audio, WhatIsNoFrameOfAnMp3IsNoSound) {
  const Bytes file = Golden("audio/variable.mp3");
  const absl::StatusOr<Clip> plain = Decode("x.mp3", file);
  ASSERT_TRUE(plain.ok()) << plain.status();
  const absl::StatusOr<Clip> zeroes = Decode("x.mp3", Joined(file, Bytes(5000)));
  ASSERT_TRUE(zeroes.ok()) << zeroes.status();
  EXPECT_EQ(zeroes->samples, plain->samples);
  EXPECT_EQ(zeroes->filled + zeroes->trimmed, 0u);
  Bytes tag(110, std::byte{'x'});
  const std::array<char, 10> header = {'I', 'D', '3', 4, 0, 0, 0, 0, 0, 100};
  std::memcpy(tag.data(), header.data(), header.size());
  const absl::StatusOr<MediaFacts> one = ProbeAudio("mp3", file, Limits{});
  const Bytes twice = Joined(Joined(file, tag), file);
  const absl::StatusOr<MediaFacts> two = ProbeAudio("mp3", twice, Limits{});
  ASSERT_TRUE(one.ok() && two.ok()) << two.status();
  EXPECT_GE(two->num_samples, 2 * one->num_samples - 576);  // the frame behind a tag may come with it
  const absl::StatusOr<Clip> joined = Decode("x.mp3", twice);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->filled + joined->trimmed, 0u);
}

TEST(Audio, TheFrameThatTheEndOfAnAdtsStreamCutsOffIsPassedOver) {
  Bytes file = Golden("audio/stereo.aac");
  const absl::StatusOr<MediaFacts> whole = ProbeAudio("aac", file, Limits{});
  file.resize(file.size() - 20);
  const absl::StatusOr<MediaFacts> cut = ProbeAudio("aac", file, Limits{});
  ASSERT_TRUE(whole.ok() && cut.ok()) << cut.status();
  EXPECT_EQ(cut->num_samples, whole->num_samples - 1024);
  const absl::StatusOr<Clip> clip = Decode("x.aac", file);
  ASSERT_TRUE(clip.ok()) << clip.status();
  EXPECT_EQ(clip->filled + clip->trimmed, 0u);
}

size_t Find(const Bytes& bytes, std::string_view what) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string_view::npos);
  return at;
}

// As encoders write it whose delay is no whole number of packets (2112 samples are usual).
TEST(Audio, AnEditListMayDropWholePacketsAndAPartOfTheNext) {
  Bytes file = Golden("audio/stereo.m4a");
  const absl::StatusOr<Clip> plain = Decode("x.m4a", file);
  ASSERT_TRUE(plain.ok()) << plain.status();
  constexpr uint32_t kLater = 441;  // 320 samples at 16 kHz
  const size_t media_time = Find(file, "elst") + 16;
  ASSERT_EQ(std::to_integer<int>(file[media_time + 2]), 4);  // 1024, one packet
  file[media_time + 2] = std::byte{(1024 + kLater) >> 8};
  file[media_time + 3] = std::byte{(1024 + kLater) & 0xff};
  const absl::StatusOr<MediaFacts> facts = ProbeAudio("m4a", file, Limits{});
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->num_samples, 7 * 1024 - 1024 - kLater);  // where the packets end
  const absl::StatusOr<Clip> later = Decode("x.m4a", file);
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_EQ(later->filled + later->trimmed, 0u);
  for (size_t i = 300; i < 3500; ++i) {
    ASSERT_NEAR(later->samples[i], plain->samples[i + 320], 1e-4) << i;
  }
}

TEST(Audio, KindsOfAacThatTheDecoderDoesNotHaveAreRefusedByTheIndex) {
  Bytes file = Golden("audio/stereo.m4a");
  const size_t config = Find(file, "\x13\x90\x56\xe5");  // LC, 22050 Hz, two channels
  file[config] = std::byte{0xf9};                        // xHE-AAC
  file[config + 1] = std::byte{0x48};
  EXPECT_TRUE(absl::IsUnimplemented(ProbeAudio("m4a", file, Limits{}).status()));
}

TEST(Audio, Bw64IsAWav) {
  const Bytes wav = Golden("audio/voice.wav");
  const size_t data = Find(wav, "data");
  Bytes file(80);
  std::memcpy(file.data(), "BW64\xff\xff\xff\xffWAVEds64\x1c", 17);
  const uint64_t bytes = wav.size() - data - 8;
  std::memcpy(&file[28], &bytes, sizeof(bytes));
  file.resize(48);
  file.insert(file.end(), wav.begin() + 12, wav.end());
  std::fill_n(file.begin() + static_cast<ptrdiff_t>(48 - 12 + data + 4), 4, std::byte{0xff});
  const absl::StatusOr<Clip> plain = Decode("x.wav", wav), clip = Decode("x.wav", file);
  ASSERT_TRUE(clip.ok()) << clip.status();
  EXPECT_EQ(clip->samples, plain->samples);
}

TEST(Audio, AnId3TagBeforeFlacIsNoSound) {
  const Bytes original = Golden("audio/stereo.flac");
  const absl::StatusOr<Clip> plain = Decode("stereo.flac", original);
  ASSERT_TRUE(plain.ok()) << plain.status();
  const auto with_tag = [&](uint8_t flags, uint8_t size, size_t written) {
    Bytes bytes;
    for (const uint8_t c : {uint8_t{'I'}, uint8_t{'D'}, uint8_t{'3'}, uint8_t{4}, uint8_t{0}, flags,
                            uint8_t{0}, uint8_t{0}, uint8_t{1}, size}) {
      bytes.push_back(static_cast<std::byte>(c));
    }
    bytes.resize(bytes.size() + written);
    bytes.insert(bytes.end(), original.begin(), original.end());
    return bytes;
  };
  Bytes two = with_tag(0, 2, 130);
  two.resize(10 + 130);
  two = Joined(two, with_tag(0x10, 0, 138));
  // 7 bits a byte; with a footer; one of each.
  for (const Bytes& bytes : {with_tag(0, 2, 130), with_tag(0x10, 0, 138), two}) {
    const absl::StatusOr<Clip> tagged = Decode("stereo.flac", bytes);
    ASSERT_TRUE(tagged.ok()) << tagged.status();
    EXPECT_EQ(tagged->samples, plain->samples);
  }
  EXPECT_FALSE(Decode("stereo.flac", with_tag(0, 3, 130)).ok());
  Bytes cut = with_tag(0, 2, 130);
  cut.resize(4);
  EXPECT_FALSE(Decode("stereo.flac", cut).ok());
}

TEST(Audio, FactsAreThoseOfTheContainer) {
  struct Expected {
    uint32_t rate, channels;
    uint64_t samples;
  };
  const std::map<std::string, Expected> expected = {
      {"stereo.wav", {22050, 2, 6000}},
      {"stereo.flac", {22050, 2, 6000}},
      {"stereo.aiff", {22050, 2, 6000}},
      {"backwards.aiff", {22050, 2, 6000}},
      {"doubles.aiff", {8000, 1, 2177}},
      {"stereo-alac.m4a", {22050, 2, 6000}},
      {"mulaw.wav", {8000, 1, 2177}},
      {"float.wav", {22050, 2, 6000}},
      {"voice.wav", {16000, 1, 9000}},
      {"stereo.opus", {48000, 2, 13062}},     // pre-skip, granule of the end
      {"opus.webm", {48000, 2, 13062}},       // the same as delay and padding
      {"stereo.ogg", {22050, 2, 6000}},       // granule of the end
      {"pages.ogg", {22050, 2, 6000}},        // ... of the last of several pages
      {"vorbis.mka", {22050, 2, 6144}},       // whole packets
      {"flac.mka", {22050, 2, 6000}},         // durations there are in milliseconds
      {"aac.mka", {22050, 2, 7168}},          // ... so seven frames of 1024
      {"aac.avi", {22050, 2, 7168}},          // ... also the first, which AVI gives no duration
      {"aac-48-khz.mka", {48000, 2, 14336}},  // ... also where a millisecond is a whole number of samples
      {"aac-48-khz.avi", {48000, 2, 14336}},
      {"vorbis-48-khz.mka", {48000, 2, 13696}},
      {"fragments.mp4", {22050, 2, 7168}},
      {"alac.mka", {22050, 2, 6000}},      // the short last packet's own word
      {"stereo.mp3", {22050, 2, 6000}},    // LAME's delay and padding
      {"variable.mp3", {22050, 2, 7488}},  // neither: thirteen frames of 576
      {"24-khz.mp3", {24000, 2, 6531}},    // decoded by another library, counted alike
      {"24-khz-noise.mp3", {24000, 1, 13502}},
      {"24-khz-variable.mp3", {24000, 2, 6531}},
      {"24-khz-plain.mp3", {24000, 2, 8064}},
      {"stereo.m4a", {22050, 2, 5998}},   // edit list, short last packet
      {"aac-cut.m4a", {22050, 2, 3793}},  // ... begun within a packet
      {"stereo.ac3", {32000, 2, 9216}}};
  for (const auto& [name, facts] : expected) {
    absl::StatusOr<MediaFacts> probed = ProbeAudio(SuffixOf(name), Golden("audio/" + name), Limits{});
    ASSERT_TRUE(probed.ok()) << name << " " << probed.status();
    EXPECT_EQ(probed->sample_rate, facts.rate) << name;
    EXPECT_EQ(probed->channels, facts.channels) << name;
    EXPECT_EQ(probed->num_samples, facts.samples) << name;
  }
}

TEST(Audio, EveryDecoderDeliversTheSamplesOfTheFacts) {
  for (const std::string& name : Files()) {
    SCOPED_TRACE(name);
    absl::StatusOr<Clip> audio = Decode(name, Golden("audio/" + name));
    ASSERT_TRUE(audio.ok()) << audio.status();
    MediaFacts facts = *ProbeAudio(SuffixOf(name), Golden("audio/" + name), Limits{});
    EXPECT_EQ(audio->samples.size(), SpeechSamples(facts));
    EXPECT_EQ(audio->filled, 0u);
    EXPECT_EQ(audio->trimmed, 0u);
  }
}

// librosa.load's samples, at 16 kHz.
TEST(Audio, Mp3Of24KilohertzIsWhatLibrosaHears) {
  for (const std::string name : {"24-khz-noise", "24-khz-variable", "24-khz-plain"}) {
    const absl::StatusOr<Clip> clip = Decode("x.mp3", Golden("audio/" + name + ".mp3"));
    ASSERT_TRUE(clip.ok()) << clip.status();
    const std::vector<float> expected = GoldenFloats("audio/" + name + ".f32");
    ASSERT_EQ(clip->samples.size(), expected.size()) << name;
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(clip->samples[i], expected[i], 2e-6) << name << " " << i;
  }
}

// Where a clip is cut off, its last frame has the bits that are there.
TEST(Audio, Mp3Of24KilohertzEndsWhereItsFileDoes) {
  const Bytes file = Golden("audio/24-khz-plain.mp3");
  const absl::StatusOr<Clip> whole = Decode("x.mp3", file);
  ASSERT_TRUE(whole.ok()) << whole.status();
  for (const size_t missing : {1, 60, 139}) {
    const absl::StatusOr<Clip> cut = Decode("x.mp3", Bytes(file.begin(), file.end() - missing));
    ASSERT_TRUE(cut.ok()) << cut.status();
    EXPECT_EQ(cut->filled + cut->trimmed, 0u);
    ASSERT_EQ(cut->samples.size(), whole->samples.size()) << missing;
    for (size_t i = 0; i < 4500; ++i) ASSERT_EQ(cut->samples[i], whole->samples[i]) << missing << " " << i;
  }
}

// As FFmpeg's command has it.
TEST(Audio, AnMp3ThatBeginsWithinAFrameHasTheFramesThatAreWhole) {
  struct Case {
    const char* name;
    uint64_t whole;  // samples of all
  };
  for (const Case& c : {Case{"24-khz-plain.mp3", 8064}, Case{"variable.mp3", 7488}}) {
    const Bytes file = Golden(absl::StrCat("audio/", c.name));
    for (const size_t cut : {1, 100}) {
      const absl::StatusOr<MediaFacts> facts =
          ProbeAudio("mp3", Bytes(file.begin() + cut, file.end()), Limits{});
      ASSERT_TRUE(facts.ok()) << c.name << " " << facts.status();
      EXPECT_EQ(facts->num_samples, c.whole - 576) << c.name << " " << cut;
    }
    const absl::StatusOr<Clip> clip = Decode("x.mp3", Bytes(file.begin() + 1, file.end()));
    ASSERT_TRUE(clip.ok()) << clip.status();
    EXPECT_EQ(clip->filled + clip->trimmed, 0u);
    // Zeroes before the first frame, which some writers of files leave there.
    const absl::StatusOr<Clip> behind_zeroes = Decode("x.mp3", Joined(Bytes(1000), file));
    ASSERT_TRUE(behind_zeroes.ok()) << behind_zeroes.status();
    EXPECT_EQ(behind_zeroes->samples, Decode("x.mp3", file)->samples);
  }
}

TEST(Audio, BytesAmongWhichIsNoMp3AreNone) {
  Dice dice(3);
  Bytes noise(300000);
  for (std::byte& byte : noise) byte = static_cast<std::byte>(dice.Roll(255));  // no sync word
  EXPECT_TRUE(absl::IsInvalidArgument(ProbeAudio("mp3", noise, Limits{}).status()));
  const Bytes file = Golden("audio/variable.mp3");
  // A frame behind which there is no other, and one that begins later than is looked for.
  EXPECT_TRUE(absl::IsInvalidArgument(
      ProbeAudio("mp3", Joined(Bytes(10), Joined(Bytes(file.begin(), file.begin() + 200), noise)), Limits{})
          .status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ProbeAudio("mp3", Joined(Bytes(70000), file), Limits{}).status()));
}

TEST(Audio, AFrameOfAnotherKindAmongMp3Of24KilohertzIsRefused) {
  const Bytes file = Golden("audio/24-khz-plain.mp3"), other = Golden("audio/variable.mp3");
  const absl::StatusOr<MediaFacts> facts = ProbeAudio("mp3", Joined(file, other), Limits{});
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_TRUE(
      absl::IsDataLoss(DecodeSpeech("mp3", Joined(file, other), Limits{}, *facts, kThirtySeconds).status()));
  MediaFacts mono = *ProbeAudio("mp3", file, Limits{});
  mono.channels = 1;
  EXPECT_TRUE(absl::IsDataLoss(DecodeSpeech("mp3", file, Limits{}, mono, kThirtySeconds).status()));
}

TEST(Audio, AWavThatDoesNotKnowItsLengthHasWhatIsThere) {
  const Bytes whole = Golden("audio/stereo.wav");
  for (uint32_t said : {0xffffffffu, 0x7fffffffu, 40000u}) {
    Bytes bytes = whole;
    std::memcpy(&bytes[40], &said, sizeof(said));
    absl::StatusOr<MediaFacts> facts = ProbeAudio("wav", bytes, Limits{});
    ASSERT_TRUE(facts.ok()) << facts.status();
    EXPECT_EQ(facts->num_samples, 6000u) << said;
  }
  for (size_t missing : {1, 2, 3, 4, 1001, 5000}) {  // also within a sample
    Bytes bytes(whole.begin(), whole.end() - missing);
    absl::StatusOr<MediaFacts> facts = ProbeAudio("wav", bytes, Limits{});
    ASSERT_TRUE(facts.ok()) << facts.status();
    EXPECT_EQ(facts->num_samples, (24000 - missing) / 4) << missing;
    absl::StatusOr<Clip> audio = Decode("stereo.wav", bytes);
    ASSERT_TRUE(audio.ok()) << audio.status();
    EXPECT_EQ(audio->filled + audio->trimmed, 0u) << missing;
  }
}

// Where the decoders' vector code is chosen when they are opened.
TEST(Audio, IntegerDecodersGiveTheSameSamplesWithAnyCpuFeatures) {
  for (const std::string name : {"stereo.wav", "stereo.flac", "stereo-alac.m4a", "stereo.opus", "mulaw.wav",
                                 "float.wav", "opus.webm", "flac.mka"}) {
    absl::StatusOr<Clip> all = Decode(name, Golden("audio/" + name));
    ASSERT_TRUE(all.ok()) << all.status();
    for (int flags : {0, -1}) {
      const ForcedCpuFlags forced(flags);
      absl::StatusOr<Clip> masked = Decode(name, Golden("audio/" + name));
      ASSERT_TRUE(masked.ok()) << masked.status();
      EXPECT_EQ(masked->samples, all->samples) << name << " with flags " << flags;
    }
  }
}

#ifdef __x86_64__
TEST(Audio, DecodersOfFloatsAreGivenTheSameInstructionsOnEveryProcessor) {
  for (const std::string name : {"stereo.mp3", "stereo.m4a"}) {
    absl::StatusOr<Clip> usual = Decode(name, Golden("audio/" + name));
    ASSERT_TRUE(usual.ok()) << usual.status();
    EXPECT_EQ(av_get_cpu_flags(), kX8664V2);
    const ForcedCpuFlags forced(0);
    absl::StatusOr<Clip> other = Decode(name, Golden("audio/" + name));
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_NE(other->samples, usual->samples) << name << ": the choice makes no difference any more";
    for (size_t i = 0; i < usual->samples.size(); ++i)
      ASSERT_NEAR(other->samples[i], usual->samples[i], 1e-6);
  }
}
#endif

// An Ogg file whose pages tell of `shift` samples more or less, at the rate of the clip. RFC 3533, 6.
Bytes WithShiftedPages(Bytes file, int64_t shift) {
  const auto byte = [&](size_t at) { return std::to_integer<uint8_t>(file[at]); };
  for (size_t page = 0; page < file.size();) {
    size_t size = 27 + byte(page + 26);
    for (size_t i = 0; i < byte(page + 26); ++i) size += byte(page + 27 + i);
    int64_t samples = 0;
    for (size_t i = 8; i-- > 0;) samples = samples << 8 | byte(page + 6 + i);
    if (samples > 0) samples += shift;  // not those of the headers
    for (size_t i = 0; i < 8; ++i) file[page + 6 + i] = static_cast<std::byte>(samples >> (8 * i));
    for (size_t i = 0; i < 4; ++i) file[page + 22 + i] = std::byte{0};
    uint32_t sum = 0;
    for (size_t i = 0; i < size; ++i) {
      sum ^= uint32_t{byte(page + i)} << 24;
      for (int bit = 0; bit < 8; ++bit) sum = sum << 1 ^ (sum >> 31 != 0 ? 0x04c11db7 : 0);
    }
    for (size_t i = 0; i < 4; ++i) file[page + 22 + i] = static_cast<std::byte>(sum >> (8 * i));
    page += size;
  }
  return file;
}

TEST(Audio, VorbisIsAsLongWhereverItsTimesBegin) {
  const Bytes file = Golden("audio/pages.ogg");
  absl::StatusOr<Clip> plain = Decode("pages.ogg", file);
  ASSERT_TRUE(plain.ok()) << plain.status();
  for (int64_t shift : {0, -64, -500, 128, 5000, 1 << 24}) {
    absl::StatusOr<MediaFacts> facts = ProbeAudio("ogg", WithShiftedPages(file, shift), Limits{});
    ASSERT_TRUE(facts.ok()) << facts.status();
    EXPECT_EQ(facts->num_samples, 6000u) << shift;
    absl::StatusOr<Clip> shifted = Decode("pages.ogg", WithShiftedPages(file, shift));
    ASSERT_TRUE(shifted.ok()) << shifted.status();
    EXPECT_EQ(shifted->samples, plain->samples) << shift;
    EXPECT_EQ(shifted->filled + shifted->trimmed, 0u) << shift;
  }
}

// The last granule may cut off a whole packet, which then has no time.
TEST(Audio, VorbisOnOnePageEndsWhereThePageSays) {
  const Bytes file = Golden("audio/stereo.ogg");
  absl::StatusOr<Clip> plain = Decode("stereo.ogg", file);
  ASSERT_TRUE(plain.ok()) << plain.status();
  for (int64_t cut : {1, 100, 879, 880, 881, 1000}) {
    absl::StatusOr<MediaFacts> facts = ProbeAudio("ogg", WithShiftedPages(file, -cut), Limits{});
    ASSERT_TRUE(facts.ok()) << facts.status();
    EXPECT_EQ(facts->num_samples, static_cast<uint64_t>(6000 - cut));
  }
}

TEST(Audio, OfChainedVorbisTheFirstLinkIsRead) {
  const Bytes file = Golden("audio/pages.ogg");
  const absl::StatusOr<Clip> plain = Decode("x.ogg", file);
  ASSERT_TRUE(plain.ok()) << plain.status();
  for (const int64_t cut : {0, 1000}) {
    const Bytes chained = Joined(file, WithShiftedPages(Golden("audio/stereo.ogg"), -cut));
    const absl::StatusOr<Clip> clip = Decode("x.ogg", chained);
    ASSERT_TRUE(clip.ok()) << clip.status();
    EXPECT_EQ(clip->samples, plain->samples) << cut;
    EXPECT_EQ(clip->filled + clip->trimmed, 0u) << cut;
  }
}

#ifdef __x86_64__
// Bits, the first one highest.
class BitWriter {
 public:
  void Put(uint64_t value, int num_bits) {
    for (int i = num_bits - 1; i >= 0; --i) {
      if (num_bits_ % 8 == 0) bytes_.push_back(std::byte{0});
      bytes_.back() |= std::byte{static_cast<uint8_t>((value >> i & 1) << (7 - num_bits_ % 8))};
      ++num_bits_;
    }
  }
  void Align() { num_bits_ = 8 * bytes_.size(); }
  // The remainder of all bytes so far; RFC 9639, 9.1.8 and 9.3.
  uint64_t Remainder(uint32_t polynomial, int num_bits) const {
    uint32_t sum = 0;
    for (const std::byte byte : bytes_) {
      sum ^= std::to_integer<uint32_t>(byte) << (num_bits - 8);
      for (int i = 0; i < 8; ++i) sum = sum << 1 ^ (sum >> (num_bits - 1) & 1 ? polynomial : 0);
    }
    return sum & ((1u << num_bits) - 1);
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
  size_t num_bits_ = 0;
};

// Stereo of 16 bits at 16 kHz: `num_frames` frames of 4096 samples whose mean is `mid` and whose difference
// is `side`. Sums that need 17 bits are no FLAC of anything, and every checksum is right.
Bytes ForgedFlac(int num_frames, uint32_t mid, uint32_t side) {
  BitWriter out;
  for (const char c : {'f', 'L', 'a', 'C'}) out.Put(static_cast<uint8_t>(c), 8);
  out.Put(1, 1), out.Put(0, 7), out.Put(34, 24);  // the last block: STREAMINFO
  out.Put(4096, 16), out.Put(4096, 16), out.Put(0, 48);
  out.Put(16000, 20), out.Put(1, 3), out.Put(15, 5), out.Put(4096 * num_frames, 36);
  out.Put(0, 64), out.Put(0, 64);
  Bytes file = out.bytes();
  for (int i = 0; i < num_frames; ++i) {
    BitWriter frame;
    frame.Put(0xfff8, 16), frame.Put(12, 4), frame.Put(5, 4);  // 4096 samples, 16 kHz
    frame.Put(10, 4), frame.Put(4, 3), frame.Put(0, 1);        // mid and side, 16 bits
    frame.Put(i, 8);
    frame.Put(frame.Remainder(0x07, 8), 8);
    frame.Put(0, 8), frame.Put(mid, 16);  // constants
    frame.Put(0, 8), frame.Put(side, 17);
    frame.Align();
    frame.Put(frame.Remainder(0x8005, 16), 16);
    file.insert(file.end(), frame.bytes().begin(), frame.bytes().end());
  }
  return file;
}

// Where FLAC's code in C keeps the low bits and its vector code saturates.
TEST(Audio, OverflowingClipsUseTheSameInstructionsOnEveryProcessor) {
  const Bytes bytes = ForgedFlac(4, 32767, 65535);
  const absl::StatusOr<Clip> clip = Decode("x.flac", bytes);
  ASSERT_TRUE(clip.ok()) << clip.status();
  ASSERT_EQ(clip->samples.size(), 4 * 4096u);
  EXPECT_THAT(clip->samples, testing::Each(32767.0f / 32768 / 2));
  EXPECT_EQ(av_get_cpu_flags(), kX8664V2);
  const ForcedCpuFlags forced(0);
  const absl::StatusOr<Clip> other = Decode("x.flac", bytes);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_THAT(other->samples, testing::Each(-1.0f / 32768 / 2)) << "the choice makes no difference any more";
}
#endif

TEST(Audio, ADamagedFlacFrameIsRefused) {
  Bytes bytes = Golden("audio/stereo.flac");
  bytes[bytes.size() / 2] ^= std::byte{1};
  EXPECT_EQ(Decode("stereo.flac", bytes).status().code(), absl::StatusCode::kDataLoss);
}

TEST(Audio, ChannelsAreAveragedInTheirOrder) {
  Bytes bytes = Golden("audio/stereo.wav");
  // Taken as if it were of 16 kHz, no resampler is involved.
  uint32_t rate = kSpeechRate;
  std::memcpy(&bytes[24], &rate, sizeof(rate));
  absl::StatusOr<Clip> audio = Decode("stereo.wav", bytes);
  ASSERT_TRUE(audio.ok()) << audio.status();
  ASSERT_EQ(audio->samples.size(), 6000u);
  for (size_t i = 0; i < 6000; ++i) {
    int16_t pair[2];
    std::memcpy(pair, &bytes[44 + 4 * i], sizeof(pair));
    ASSERT_EQ(audio->samples[i], (pair[0] / 32768.0f + pair[1] / 32768.0f) / 2.0f) << i;
  }
}

TEST(Audio, LosslessCodecsGiveTheSamplesOfTheirSource) {
  absl::StatusOr<Clip> wav = Decode("stereo.wav", Golden("audio/stereo.wav"));
  ASSERT_TRUE(wav.ok());
  for (std::string name : {"stereo.flac", "stereo-alac.m4a", "float.wav", "flac.mka", "alac.mka"}) {
    absl::StatusOr<Clip> audio = Decode(name, Golden("audio/" + name));
    ASSERT_TRUE(audio.ok()) << audio.status();
    EXPECT_EQ(audio->samples, wav->samples) << name;
  }
}

// Rises with kStreamVersion only: the same bits on every CPU.
TEST(Audio, DecodersHaveTheBitsOfThisStreamVersion) {
  const std::map<std::string, std::string> expected = {
      {"stereo.wav", "279e3d3b5b5d482875d3ed7aea392e96"},
      {"stereo.flac", "279e3d3b5b5d482875d3ed7aea392e96"},
      {"stereo.aiff", "279e3d3b5b5d482875d3ed7aea392e96"},
      {"backwards.aiff", "279e3d3b5b5d482875d3ed7aea392e96"},
      {"doubles.aiff", "e692289a3849a6486207d8540e0fbe16"},
      {"stereo-alac.m4a", "279e3d3b5b5d482875d3ed7aea392e96"},
      {"stereo.mp3", "88529bff4abc13d0d14bfae532279740"},
      {"24-khz.mp3", "7b0ac6c30cbcfa9fd1e9a87f12ee5846"},
      {"24-khz-noise.mp3", "c2d21c650547805b56b5de1497fc18df"},
      {"24-khz-variable.mp3", "8f0ed7923b5b3c7d550b5cb048f7d1da"},
      {"24-khz-plain.mp3", "22826b90fd431d0dd7968c5675c3f8a1"},
      {"stereo.m4a", "54739188b47b25e032c3671979fc6b96"},
      {"stereo.ac3", "492acb5141bff58c777e80a7db26d9fd"},
      {"stereo.opus", "cc59c308ce73e2934fd3b835ce1d3439"},
      {"mulaw.wav", "fb1a6376d4a1c44db3e89142cf027022"},
      {"float.wav", "279e3d3b5b5d482875d3ed7aea392e96"},
      {"voice.wav", "fa55cc4a688a9963cb28d2044b860306"},
      {"stereo.ogg", "1cedde01ede6ca8e68e32ce9968883bf"},
      {"pages.ogg", "1cedde01ede6ca8e68e32ce9968883bf"},
      {"vorbis.mka", "d7dc53eec65dfc2690041a01cdc10ae9"},
      {"opus.webm", "cc59c308ce73e2934fd3b835ce1d3439"},
      {"flac.mka", "279e3d3b5b5d482875d3ed7aea392e96"},
      {"alac.mka", "279e3d3b5b5d482875d3ed7aea392e96"},
      {"aac.mka", "387e040edfc399cd89f7f970df262bb5"},
      {"aac.avi", "387e040edfc399cd89f7f970df262bb5"},
      {"fragments.mp4", "387e040edfc399cd89f7f970df262bb5"},
      {"aac-cut.m4a", "f0f5c737e1ee1a4214251f291140f0b6"},
      {"aac-48-khz.mka", "c1fd760ef407f4c11c679caa25e4d472"},
      {"aac-48-khz.avi", "c1fd760ef407f4c11c679caa25e4d472"},
      {"vorbis-48-khz.mka", "289dec2d7eeb74839e39103dcb03eb11"},
      {"variable.mp3", "9600525805cd66b1494c878e6f05be9b"}};
  for (const std::string& name : Files()) {
    absl::StatusOr<Clip> audio = Decode(name, Golden("audio/" + name));
    ASSERT_TRUE(audio.ok()) << audio.status();
    auto it = expected.find(name);
    EXPECT_EQ(DigestOf(std::as_bytes(std::span(audio->samples))).Hex(),
              it == expected.end() ? "" : it->second)
        << name;
  }
}

TEST(Audio, ResamplingHasTheBitsOfThisStreamVersion) {
  Digester digester;
  Dice dice(9);
  std::vector<float> noise(20000);
  for (float& sample : noise) sample = dice.Roll(65536) / 32768.0f - 1;
  for (uint32_t rate :
       {8000, 11025, 12000, 22050, 24000, 32000, 37800, 44056, 44100, 48000, 88200, 96000, 192000}) {
    ASSERT_TRUE(CanResample(rate));
    const uint64_t num_out = 20000ull * kSpeechRate / rate;
    const std::vector<float> out = Resampled(noise, rate, num_out, noise.size());
    digester.Update(std::as_bytes(std::span(out)));
    for (const size_t piece : {1u, 77u, 1152u, 9999u}) {
      ASSERT_EQ(Resampled(noise, rate, num_out, piece), out) << rate << " Hz in pieces of " << piece;
    }
  }
  EXPECT_EQ(digester.Finish().Hex(), "5c296b71948c596fd3cebd34d055387c");
}

// Where the ratio has no small terms: the filter's coefficients are interpolated.
TEST(Audio, ResamplingFromAnyRateHasTheBitsOfThisStreamVersion) {
  Digester digester;
  Dice dice(11);
  std::vector<float> noise(6000);
  for (float& sample : noise) sample = dice.Roll(65536) / 32768.0f - 1;
  std::vector<uint32_t> rates = {4000,  5512,  5513,   6000,   7350,   11000,  15999,  16001, 18900,
                                 22000, 22254, 44000,  44099,  47952,  48048,  49716,  64000, 66150,
                                 72000, 99991, 128000, 176400, 250000, 352800, 383999, 384000};
  for (int i = 0; i < 20; ++i) rates.push_back(4000 + static_cast<uint32_t>(dice.Roll(380001)));
  for (const uint32_t rate : rates) {
    ASSERT_TRUE(CanResample(rate));
    const uint64_t num_out = 6000ull * kSpeechRate / rate;
    const std::vector<float> out = Resampled(noise, rate, num_out, noise.size());
    digester.Update(std::as_bytes(std::span(out)));
    ASSERT_EQ(Resampled(noise, rate, num_out, 1152), out) << rate << " Hz in pieces";
  }
  EXPECT_EQ(digester.Finish().Hex(), "edcf9b11630a6829053c812809ddda4f");
}

TEST(Audio, ResamplingTo48KhzHasTheBitsOfThisStreamVersion) {
  Digester digester;
  Dice dice(13);
  std::vector<float> noise(6000);
  for (float& sample : noise) sample = dice.Roll(65536) / 32768.0f - 1;
  for (const uint32_t rate : {4000, 8000, 16000, 22050, 24000, 44099, 44100, 96000, 192000, 384000}) {
    const uint64_t num_out = 6000ull * 48000 / rate;
    const std::vector<float> out = Resampled(noise, rate, num_out, noise.size(), 48000);
    digester.Update(std::as_bytes(std::span(out)));
    ASSERT_EQ(Resampled(noise, rate, num_out, 1152, 48000), out) << rate << " Hz in pieces";
  }
  EXPECT_EQ(Resampled(noise, 48000, 6000, 77, 48000), noise) << "nothing to resample";
  EXPECT_EQ(digester.Finish().Hex(), "f0fc0d484bb9a2066469e9e0a22d0930");
}

TEST(Audio, ResamplingKeepsATone) {
  for (uint32_t rate : {8000u, 22050u, 44100u, 48000u}) {
    std::vector<float> tone(rate);
    for (uint32_t i = 0; i < rate; ++i) tone[i] = std::sin(2 * M_PI * 440 * i / rate);
    const std::vector<float> out = Resampled(tone, rate, kSpeechRate, 1024);
    for (uint32_t i = 2000; i < 14000; ++i)
      ASSERT_NEAR(out[i], std::sin(2 * M_PI * 440 * i / kSpeechRate), 1e-4);
  }
}

TEST(Audio, ADecodeShorterThanTheFactsIsFilledAndCounted) {
  Bytes bytes = Golden("audio/voice.wav");
  MediaFacts facts = *ProbeAudio("wav", bytes, Limits{});
  facts.num_samples += 100;
  absl::StatusOr<DecodedAudio> longer = DecodeSpeech("wav", bytes, Limits{}, facts, kThirtySeconds);
  ASSERT_TRUE(longer.ok());
  EXPECT_EQ(longer->filled, 100u);
  EXPECT_EQ(longer->samples.size(), 9100u);
  EXPECT_EQ(longer->samples.back(), 0);
  facts.num_samples = 8000;
  absl::StatusOr<DecodedAudio> shorter = DecodeSpeech("wav", bytes, Limits{}, facts, kThirtySeconds);
  ASSERT_TRUE(shorter.ok());
  EXPECT_GT(shorter->trimmed, 0u);
  EXPECT_EQ(shorter->samples.size(), 8000u);
}

// An hour of 48 kHz would be 690 MB at its own rate, besides the 230 MB that are asked for.
TEST(Audio, ALongClipIsNeverWholeInMemoryAtItsOwnRate) {
  constexpr uint32_t kRate = 48000, kSeconds = 100;
  Bytes bytes = Golden("audio/silence.wav");
  bytes.resize(44);
  const uint32_t num_bytes = kRate * kSeconds * 2, whole = num_bytes + 36;
  std::memcpy(&bytes[4], &whole, 4);
  std::memcpy(&bytes[24], &kRate, 4);
  std::memcpy(&bytes[40], &num_bytes, 4);
  Dice dice(3);
  bytes.resize(44 + num_bytes);
  for (size_t at = 44; at < bytes.size(); at += 97) bytes[at] = static_cast<std::byte>(dice.Roll(256));
  const MediaFacts facts = *ProbeAudio("wav", bytes, Limits{});
  ASSERT_EQ(facts.num_samples, uint64_t{kRate} * kSeconds);
  uint64_t most = 0;
  {
    CountedAllocations counted;
    const absl::StatusOr<DecodedAudio> audio =
        DecodeSpeech("wav", bytes, Limits{}, facts, SpeechSamples(facts));
    ASSERT_TRUE(audio.ok()) << audio.status();
    EXPECT_EQ(audio->samples.size(), uint64_t{kSpeechRate} * kSeconds);
    most = counted.bytes();
  }
  EXPECT_LT(most, sizeof(float) * kSpeechRate * kSeconds + (1 << 20));
}

TEST(Audio, RefusesWhatHasNoPromise) {
  EXPECT_TRUE(absl::IsUnimplemented(ProbeAudio("wav", Golden("audio/refused.wav"), Limits{}).status()));
  EXPECT_TRUE(absl::IsUnimplemented(ProbeAudio("wma", Golden("audio/voice.wav"), Limits{}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ProbeAudio("flac", Golden("audio/voice.wav"), Limits{}).status()));
  Bytes bytes = Golden("audio/voice.wav");
  for (const uint32_t rate : {1u, 3999u, 384001u, 0x7fffffffu}) {
    std::memcpy(&bytes[24], &rate, sizeof(rate));
    EXPECT_TRUE(absl::IsUnimplemented(ProbeAudio("wav", bytes, Limits{}).status())) << rate;
  }
  for (const uint32_t rate : {4000u, 7350u, 22000u, 384000u}) {
    std::memcpy(&bytes[24], &rate, sizeof(rate));
    EXPECT_TRUE(ProbeAudio("wav", bytes, Limits{}).ok()) << rate;
  }
}

TEST(Audio, NoSamplesAndLimitsHaveTheirErrors) {
  Bytes bytes = Golden("audio/voice.wav");
  Bytes empty(bytes.begin(), bytes.begin() + 44);
  EXPECT_TRUE(absl::IsInvalidArgument(ProbeAudio("wav", empty, Limits{}).status()));
  Limits limits;
  limits.max_audio_bytes = 1000;
  EXPECT_TRUE(absl::IsResourceExhausted(ProbeAudio("wav", bytes, limits).status()));
  limits = Limits{};
  limits.max_audio_seconds = 0;
  EXPECT_TRUE(absl::IsResourceExhausted(ProbeAudio("wav", bytes, limits).status()));
}

TEST(Audio, MutationsGiveErrorsOfATypeAndTheSameVerdictTwice) {
  for (const std::string& name : Files()) {
    Bytes original = Golden("audio/" + name);
    for (uint64_t n = 0; n < MutationCount(40); ++n) {
      Bytes bytes = Mutated(original, n);
      auto first = Decode(name, bytes);
      auto second = Decode(name, bytes);
      ASSERT_EQ(first.status(), second.status()) << name << " mutation " << n;
      if (first.ok()) {
        ASSERT_EQ(first->samples.size(), second->samples.size());
        ASSERT_EQ(
            std::memcmp(first->samples.data(), second->samples.data(), first->samples.size() * sizeof(float)),
            0)
            << name << " mutation " << n;
        continue;
      }
      ASSERT_THAT(first.status().code(),
                  testing::AnyOf(absl::StatusCode::kInvalidArgument, absl::StatusCode::kDataLoss,
                                 absl::StatusCode::kResourceExhausted, absl::StatusCode::kUnimplemented))
          << name << " mutation " << n << " " << first.status();
    }
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
