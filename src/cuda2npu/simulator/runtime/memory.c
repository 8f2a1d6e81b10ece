/* Memory: host memory, counted against the limit of the device that it was asked for. */
#include "sim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { HOST = -1 };

struct block {
    char *start;
    size_t size;
    int32_t device;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks; /* sorted by address */
static size_t block_count, block_room;
static uint64_t used[MAX_DEVICES], peak[MAX_DEVICES];

/* ---- the table of blocks; the lock is held */

/* The number of blocks that start at or before a place. */
static size_t upto(const void *place) {
    size_t low = 0, high = block_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (blocks[middle].start <= (const char *)place) low = middle + 1;
        else high = middle;
    }
    return low;
}

static struct block *holding(const void *place) {
    size_t index = upto(place);
    if (!index) return NULL;
    struct block *found = &blocks[index - 1];
    return (const char *)place < found->start + found->size ? found : NULL;
}

static int keep(void *start, size_t size, int32_t device) {
    if (block_count == block_room) {
        size_t room = block_room ? 2 * block_room : 256;
        struct block *grown = realloc(blocks, room * sizeof *grown);
        if (!grown) return 0;
        blocks = grown, block_room = room;
    }
    size_t index = upto(start);
    memmove(blocks + index + 1, blocks + index, (block_count - index) * sizeof *blocks);
    blocks[index] = (struct block){start, size, device};
    block_count++;
    return 1;
}

static void forget(struct block *block) {
    size_t index = (size_t)(block - blocks);
    memmove(block, block + 1, (block_count - index - 1) * sizeof *blocks);
    block_count--;
}

/* ---- what virtual.c asks for */

aclError sim_take(int32_t device, size_t size) {
    aclError code = SUCCESS;
    pthread_mutex_lock(&lock);
    if (used[device] + size > sim_device_memory()) {
        code = sim_error(OUT_OF_MEMORY, "device %d has %llu of %llu bytes in use, %zu were asked for",
                         device, (unsigned long long)used[device],
                         (unsigned long long)sim_device_memory(), size);
    } else {
        used[device] += size;
        if (used[device] > peak[device]) peak[device] = used[device];
    }
    pthread_mutex_unlock(&lock);
    return code;
}

void sim_give(int32_t device, size_t size) {
    pthread_mutex_lock(&lock);
    used[device] -= size;
    pthread_mutex_unlock(&lock);
}

int sim_remember(void *start, size_t size, int32_t device) {
    pthread_mutex_lock(&lock);
    int kept = keep(start, size, device);
    pthread_mutex_unlock(&lock);
    return kept;
}

void sim_forget(void *start) {
    pthread_mutex_lock(&lock);
    struct block *block = holding(start);
    if (block) forget(block);
    pthread_mutex_unlock(&lock);
}

/* ---- malloc and free */

static aclError allocate(void **pointer, size_t size, int32_t device) {
    if (!pointer || !size) return sim_error(PARAM_INVALID, "no bytes were asked for");
    if (device != HOST) {
        aclError code = sim_take(device, size);
        if (code) return code;
    }
    if (posix_memalign(pointer, 512, size) == 0 && sim_remember(*pointer, size, device))
        return SUCCESS;
    if (device != HOST) sim_give(device, size);
    return sim_error(OUT_OF_MEMORY, "the host, which simulates device memory, has no %zu bytes", size);
}

static aclError release(void *pointer) {
    pthread_mutex_lock(&lock);
    struct block *block = holding(pointer);
    int found = block && block->start == (char *)pointer;
    if (found) {
        if (block->device != HOST) used[block->device] -= block->size;
        forget(block);
    }
    pthread_mutex_unlock(&lock);
    if (!found) return sim_error(NO_MEMORY_TO_FREE, "%p was not allocated here", pointer);
    free(pointer);
    return SUCCESS;
}

API aclError aclrtMalloc(void **pointer, size_t size, int policy) {
    return (void)policy, allocate(pointer, size, sim_device());
}

