#include "server/server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/periodic_thread.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/steady_time.h"
#include "kernels/base/thread.h"
#include "kernels/device/cpu/host_limits.h"
#include "kernels/ops/registry.h"
#include "server/drain_times.h"
#include "server/engines.h"
#include "server/health.h"
#include "server/heap.h"
#include "server/observe/call_recorder.h"
#include "server/observe/connection_lines.h"
#include "server/observe/grpc_lines.h"
#include "server/observe/http_server.h"
#include "server/observe/kernel_cache_lines.h"
#include "server/observe/line_writer.h"
#include "server/observe/model_lines.h"
#include "server/observe/process_metrics.h"
#include "server/observe/space_recorder.h"
#include "server/pool_gauges.h"
#include "server/rpc/grpc_log.h"
#include "server/rpc/tls_credentials.h"
#include "server/rpc/transport.h"
#include "server/services/admin.h"
#include "server/services/catalog.h"
#include "server/services/evaluator.h"
#include "server/services/kserve_infer.h"
#include "server/services/kserve_info.h"
#include "server/services/service_context.h"
#include "server/services/spaces_service.h"
#include "server/spaces/spaces.h"
#include "server/spaces_options.h"
#include "server/startup_checks.h"

namespace weir {
namespace {

constexpr absl::Duration kDrainPoll = absl::Milliseconds(20);

// How many times in a row an I/O thread that is asked to show that it runs may
// miss it. Counted, not timed: a process that was stopped for a while is no
// worse for it.
constexpr int kPulsesMissed = 5;

int64_t UnixNanos() { return absl::GetCurrentTimeNanos(); }

std::string NewIncarnation() {
  std::random_device device;
  return absl::StrFormat("%08x%08x", device(), device());
}

constexpr absl::Duration kTrimHeapEvery = absl::Seconds(2);
constexpr absl::Duration kCloseSpacesEvery = absl::Seconds(1);

// Another one in every process, as a rule: what an earlier one gave out is
// known by it.
SpaceToken::Origin NewOrigin() {
  return {.worker = 0, .start = static_cast<uint16_t>(std::random_device()())};
}

// Makes an eventfd readable.
void Raise(int fd) {
  const uint64_t one = 1;
  if (write(fd, &one, sizeof(one)) < 0) {
    // Full: it is readable already.
  }
}

bool IsReadable(int fd, absl::Duration timeout) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1,
              static_cast<int>(absl::ToInt64Milliseconds(timeout))) == 1;
}

// What gRPC may hold: the messages of admitted requests, as much again of
// messages that are still arriving, and what all of those calls hold unread.
size_t TransportBytes(const ServerOptions& options) {
  constexpr size_t kUnread = size_t{256} << 20;
  return 2 * std::max(options.queue_bytes, options.max_message_bytes) + kUnread;
}

}  // namespace

// In order of construction; destroyed from the last to the first.
struct Server::Impl {
  Impl(const ServerOptions& o, LogSink* given_log)
      : options(o),
        own_log(given_log == nullptr
                    ? std::make_unique<LineWriter>(STDERR_FILENO)
                    : nullptr),
        log(own_log == nullptr ? *given_log : *own_log),
        logger(o.log_format, o.log_level, log),
        metrics(o.triton_metrics) {}
  ~Impl() {
    // Whatever calls back goes before what it calls. I/O threads hold
    // evaluations: they end before the engine does.
    health.Unfollow();
    pulse.reset();
    leases.reset();
    if (evaluator != nullptr) evaluator->sessions().Drain(UnixNanos());
    if (models != nullptr) StopLoading();
    if (loader.Joinable()) loader.Join();
    http.reset();
    metrics.ClearReaders();
    transport.reset();
    for (const int fd : {loaded, device_lost, drain_requested}) {
      if (fd >= 0) close(fd);
    }
  }

