#include "server/models/repository.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/fingerprint.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/stop_token.h"
#include "kernels/base/striped_snapshot.h"
#include "kernels/base/thread.h"
#include "kernels/base/utf8.h"
#include "proto/inference/model_config.pb.h"
#include "server/models/model_config.h"
#include "server/models/model_file.h"
#include "server/models/onnx_import.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

constexpr char kConfigFile[] = "config.pbtxt";
constexpr char kLostAndFound[] = "lost+found";  // in the root of an ext4 volume
constexpr size_t kMaxConfigBytes = size_t{1} << 20;
// Models take seconds to load, and callers are many.
constexpr absl::Duration kLoadingRetry = absl::Seconds(1);

struct VersionEntry {
  int64_t number = 0;  // 0: the model as a whole, which has no version
  std::string version;
  ModelState state = ModelState::kLoading;
  std::string reason;
  std::shared_ptr<const ServedModel> model;
};

struct ModelEntry {
  std::vector<VersionEntry> versions;  // ascending
  // Those that lie there too, which the version policy does not choose.
  std::vector<std::string> left_out;
};
using Models =
    std::map<std::string, std::shared_ptr<const ModelEntry>, std::less<>>;

// "1", "42"; not "0", "01", "v1", or more than a number holds.
std::optional<int64_t> VersionNumber(const std::string& name) {
  int64_t number = 0;
  if (!absl::SimpleAtoi(name, &number) || number <= 0) return std::nullopt;
  if (absl::StrCat(number) != name) return std::nullopt;
  return number;
}

