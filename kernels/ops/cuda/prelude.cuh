// Stands before every generated kernel: fixed-width integers, the storage types
// of float16 and bfloat16 with their conversions, the codes of faults. Compiled
// by NVRTC, which has no headers.
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;

namespace weir {

enum class FaultCode : uint32_t {
  kNone = 0,
  kIndexOutOfRange = 1,
  kDivisionByZero = 2,
  kCorruptData = 3,
  kInjected = 4,
};

struct Float16 {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};
struct Bool {
  uint8_t byte;
};

// Load and Store turn a stored element into its compute type and back.
template <typename S>
struct Stored {
  typedef S Compute;
  static __device__ __forceinline__ S Load(S s) { return s; }
  static __device__ __forceinline__ S Store(S c) { return c; }
};
template <>
struct Stored<Float16> {
  typedef float Compute;
  static __device__ __forceinline__ float Load(Float16 s) {
    float c;
    asm("cvt.f32.f16 %0, %1;" : "=f"(c) : "h"(s.bits));
    return c;
  }
  static __device__ __forceinline__ Float16 Store(float c) {
    Float16 s;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(s.bits) : "f"(c));
    return s;
  }
};
template <>
struct Stored<Bfloat16> {
  typedef float Compute;
  static __device__ __forceinline__ float Load(Bfloat16 s) {
    return __uint_as_float(static_cast<uint32_t>(s.bits) << 16);
  }
  static __device__ __forceinline__ Bfloat16 Store(float c) {
    Bfloat16 s;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(s.bits) : "f"(c));
    return s;
  }
};
template <>
struct Stored<Bool> {
  typedef bool Compute;
  static __device__ __forceinline__ bool Load(Bool s) { return s.byte != 0; }
  static __device__ __forceinline__ Bool Store(bool c) {
    return {static_cast<uint8_t>(c ? 1 : 0)};
  }
};

template <typename S>
using Compute = typename Stored<S>::Compute;
template <typename S>
__device__ __forceinline__ Compute<S> Load(const S& s) {
  return Stored<S>::Load(s);
}
template <typename S>
__device__ __forceinline__ S Store(Compute<S> c) {
  return Stored<S>::Store(c);
}

// Division by a number that the host prepared (see FastDivisor in codegen.h):
// exact for numerators below 2^31.
struct Divisor {
  uint64_t divisor;
  uint64_t multiplier;
  uint64_t shift;
};
__device__ __forceinline__ uint32_t Divide(uint32_t n, const Divisor& d) {
  return (__umulhi(n, static_cast<uint32_t>(d.multiplier)) + n) >>
         static_cast<uint32_t>(d.shift);
}

__device__ __forceinline__ uint64_t GlobalThread() {
  return static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

}  // namespace weir