  absl::Status Open(const std::function<void()>& before_calls);
  void NoteCacheFolder();
  absl::Status FindDescriptors();
  absl::Status StartTls();
  absl::Status StartDevices();
  absl::Status ListModels();
  absl::Status StartTransport();
  absl::Status StartHttp();
  void OpenSpaces();
  void CloseExpiredSpaces();
  void CheckThreads();
  void LoadModels();
  void ReportDevice(const std::string& device, const absl::Status& status);
  absl::Status DeviceStatus() const {
    for (Engine* each : engines->all()) {
      const absl::Status status = each->device().health().status();
      if (!status.ok()) return Annotate(status, NameBefore(*each));
    }
    return absl::OkStatus();
  }
  // "cuda:1: " where one has to say which; else nothing.
  std::string NameBefore(Engine& engine) const {
    if (engines->named().size() < 2) return "";
    return absl::StrCat(DeviceName(engine.device().info()), ": ");
  }
  void StopLoading() {
    stop_loading = true;
    models->StopLoading();
  }
  // For the log: files that were looked at again.
  std::function<void(bool, const std::string&)> FileReporter() {
    return [this](bool renewed, const std::string& event) {
      logger.Log(renewed ? LogLevel::kInfo : LogLevel::kWarning, event);
    };
  }
  // For the log, once the server is open.
  void Note(LogLevel level, std::string text) {
    notes.emplace_back(level, std::move(text));
  }

  const ServerOptions options;
  const std::unique_ptr<LineWriter> own_log;  // null: the caller's
  LogSink& log;
  Logger logger;
  GrpcLines grpc_lines{&logger};
  GrpcLog grpc_log{
      [this](bool error, std::string_view source, std::string_view text) {
        grpc_lines.Write(error, source, text, NowNanos());
      }};
  Metrics metrics;
  // The engine's timers may call it.
  std::unique_ptr<CallRecorder> recorder;
  std::vector<std::pair<LogLevel, std::string>> notes;
  size_t connections = 0;  // that there are descriptors for
  std::unique_ptr<OpRegistry> registry;
  std::unique_ptr<Engines> engines;
  std::unique_ptr<ModelRepository> models;
  std::unique_ptr<Admission> admission;
  ModelMetrics model_metrics{&metrics};
  Health health;
  FairThreads long_steps{FairThreads::DefaultThreads(CpuQuota())};
  EvaluationPool evaluations;
  // Its works use all of the above; null: none are offered.
  std::unique_ptr<Spaces> spaces;
  SpaceRecorder space_recorder{&logger};
  std::unique_ptr<ServiceContext> context;
  std::unique_ptr<AdminToken> admin_token;  // null: unix sockets only
  std::unique_ptr<AdminService> admin;
  std::unique_ptr<EvaluatorService> evaluator;
  std::unique_ptr<SpacesService> spaces_service;
  std::unique_ptr<CatalogService> catalog;
  std::unique_ptr<KserveInferService> kserve_infer;
  std::unique_ptr<KserveInfoService> kserve_info;
  TlsState tls_state;
  std::shared_ptr<grpc::ServerCredentials> credentials;  // not set: no TLS
  std::unique_ptr<Transport> transport;
  std::unique_ptr<HttpServer> http;
  PeriodicThread heap_trimmer{"weir-heap", kTrimHeapEvery, TrimHeap};
  std::unique_ptr<PeriodicThread> pulse;
  std::unique_ptr<PeriodicThread> leases;  // of spaces
  // Of the thread of `pulse`.
  std::optional<ConnectionLines> connection_lines;
  KernelCacheLines kernel_cache_lines{&logger};
  Thread loader;
  std::atomic<bool> stop_loading = false;
  int loaded = -1;
  int device_lost = -1;
  int drain_requested = -1;
};

