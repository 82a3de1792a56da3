// How UCX is configured. Through its own configuration object, never through the process's environment, which
// belongs to the trainer; what the environment says about devices and transports is kept where the job says
// nothing.
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "transport/factory.h"
#include "transport/ucx_worker.h"

namespace evenkeel::transport {
namespace {

constexpr size_t kPageBytes = 4096;

struct ConfigDeleter {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};
using Config = std::unique_ptr<ucp_config_t, ConfigDeleter>;

bool InEnvironment(const char* name) { return std::getenv(name) != nullptr; }

absl::Status Set(ucp_config_t* config, const char* name, const std::string& value) {
  ucs_status_t status = ucp_config_modify(config, name, value.c_str());
  if (status == UCS_OK) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("UCX refuses ", name, "=", value, ": ", ucs_status_string(status)));
}

// Only transports whose endpoints can fail. Shared memory is left out on purpose: it would be refused, or
// silently replaced by TCP.
std::string WatchedTransports(const Options& options) { return options.require_rdma ? "ib" : "ib,tcp"; }

// A transport's own keys go without its prefix: UCX 1.13 offers them to every transport's table, in which
// they stand bare. UCX_TCP_... of the environment are read before and lose.
absl::Status ConfigureTcp(ucp_config_t* config) {
  // A connect to an address that does not answer must not hold up the thread that serves all the others.
  EVENKEEL_RETURN_IF_ERROR(Set(config, "CONN_NB", "y"));
  // No one-sided writes over TCP: with them a peer names the address that it writes to. Without them data
  // finds its buffer through a request of ours, which is gone once the endpoint was closed.
  EVENKEEL_RETURN_IF_ERROR(Set(config, "PUT_ENABLE", "n"));
  // No zero-copy sends: when a connection is reset under one, UCX 1.13 completes it twice and aborts the
  // process ("comp->count > 0"). Parts go as short messages, which the kernel takes from the caller's memory
  // too and which leave nothing to complete. RDMA is not concerned: its rendezvous reads the caller's memory
  // by other means.
  EVENKEEL_RETURN_IF_ERROR(Set(config, "ZCOPY_THRESH", "inf"));
  // A chunk with its headers must be one short message.
  std::string segment = absl::StrCat(kTcpChunkBytes + kPageBytes);
  EVENKEEL_RETURN_IF_ERROR(Set(config, "TX_SEG_SIZE", segment));
  return Set(config, "RX_SEG_SIZE", segment);
}

absl::Status ConfigureWatched(const Options& options, ucp_config_t* config) {
  if (options.require_rdma || !InEnvironment("UCX_TLS")) {
    EVENKEEL_RETURN_IF_ERROR(Set(config, "TLS", WatchedTransports(options)));
  }
  std::string devices = options.loopback_only ? "lo" : options.devices;
  if (!devices.empty()) EVENKEEL_RETURN_IF_ERROR(Set(config, "NET_DEVICES", devices));
  // Our deadlines decide death. With keepalive on, every endpoint begins with an exchange that can abort the
  // process (ucx_engine.h: Greet).
  EVENKEEL_RETURN_IF_ERROR(Set(config, "KEEPALIVE_INTERVAL", "inf"));
  return options.require_rdma ? absl::OkStatus() : ConfigureTcp(config);
}

absl::Status ConfigureSharedMemory(ucp_config_t* config) {
  EVENKEEL_RETURN_IF_ERROR(Set(config, "TLS", "posix,sysv,cma"));
  // The receiver fetches: a stopped sender that wakes has nothing to write into.
  return Set(config, "RNDV_SCHEME", "get_zcopy");
}

}  // namespace

absl::Status StatusFromUcx(ucs_status_t status, std::string_view what) {
  std::string message = absl::StrCat(std::string(what), ": ", ucs_status_string(status));
  switch (status) {
    case UCS_OK:
      return absl::OkStatus();
    case UCS_ERR_CANCELED:
      return absl::CancelledError(message);
    case UCS_ERR_NO_MEMORY:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

absl::StatusOr<std::shared_ptr<UcxContext>> UcxContext::Create(const Options& options, Kind kind) {
  if (options.require_rdma && options.loopback_only) {
    return absl::FailedPreconditionError(
        "require_rdma is set, but without certificates only loopback is used, which is no RDMA; give the "
        "certificate, its key and the authority, or set require_rdma: false");
  }
  ucp_config_t* raw;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &raw);
  if (status != UCS_OK) return StatusFromUcx(status, "cannot read UCX's configuration");
  Config config(raw);
  // A machine without InfiniBand is no reason for a warning.
  EVENKEEL_RETURN_IF_ERROR(Set(raw, "WARN_INVALID_CONFIG", "n"));
  EVENKEEL_RETURN_IF_ERROR(kind == Kind::kWatched ? ConfigureWatched(options, raw)
                                                  : ConfigureSharedMemory(raw));
  ucp_params_t parameters{};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
  parameters.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  ucp_context_h handle;
  status = ucp_init(&parameters, raw, &handle);
  if (status == UCS_OK) return std::shared_ptr<UcxContext>(new UcxContext(handle, kind));
  if (options.require_rdma) {
    return absl::FailedPreconditionError(absl::StrCat(
        "require_rdma is set, but UCX finds no InfiniBand or RoCE device (", ucs_status_string(status),
        "); check `ucx_info -d`, the device plugin and UCX_NET_DEVICES, or set require_rdma: false"));
  }
  return absl::UnavailableError(absl::StrCat("UCX finds no usable device (", ucs_status_string(status),
                                             "); check `ucx_info -d` and the option devices ('",
                                             options.devices, "')"));
}

UcxContext::~UcxContext() { ucp_cleanup(handle_); }

absl::StatusOr<ucp_mem_h> UcxContext::Register(std::span<std::byte> memory) {
  ucp_mem_map_params_t parameters{};
  parameters.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  parameters.address = memory.data();
  parameters.length = memory.size();
  ucp_mem_h handle;
  ucs_status_t status = ucp_mem_map(handle_, &parameters, &handle);
  if (status != UCS_OK) {
    return StatusFromUcx(status, absl::StrCat("cannot register ", memory.size(), " bytes of receive memory"));
  }
  return handle;
}

void UcxContext::Unregister(ucp_mem_h memory) { ucp_mem_unmap(handle_, memory); }

}  // namespace evenkeel::transport
