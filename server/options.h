// The flags of weir-server: parsed strictly, each also as an environment
// variable (--queue-length is WEIR_QUEUE_LENGTH; the flag wins).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "kernels/backend/devices.h"
#include "server/observe/logger.h"

namespace weir {

struct ServerOptions {
  std::vector<std::string> grpc = {"127.0.0.1:8001"};  // host:port, unix:PATH
  std::string http = "127.0.0.1:8002";                 // empty: off
  std::string model_repository;                        // empty: no models
  std::string model_control = "none";
  bool strict_readiness = false;  // ready only with every model
  // As ParseDeviceList gives them: one at least, the default one first.
  std::vector<std::string> devices = {"auto"};
  std::string isolation;       // none, which several devices need; or empty
  int streams = 16;            // of each device
  int io_threads = 0;          // 0: as DefaultIoThreads has it
  int cpu_threads = 0;         // of the CPU device; 0: the CPU quota
  size_t queue_length = 1024;  // admitted requests beyond one per stream
  // Of admitted requests and of replies that are not sent yet.
  size_t queue_bytes = size_t{1} << 30;
  size_t max_message_bytes = size_t{256} << 20;
  size_t max_connections = 4096;       // of gRPC's addresses
  size_t max_peer_connections = 1024;  // of those, of one peer; 0: any
  // Of each device.
  size_t host_bytes = size_t{2} << 30;    // staging and replies, pinned
  size_t tensor_bytes = size_t{4} << 30;  // tensors that callers keep
  size_t arena_bytes = 0;  // of all streams; 0: half of the device's memory
  // What callers keep.
  size_t max_spaces = 1024;                       // 0: the server offers none
  absl::Duration space_lease = absl::Minutes(5);  // the longest
  // Of one space.
  size_t space_tensor_bytes = 0;  // 0: a quarter of tensor_bytes
  size_t space_tensors = 65536;
  size_t space_contexts = 256;
  size_t space_timelines = 4096;
  size_t space_works = 1024;  // that are not done
  size_t space_sessions = 8;
  absl::Duration linger = absl::Seconds(30);  // of a session without a stream
  // Of one evaluation. 0: what a buffer of --host-bytes may have; a quarter of
  // the device's memory; what the device does in a time that somebody waits
  // (EvaluationLimits).
  size_t max_output_bytes = 0;
  size_t max_scratch_bytes = 0;
  int64_t max_operations = 0;
  std::string cache_dir;         // compiled kernels; empty: in memory
  bool cache_dir_given = false;  // a folder nobody asked for may be unusable
  absl::Duration drain_delay = absl::Seconds(5);
  absl::Duration drain_timeout = absl::Seconds(20);
  absl::Duration max_connection_age = absl::Seconds(15);
  // InfiniteDuration: never.
  absl::Duration receive_timeout = absl::Minutes(2);
  absl::Duration send_timeout = absl::Seconds(30);
  std::string tls_cert;  // PEM files; empty: no TLS
  std::string tls_key;
  std::string tls_client_ca;  // empty: clients need no certificate
  LogFormat log_format = LogFormat::kText;
  LogLevel log_level = LogLevel::kInfo;
  bool triton_metrics = false;   // Triton's metric names beside ours
  size_t metrics_models = 100;   // with series of their own
  std::string admin_token_file;  // empty: Admin over unix sockets only
  bool insecure = false;
  bool reflection = false;
  bool enable_test_operators = false;
  // What the operator should know, one line each: variables that are not read,
  // a token in clear text, a drain that may cut connections.
  std::vector<std::string> notes;
  // No flags: how a test puts a device of its own there, and how often the I/O
  // threads are asked to show that they run.
  DeviceFactory make_device = MakeDevice;
  absl::Duration pulse_interval = absl::Seconds(1);
};

// The process ends with `code`; what there was to say was printed.
struct ExitNow {
  int code = 0;
};

// 2 for a usage error (one line on standard error that names the flag and the
// remedy), 0 after --help or --version.
std::variant<ServerOptions, ExitNow> ParseServerOptions(
    int argc, const char* const* argv);

// "0.1.0".
const char* Version();

}  // namespace weir
