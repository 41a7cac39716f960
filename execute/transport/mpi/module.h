/* The C interface between the program and libpipewright_mpi.so, the only part
 * that is linked with MPI: bytes to and from processes. No schedule, no Message
 * (see mpi_transport.h). All functions from one thread at a time. The same
 * interface over sockets: socket_job.h. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PW_MPI_ABI 7

/* MPI's own transfers, for measuring them. Bytes are as NCCL counts them:
 * the gathered buffer of an all-gather, the scattered one of a
 * reduce-scatter. */
typedef enum PwTransfer {
  PW_SEND_RECV = 0, /* from process 0 to 1 and back, halved */
  PW_ALL_REDUCE = 1,
  PW_ALL_GATHER = 2,
  PW_REDUCE_SCATTER = 3
} PwTransfer;

typedef struct PwProcesses {
  int abi;
  /* Each returns 0, or below 0 with error() set. */
  int (*start)(void);
  int (*process)(void);   /* own number, from 0 */
  int (*processes)(void); /* how many there are */
  /* Sends head and body as one message, at most 2^31 - 1 bytes. Never waits:
   * bytes that cannot go at once are copied, and go with later calls. */
  int (*send)(int to, int tag, const void* head, size_t head_bytes,
              const void* body, size_t body_bytes);
  /* 1: a message of `tag` has come, and receive() must be the next call with
   * memory for `bytes`; 0: none has. */
  int (*probe)(int tag, int* from, size_t* bytes);
  /* Begins to take it and does not wait. Returns a number, from 0, for
   * received(). `into` must live until that has given 1. */
  int (*receive)(void* into);
  /* 1: all of it is there, and the number is free; 0: parts of it are still on
   * their way. */
  int (*received)(int number);
  /* How many sends are still under way. */
  int (*unsent)(void);
  /* 1: `process` has left the job in good order, and all that it has sent with
   * `tag` has been taken. Always 0 where a starter ends the job for all. */
  int (*has_left)(int process, int tag);
  /* Says that this process sends no more, and that all that it has sent has
   * gone. Does not wait: 1 when all processes have said so, else 0. Call it
   * again then, and take what comes: the others cannot say so before. */
  int (*has_ended)(void);
  /* Waits for all processes to come to the same. */
  int (*finish)(void);
  /* All processes call it alike: `repeats` transfers of fp32 numbers in a
   * row. Gives the wall-clock seconds of one on the slowest process, the
   * mean over all. */
  int (*transfer)(PwTransfer kind, size_t bytes, int repeats, double* seconds);
  /* "Open MPI v4.1.4". */
  const char* (*version)(void);
  /* Called instead of finish when processes are missing or the job has
   * failed. `why` is for the others, "" where error() tells it or nothing
   * does. */
  void (*leave)(const char* why);
  const char* (*error)(void);
} PwProcesses;

/* What the library exports. */
const PwProcesses* pw_mpi(void);

#ifdef __cplusplus
} /* extern "C" */
#endif
