/* Addresses reserved first and backed later: PYTORCH_NPU_ALLOC_CONF=expandable_segments:True. */
#include "sim.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

aclError sim_take(int32_t device, size_t size);
void sim_give(int32_t device, size_t size);
int sim_remember(void *start, size_t size, int32_t device);
void sim_forget(void *start);

struct physical {
    int file;
    size_t size;
    int32_t device;
};

/* The sizes of what munmap and unmap are told by address alone. */
struct range {
    void *start;
    size_t size;
    int mapped;
    struct range *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges;

static aclError note(void *start, size_t size, int mapped) {
    struct range *range = malloc(sizeof *range);
    if (!range) return sim_error(OUT_OF_MEMORY, "host memory");
    pthread_mutex_lock(&lock);
    *range = (struct range){start, size, mapped, ranges};
    ranges = range;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

static size_t drop(void *start, int mapped) {
    size_t size = 0;
    pthread_mutex_lock(&lock);
    for (struct range **at = &ranges; *at; at = &(*at)->next) {
        struct range *range = *at;
        if (range->start != start || range->mapped != mapped) continue;
        size = range->size;
        *at = range->next;
        free(range);
        break;
    }
    pthread_mutex_unlock(&lock);
    return size;
}

API aclError aclrtReserveMemAddress(void **address, size_t size, size_t alignment, void *wish,
                                    uint64_t flags) {
    (void)alignment, (void)flags;
    void *start = mmap(wish, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return sim_error(OUT_OF_MEMORY, "no %zu bytes of addresses", size);
    *address = start;
    return note(start, size, 0);
}

API aclError aclrtReleaseMemAddress(void *address) {
    size_t size = drop(address, 0);
    if (!size) return sim_error(PARAM_INVALID, "%p was not reserved", address);
    munmap(address, size);
    return SUCCESS;
}

API aclError aclrtMallocPhysical(void **handle, size_t size, const void *wanted, uint64_t flags) {
    (void)wanted, (void)flags;
    int32_t device = sim_device();
    aclError code = sim_take(device, size);
    if (code) return code;
    struct physical *physical = malloc(sizeof *physical);
    int file = memfd_create("cuda2npu", MFD_CLOEXEC);
    if (!physical || file < 0 || ftruncate(file, (off_t)size)) {
        sim_give(device, size);
        free(physical);
        if (file >= 0) close(file);
        return sim_error(OUT_OF_MEMORY, "the host has no %zu bytes", size);
    }
    *physical = (struct physical){file, size, device};
    return *handle = physical, SUCCESS;
}

API aclError aclrtFreePhysical(void *handle) {
    struct physical *physical = handle;
    close(physical->file);
    sim_give(physical->device, physical->size);
    free(physical);
    return SUCCESS;
}

API aclError aclrtMapMem(void *address, size_t size, size_t offset, void *handle, uint64_t flags) {
    (void)flags;
    struct physical *physical = handle;
    void *start = mmap(address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                       physical->file, (off_t)offset);
    if (start == MAP_FAILED) return sim_error(PARAM_INVALID, "%p cannot be mapped", address);
    sim_remember(address, size, physical->device);
    return note(address, size, 1);
}

API aclError aclrtUnmapMem(void *address) {
    size_t size = drop(address, 1);
    if (!size) return sim_error(PARAM_INVALID, "%p is not mapped", address);
    sim_forget(address);
    mmap(address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return SUCCESS;
}
