/* The broadcast between the devices of one process, the one collective that nn.DataParallel calls
 * on HCCL. Those between processes go through a process group in Python and never come here. */
#include "sim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HCCL_PARAMETER = 1, HCCL_MEMORY = 3 };

struct group {
    uint32_t size, waiting, left;
    void *buffers[MAX_DEVICES]; /* of the members that called */
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

/* The bytes of an element of an HCCL data type; 0 for none. */
static size_t width(int type) {
    static const size_t widths[] = {1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2};
    return type >= 0 && type < 12 ? widths[type] : type >= 14 && type <= 17 ? 1 : 0;
}

/* Runs when the last member has called it. */
API int HcclBroadcast(void *buffer, uint64_t count, int type, uint32_t root, void *comm, void *s) {
    struct member *member = comm;
    struct group *group = member->group;
    (void)s;
    if (!buffer || !width(type) || root >= group->size) return HCCL_PARAMETER;
    pthread_mutex_lock(&lock);
    group->waiting += !group->buffers[member->rank];
    group->buffers[member->rank] = buffer;
    if (group->waiting == group->size) {
        for (uint32_t rank = 0; rank < group->size; rank++)
            memmove(group->buffers[rank], group->buffers[root], count * width(type));
        memset(group->buffers, 0, sizeof group->buffers);
        group->waiting = 0;
    }
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}
