// Configures UCX through its configuration object, never through the process's environment, which belongs to
// the trainer. The environment's choice of devices and transports is respected if the job makes none.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/status.h"
#include "transport/factory.h"
#include "transport/file_handles.h"
#include "transport/interfaces.h"
#include "transport/ports.h"
#include "transport/rdma_device.h"
#include "transport/ucx_worker.h"

namespace evenkeel::transport {
namespace {

constexpr size_t kPageBytes = 4096;
// A context, UCX's own threads and the first workers take about 20 handles; the rest is a margin for other
// threads that open handles meanwhile. UCX ends the process if it gets none.
constexpr int kContextHandles = 40;

struct ConfigDeleter {
  void operator()(ucp_config_t* config) const { Ucx().ucp_config_release(config); }
};
using Config = std::unique_ptr<ucp_config_t, ConfigDeleter>;

bool InEnvironment(const char* name) { return std::getenv(name) != nullptr; }

absl::Status Set(ucp_config_t* config, const char* name, const std::string& value) {
  ucs_status_t status = Ucx().ucp_config_modify(config, name, value.c_str());
  if (status == UCS_OK) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("UCX refuses ", name, "=", value, ": ", Ucx().ucs_status_string(status)));
}

bool RdmaOnly(const Options& options) { return options.require_rdma || !options.trusted_network; }

// True if UCX_TLS in the environment lists RDMA transports and nothing else. "^tcp" and "all" do not.
bool NamesRdmaAlone(std::string_view transports) {
  const std::vector<std::string> names = absl::StrSplit(std::string(transports), ',');
  return std::all_of(names.begin(), names.end(), [](const std::string& name) {
    return name == "ib" || absl::StartsWith(name, "rc") || absl::StartsWith(name, "dc") ||
           absl::StartsWith(name, "ud");
  });
}

// The environment's choice if the options allow it. Only transports whose endpoints can report a failure:
// UCX's shared memory cannot.
std::string WatchedTransports(const Options& options) {
  const char* chosen = std::getenv("UCX_TLS");
  if (!RdmaOnly(options)) return chosen != nullptr ? chosen : "ib,tcp";
  return !options.require_rdma && chosen != nullptr && NamesRdmaAlone(chosen) ? chosen : "ib";
}

// Read from sysfs, so that UCX is not even started on a machine without RDMA.
bool HasRdmaDevice() {
  std::error_code error;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", error);
  return !error && devices != std::filesystem::directory_iterator();
}

absl::Status NeedsTrust(std::string_view why_no_rdma) {
  return absl::FailedPreconditionError(absl::StrCat(
      std::string(why_no_rdma),
      "; UCX without RDMA uses TCP, where every process that reaches its ports can read and write the memory "
      "of "
      "this "
      "process, also with certificates. Use gRPC (--transport auto or grpc). If every host and every user "
      "that reaches the data network is trusted, give --trusted-data-network (Python: "
      "trusted_data_network=True) on both sides"));
}

absl::Status CheckDevices(const Options& options) {
  if (!RdmaOnly(options)) return absl::OkStatus();
  if (options.loopback_only && options.require_rdma) {
    return absl::FailedPreconditionError(
        "require_rdma is set, but without certificates only loopback is used, which has no RDMA; give the "
        "certificate, its key and the authority, or set require_rdma: false");
  }
  if (options.require_rdma) return absl::OkStatus();  // UCX's own error will list the devices
  if (options.loopback_only)
    return NeedsTrust("without certificates only loopback is used, which has no RDMA");
  if (!HasRdmaDevice()) return NeedsTrust("there is no InfiniBand or RoCE device (/sys/class/infiniband)");
  return absl::OkStatus();
}

// The keys have no prefix of their transport: UCX 1.13 looks them up in every transport's table, where they
// have none. Values set here override UCX_TCP_... of the environment.
absl::Status ConfigureTcp(const Options& options, ucp_config_t* config) {
  // With it on, UCX queries a device whenever its first connection begins or its last one ends, with a socket,
  // and ends the process if it gets none.
  EVENKEEL_RETURN_IF_ERROR(Set(config, "ADAPTIVE_PROGRESS", "n"));
  // A connect to an address that does not answer must not block the thread that serves all sessions.
  EVENKEEL_RETURN_IF_ERROR(Set(config, "CONN_NB", "y"));
  // Our own peers then make no one-sided writes, in which a peer names the address that it writes to. Without
  // them data finds its buffer through a request of ours, which no longer exists once the endpoint was
  // closed. This protects against late peers, not against strangers: UCX 1.13 serves such writes whatever
  // this setting is, which is why TCP requires Options::trusted_network.
  EVENKEEL_RETURN_IF_ERROR(Set(config, "PUT_ENABLE", "n"));
  // No zero-copy sends: if a connection is reset during one, UCX 1.13 completes it twice and aborts the
  // process ("comp->count > 0"). Parts go as short messages, which the kernel also reads from the caller's
  // memory and which leave nothing to complete. RDMA is unaffected: its rendezvous reads the caller's memory
  // by other means.
  EVENKEEL_RETURN_IF_ERROR(Set(config, "ZCOPY_THRESH", "inf"));
  if (options.first_port != 0) {
    EVENKEEL_RETURN_IF_ERROR(CheckFreePorts(options.first_port, options.last_port));
    EVENKEEL_RETURN_IF_ERROR(
        Set(config, "PORT_RANGE", absl::StrCat(options.first_port, "-", options.last_port)));
  }
  // A chunk with its headers must be one short message.
  std::string segment = absl::StrCat(kTcpChunkBytes + kPageBytes);
  EVENKEEL_RETURN_IF_ERROR(Set(config, "TX_SEG_SIZE", segment));
  return Set(config, "RX_SEG_SIZE", segment);
}

// Keys of one transport family keep the family's prefix (UD_), since RC has a TIMEOUT of its own. They are
// not set if no RDMA transport is opened, because UCX warns of settings that nothing reads.
absl::Status ConfigureRdma(const std::string& devices, ucp_config_t* config) {
  const bool named = devices.empty() || absl::StrContains(devices, ":");  // "mlx5_0:1", not "eth0"
  if (!named || !HasRdmaDevice()) return absl::OkStatus();
  // RDMA connections are established over UD datagrams. When UD itself gives up a peer, after 30 seconds, UCX
  // 1.13 aborts the process ("got REQ message"). Our shorter deadlines close the endpoint before that, which
  // UCX survives.
  if (!InEnvironment("UCX_UD_TIMEOUT")) EVENKEEL_RETURN_IF_ERROR(Set(config, "UD_TIMEOUT", "10m"));
  // UCX 1.13 compares the destination of every datagram with the port's addresses, and takes the address
  // family from a field that only mlx5 fills in. With other drivers it reads IPv4 headers as IPv6, drops
  // every datagram, and no connection is established. We do not need the check: sessions are authenticated by
  // their secret.
  if (!OnlyMlx5Devices() && !InEnvironment("UCX_UD_ETH_DGID_CHECK") &&
      !InEnvironment("UCX_UD_VERBS_ETH_DGID_CHECK")) {
    return Set(config, "UD_ETH_DGID_CHECK", "n");
  }
  return absl::OkStatus();
}

// Empty: UCX uses the environment's choice, or all devices.
std::string DevicesFor(const Options& options) {
  if (options.loopback_only) return "lo";
  if (!options.devices.empty() || RdmaOnly(options) || std::getenv("UCX_NET_DEVICES") != nullptr) {
    return options.devices;
  }
  std::vector<std::string> names = InterfacesTowards(options.towards);
  if (names.empty()) return "";
  // UCX has one list for network interfaces and RDMA ports.
  for (std::string& port : RdmaPorts()) names.push_back(std::move(port));
  return absl::StrJoin(names, ",");
}

absl::Status Configure(const Options& options, ucp_config_t* config) {
  EVENKEEL_RETURN_IF_ERROR(Set(config, "TLS", WatchedTransports(options)));
  std::string devices = DevicesFor(options);
  if (!devices.empty()) EVENKEEL_RETURN_IF_ERROR(Set(config, "NET_DEVICES", devices));
  // Our deadlines detect dead peers. With keepalive on, every endpoint begins with an exchange that can abort
  // the process (ucx_engine.h: Greet).
  EVENKEEL_RETURN_IF_ERROR(Set(config, "KEEPALIVE_INTERVAL", "inf"));
  EVENKEEL_RETURN_IF_ERROR(ConfigureRdma(devices, config));
  return RdmaOnly(options) ? absl::OkStatus() : ConfigureTcp(options, config);
}

}  // namespace

