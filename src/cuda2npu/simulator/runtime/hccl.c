/* Collectives between the devices of one process, as nn.DataParallel uses them. Those between
 * processes go through a process group in Python and never come here.
 *
 * A collective runs when the last device of its communicator has called it. */
#include "sim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HCCL_PARAMETER = 1, HCCL_MEMORY = 3, HCCL_NOT_SUPPORTED = 5 };
enum { SUM, PROD, MAX, MIN };

struct call {
    int waiting;
    const void *from;
    void *to;
};

struct group {
    uint32_t size, waiting, left;
    struct call calls[MAX_DEVICES];
};

struct member {
    struct group *group;
    uint32_t rank;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

API int HcclCommInitAll(uint32_t count, int32_t *devices, void **members) {
    (void)devices;
    if (!count || count > MAX_DEVICES) return HCCL_PARAMETER;
    struct group *group = calloc(1, sizeof *group);
    if (!group) return HCCL_MEMORY;
    group->size = group->left = count;
    for (uint32_t rank = 0; rank < count; rank++) {
        struct member *member = malloc(sizeof *member);
        if (!member) return HCCL_MEMORY;
        *member = (struct member){group, rank};
        members[rank] = member;
    }
    return SUCCESS;
}

API int HcclCommDestroy(void *comm) {
    struct member *member = comm;
    pthread_mutex_lock(&lock);
    if (!--member->group->left) free(member->group);
    pthread_mutex_unlock(&lock);
    free(member);
    return SUCCESS;
}

API int HcclGroupStart(void) { return SUCCESS; }
API int HcclGroupEnd(void) { return SUCCESS; }
API int HcclSetConfig(int what, int64_t value) { return (void)what, (void)value, SUCCESS; }
API int HcclGetCommAsyncError(void *comm, int *error) { return (void)comm, *error = 0, SUCCESS; }

API int HcclGetCommName(void *comm, char *name) {
    sprintf(name, "simulated_%p", (void *)((struct member *)comm)->group);
    return SUCCESS;
}

/* ---- arithmetic on the types of HCCL; half precisions are summed as float */

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static float load_bf16(uint16_t half) { return from_bits((uint32_t)half << 16); }

static uint16_t store_bf16(float value) {
    uint32_t bits = to_bits(value);
    if (value != value) return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static float load_fp16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    if (rest >= 0x7c00) return from_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest < 0x400) return from_bits(sign | to_bits((float)rest * 0x1p-24f));
    return from_bits(sign | ((rest << 13) + 0x38000000));
}

static uint16_t store_fp16(float value) {
    uint32_t bits = to_bits(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
    if (rest < 0x38800000) { /* subnormal: the addition rounds to its step of 2^-24 */
        return (uint16_t)(sign | (to_bits(from_bits(rest) + 0.5f) - 0x3f000000));
    }
    return (uint16_t)(sign | ((rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13));
}

#define COMBINE(op, a, b) \
    ((op) == SUM ? (a) + (b) : (op) == PROD ? (a) * (b) : (op) == MAX ? ((a) > (b) ? (a) : (b)) \
                                                                      : ((a) < (b) ? (a) : (b)))
#define LOOP(type, load, store)                                                       \
    for (uint64_t at = 0; at < count; at++) {                                         \
        type *into = (type *)to + at;                                                 \
        const type *with = (const type *)from + at;                                   \
        *into = store(COMBINE(op, load(*into), load(*with)));                         \
    }                                                                                 \
    return SUCCESS
#define AS_IT_IS

static size_t width(int type) {
    static const size_t widths[] = {1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2};
    return type >= 0 && type < 12 ? widths[type] : type >= 14 && type <= 17 ? 1 : 0;
}

static int combine(void *to, const void *from, uint64_t count, int type, int op) {
    switch (type) {
    case 0: LOOP(int8_t, AS_IT_IS, AS_IT_IS);
    case 1: LOOP(int16_t, AS_IT_IS, AS_IT_IS);
    case 2: LOOP(int32_t, AS_IT_IS, AS_IT_IS);
    case 3: LOOP(uint16_t, load_fp16, store_fp16);
    case 4: LOOP(float, AS_IT_IS, AS_IT_IS);
    case 5: LOOP(int64_t, AS_IT_IS, AS_IT_IS);
    case 6: LOOP(uint64_t, AS_IT_IS, AS_IT_IS);
    case 7: LOOP(uint8_t, AS_IT_IS, AS_IT_IS);
    case 8: LOOP(uint16_t, AS_IT_IS, AS_IT_IS);
    case 9: LOOP(uint32_t, AS_IT_IS, AS_IT_IS);
    case 10: LOOP(double, AS_IT_IS, AS_IT_IS);
    case 11: LOOP(uint16_t, load_bf16, store_bf16);
    default: return HCCL_NOT_SUPPORTED;
    }
}

/* ---- collectives */

/* Notes the call of one member; true, with the lock held, when it was the last. */
static int all_called(struct member *member, const void *from, void *to) {
    struct group *group = member->group;
    pthread_mutex_lock(&lock);
    struct call *call = &group->calls[member->rank];
    group->waiting += !call->waiting;
    *call = (struct call){1, from, to};
    if (group->waiting == group->size) return 1;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int done(struct group *group, int code) {
    memset(group->calls, 0, sizeof group->calls);
    group->waiting = 0;
    pthread_mutex_unlock(&lock);
    return code;
}

API int HcclBroadcast(void *buffer, uint64_t count, int type, uint32_t root, void *comm, void *s) {
    struct member *member = comm;
    struct group *group = member->group;
    (void)s;
    if (!width(type) || root >= group->size) return HCCL_PARAMETER;
    if (!all_called(member, buffer, buffer)) return SUCCESS;
    for (uint32_t rank = 0; rank < group->size; rank++)
        memmove(group->calls[rank].to, group->calls[root].from, count * width(type));
    return done(group, SUCCESS);
}

/* The combination of all inputs goes to one member, or to all where root is the size. */
static int reduce(const void *from, void *to, uint64_t count, int type, int op, uint32_t root,
                  struct member *member) {
    struct group *group = member->group;
    size_t size = count * width(type);
    if (!size || op < SUM || op > MIN) return HCCL_PARAMETER;
    if (!all_called(member, from, to)) return SUCCESS;
    void *total = malloc(size);
    if (!total) return done(group, HCCL_MEMORY);
    memcpy(total, group->calls[0].from, size);
    int code = SUCCESS;
    for (uint32_t rank = 1; rank < group->size && !code; rank++)
        code = combine(total, group->calls[rank].from, count, type, op);
    for (uint32_t rank = 0; rank < group->size && !code; rank++)
        if (root == group->size || root == rank) memcpy(group->calls[rank].to, total, size);
    free(total);
    return done(group, code);
}

API int HcclAllReduce(void *from, void *to, uint64_t count, int type, int op, void *comm, void *s) {
    (void)s;
    return reduce(from, to, count, type, op, ((struct member *)comm)->group->size, comm);
}

API int HcclReduce(void *from, void *to, uint64_t count, int type, int op, uint32_t root,
                   void *comm, void *s) {
    (void)s;
    return reduce(from, to, count, type, op, root, comm);
}
