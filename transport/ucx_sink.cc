#include "transport/factory.h"
namespace evenkeel::transport {
absl::StatusOr<std::unique_ptr<Sink>> MakeUcxSink(const Options&) { return absl::UnimplementedError("soon"); }
}  // namespace evenkeel::transport