absl::Status StatusFromUcx(ucs_status_t status, std::string_view what) {
  std::string message = absl::StrCat(std::string(what), ": ", Ucx().ucs_status_string(status));
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

absl::StatusOr<std::shared_ptr<UcxContext>> UcxContext::Create(const Options& options) {
  EVENKEEL_RETURN_IF_ERROR(CheckDevices(options));
  EVENKEEL_RETURN_IF_ERROR(LoadUcx());
  EVENKEEL_RETURN_IF_ERROR(CheckFileHandles(kContextHandles, "UCX"));
  ucp_config_t* raw;
  ucs_status_t status = Ucx().ucp_config_read(nullptr, nullptr, &raw);
  if (status != UCS_OK) return StatusFromUcx(status, "cannot read UCX's configuration");
  Config config(raw);
  // UCX would warn of RDMA settings on a machine without RDMA.
  EVENKEEL_RETURN_IF_ERROR(Set(raw, "WARN_INVALID_CONFIG", "n"));
  EVENKEEL_RETURN_IF_ERROR(Configure(options, raw));
  ucp_params_t parameters{};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
  parameters.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  ucp_context_h handle;
  status = Ucx().ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &parameters, raw, &handle);
  if (status == UCS_OK) return std::shared_ptr<UcxContext>(new UcxContext(handle));
  if (options.require_rdma) {
    return absl::FailedPreconditionError(absl::StrCat(
        "require_rdma is set, but UCX finds no InfiniBand or RoCE device (", Ucx().ucs_status_string(status),
        "); check `ucx_info -d`, the device plugin and UCX_NET_DEVICES, or set require_rdma: false"));
  }
  if (RdmaOnly(options)) {
    return NeedsTrust(absl::StrCat("UCX cannot use this machine's InfiniBand or RoCE devices (",
                                   Ucx().ucs_status_string(status),
                                   "; check `ucx_info -d`, the device plugin and the option devices)"));
  }
  return absl::UnavailableError(absl::StrCat("UCX finds no usable device (", Ucx().ucs_status_string(status),
                                             "); check `ucx_info -d` and the option devices ('",
                                             options.devices, "')"));
}

UcxContext::~UcxContext() { Ucx().ucp_cleanup(handle_); }

absl::StatusOr<ucp_mem_h> UcxContext::Register(std::span<std::byte> memory) {
  ucp_mem_map_params_t parameters{};
  parameters.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  parameters.address = memory.data();
  parameters.length = memory.size();
  ucp_mem_h handle;
  ucs_status_t status = Ucx().ucp_mem_map(handle_, &parameters, &handle);
  if (status != UCS_OK) {
    return StatusFromUcx(status, absl::StrCat("cannot register ", memory.size(), " bytes of receive memory"));
  }
  return handle;
}

void UcxContext::Unregister(ucp_mem_h memory) { Ucx().ucp_mem_unmap(handle_, memory); }

}  // namespace evenkeel::transport
