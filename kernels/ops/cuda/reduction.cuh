// Reductions. Defines given before this text:
//   S_IN, S_OUT   storage types; A the type accumulated in
//   OP            0 sum, 1 max, 2 min, 3 arg max (first), 4 arg max (last)
//   EMPTY         the result for no elements (max and min)
//   HALF_OUT      defined if S_OUT is a half type
//   BY_BLOCK      1: a block shares one output; 0: one thread has one
// Output o reduces in[KeptOffset(o) + ReducedOffset(r)] for r in
// [split * chunk, (split + 1) * chunk), split = blockIdx.y. With one split the
// result goes to `out`, else to partial[split * outputs + o].
namespace weir {

struct Args {
  const S_IN* in;
  S_OUT* out;
  A* partial;
  int64_t* partial_index;
  uint64_t outputs;
  uint64_t count;  // elements reduced for one output
  uint64_t chunk;  // of them in one split
  uint64_t splits;
  uint64_t kept_rank, reduced_rank;
  uint64_t kept_dims[8];
  int64_t kept_strides[8];
  uint64_t reduced_dims[8];
  int64_t reduced_strides[8];
  uint64_t mean;  // 1: the sum is divided by the count in `divisor`
  uint64_t divisor;
};

__device__ __forceinline__ int64_t Offset(uint64_t i, uint64_t rank,
                                          const uint64_t* dims,
                                          const int64_t* strides) {
  if (rank == 1) return static_cast<int64_t>(i) * strides[0];
  int64_t offset = 0;
  for (uint64_t d = rank; d-- > 0;) {
    const uint64_t q = i / dims[d];
    offset += static_cast<int64_t>(i - q * dims[d]) * strides[d];
    i = q;
  }
  return offset;
}

struct Value {
  A a;
  int64_t index;  // arg max only; -1: none yet
};

__device__ __forceinline__ Value Identity() {
#if OP == 0
  return {A(0), 0};
#else
  return {A(0), -1};
#endif
}

// Of an empty identity and a value, the value; NaN wins, as in NumPy.
__device__ __forceinline__ Value Combine(Value x, Value y) {
#if OP == 0
  return {static_cast<A>(x.a + y.a), 0};
#else
  if (x.index < 0) return y;
  if (y.index < 0) return x;
#if OP == 1 || OP == 2
  if (x.a != x.a) return x;
  if (y.a != y.a) return y;
#if OP == 1
  return x.a < y.a ? y : x;
#else
  return y.a < x.a ? y : x;
#endif
#else
  const bool x_nan = x.a != x.a;
  const bool y_nan = y.a != y.a;
  bool take_y = x_nan ? false : y_nan ? true : x.a < y.a;
  bool take_x = y_nan ? false : x_nan ? true : y.a < x.a;
  if (take_y) return y;
  if (take_x) return x;
#if OP == 3
  return x.index < y.index ? x : y;
#else
  return x.index < y.index ? y : x;
#endif
#endif
#endif
}

__device__ __forceinline__ void Write(const Args& a, uint64_t o, Value v) {
  if (a.splits > 1) {
    a.partial[blockIdx.y * a.outputs + o] = v.a;
#if OP >= 3
    a.partial_index[blockIdx.y * a.outputs + o] = v.index;
#endif
    return;
  }
#if OP >= 3
  a.out[o] = v.index;
#else
  A result = v.a;
#if OP == 1 || OP == 2
  if (v.index < 0) result = static_cast<A>(EMPTY);
#endif
#if OP == 0
  if (a.mean) {
    if (scalar::IsFloating<A>::value || a.divisor != 0) {
      result = static_cast<A>(result / static_cast<A>(a.divisor));
    }
  }
#endif
#ifdef HALF_OUT
  a.out[o] = Store<S_OUT>(scalar::ToHalfSource(result));
#else
  a.out[o] = Store<S_OUT>(static_cast<Compute<S_OUT>>(result));
#endif
#endif
}

extern "C" __global__ void __launch_bounds__(256)
    weir_kernel(const __grid_constant__ Args a) {
  const uint64_t begin = blockIdx.y * a.chunk;
  uint64_t end = begin + a.chunk;
  if (end > a.count) end = a.count;
#if BY_BLOCK
  __shared__ Value warps[8];
  for (uint64_t o = blockIdx.x; o < a.outputs; o += gridDim.x) {
    const S_IN* in = a.in + Offset(o, a.kept_rank, a.kept_dims, a.kept_strides);
    Value v = Identity();
    for (uint64_t r = begin + threadIdx.x; r < end; r += blockDim.x) {
      const int64_t at =
          Offset(r, a.reduced_rank, a.reduced_dims, a.reduced_strides);
      v = Combine(v, {static_cast<A>(Load(in[at])), static_cast<int64_t>(r)});
    }
    for (int lane = 16; lane > 0; lane /= 2) {
      Value other;
      other.a = __shfl_down_sync(~0u, v.a, lane);
      other.index = __shfl_down_sync(~0u, v.index, lane);
      v = Combine(v, other);
    }
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (unsigned w = 1; w < blockDim.x / 32; ++w) v = Combine(v, warps[w]);
      Write(a, o, v);
    }
    __syncthreads();
  }
#else
  const uint64_t o = GlobalThread();
  if (o >= a.outputs) return;
  const S_IN* in = a.in + Offset(o, a.kept_rank, a.kept_dims, a.kept_strides);
  Value v = Identity();
  for (uint64_t r = begin; r < end; ++r) {
    const int64_t at =
        Offset(r, a.reduced_rank, a.reduced_dims, a.reduced_strides);
#ifdef INDEXED_INPUT
    v = Combine(v, {in[at], a.partial_index[r * a.outputs + o]});
#else
    v = Combine(v, {static_cast<A>(Load(in[at])), static_cast<int64_t>(r)});
#endif
  }
  Write(a, o, v);
#endif
}

}  // namespace weir