// Names of the folders in `path`, sorted. Hidden ones are left out, and the
// file system's own. A link to nowhere is among them: whoever made it wanted a
// folder there.
absl::StatusOr<std::vector<std::string>> Folders(const fs::path& path) {
  std::error_code error;
  fs::directory_iterator it(path, error);
  std::vector<std::string> names;
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    std::string name = it->path().filename().string();
    std::error_code unreadable;
    if (name[0] == '.' || name == kLostAndFound) continue;
    if (it->is_directory(unreadable) || unreadable) {
      names.push_back(std::move(name));
    }
  }
  if (error) {
    return absl::ErrnoToStatus(error.value(),
                               absl::StrCat("cannot list ", path.string()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Callers are told what is where in the repository, not where that is.
VersionEntry Refused(const std::string& root, int64_t number,
                     const absl::Status& status) {
  const std::string folder = (fs::path(root) / "").string();
  std::error_code error;
  const std::string resolved =
      (fs::weakly_canonical(root, error) / "").string();
  VersionEntry entry;
  entry.number = number;
  if (number > 0) entry.version = absl::StrCat(number);
  entry.state = ModelState::kUnavailable;
  // Names of files and nodes may be any bytes.
  // The code tells what weir lacks (UNIMPLEMENTED) from what the model does.
  entry.reason =
      absl::StrCat(absl::StatusCodeToString(status.code()), ": ",
                   EscapeNonUtf8(absl::StrReplaceAll(
                       status.message(), {{folder, ""}, {resolved, ""}})));
  return entry;
}

// Names of the files in `path` that look like models, sorted. Hidden ones are
// left out. Empty if the folder cannot be listed.
std::vector<std::string> OnnxFiles(const fs::path& path) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(path, error);
       !error && it != fs::directory_iterator(); it.increment(error)) {
    std::string name = it->path().filename().string();
    std::error_code unreadable;
    if (name[0] != '.' && it->path().extension() == ".onnx" &&
        !it->is_directory(unreadable)) {
      names.push_back(EscapeNonUtf8(name));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Whether the repository at `path` holds anything that is no version of a
// model that it might be itself.
bool HoldsModels(const fs::path& path) {
  const auto folders = Folders(path);
  return folders.ok() &&
         std::any_of(folders->begin(), folders->end(),
                     [](const std::string& folder) {
                       return !VersionNumber(folder).has_value();
                     });
}

// Of the model's folder `path`, which holds `folders`; its file is to be
// called `file`.
absl::Status NoVersion(const fs::path& path,
                       const std::vector<std::string>& folders,
                       const std::string& file) {
  std::string what =
      "the model's folder has no version folder (\"1\", \"2\", ...)";
  if (!folders.empty()) {
    return absl::NotFoundError(
        absl::StrCat(what, "; \"", folders.front(), "\" is none"));
  }
  const std::vector<std::string> files = OnnxFiles(path);
  if (files.empty()) return absl::NotFoundError(what);
  std::error_code error;
  const std::string name = path.filename().string();
  const fs::path root = fs::absolute(path, error).parent_path();
  const std::string above = absl::StrCat("\"", root.filename().string(), "\"");
  const bool numbered = VersionNumber(name).has_value();
  if (!numbered || HoldsModels(root)) {
    absl::StrAppend(&what, "; \"", files.front(), "\" lies in it: move it to ",
                    name, "/1/", file);
    if (numbered) {
      absl::StrAppend(&what, "; or, if ", above,
                      " is the model, --model-repository wants the folder "
                      "above it");
    }
  } else if (fs::exists(path / file, error)) {
    // It is a version itself, and its parent is no repository.
    absl::StrAppend(&what, "; --model-repository wants the folder above ",
                    above);
  }
  return absl::NotFoundError(what);
}

// Why the file of a version, at `path`, cannot be read: where there is none of
// its name but another one, that is said.
absl::Status OfItsFile(const absl::Status& status, const std::string& model,
                       const fs::path& path) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(path, error))) return status;
  const std::vector<std::string> files = OnnxFiles(path.parent_path());
  if (files.empty()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat(status.message(), "; \"", files.front(),
                   "\" is there: rename it, or write "
                   "\"default_model_filename: '",
                   files.front(), "'\" into ", model, "/", kConfigFile));
}

// There is no such model, or it has the versions of `entry` alone.
absl::Status NotFound(std::string_view name, std::string_view version,
                      const ModelEntry& entry) {
  const std::string model = absl::StrCat("model \"", std::string(name), "\"");
  std::vector<std::string> chosen;
  for (const VersionEntry& each : entry.versions) {
    if (each.number > 0) chosen.push_back(each.version);
  }
  const std::string others = absl::StrJoin(chosen, ", ");
  std::string what;
  if (std::find(entry.left_out.begin(), entry.left_out.end(), version) !=
      entry.left_out.end()) {
    what = absl::StrCat(
        model, " version ", std::string(version),
        " lies in the repository and is not served: its version policy "
        "chooses ",
        others, "; to serve all, write \"version_policy { all {} }\" into ",
        std::string(name), "/", kConfigFile);
  } else {
    what = absl::StrCat("no ", model);
    if (!version.empty()) {
      absl::StrAppend(&what, " version \"", std::string(version), "\"");
    }
    absl::StrAppend(&what, others.empty()
                               ? "; RepositoryIndex, or \"weir models\", lists "
                                 "those that there are"
                               : absl::StrCat("; it has ", others));
  }
  return WithReason(absl::NotFoundError(what), "MODEL_NOT_FOUND");
}

// Loading ends by itself; a refusal does not, and must not be retried.
absl::Status NotServed(std::string_view name, const VersionEntry& entry) {
  std::string what = absl::StrCat("model \"", std::string(name), "\"");
  if (!entry.version.empty()) {
    absl::StrAppend(&what, " version ", entry.version);
  }
  if (entry.state == ModelState::kLoading) {
    return WithRetryAfter(
        WithReason(absl::UnavailableError(what + " is being loaded"),
                   "MODEL_NOT_READY"),
        kLoadingRetry);
  }
  return WithReason(
      absl::NotFoundError(absl::StrCat(what, " is not served: ", entry.reason)),
      "MODEL_REFUSED");
}

}  // namespace

absl::Status CheckInputShape(const ServedModel& model, size_t index,
                             absl::Span<const int64_t> shape) {
  WEIR_RETURN_IF_ERROR(ByteSize(model.inputs[index].dtype, shape).status());
  return CheckOpenInputShape(model, index, shape);
}

absl::Status CheckOpenInputShape(const ServedModel& model, size_t index,
                                 absl::Span<const int64_t> shape) {
  const ModelTensor& input = model.inputs[index];
  bool fits = shape.size() == input.shape.size();
  for (size_t d = 0; fits && d < shape.size(); ++d) {
    fits = input.shape[d] == -1 || shape[d] == -1 || input.shape[d] == shape[d];
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape ", DimsString(shape), " where model \"", model.name,
                     "\" takes ", DimsString(input.shape)));
  }
  if (model.max_batch_size > 0 && shape[0] > model.max_batch_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", shape[0], " where model \"", model.name,
                     "\" takes at most ", model.max_batch_size));
  }
  return absl::OkStatus();
}

