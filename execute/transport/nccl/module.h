/* The C interface between the program and libpipewright_nccl.so, the only part
 * that knows NCCL: bytes and fp32 sums between the GPUs of some processes. No
 * schedule, no rank of a pipeline (see nccl_transport.h). A test puts a table
 * of its own in its place.
 *
 * A communicator has a stream of its own; what is queued on it runs in order
 * and waits for nothing else on the device. Calls never wait for other
 * processes: what a call begins on the host is over when state() is 0, and
 * until then there must be no other call on that communicator. One thread at a
 * time. All memory is of the device. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PW_NCCL_ABI 2

typedef struct PwNcclComm PwNcclComm;

/* ncclUniqueId: NCCL_UNIQUE_ID_BYTES of nccl.h. */
typedef struct PwNcclId {
  char bytes[128];
} PwNcclId;

typedef struct PwNccl {
  int abi;
  /* Each int is 0, or below 0 with error() set, unless it says otherwise. */
  int (*device_count)(void); /* GPUs that this process sees */
  int (*version)(void);      /* 22809 for 2.28.9 */
  int (*make_id)(PwNcclId* id);
  /* Begins to make a communicator of `members`, of which this is `self`. */
  int (*join)(int device, const PwNcclId* id, int members, int self,
              PwNcclComm** comm);
  /* 1: what the last call has begun goes on; 0: it is over. Below 0: it, or
   * anything that this communicator has under way, has failed. */
  int (*state)(PwNcclComm* comm);

  /* Calls between the two are one operation of one communicator. */
  int (*begin_group)(void);
  int (*end_group)(void);
  int (*send)(PwNcclComm* comm, const void* from, size_t bytes, int to);
  int (*receive)(PwNcclComm* comm, void* into, size_t bytes, int from);
  /* `count` is in values of fp32; for the gather and the scatter, in those
   * of one member. */
  int (*all_reduce)(PwNcclComm* comm, const void* from, void* into,
                    size_t count);
  int (*all_gather)(PwNcclComm* comm, const void* from, void* into,
                    size_t count);
  int (*reduce_scatter)(PwNcclComm* comm, const void* from, void* into,
                        size_t count);
  int (*broadcast)(PwNcclComm* comm, const void* from, void* into, size_t count,
                   int root);
  int (*reduce)(PwNcclComm* comm, const void* from, void* into, size_t count,
                int root);
  /* On the device, in the order of the communicator's stream. */
  int (*copy)(PwNcclComm* comm, void* to, const void* from, size_t bytes);

  /* Everything before it on the stream counts as one mark. */
  int (*mark)(PwNcclComm* comm);
  /* How many marks have been reached; below 0: the device has failed. */
  int64_t (*reached)(PwNcclComm* comm);
  /* Notes the device's time when everything before it on the stream has
   * ended. `end` 0: the timed work begins, 1: it ends. */
  int (*clock)(PwNcclComm* comm, int end);
  /* Seconds from one to the other; a mark after both has been reached. */
  int (*elapsed)(PwNcclComm* comm, double* seconds);

  /* Ends what is under way, here at once and elsewhere because it fails
   * there, and frees `comm`; no other member needs to do anything. */
  void (*cut_off)(PwNcclComm* comm);
  /* Frees `comm`, which has nothing under way. */
  void (*leave)(PwNcclComm* comm);
  /* The error of this thread's last call. */
  const char* (*error)(void);
} PwNccl;

/* What the library exports. */
const PwNccl* pw_nccl(void);

#ifdef __cplusplus
} /* extern "C" */
#endif