absl::Status Server::Impl::Open(const std::function<void()>& before_calls) {
  for (int* fd : {&loaded, &device_lost, &drain_requested}) {
    *fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (*fd < 0) return absl::InternalError("eventfd failed");
  }
  for (const std::string& note : options.notes) {
    Note(LogLevel::kWarning, note);
  }
  // Faults of the command line show before anything takes its time.
  WEIR_RETURN_IF_ERROR(CheckModelRepository(options.model_repository));
  if (options.cache_dir_given) {
    absl::Status usable = CheckCacheFolder(options.cache_dir);
    if (!usable.ok() && !absl::IsResourceExhausted(usable)) return usable;
  }
  WEIR_RETURN_IF_ERROR(FindDescriptors());
  WEIR_RETURN_IF_ERROR(CheckAddresses(options.grpc, options.http));
  WEIR_RETURN_IF_ERROR(StartTls());
  if (!options.admin_token_file.empty()) {
    WEIR_ASSIGN_OR_RETURN(
        admin_token,
        AdminToken::Open(options.admin_token_file, FileReporter()));
  }
  WEIR_RETURN_IF_ERROR(StartDevices());
  WEIR_RETURN_IF_ERROR(ListModels());
  const int64_t unix_now = UnixNanos();
  admission = std::make_unique<Admission>(
      MostRequests(options, engines->named().size()), options.queue_bytes);
  OpenSpaces();
  context = std::make_unique<ServiceContext>(ServiceContext{
      options, *engines, *models, *admission, metrics, model_metrics,
      health.readiness(), long_steps, evaluations, NewIncarnation(), unix_now,
      unix_now - NowNanos(), spaces.get()});
  if (before_calls != nullptr) before_calls();
  WEIR_RETURN_IF_ERROR(StartTransport());
  AddPoolGauges(&metrics, options, *engines, *admission, *models,
                health.readiness());
  if (spaces != nullptr) {
    AddSpaceGauges(&metrics, *spaces, space_recorder);
    AddSessionGauges(&metrics, *spaces, evaluator->sessions());
  }
  AddTransportGauges(&metrics, *transport, connections);
  AddProcessMetrics(&metrics);
  model_metrics.AddReaders(*models, options.metrics_models);
  metrics.AddReader(Metric::kSuppressedLines, [this] {
    return static_cast<double>(recorder->suppressed_total() +
                               grpc_lines.suppressed_total() +
                               space_recorder.suppressed_total());
  });
  metrics.AddReader(Metric::kLongSteps, [this] {
    return static_cast<double>(long_steps.waiting());
  });
  metrics.AddReader(Metric::kDroppedLines,
                    [this] { return static_cast<double>(log.dropped()); });
  if (credentials != nullptr) {
    metrics.AddReader(Metric::kTlsExpiry, [this] {
      std::vector<Metrics::Sample> samples = {
          {{"certificate"}, static_cast<double>(tls_state.expires_at.load())}};
      if (!options.tls_client_ca.empty()) {
        samples.push_back(
            {{"client_ca"},
             static_cast<double>(tls_state.client_ca_expires_at.load())});
      }
      return samples;
    });
    metrics.AddReader(Metric::kTlsReloadFailures, [this] {
      return static_cast<double>(tls_state.reload_failures.load());
    });
    metrics.AddReader(Metric::kTlsHandshakes, [this] {
      return static_cast<double>(tls_state.handshakes.load());
    });
    metrics.AddReader(Metric::kTlsHandshakeFailures, [this] {
      return static_cast<double>(grpc_lines.handshake_failures());
    });
  }
  // With all there is to read: not even the first scrape lacks a series.
  WEIR_RETURN_IF_ERROR(StartHttp());
  for (Engine* each : engines->all()) {
    const std::string name = DeviceName(each->device().info());
    health.Follow(
        &each->device().health(),
        [this, name](const absl::Status& status) {
          ReportDevice(name, status);
        },
        engines->named().size() > 1 ? name : "");
  }
  pulse = std::make_unique<PeriodicThread>(
      "weir-pulse", options.pulse_interval, [this] {
        CheckThreads();
        connection_lines->Write(transport->closed_connections(),
                                transport->cuts());
        for (Engine* each : engines->all()) {
          const auto kernels = each->device().kernel_cache_stats();
          if (!kernels.has_value()) continue;
          kernel_cache_lines.Write(DeviceName(each->device().info()), *kernels);
        }
      });
  if (spaces != nullptr) {
    leases = std::make_unique<PeriodicThread>("weir-leases", kCloseSpacesEvery,
                                              [this] { CloseExpiredSpaces(); });
  }
  for (const auto& [level, text] : notes) logger.Log(level, text);
  loader = Thread("weir-load", [this] { LoadModels(); });
  return absl::OkStatus();
}

// Only a device uses it which compiles.
void Server::Impl::NoteCacheFolder() {
  const auto& all = engines->all();
  const bool compiles = std::any_of(all.begin(), all.end(), [](Engine* each) {
    return !each->device().host_addressable();
  });
  if (!compiles) return;
  const absl::Status usable = CheckCacheFolder(options.cache_dir);
  if (usable.ok()) return;
  Note(LogLevel::kWarning,
       absl::StrCat(usable.message(),
                    absl::IsResourceExhausted(usable)
                        ? "; make room there: it is tried again for each "
                          "kernel that is compiled"
                        : "; compiled kernels are kept in memory"));
}