absl::Status CheckBatch(const ServedModel& model, const GivenShape& first,
                        const GivenShape& other) {
  if (model.max_batch_size == 0 || first.shape[0] == -1 ||
      other.shape[0] == -1 || first.shape[0] == other.shape[0]) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "input \"", AbslView(other.name), "\" has a batch of ", other.shape[0],
      ", input \"", AbslView(first.name), "\" one of ", first.shape[0]));
}

struct ModelRepository::State {
  State(RepositoryOptions the_options, Device* the_device,
        const OpRegistry* the_registry)
      : options(std::move(the_options)),
        device(the_device),
        registry(the_registry),
        room(std::make_shared<ProgramRoom>(std::numeric_limits<size_t>::max(),
                                           options.reclaim)),
        models(std::make_shared<const Models>()) {}

  // One model version that is to be loaded.
  struct Job {
    size_t number;
    std::string name;
    int64_t version;
    std::shared_ptr<const inference::ModelConfig> config;
  };

  fs::path ModelPath(const std::string& name) const {
    return fs::path(options.root) / name;
  }
  VersionEntry Refuse(int64_t number, const absl::Status& status) const {
    return Refused(options.root, number, status);
  }
  ModelEntry RefuseModel(const absl::Status& status) const {
    ModelEntry entry;
    entry.versions.push_back(Refuse(0, status));
    return entry;
  }
  absl::Status List();
  absl::StatusOr<inference::ModelConfig> ReadConfig(
      const std::string& name) const;
  ModelEntry Scan(const std::string& name);
  absl::StatusOr<std::shared_ptr<const ServedModel>> Load(const Job& job);
  void Publish(const std::string& name, VersionEntry entry);
  void LoadNext(std::atomic<size_t>* next);
  // Between two steps of loading a model.
  absl::Status CheckStopping() const {
    return stopping.stop_requested() ? absl::CancelledError("the server stops")
                                     : absl::OkStatus();
  }

  const RepositoryOptions options;
  Device* const device;
  const OpRegistry* const registry;
  // Of the served programs: who runs the server bounds them.
  const std::shared_ptr<ProgramRoom> room;
  std::vector<Job> jobs;                 // written by List
  std::vector<StrayFolders> strays;      // the same
  std::vector<std::string> loose_files;  // the same
  StopSource stopping;
  Mutex change_mu;  // one change of the snapshot at a time
  StripedSnapshot<Models> models;
};

absl::StatusOr<inference::ModelConfig> ModelRepository::State::ReadConfig(
    const std::string& name) const {
  const fs::path path = ModelPath(name) / kConfigFile;
  std::error_code error;
  std::string text;
  // Whoever made a link to nowhere wanted a configuration.
  if (fs::symlink_status(path, error).type() != fs::file_type::not_found) {
    WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFile> file,
                          ModelFile::Open(path.string()));
    if (file->size() > kMaxConfigBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(kConfigFile, " has ", file->size(), " bytes"));
    }
    text.resize(static_cast<size_t>(file->size()));
    WEIR_RETURN_IF_ERROR(file->Read(0, text.data(), text.size()));
  }
  auto config = ReadModelConfig(text, name);
  if (config.ok()) {
    const absl::Status possible = CheckInstances(
        *config, device->info(), /*has_host=*/options.host != nullptr);
    if (!possible.ok()) config = possible;
  }
  if (!config.ok()) {
    return Annotate(config.status(), absl::StrCat(kConfigFile, ": "));
  }
  return config;
}

absl::Status ModelRepository::State::List() {
  if (options.root.empty()) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                        Folders(options.root));
  loose_files = OnnxFiles(options.root);
  auto listed = std::make_shared<Models>();
  for (const std::string& name : names) {
    if (!IsUtf8(name)) continue;
    listed->emplace(name, std::make_shared<const ModelEntry>(Scan(name)));
  }
  for (const std::string& name : names) {
    if (IsUtf8(name)) continue;
    // Listed by what can be told of its name, unless another has that.
    listed->emplace(
        EscapeNonUtf8(name),
        std::make_shared<const ModelEntry>(RefuseModel(
            absl::InvalidArgumentError("the folder's name is not UTF-8"))));
  }
  MutexLock lock(&change_mu);
  models.Store(std::move(listed));
  return absl::OkStatus();
}

