// Wraps zlib and libzstd: the only file that includes them.
#include "dataset/source/unpack.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace evenkeel::dataset {
namespace {

constexpr size_t kOutBytes = 1 << 20;

struct EndInflate {
  void operator()(z_stream* stream) const {
    ::inflateEnd(stream);
    delete stream;
  }
};
using Inflate = std::unique_ptr<z_stream, EndInflate>;

struct FreeZstd {
  void operator()(ZSTD_DCtx* context) const { ::ZSTD_freeDCtx(context); }
};
using Zstd = std::unique_ptr<ZSTD_DCtx, FreeZstd>;

absl::Status OutOfMemory() { return absl::UnavailableError("no memory to decompress"); }

// Takes compressed bytes in order.
class Decompressor {
 public:
  virtual ~Decompressor() = default;
  // Decompresses from the front of `in` into `out`, and sets how many bytes it took and gave.
  virtual absl::Status Step(std::span<const std::byte> in, std::span<std::byte> out, size_t* taken,
                            size_t* given) = 0;
  // Whether the object may end here.
  virtual bool is_complete() const = 0;
};

class Gzip : public Decompressor {
 public:
  explicit Gzip(Inflate stream) : stream_(std::move(stream)) {}

  absl::Status Step(std::span<const std::byte> in, std::span<std::byte> out, size_t* taken,
                    size_t* given) override {
    if (is_complete_) {
      // Another member, or zeros that fill a block, in any order, as Python's gzip reads them.
      const auto rest = std::ranges::find_if(in, [](std::byte byte) { return byte != std::byte{0}; });
      if (rest == in.end() || rest != in.begin()) {
        *taken = static_cast<size_t>(rest - in.begin());
        return absl::OkStatus();
      }
      if (::inflateReset(stream_.get()) != Z_OK) return absl::DataLossError("data after the end");
      is_complete_ = false;
    }
    stream_->next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(in.data()));
    stream_->avail_in = static_cast<uInt>(in.size());
    stream_->next_out = reinterpret_cast<Bytef*>(out.data());
    stream_->avail_out = static_cast<uInt>(out.size());
    const int code = ::inflate(stream_.get(), Z_NO_FLUSH);
    *taken = in.size() - stream_->avail_in;
    *given = out.size() - stream_->avail_out;
    if (code == Z_MEM_ERROR) return OutOfMemory();
    if (code == Z_STREAM_END) is_complete_ = true;
    if (code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR) return absl::OkStatus();
    return absl::DataLossError(stream_->msg != nullptr ? stream_->msg : "not gzip");
  }
  bool is_complete() const override { return is_complete_; }

 private:
  const Inflate stream_;
  bool is_complete_ = false;
};

class Frames : public Decompressor {
 public:
  explicit Frames(Zstd context) : context_(std::move(context)) {}

  absl::Status Step(std::span<const std::byte> in, std::span<std::byte> out, size_t* taken,
                    size_t* given) override {
    ZSTD_inBuffer from{in.data(), in.size(), 0};
    ZSTD_outBuffer into{out.data(), out.size(), 0};
    const size_t code = ::ZSTD_decompressStream(context_.get(), &into, &from);
    *taken = from.pos;
    *given = into.pos;
    if (::ZSTD_isError(code) != 0) {
      if (::ZSTD_getErrorCode(code) == ZSTD_error_memory_allocation) return OutOfMemory();
      return absl::DataLossError(::ZSTD_getErrorName(code));
    }
    is_complete_ = code == 0;
    return absl::OkStatus();
  }
  bool is_complete() const override { return is_complete_; }

 private:
  const Zstd context_;
  bool is_complete_ = false;
};

absl::StatusOr<std::unique_ptr<Decompressor>> MakeDecompressor(Packing packing) {
  if (packing == Packing::kZstd) {
    Zstd context(::ZSTD_createDCtx());
    if (context == nullptr) return OutOfMemory();
    return std::make_unique<Frames>(std::move(context));
  }
  constexpr int kGzipAlone = 16 + MAX_WBITS;
  Inflate stream(new z_stream{});
  if (::inflateInit2(stream.get(), kGzipAlone) != Z_OK) return OutOfMemory();
  return std::make_unique<Gzip>(std::move(stream));
}

}  // namespace

absl::Status Unpack(Packing packing, uint64_t size,
                    absl::FunctionRef<absl::Status(uint64_t, std::span<std::byte>)> read,
                    absl::FunctionRef<absl::Status(std::span<const std::byte>)> write) {
  EVENKEEL_ASSIGN_OR_RETURN(const std::unique_ptr<Decompressor> decompressor, MakeDecompressor(packing));
  std::vector<std::byte> in, out(kOutBytes);
  for (uint64_t at = 0; at < size; at += in.size()) {
    in.resize(std::min(kUnpackPieceBytes, size - at));
    EVENKEEL_RETURN_IF_ERROR(read(at, in));
    std::span<const std::byte> rest(in);
    // What is decompressed may be more than the room for it: until no more comes, all of the input was used.
    for (size_t given = out.size(); !rest.empty() || given == out.size();) {
      size_t taken = 0;
      given = 0;
      if (rest.empty() && decompressor->is_complete()) break;
      const absl::Status step = decompressor->Step(rest, out, &taken, &given);
      if (absl::IsDataLoss(step))
        return AddContext(step, absl::StrCat("compressed data damaged before byte ", at + in.size()));
      EVENKEEL_RETURN_IF_ERROR(step);
      if (given > 0) EVENKEEL_RETURN_IF_ERROR(write(std::span<const std::byte>(out).first(given)));
      if (taken == 0 && given == 0) break;  // it wants more input
      rest = rest.subspan(taken);
    }
    if (!rest.empty())
      return absl::DataLossError(absl::StrCat("compressed data damaged before byte ", at + in.size()));
  }
  if (!decompressor->is_complete()) return absl::DataLossError("compressed data cut off, or there are none");
  return absl::OkStatus();
}

}  // namespace evenkeel::dataset