absl::Status Server::Impl::FindDescriptors() {
  WEIR_ASSIGN_OR_RETURN(connections, TakeDescriptors(options.max_connections));
  if (connections < options.max_connections) {
    Note(LogLevel::kWarning,
         absl::StrCat("--max-connections=", options.max_connections,
                      ": there are file descriptors for ", connections,
                      ", which is the bound now, and --max-peer-connections a "
                      "like part of its value; raise the hard limit of open "
                      "files (ulimit -Hn) to ",
                      DescriptorsFor(options.max_connections)));
  }
  return absl::OkStatus();
}

absl::Status Server::Impl::StartTls() {
  if (options.tls_cert.empty()) return absl::OkStatus();
  TlsOptions tls;
  tls.files = {options.tls_cert, options.tls_key, options.tls_client_ca};
  tls.report = FileReporter();
  tls.state = &tls_state;
  WEIR_ASSIGN_OR_RETURN(credentials, MakeTlsCredentials(std::move(tls)));
  return absl::OkStatus();
}

absl::Status Server::Impl::StartDevices() {
  registry = MakeOpRegistry({.test_operators = options.enable_test_operators,
                             .test_operators_name = "--enable-test-operators"});
  DeviceOptions device_options;
  device_options.cpu_threads = options.cpu_threads;
  device_options.cache_dir = options.cache_dir;
  device_options.note = [this](std::string_view event) {
    logger.Log(LogLevel::kDebug, std::string(event));
  };
  WEIR_ASSIGN_OR_RETURN(engines,
                        Engines::Open(options, device_options, registry.get()));
  NoteCacheFolder();
  if (options.devices.front() == "auto") {
    const Device& device = engines->main().device();
    Note(LogLevel::kInfo,
         device.host_addressable()
             ? "--device=auto: no NVIDIA device, using the CPU"
             : absl::StrCat("--device=auto: using ", engines->names(), " (",
                            device.info().name, ")"));
  }
  return absl::OkStatus();
}

absl::Status Server::Impl::ListModels() {
  RepositoryOptions repository;
  repository.root = options.model_repository;
  repository.evaluation = MakeEvaluationLimits(options);
  repository.host = engines->host();
  repository.reclaim = engines->main().reclaim();
  WEIR_ASSIGN_OR_RETURN(
      models, ModelRepository::Open(repository, &engines->main().device(),
                                    registry.get()));
  return absl::OkStatus();
}

void Server::Impl::OpenSpaces() {
  if (options.max_spaces == 0) return;
  uint64_t tensor_bytes = 0;
  for (Engine* each : engines->all()) {
    tensor_bytes += each->memory().stats().budget_bytes;
  }
  spaces = std::make_unique<Spaces>(
      MakeSpacesOptions(options, tensor_bytes, NewOrigin()));
}

void Server::Impl::CloseExpiredSpaces() {
  const Nanos now = NowNanos();
  for (const Spaces::Ended& each : spaces->CloseExpired(now)) {
    space_recorder.Closed(*each.space, SpaceRecorder::End::kLease, each.held,
                          now);
  }
  for (const Spaces::EndedContext& each : spaces->CloseExpiredContexts(now)) {
    space_recorder.ContextExpired(*each.space, each.context, now);
  }
  space_recorder.ReportSuppressed();
}

// Probes must not be green while calls wait for a thread that never comes back;
// streams of health that are its own cannot be told.
void Server::Impl::CheckThreads() {
  const bool hang = transport->Pulse() >= kPulsesMissed;
  if (!health.Set(Unready::kHangs,
                  hang ? "an I/O thread does not answer" : "")) {
    return;
  }
  logger.Log(hang ? LogLevel::kError : LogLevel::kInfo,
             hang ? "an I/O thread does not answer: probes fail until it does"
                  : "every I/O thread answers again");
}