API aclError aclrtMallocAlign32(void **pointer, size_t size, int policy) {
    return (void)policy, allocate(pointer, size, sim_device());
}

API aclError aclrtMallocCached(void **pointer, size_t size, int policy) {
    return (void)policy, allocate(pointer, size, sim_device());
}

API aclError aclrtFree(void *pointer) { return release(pointer); }
API aclError aclrtMallocHost(void **pointer, size_t size) { return allocate(pointer, size, HOST); }

API aclError aclrtMallocHostWithCfg(void **pointer, uint64_t size, void *config) {
    return (void)config, allocate(pointer, size, HOST);
}

API aclError aclrtFreeHost(void *pointer) { return release(pointer); }

API aclError aclrtHostRegister(void *pointer, uint64_t size, int kind, void **on_device) {
    (void)kind;
    if (on_device) *on_device = pointer;
    return sim_remember(pointer, size, HOST) ? SUCCESS : sim_error(OUT_OF_MEMORY, "host memory");
}

API aclError aclrtHostRegisterV2(void *pointer, uint64_t size, uint32_t flags) {
    return (void)flags, aclrtHostRegister(pointer, size, 0, NULL);
}

API aclError aclrtHostUnregister(void *pointer) { return sim_forget(pointer), SUCCESS; }

/* ---- what is known of it */

API aclError aclrtGetMemInfo(int kind, size_t *available, size_t *total) {
    (void)kind;
    pthread_mutex_lock(&lock);
    *total = sim_device_memory();
    *available = *total - used[sim_device()];
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

struct usage {
    char name[32];
    uint64_t current, peak;
    size_t reserved[8];
};

API aclError aclrtGetMemUsageInfo(int32_t device, struct usage *usage, size_t room, size_t *count) {
    if (!room || device < 0 || device >= MAX_DEVICES) return sim_error(PARAM_INVALID, "no room");
    memset(usage, 0, sizeof *usage);
    strcpy(usage->name, "APP");
    usage->current = used[device];
    usage->peak = peak[device];
    return *count = 1, SUCCESS;
}

struct attributes {
    struct { uint32_t id; int kind; } location;
    uint32_t page_size, reserved[4];
};

API aclError aclrtPointerGetAttributes(const void *pointer, struct attributes *answer) {
    enum { ON_HOST, ON_DEVICE, UNREGISTERED };
    memset(answer, 0, sizeof *answer);
    pthread_mutex_lock(&lock);
    const struct block *block = holding(pointer);
    answer->location.kind = !block ? UNREGISTERED : block->device == HOST ? ON_HOST : ON_DEVICE;
    answer->location.id = block && block->device != HOST ? (uint32_t)block->device : 0;
    pthread_mutex_unlock(&lock);
    answer->page_size = 4096;
    return SUCCESS;
}

/* ---- copies */

static aclError copy(void *to, size_t room, const void *from, size_t size) {
    if (size > room) return sim_error(PARAM_INVALID, "%zu bytes do not fit in %zu", size, room);
    memmove(to, from, size);
    return SUCCESS;
}

API aclError aclrtMemcpy(void *to, size_t room, const void *from, size_t size, int kind) {
    return (void)kind, copy(to, room, from, size);
}

API aclError aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t size, int kind,
                              void *stream) {
    return (void)kind, (void)stream, copy(to, room, from, size);
}

API aclError aclrtMemcpyAsyncWithCondition(void *to, size_t room, const void *from, size_t size,
                                           int kind, void *stream) {
    return (void)kind, (void)stream, copy(to, room, from, size);
}

API aclError aclrtMemset(void *to, size_t room, int32_t value, size_t size) {
    if (size > room) return sim_error(PARAM_INVALID, "%zu bytes do not fit in %zu", size, room);
    memset(to, value, size);
    return SUCCESS;
}

API aclError aclrtMemsetAsync(void *to, size_t room, int32_t value, size_t size, void *stream) {
    return (void)stream, aclrtMemset(to, room, value, size);
}
