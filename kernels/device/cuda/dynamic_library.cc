#include "kernels/device/cuda/dynamic_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>

#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weir {
namespace {

void AddMatches(const char* pattern, std::vector<std::string>* folders) {
  glob_t matches;
  if (glob(pattern, GLOB_ONLYDIR | GLOB_NOSORT, nullptr, &matches) == 0) {
    for (size_t i = 0; i < matches.gl_pathc; ++i) {
      folders->push_back(matches.gl_pathv[i]);
    }
  }
  globfree(&matches);
}

std::vector<std::string> NamedFolders() {
  const char* path = std::getenv("WEIR_CUDA_LIBRARY_PATH");
  if (path == nullptr) return {};
  return absl::StrSplit(path, ':', absl::SkipEmpty());
}

std::vector<std::string> UsualFolders() {
  std::vector<std::string> folders;
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&UsualFolders), &self) != 0) {
    const std::string file = self.dli_fname;
    folders.push_back(file.substr(0, file.rfind('/')));
  }
  folders.push_back("/usr/local/cuda/lib64");
  folders.push_back("/opt/weir/cuda-wheels/lib");
  folders.push_back("/opt/weir/cuda-wheels/toolkit/lib");
  for (const char* pattern :
       {"/usr/lib/python3*/*-packages/nvidia/*/lib",
        "/usr/local/lib/python3*/*-packages/nvidia/*/lib",
        "/opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib",
        "/opt/*/lib/python3*/site-packages/nvidia/*/lib"}) {
    AddMatches(pattern, &folders);
  }
  return folders;
}

// The loader's own folders for what our library opens; the loader also knows a
// cache of others, which it does not tell.
std::vector<std::string> LoaderFolders() {
  std::vector<std::string> folders;
  Dl_info info;
  link_map* self = nullptr;
  if (dladdr1(reinterpret_cast<void*>(&UsualFolders), &info,
              reinterpret_cast<void**>(&self), RTLD_DL_LINKMAP) == 0 ||
      self == nullptr) {
    return folders;
  }
  Dl_serinfo size;
  if (dlinfo(self, RTLD_DI_SERINFOSIZE, &size) != 0) return folders;
  const std::unique_ptr<char[]> room(new char[size.dls_size]);
  auto* list = reinterpret_cast<Dl_serinfo*>(room.get());
  list->dls_size = size.dls_size;
  list->dls_cnt = size.dls_cnt;
  if (dlinfo(self, RTLD_DI_SERINFO, list) != 0) return folders;
  for (unsigned i = 0; i < list->dls_cnt; ++i) {
    folders.push_back(list->dls_serpath[i].dls_name);
  }
  return folders;
}

std::string PathOf(void* handle) {
  const link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : "";
}

}  // namespace

absl::StatusOr<LibraryFile> FindLibrary(const std::string& soname) {
  absl::Status problem;
  for (const auto& folders :
       {NamedFolders(), LoaderFolders(), UsualFolders()}) {
    for (const std::string& folder : folders) {
      auto file = InspectLibrary(absl::StrCat(folder, "/", soname), soname);
      if (file.ok()) return file;
      if (problem.ok() && !absl::IsNotFound(file.status())) {
        problem = file.status();
      }
    }
  }
  if (!problem.ok()) return problem;
  // Only the loader's cache may know it: it is opened, and closed again.
  void* handle = dlopen(soname.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* error = dlerror();
    return absl::NotFoundError(absl::StrCat(
        soname, " cannot be opened (", error == nullptr ? "" : error,
        "); install it or name its folder in "
        "WEIR_CUDA_LIBRARY_PATH"));
  }
  const std::string path = PathOf(handle);
  dlclose(handle);
  return InspectLibrary(path, soname);
}

std::vector<std::string> CudaLibraryFolders() {
  std::vector<std::string> folders = NamedFolders();
  for (std::string& folder : UsualFolders()) {
    folders.push_back(std::move(folder));
  }
  return folders;
}

absl::StatusOr<DynamicLibrary> DynamicLibrary::Open(const std::string& soname) {
  std::vector<std::string> candidates;
  for (const std::string& folder : NamedFolders()) {
    candidates.push_back(absl::StrCat(folder, "/", soname));
  }
  candidates.push_back(soname);
  for (const std::string& folder : UsualFolders()) {
    candidates.push_back(absl::StrCat(folder, "/", soname));
  }
  std::string reason;
  for (const std::string& candidate : candidates) {
    void* handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return DynamicLibrary(handle, candidate);
    const char* error = dlerror();
    if (candidate == soname && error != nullptr) reason = error;
  }
  return absl::NotFoundError(absl::StrCat(
      soname, " cannot be opened (", reason,
      "); install it or name its folder in WEIR_CUDA_LIBRARY_PATH"));
}

absl::StatusOr<DynamicLibrary> DynamicLibrary::Open(const LibraryFile& file) {
  void* handle = dlopen(file.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return DynamicLibrary(handle, file.path);
  const char* error = dlerror();
  return absl::FailedPreconditionError(absl::StrCat(
      file.path,
      " cannot be opened: ", error == nullptr ? "no reason given" : error));
}

absl::Status DynamicLibrary::Find(const char* symbol, void** address) const {
  *address = dlsym(handle_, symbol);
  if (*address == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, " has no ", symbol, ": another version"));
  }
  return absl::OkStatus();
}

void DynamicLibrary::LoadNeighbor(const std::string& soname) const {
  const std::string file = PathOf(handle_);
  if (file.empty()) return;
  const std::string folder = file.substr(0, file.rfind('/') + 1);
  (void)dlopen(absl::StrCat(folder, soname).c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace weir