void Server::Impl::LoadModels() {
  models->LoadAll();
  if (!stop_loading) {
    WriteModels(*models, options.model_repository, &logger);
    if (options.strict_readiness) {
      const std::string fault =
          ModelsAtFault(*models, options.model_repository);
      if (!fault.empty()) logger.Log(LogLevel::kError, fault);
      health.Set(Unready::kModels, fault);
    }
    health.Set(Unready::kLoading, "");
  }
  Raise(loaded);
}

// Told by Health of each change of the device.
void Server::Impl::ReportDevice(const std::string& device,
                                const absl::Status& status) {
  if (!DeviceStatus().ok()) {
    Raise(device_lost);  // main says the rest
  } else if (status.ok()) {
    logger.Log(LogLevel::kWarning, "the device moves again",
               {{"device", device}});
  } else {
    logger.Log(LogLevel::kError, "unready: the device stands still",
               {{"device", device}, {"error", std::string(status.message())}});
  }
}

absl::Status Server::Impl::StartTransport() {
  admin = std::make_unique<AdminService>(
      context.get(), &logger,
      [this] {
        // Server::Drain, which raising this brings about, sets it as well: who
        // was first is settled before.
        const bool first = health.Set(Unready::kDraining, "draining");
        Raise(drain_requested);
        return first;
      },
      admin_token.get());
  evaluator = std::make_unique<EvaluatorService>(context.get());
  catalog = std::make_unique<CatalogService>(context.get());
  kserve_infer = std::make_unique<KserveInferService>(context.get());
  kserve_info = std::make_unique<KserveInfoService>(context.get());
  MethodTable table;
  if (spaces != nullptr) {
    spaces_service =
        std::make_unique<SpacesService>(context.get(), &space_recorder);
    spaces_service->Register(&table);
  }
  admin->Register(&table);
  evaluator->Register(&table);
  catalog->Register(&table);
  kserve_infer->Register(&table);
  kserve_info->Register(&table);

  std::vector<std::string> method_names;
  std::set<std::string> service_names;
  for (const Method& method : table.methods()) {
    method_names.push_back(method.name);
    service_names.insert(method.service);
  }
  method_names.push_back(table.unknown().name);
  metrics.SetMethods(std::move(method_names));
  recorder = std::make_unique<CallRecorder>(
      &metrics, &logger, &engines->main().timers(), context->incarnation);
  table.set_observer(recorder.get());

  TransportOptions transport_options;
  transport_options.addresses = options.grpc;
  transport_options.credentials = credentials;
  transport_options.io_threads = options.io_threads;
  transport_options.max_message_bytes =
      static_cast<int>(options.max_message_bytes);
  transport_options.admission = admission.get();
  transport_options.max_connections.all = connections;
  if (options.max_peer_connections > 0) {
    transport_options.max_connections.of_peer = PeerShare(
        options.max_peer_connections, options.max_connections, connections);
  }
  connection_lines.emplace(&logger, transport_options.max_connections);
  transport_options.receive_timeout = options.receive_timeout;
  transport_options.send_timeout = options.send_timeout;
  transport_options.memory_bytes = TransportBytes(options);
  transport_options.reflection = options.reflection;
  if (options.max_connection_age != absl::InfiniteDuration()) {
    transport_options.max_connection_age = options.max_connection_age;
  }
  auto started = Transport::Start(std::move(transport_options), table);
  if (!started.ok()) {
    return absl::Status(started.status().code(),
                        absl::StrCat("--grpc: ", started.status().message()));
  }
  transport = *std::move(started);
  health.Tell(transport.get(), models.get(), std::move(service_names));
  return absl::OkStatus();
}

