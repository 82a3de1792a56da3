// UCX, loaded on first use. A process that only uses gRPC never loads it.
//
// Loading UCX runs its constructor, which replaces the process's handlers of SIGSEGV, SIGHUP and others. They
// are restored, because they belong to the program (a trainer's fault handler, a worker's defaults). If the
// process has loaded UCX already, for example for MPI, that copy is used as it is.
//
// Thread safety: any thread. While UCX is being loaded, its signal handlers are installed.
#pragma once

#include <ucp/api/ucp.h>

#include "absl/status/status.h"

namespace evenkeel::transport {

// UCX's functions under their own names. Filled by LoadUcx; tests may replace entries afterwards.
struct UcxFunctions {
  decltype(&::ucp_init_version) ucp_init_version = nullptr;
  decltype(&::ucp_cleanup) ucp_cleanup = nullptr;
  decltype(&::ucp_config_read) ucp_config_read = nullptr;
  decltype(&::ucp_config_modify) ucp_config_modify = nullptr;
  decltype(&::ucp_config_release) ucp_config_release = nullptr;
  decltype(&::ucp_mem_map) ucp_mem_map = nullptr;
  decltype(&::ucp_mem_unmap) ucp_mem_unmap = nullptr;
  decltype(&::ucp_worker_create) ucp_worker_create = nullptr;
  decltype(&::ucp_worker_destroy) ucp_worker_destroy = nullptr;
  decltype(&::ucp_worker_get_address) ucp_worker_get_address = nullptr;
  decltype(&::ucp_worker_release_address) ucp_worker_release_address = nullptr;
  decltype(&::ucp_worker_get_efd) ucp_worker_get_efd = nullptr;
  decltype(&::ucp_worker_arm) ucp_worker_arm = nullptr;
  decltype(&::ucp_worker_progress) ucp_worker_progress = nullptr;
  decltype(&::ucp_worker_set_am_recv_handler) ucp_worker_set_am_recv_handler = nullptr;
  decltype(&::ucp_ep_create) ucp_ep_create = nullptr;
  decltype(&::ucp_ep_close_nbx) ucp_ep_close_nbx = nullptr;
  decltype(&::ucp_ep_print_info) ucp_ep_print_info = nullptr;
  decltype(&::ucp_am_send_nbx) ucp_am_send_nbx = nullptr;
  decltype(&::ucp_am_recv_data_nbx) ucp_am_recv_data_nbx = nullptr;
  decltype(&::ucp_request_free) ucp_request_free = nullptr;
  decltype(&::ucs_status_string) ucs_status_string = nullptr;
};

// Unavailable: UCX is not installed, or lacks a function (names it).
absl::Status LoadUcx();

// Only after LoadUcx returned OK.
UcxFunctions& Ucx();

// Makes UCX log to standard error once it is loaded; its default, standard output, would corrupt a program's
// output. Has no effect if UCX_LOG_FILE is set in the environment. For our own programs, before LoadUcx; in a
// trainer the trainer decides.
void LogUcxToStandardError();

struct UcxLine {
  bool is_error = false, is_warning = false;  // neither: a less severe level
  const char* message = "";
  const char* file = "";
  unsigned line = 0;
};
// Passes the lines of LogUcxToStandardError to `take` instead, from any thread of UCX.
void LogUcxTo(void (*take)(const UcxLine& line));

}  // namespace evenkeel::transport