// What the model's folder says, and what there is to load.
ModelEntry ModelRepository::State::Scan(const std::string& name) {
  auto folders = Folders(ModelPath(name));
  if (!folders.ok()) return RefuseModel(folders.status());
  // A link to nowhere is a version by its name alone: others are files'.
  std::erase_if(*folders, [&](const std::string& folder) {
    std::error_code error;
    return !VersionNumber(folder).has_value() &&
           !fs::is_directory(ModelPath(name) / folder, error);
  });
  std::vector<int64_t> existing;
  StrayFolders stray{name, {}};
  for (const std::string& folder : *folders) {
    if (const auto number = VersionNumber(folder)) {
      existing.push_back(*number);
    } else {
      stray.folders.push_back(EscapeNonUtf8(folder));
    }
  }
  std::sort(existing.begin(), existing.end());
  const auto config = ReadConfig(name);
  // With an unreadable configuration nobody knows which it would leave out.
  const std::vector<int64_t> versions =
      config.ok() ? ChooseVersions(*config, existing) : existing;
  if (versions.empty()) {
    return RefuseModel(config.ok() ? NoVersion(ModelPath(name), *folders,
                                               config->default_model_filename())
                                   : config.status());
  }
  if (!stray.folders.empty()) strays.push_back(std::move(stray));
  ModelEntry entry;
  for (int64_t version : existing) {
    if (!std::binary_search(versions.begin(), versions.end(), version)) {
      entry.left_out.push_back(absl::StrCat(version));
    }
  }
  const auto shared =
      config.ok() ? std::make_shared<const inference::ModelConfig>(*config)
                  : nullptr;
  for (int64_t version : versions) {
    if (shared == nullptr) {
      entry.versions.push_back(Refuse(version, config.status()));
    } else if (!std::binary_search(existing.begin(), existing.end(), version)) {
      entry.versions.push_back(Refuse(
          version, absl::NotFoundError(
                       "the version policy asks for a version that has no "
                       "folder")));
    } else {
      VersionEntry& loading = entry.versions.emplace_back();
      loading.number = version;
      loading.version = absl::StrCat(version);
      jobs.push_back({jobs.size(), name, version, shared});
    }
  }
  return entry;
}

absl::StatusOr<std::shared_ptr<const ServedModel>> ModelRepository::State::Load(
    const Job& job) {
  const fs::path path = ModelPath(job.name) / absl::StrCat(job.version) /
                        job.config->default_model_filename();
  WEIR_RETURN_IF_ERROR(CheckStopping());
  absl::StatusOr<OnnxFile> imported =
      ImportOnnxFile(path.string(), stopping.get_token());
  if (!imported.ok()) return OfItsFile(imported.status(), job.name, path);
  OnnxFile onnx = *std::move(imported);
  WEIR_RETURN_IF_ERROR(CheckStopping());
  // Models that share a file may have different external data.
  ProgramOptions program_options;
  program_options.stop = stopping.get_token();
  program_options.evaluation = options.evaluation;
  program_options.room = room;
  ChooseOutputs(*job.config, &onnx.graph);
  program_options.identity =
      Fingerprint(absl::StrCat(job.name, "/", job.version, "/",
                               absl::StrJoin(onnx.graph.outputs, "/")),
                  onnx.fingerprint);
  const std::vector<ValueDecl> declared = onnx.graph.declared_outputs;
  program_options.text_device = options.host;
  const bool to_host = options.host != nullptr && WantsCpu(*job.config);
  WEIR_ASSIGN_OR_RETURN(
      std::shared_ptr<const Program> program,
      Program::Compile(std::move(onnx.graph), to_host ? *options.host : *device,
                       *registry, program_options));
  inference::ModelConfig config = *job.config;
  std::vector<std::string> ignored_fields =
      FieldsWithoutEffect(config, program->device().info());
  CompleteInstances(program->device().info(), &config);
  auto interface = CompleteModelConfig(program->inputs(), program->outputs(),
                                       declared, &config);
  if (!interface.ok()) {
    const bool configured = job.config->max_batch_size() > 0 ||
                            !job.config->input().empty() ||
                            !job.config->output().empty();
    if (!configured) return interface.status();
    return Annotate(interface.status(), absl::StrCat(kConfigFile, ": "));
  }
  auto model = std::make_shared<ServedModel>();
  model->number = job.number;
  model->name = job.name;
  model->version = absl::StrCat(job.version);
  model->platform = std::string(kModelPlatform);
  model->max_batch_size = config.max_batch_size();
  model->inputs = std::move(interface->inputs);
  model->outputs = std::move(interface->outputs);
  model->program = std::move(program);
  model->config = config.SerializeAsString();
  model->ignored_fields = std::move(ignored_fields);
  return std::shared_ptr<const ServedModel>(std::move(model));
}