absl::Status Server::Impl::StartHttp() {
  if (options.http.empty()) return absl::OkStatus();
  HttpServer::Callbacks callbacks;
  callbacks.unhealthy = [this] { return health.readiness().fault(); };
  callbacks.unready = [this] { return health.readiness().why_not(); };
  callbacks.metrics = [this] { return metrics.Text(); };
  WEIR_ASSIGN_OR_RETURN(http,
                        HttpServer::Start(options.http, std::move(callbacks)));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Server>> Server::Open(
    const ServerOptions& options, LogSink* log,
    const std::function<void()>& before_calls) {
  auto impl = std::make_unique<Impl>(options, log);
  WEIR_RETURN_IF_ERROR(impl->Open(before_calls));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options, LogSink* log) {
  WEIR_ASSIGN_OR_RETURN(auto server, Open(options, log));
  server->impl_->loader.Join();
  return server;
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

const std::vector<std::string>& Server::grpc_addresses() const {
  return impl_->transport->addresses();
}

std::string Server::http_address() const {
  return impl_->http == nullptr ? "" : impl_->http->address();
}

std::string Server::device_names() const { return impl_->engines->names(); }

size_t Server::models_ready() const {
  size_t ready = 0;
  for (const ModelIndexEntry& entry : impl_->models->Index()) {
    ready += entry.state == ModelState::kReady ? 1 : 0;
  }
  return ready;
}

Logger& Server::logger() const { return impl_->logger; }

int Server::loaded_fd() const { return impl_->loaded; }

std::string Server::unready() const {
  return impl_->health.readiness().why_not();
}

int Server::device_lost_fd() const { return impl_->device_lost; }

absl::Status Server::device_status() const { return impl_->DeviceStatus(); }

std::vector<std::string> Server::device_suspects() const {
  std::vector<std::string> suspects;
  for (Engine* engine : impl_->engines->all()) {
    for (const std::string& work : engine->device().health().suspects()) {
      suspects.push_back(absl::StrCat(impl_->NameBefore(*engine), work));
    }
  }
  return suspects;
}

int Server::drain_requested_fd() const { return impl_->drain_requested; }

DrainResult Server::Drain(const WaitFn& wait) {
  Transport& transport = *impl_->transport;
  impl_->StopLoading();
  const absl::Duration loading_ends = SteadyNow() + DrainTimes::kStopPatience;
  const bool loading = !IsReadable(impl_->loaded, absl::ZeroDuration());
  impl_->health.Set(Unready::kDraining, "draining");
  const auto lost = [this] { return !device_status().ok(); };
  const absl::Duration served_until = SteadyNow() + impl_->options.drain_delay;
  while (!loading && !lost() && SteadyNow() < served_until &&
         !wait(served_until - SteadyNow())) {
  }
  const absl::Duration limit = SteadyNow() + impl_->options.drain_timeout;
  bool hurried = false;
  impl_->evaluator->sessions().Drain(
      UnixNanos() + absl::ToInt64Nanoseconds(limit - SteadyNow()));
  if (!loading && !lost()) {
    transport.CloseListeners();
    // Connections that never age would keep us waiting for their idle owners:
    // it is enough then that nothing is being answered.
    const bool age =
        impl_->options.max_connection_age != absl::InfiniteDuration();
    while (
        !lost() && !hurried && SteadyNow() < limit &&
        (age ? transport.open_connections() > 0 : transport.open_calls() > 0)) {
      hurried = wait(kDrainPoll);
    }
  }
  if (loading || lost()) {
    // Calls that are on their way are told what happened, and not cut.
    const absl::Duration told_until = SteadyNow() + DrainTimes::kLastAnswers;
    while (!loading && SteadyNow() < told_until &&
           !wait(told_until - SteadyNow())) {
    }
    const bool ended = transport.Shutdown(
        DrainTimes::kLastWords,
        loading ? DrainTimes::kCutPatience : DrainTimes::kLastWords);
    return {transport.taken_calls(), transport.open_calls(),
            !IsReadable(impl_->loaded, std::max(loading_ends - SteadyNow(),
                                                absl::ZeroDuration())),
            !ended};
  }
  const absl::Duration left =
      hurried ? absl::ZeroDuration() : limit - SteadyNow();
  // A reply that nobody reads, or a call that came meanwhile, is waited for as
  // before.
  absl::Duration cut_at = absl::InfiniteDuration();
  const bool ended = transport.Shutdown(
      std::max(left, DrainTimes::kLastWords), DrainTimes::kCutPatience, [&] {
        if (hurried) {
          absl::SleepFor(kDrainPoll);
        } else {
          hurried = wait(kDrainPoll);
        }
        if (hurried || lost()) {
          cut_at = std::min(cut_at, SteadyNow() + DrainTimes::kLastWords);
        }
        return SteadyNow() >= cut_at;
      });
  impl_->recorder->ReportSuppressed();
  impl_->space_recorder.ReportSuppressed();
  impl_->grpc_lines.ReportSuppressed();
  return {transport.taken_calls(), transport.open_calls(), /*loading=*/false,
          !ended};
}

}  // namespace weir
