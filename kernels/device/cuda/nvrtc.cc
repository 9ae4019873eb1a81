#include "kernels/device/cuda/nvrtc.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_role.h"
#include "kernels/device/cuda/dynamic_library.h"

namespace weir {
namespace {

constexpr int kMajor = 13;
constexpr char kSoname[] = "libnvrtc.so.13";

}  // namespace

absl::StatusOr<LibraryFile> Nvrtc::Find() {
  absl::StatusOr<LibraryFile> file = FindLibrary(kSoname);
  if (file.ok()) return file;
  return absl::FailedPreconditionError(
      absl::StrCat("NVRTC 13 is needed and missing: ",
                   absl::string_view(file.status().message())));
}

absl::StatusOr<Nvrtc> Nvrtc::Open(const LibraryFile& file) {
  absl::StatusOr<DynamicLibrary> library = DynamicLibrary::Open(file);
  WEIR_RETURN_IF_ERROR(library.status());
  Nvrtc n;
  WEIR_RETURN_IF_ERROR(library->Load("nvrtcVersion", &n.version_));
  WEIR_RETURN_IF_ERROR(
      library->Load("nvrtcGetNumSupportedArchs", &n.num_archs_));
  WEIR_RETURN_IF_ERROR(library->Load("nvrtcGetSupportedArchs", &n.archs_));
  WEIR_RETURN_IF_ERROR(library->Load("nvrtcGetErrorString", &n.error_string_));
  WEIR_RETURN_IF_ERROR(library->Load("nvrtcCreateProgram", &n.create_));
  WEIR_RETURN_IF_ERROR(library->Load("nvrtcDestroyProgram", &n.destroy_));
  WEIR_RETURN_IF_ERROR(library->Load("nvrtcCompileProgram", &n.compile_));
  WEIR_RETURN_IF_ERROR(library->Load("nvrtcGetProgramLogSize", &n.log_size_));
  WEIR_RETURN_IF_ERROR(library->Load("nvrtcGetProgramLog", &n.log_));
  WEIR_RETURN_IF_ERROR(library->Load("nvrtcGetCUBINSize", &n.cubin_size_));
  WEIR_RETURN_IF_ERROR(library->Load("nvrtcGetCUBIN", &n.cubin_));
  WEIR_RETURN_IF_ERROR(library->Load("nvrtcGetPTXSize", &n.ptx_size_));
  WEIR_RETURN_IF_ERROR(library->Load("nvrtcGetPTX", &n.ptx_));

  WEIR_RETURN_IF_ERROR(
      n.Check(n.version_(&n.major_, &n.minor_), "nvrtcVersion"));
  if (n.major_ != kMajor) {
    return absl::FailedPreconditionError(
        absl::StrCat(library->path(), " is NVRTC ", n.version(),
                     "; this build needs version ", kMajor));
  }
  library->LoadNeighbor(
      absl::StrCat("libnvrtc-builtins.so.", n.major_, ".", n.minor_));
  int count = 0;
  WEIR_RETURN_IF_ERROR(
      n.Check(n.num_archs_(&count), "nvrtcGetNumSupportedArchs"));
  n.architectures_.resize(static_cast<size_t>(count));
  WEIR_RETURN_IF_ERROR(
      n.Check(n.archs_(n.architectures_.data()), "nvrtcGetSupportedArchs"));
  return n;
}

std::string Nvrtc::version() const { return absl::StrCat(major_, ".", minor_); }

absl::Status Nvrtc::Check(nvrtcResult result, const char* what) const {
  if (result == NVRTC_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": ", error_string_(result)));
}

absl::StatusOr<std::string> Nvrtc::Compile(const std::string& source,
                                           int capability) const {
  ExpectMayWait("Nvrtc::Compile");
  const bool known = std::find(architectures_.begin(), architectures_.end(),
                               capability) != architectures_.end();
  int newest = 0;
  for (int a : architectures_) {
    if (a <= capability) newest = std::max(newest, a);
  }
  const std::string architecture =
      known ? absl::StrCat("--gpu-architecture=sm_", capability)
            : absl::StrCat("--gpu-architecture=compute_", newest);
  const char* options[] = {architecture.c_str(), "--std=c++17",
                           "--define-macro=WEIR_NVRTC=1"};

  nvrtcProgram program = nullptr;
  WEIR_RETURN_IF_ERROR(
      Check(create_(&program, source.c_str(), "weir.cu", 0, nullptr, nullptr),
            "nvrtcCreateProgram"));
  auto finish = [&]() -> absl::StatusOr<std::string> {
    const nvrtcResult compiled = compile_(program, 3, options);
    if (compiled != NVRTC_SUCCESS) {
      size_t size = 0;
      std::string log;
      if (log_size_(program, &size) == NVRTC_SUCCESS && size > 1) {
        log.resize(size);
        if (log_(program, log.data()) != NVRTC_SUCCESS) log.clear();
      }
      return absl::InternalError(absl::StrCat(
          "nvrtcCompileProgram: ", error_string_(compiled), ": ", log));
    }
    size_t size = 0;
    WEIR_RETURN_IF_ERROR(
        Check(known ? cubin_size_(program, &size) : ptx_size_(program, &size),
              "nvrtcGetCUBINSize"));
    std::string image(size, '\0');
    WEIR_RETURN_IF_ERROR(Check(
        known ? cubin_(program, image.data()) : ptx_(program, image.data()),
        "nvrtcGetCUBIN"));
    return image;
  };
  absl::StatusOr<std::string> result = finish();
  const absl::Status destroyed =
      Check(destroy_(&program), "nvrtcDestroyProgram");
  if (result.ok() && !destroyed.ok()) return destroyed;
  return result;
}

}  // namespace weir
