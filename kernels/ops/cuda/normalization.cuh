// Softmax and LayerNormalization: a block has one row, which it reads three
// times (the second and third from the cache). Defines given before this text:
//   S             storage type of the data; A the type computed in
//   S_SCALE       storage type of LayerNormalization's scale and bias
//   S_STAT        storage type of its mean and deviation outputs
//   LAYER_NORM    1, or 0 for Softmax
// A row's elements lie `stride` apart.
namespace weir {

struct Args {
  const S* in;
  S* out;
  uint64_t rows;
  uint64_t length;
  uint64_t stride;  // also the number of rows side by side
  const S_SCALE* scale;
  const S_SCALE* bias;  // may be null
  S_STAT* mean;         // may be null
  S_STAT* deviation;    // may be null; 1 / sqrt(variance + epsilon)
  double epsilon;
};

struct Sum {
  static __device__ __forceinline__ A Combine(A x, A y) { return x + y; }
};
// NaN wins.
struct Largest {
  static __device__ __forceinline__ A Combine(A x, A y) {
    return x != x || x > y ? x : y;
  }
};

template <typename Op>
__device__ __forceinline__ A ReduceBlock(A v) {
  __shared__ A warps[32];
  for (int lane = 16; lane > 0; lane /= 2) {
    v = Op::Combine(v, __shfl_xor_sync(~0u, v, lane));
  }
  __syncthreads();  // the last use of `warps` is over
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
  __syncthreads();
  v = warps[0];
  for (unsigned w = 1; w < blockDim.x / 32; ++w) v = Op::Combine(v, warps[w]);
  return v;
}

__device__ __forceinline__ A Value(const S& s) {
  return static_cast<A>(Load(s));
}
__device__ __forceinline__ S Result(A a) {
  return Store<S>(static_cast<Compute<S>>(a));
}

extern "C" __global__ void weir_kernel(const __grid_constant__ Args a) {
  for (uint64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const uint64_t base = row / a.stride * a.stride * a.length + row % a.stride;
    const S* in = a.in + base;
    S* out = a.out + base;
#if LAYER_NORM
    A sum = 0;
    for (uint64_t i = threadIdx.x; i < a.length; i += blockDim.x) {
      sum += Value(in[i]);
    }
    const A mean = ReduceBlock<Sum>(sum) / static_cast<A>(a.length);
    A squares = 0;
    for (uint64_t i = threadIdx.x; i < a.length; i += blockDim.x) {
      const A d = Value(in[i]) - mean;
      squares += d * d;
    }
    const A variance = ReduceBlock<Sum>(squares) / static_cast<A>(a.length);
    const A deviation = A(1) / sqrt(variance + static_cast<A>(a.epsilon));
    for (uint64_t i = threadIdx.x; i < a.length; i += blockDim.x) {
      A y =
          (Value(in[i]) - mean) * deviation * static_cast<A>(Load(a.scale[i]));
      if (a.bias != nullptr) y += static_cast<A>(Load(a.bias[i]));
      out[i] = Result(y);
    }
    if (threadIdx.x == 0) {
      if (a.mean != nullptr) {
        a.mean[row] = Store<S_STAT>(static_cast<Compute<S_STAT>>(mean));
      }
      if (a.deviation != nullptr) {
        a.deviation[row] =
            Store<S_STAT>(static_cast<Compute<S_STAT>>(deviation));
      }
    }
#else
    A largest = -static_cast<A>(__int_as_float(0x7f800000));
    for (uint64_t i = threadIdx.x; i < a.length; i += blockDim.x) {
      largest = Largest::Combine(largest, Value(in[i * a.stride]));
    }
    largest = ReduceBlock<Largest>(largest);
    A sum = 0;
    for (uint64_t i = threadIdx.x; i < a.length; i += blockDim.x) {
      sum += exp(Value(in[i * a.stride]) - largest);
    }
    const A factor = A(1) / ReduceBlock<Sum>(sum);
    for (uint64_t i = threadIdx.x; i < a.length; i += blockDim.x) {
      out[i * a.stride] =
          Result(exp(Value(in[i * a.stride]) - largest) * factor);
    }
#endif
  }
}

}  // namespace weir
