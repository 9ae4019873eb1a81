#include "kernels/device/cuda/dynamic_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>

#include <cstdlib>

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

}  // namespace

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

absl::Status DynamicLibrary::Find(const char* symbol, void** address) const {
  *address = dlsym(handle_, symbol);
  if (*address == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, " has no ", symbol, ": another version"));
  }
  return absl::OkStatus();
}

void DynamicLibrary::LoadNeighbor(const std::string& soname) const {
  const link_map* map = nullptr;
  if (dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0) return;
  const std::string file = map->l_name;
  const std::string folder = file.substr(0, file.rfind('/') + 1);
  (void)dlopen(absl::StrCat(folder, soname).c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace weir
