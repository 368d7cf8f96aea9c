// A stand-in for libcudart: memory is the host's, kernels do nothing, calls are counted, and what must not be
// called while a graph is captured is told as a violation. It shows where work goes and what it costs in
// launches and copies; it knows no numbers and no time.
//
//   STAND_IN_DEVICES=n       so many devices (1)
//   STAND_IN_CAPTURE_US=n    each capture lasts longer by so many microseconds: races show
//   STAND_IN_CAPTURE=fail    every capture fails at its end
#include <cuda_runtime_api.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#undef cudaGetDeviceProperties
#define API extern "C" __attribute__((visibility("default")))

struct Block { size_t size; int device; };
struct Capture { long thread, kernels; bool broken; };

static std::recursive_mutex lock;
static std::map<const void*, std::string> kernel_names;
static std::map<char*, Block> device_memory;
static std::map<cudaStream_t, Capture> captures;
static std::map<std::string, long> counts;
static std::string captured, launched, shown;  // for those who read: captures made, kernels since the reset
static thread_local int device = 0;
static thread_local cudaError_t last_error = cudaSuccess;
static thread_local struct { dim3 grid, block; size_t shared; cudaStream_t stream; } call;
using Guard = std::lock_guard<std::recursive_mutex>;

static long thread_id() { return syscall(SYS_gettid); }
static long setting(const char* name, long otherwise) { auto text = getenv(name); return text ? atol(text) : otherwise; }
static cudaError_t told(cudaError_t error) { return error ? last_error = error : error; }
static void count(const char* what, long n = 1) { Guard guard(lock); counts[what] += n; }

static cudaError_t violation(const char* function, Capture& capture) {
    counts["violations"]++;
    capture.broken = true;
    fprintf(stderr, "CUDA stand-in: violation: %s on thread %ld while thread %ld captures\n", function, thread_id(),
            capture.thread);
    return told(cudaErrorStreamCaptureUnsupported);
}
// What synchronises the device or may allocate is forbidden to every thread while any thread captures: onnxruntime
// captures in the global mode.
static cudaError_t unsafe(const char* function) {
    Guard guard(lock);
    return captures.empty() ? cudaSuccess : violation(function, captures.begin()->second);
}
static cudaError_t queued(const char* function, cudaStream_t stream) {  // work of the legacy stream waits for all others
    Guard guard(lock);
    return captures.empty() || stream ? cudaSuccess : violation(function, captures.begin()->second);
}
static const Block* find(const void* pointer) {
    Guard guard(lock);
    auto found = device_memory.upper_bound((char*)pointer);
    if (found == device_memory.begin()) return nullptr;
    --found;
    return (char*)pointer < found->first + found->second.size ? &found->second : nullptr;
}
static cudaError_t launch(const void* kernel, cudaStream_t stream) {
    Guard guard(lock);
    counts["kernels"]++;
    auto name = kernel_names.find(kernel);
    launched += (name == kernel_names.end() ? "?" : name->second) + "\n";
    auto capture = captures.find(stream);
    if (capture != captures.end()) capture->second.kernels++;
    return queued("a launch", stream);
}
static void copy(void* to, const void* from, size_t size) {
    Guard guard(lock);
    bool is_up = find(to), is_down = find(from);
    counts[is_up && is_down ? "device_copies" : is_up ? "uploads" : is_down ? "downloads" : "host_copies"]++;
    counts[is_up && !is_down ? "upload_bytes" : is_down && !is_up ? "download_bytes" : "other_bytes"] += size;
    memmove(to, from, size);
}
static cudaError_t allocate(void** pointer, size_t size) {
    Guard guard(lock);
    counts["allocations"]++;
    if (posix_memalign(pointer, 512, size ? size : 1)) return told(cudaErrorMemoryAllocation);
    if (size < (1u << 26)) memset(*pointer, 0, size);
    device_memory[(char*)*pointer] = {size, device};
    counts["device_bytes"] += size;
    return cudaSuccess;
}
static cudaError_t release(void* pointer) {
    Guard guard(lock);
    auto found = device_memory.find((char*)pointer);
    if (found == device_memory.end()) return cudaSuccess;
    counts["device_bytes"] -= found->second.size;
    device_memory.erase(found);
    free(pointer);
    return cudaSuccess;
}

// For the tests. A text is valid until the next call.
API const char* stand_in_counts() {
    Guard guard(lock);
    shown.clear();
    for (auto& [name, n] : counts) shown += name + " " + std::to_string(n) + "\n";
    return shown.c_str();
}
API const char* stand_in_captures() { Guard guard(lock); return (shown = captured).c_str(); }
API const char* stand_in_launched() { Guard guard(lock); shown = launched; launched.clear(); return shown.c_str(); }
API void stand_in_product(const char* name) {  // of the libraries of matrix products
    Guard guard(lock);
    counts["products"]++;
    launched += std::string(name) + "\n";
    for (auto& capture : captures) if (capture.second.thread == thread_id()) capture.second.kernels++;
}

