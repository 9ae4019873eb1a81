// weir.Spin and weir.Fault. Define given before this text: FAULT_KIND, 0 to
// spin, 1 illegal address, 2 trap, 3 a reported fault.
namespace weir {

struct Args {
  const uint8_t* in;  // copied to the output
  uint8_t* out;
  uint64_t bytes;
  uint64_t nanoseconds;
  CudaFaultSlot* fault;
  uint64_t node;
  uint64_t code;
};

extern "C" __global__ void __launch_bounds__(256)
    weir_kernel(const __grid_constant__ Args a) {
#if FAULT_KIND == 0
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    uint64_t start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < a.nanoseconds);
  }
#elif FAULT_KIND == 1
  if (GlobalThread() == 0) *reinterpret_cast<volatile uint32_t*>(16) = 1;
#elif FAULT_KIND == 2
  if (GlobalThread() == 0) asm volatile("trap;");
#elif FAULT_KIND == 3
  if (GlobalThread() == 0) {
    ReportFault(a.fault, static_cast<unsigned>(a.node),
                static_cast<unsigned>(a.code));
  }
#endif
  const uint64_t threads = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = GlobalThread(); i < a.bytes; i += threads) {
    a.out[i] = a.in[i];
  }
}

}  // namespace weir