void ModelRepository::State::Publish(const std::string& name,
                                     VersionEntry entry) {
  MutexLock lock(&change_mu);
  auto changed = std::make_shared<Models>(*models.Load());
  auto model = std::make_shared<ModelEntry>(*changed->at(name));
  for (VersionEntry& version : model->versions) {
    if (version.number == entry.number) {
      version = std::move(entry);
      break;
    }
  }
  (*changed)[name] = std::move(model);
  models.Store(std::move(changed));
}

void ModelRepository::State::LoadNext(std::atomic<size_t>* next) {
  for (;;) {
    const size_t i = next->fetch_add(1);
    if (i >= jobs.size() || stopping.stop_requested()) return;
    auto model = Load(jobs[i]);
    if (stopping.stop_requested()) return;
    VersionEntry entry;
    if (model.ok()) {
      entry.number = jobs[i].version;
      entry.version = (*model)->version;
      entry.state = ModelState::kReady;
      entry.model = *std::move(model);
    } else {
      entry = Refuse(jobs[i].version, model.status());
    }
    Publish(jobs[i].name, std::move(entry));
  }
}

absl::StatusOr<std::unique_ptr<ModelRepository>> ModelRepository::Open(
    const RepositoryOptions& options, Device* device,
    const OpRegistry* registry) {
  std::error_code error;
  if (!options.root.empty() && !fs::is_directory(options.root, error)) {
    return absl::NotFoundError(
        absl::StrCat("the model repository ", options.root, " is no folder"));
  }
  std::unique_ptr<ModelRepository> repository(
      new ModelRepository(std::make_unique<State>(options, device, registry)));
  WEIR_RETURN_IF_ERROR(repository->state_->List());
  return repository;
}

ModelRepository::ModelRepository(std::unique_ptr<State> state)
    : state_(std::move(state)) {}

ModelRepository::~ModelRepository() = default;

void ModelRepository::StopLoading() { state_->stopping.request_stop(); }

void ModelRepository::LoadAll() {
  std::atomic<size_t> next{0};
  std::vector<Thread> threads;
  const size_t wanted =
      std::min(static_cast<size_t>(std::max(state_->options.load_threads, 1)),
               state_->jobs.size());
  for (size_t i = 1; i < wanted; ++i) {
    threads.emplace_back("weir-load", [&] { state_->LoadNext(&next); });
  }
  state_->LoadNext(&next);
  for (Thread& thread : threads) thread.Join();
}

absl::StatusOr<std::shared_ptr<const ServedModel>> ModelRepository::Find(
    std::string_view name, std::string_view version) const {
  return state_->models.Read(
      [&](const Models& models)
          -> absl::StatusOr<std::shared_ptr<const ServedModel>> {
        const auto it = models.find(name);
        if (it == models.end()) return NotFound(name, version, {});
        const std::vector<VersionEntry>& versions = it->second->versions;
        for (size_t i = versions.size(); i-- > 0;) {
          const VersionEntry& entry = versions[i];
          if (version.empty() ? entry.state == ModelState::kReady
                              : entry.version == version) {
            if (entry.model == nullptr) return NotServed(name, entry);
            return entry.model;
          }
        }
        if (!version.empty()) return NotFound(name, version, *it->second);
        // None is ready: the newest that may still be, or why the newest is
        // not.
        const auto loading = std::find_if(
            versions.rbegin(), versions.rend(), [](const VersionEntry& entry) {
              return entry.state == ModelState::kLoading;
            });
        return NotServed(
            name, loading == versions.rend() ? versions.back() : *loading);
      });
}

const std::vector<StrayFolders>& ModelRepository::strays() const {
  return state_->strays;
}

const std::vector<std::string>& ModelRepository::loose_files() const {
  return state_->loose_files;
}

std::vector<ModelIndexEntry> ModelRepository::Index() const {
  const std::shared_ptr<const Models> models = state_->models.Load();
  std::vector<ModelIndexEntry> index;
  for (const auto& [name, model] : *models) {
    for (const VersionEntry& entry : model->versions) {
      index.push_back({name, entry.version, entry.state, entry.reason});
    }
  }
  return index;
}

std::vector<std::shared_ptr<const ServedModel>> ModelRepository::Served()
    const {
  const std::shared_ptr<const Models> models = state_->models.Load();
  std::vector<std::shared_ptr<const ServedModel>> served;
  for (const auto& [name, model] : *models) {
    for (const VersionEntry& entry : model->versions) {
      if (entry.model != nullptr) served.push_back(entry.model);
    }
  }
  return served;
}

}  // namespace weir