API void** __cudaRegisterFatBinary(void* binary) { return (void**)binary; }
API void __cudaRegisterFatBinaryEnd(void**) {}
API void __cudaUnregisterFatBinary(void**) {}
API void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
API void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
    Guard guard(lock);
    kernel_names[host] = name;
}
API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* f) { *kernel = (cudaKernel_t)f; return cudaSuccess; }
API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) { call = {grid, block, shared, stream}; return 0; }
API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    *grid = call.grid, *block = call.block, *shared = call.shared, *(cudaStream_t*)stream = call.stream;
    return cudaSuccess;
}
API cudaError_t cudaLaunchKernel(const void* f, dim3, dim3, void**, size_t, cudaStream_t stream) { return launch(f, stream); }
API cudaError_t __cudaLaunchKernel(cudaKernel_t f, dim3, dim3, void**, size_t, cudaStream_t stream) { return launch((const void*)f, stream); }
API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* f, void**) { return launch(f, config->stream); }
API cudaError_t cudaLaunchCooperativeKernel(const void* f, dim3, dim3, void**, size_t, cudaStream_t stream) { return launch(f, stream); }
API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t f, void* data) { if (!captures.count(stream)) f(data); return cudaSuccess; }

API cudaError_t cudaMalloc(void** pointer, size_t size) { auto error = unsafe("cudaMalloc"); return error ? error : allocate(pointer, size); }
API cudaError_t cudaFree(void* pointer) { auto error = unsafe("cudaFree"); return error ? error : release(pointer); }
API cudaError_t cudaMallocFromPoolAsync(void** pointer, size_t size, cudaMemPool_t, cudaStream_t) { return allocate(pointer, size); }
API cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return release(pointer); }
API cudaError_t cudaHostAlloc(void** pointer, size_t size, unsigned) {
    count("pinned_allocations");
    auto error = unsafe("cudaHostAlloc");
    return error ? error : posix_memalign(pointer, 4096, size ? size : 1) ? told(cudaErrorMemoryAllocation) : cudaSuccess;
}
API cudaError_t cudaMallocHost(void** pointer, size_t size) { return cudaHostAlloc(pointer, size, 0); }
API cudaError_t cudaFreeHost(void* pointer) { auto error = unsafe("cudaFreeHost"); if (!error) free(pointer); return error; }
API cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind) { auto error = unsafe("cudaMemcpy"); if (!error) copy(to, from, size); return error; }
API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind, cudaStream_t stream) {
    auto error = queued("cudaMemcpyAsync", stream);
    if (!error) copy(to, from, size);
    return error;
}
API cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind, cudaStream_t stream) {
    count("device_copies");
    for (size_t row = 0; row < height; row++) memmove((char*)to + row * to_pitch, (const char*)from + row * from_pitch, width);
    return queued("cudaMemcpy2DAsync", stream);
}
API cudaError_t cudaMemset(void* pointer, int value, size_t size) { count("fills"); auto error = unsafe("cudaMemset"); if (!error) memset(pointer, value, size); return error; }
API cudaError_t cudaMemsetAsync(void* pointer, int value, size_t size, cudaStream_t stream) { count("fills"); memset(pointer, value, size); return queued("cudaMemsetAsync", stream); }
API cudaError_t cudaDeviceSynchronize() { count("synchronisations"); return unsafe("cudaDeviceSynchronize"); }
API cudaError_t cudaEventSynchronize(cudaEvent_t) { count("synchronisations"); return cudaSuccess; }
API cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    Guard guard(lock);
    counts["synchronisations"]++;
    auto capture = captures.find(stream);
    return capture == captures.end() ? queued("cudaStreamSynchronize", stream) : violation("cudaStreamSynchronize", capture->second);
}

API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    { Guard guard(lock); captures[stream] = {thread_id(), 0, false}; }
    usleep(setting("STAND_IN_CAPTURE_US", 0));
    return cudaSuccess;
}
API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    Guard guard(lock);
    auto capture = captures[stream];
    captures.erase(stream);
    auto mode = getenv("STAND_IN_CAPTURE");
    *graph = nullptr;
    if (capture.broken || (mode && !strcmp(mode, "fail"))) return told(cudaErrorStreamCaptureInvalidated);
    counts["captures"]++;
    captured += std::to_string(capture.thread) + " " + std::to_string(capture.kernels) + "\n";
    *graph = (cudaGraph_t)malloc(8);
    return cudaSuccess;
}
API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    Guard guard(lock);
    *status = captures.count(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* graph, cudaGraph_t, unsigned long long) { *graph = (cudaGraphExec_t)malloc(8); return cudaSuccess; }
API cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { count("graph_launches"); return cudaSuccess; }
API cudaError_t cudaGraphDestroy(cudaGraph_t graph) { free(graph); return cudaSuccess; }
API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { free(graph); return cudaSuccess; }
API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { *stream = (cudaStream_t)malloc(8); return cudaSuccess; }
API cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
API cudaError_t cudaStreamDestroy(cudaStream_t stream) { Guard guard(lock); captures.erase(stream); free(stream); return cudaSuccess; }
API cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { *event = (cudaEvent_t)malloc(8); return cudaSuccess; }
API cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
API cudaError_t cudaEventDestroy(cudaEvent_t event) { free(event); return cudaSuccess; }
API cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) { *milliseconds = 1; return cudaSuccess; }

API cudaError_t cudaGetDeviceCount(int* n) { *n = setting("STAND_IN_DEVICES", 1); return cudaSuccess; }
API cudaError_t cudaGetDevice(int* id) { *id = device; return cudaSuccess; }
API cudaError_t cudaSetDevice(int id) { if (id >= setting("STAND_IN_DEVICES", 1)) return told(cudaErrorInvalidDevice); device = id; return cudaSuccess; }
API cudaError_t cudaSetDeviceFlags(unsigned flags) { if (flags == cudaDeviceScheduleBlockingSync) count("sleeping_devices"); return cudaSuccess; }
API cudaError_t cudaDriverGetVersion(int* version) { *version = 13000; return cudaSuccess; }
API cudaError_t cudaRuntimeGetVersion(int* version) { *version = 13000; return cudaSuccess; }
API cudaError_t cudaGetLastError() { auto error = last_error; last_error = cudaSuccess; return error; }
API cudaError_t cudaPeekAtLastError() { return last_error; }
API const char* cudaGetErrorName(cudaError_t error) { static thread_local char text[40]; snprintf(text, 40, "stand-in error %d", (int)error); return text; }
API const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void*) {
    memset(found, 0, sizeof *found);
    found->maxThreadsPerBlock = 1024, found->numRegs = 32, found->binaryVersion = found->ptxVersion = 90;
    return cudaSuccess;
}
API cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t, const char* name) { *kernel = (cudaKernel_t)strdup(name); return cudaSuccess; }
API cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void*, cudaJitOption*, void**, unsigned, cudaLibraryOption*, void**, unsigned) { *library = (cudaLibrary_t)malloc(8); return cudaSuccess; }
API cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) { *free_bytes = 140ull << 30, *total = 141ull << 30; return cudaSuccess; }
API cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) { *pool = (cudaMemPool_t)malloc(8); return cudaSuccess; }
API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) { *(unsigned long long*)value = 0; return cudaSuccess; }
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, const void*, int, size_t, unsigned) { *n = 4; return cudaSuccess; }
API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* pointer) {
    memset(found, 0, sizeof *found);
    auto block = find(pointer);
    found->type = block ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    if (block) found->devicePointer = (void*)pointer, found->device = block->device;
    return cudaSuccess;
}
API cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** f, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* result) {
    *f = nullptr;
    if (result) *result = cudaDriverEntryPointSymbolNotFound;
    return cudaErrorSymbolNotFound;
}
API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {  // those of an H200
    static const std::map<int, int> known = {
        {cudaDevAttrMaxThreadsPerBlock, 1024}, {cudaDevAttrMultiProcessorCount, 132}, {cudaDevAttrComputeCapabilityMajor, 9},
        {cudaDevAttrComputeCapabilityMinor, 0}, {cudaDevAttrMaxSharedMemoryPerBlockOptin, 232448}, {cudaDevAttrMaxSharedMemoryPerBlock, 49152},
        {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 233472}, {cudaDevAttrWarpSize, 32}, {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
        {cudaDevAttrL2CacheSize, 60 << 20}, {cudaDevAttrMaxGridDimX, 2147483647}, {cudaDevAttrMaxGridDimY, 65535}, {cudaDevAttrMaxGridDimZ, 65535}};
    auto found = known.find(attribute);
    *value = found == known.end() ? 1 : found->second;
    return cudaSuccess;
}
API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
    memset(p, 0, sizeof *p);
    strcpy(p->name, "CUDA stand-in");
    p->totalGlobalMem = 141ull << 30, p->sharedMemPerBlock = 49152, p->regsPerBlock = p->regsPerMultiprocessor = 65536, p->warpSize = 32;
    p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65535, p->major = 9, p->multiProcessorCount = 132;
    p->concurrentKernels = p->unifiedAddressing = p->cooperativeLaunch = p->memoryPoolsSupported = 1, p->l2CacheSize = 60 << 20;
    p->maxThreadsPerMultiProcessor = 2048, p->sharedMemPerMultiprocessor = 233472, p->sharedMemPerBlockOptin = 232448, p->maxBlocksPerMultiProcessor = 32;
    return cudaSuccess;
}
