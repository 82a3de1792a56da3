// The C interface of object stores in rust/: objects of S3, Google Cloud Storage, Azure and HTTP servers.
//
// A store is a bucket, a container or an HTTP server. Credentials, and options that the caller does not give, come from
// the environment as the clouds' own tools have them, of S3 also from profiles of ~/.aws. Calls block; they run on a few
// threads of the library, which start with the first store that is opened, and never in a process forked afterwards.
// Failed requests are made again with growing, jittered pauses, up to a number and a deadline; slow ones are made a
// second time, one in twenty at most. Messages have no credentials.
//
// Ownership: a store is the caller's, to be given to its free. What a call returns is valid until the next call on this
// thread.
// Thread safety: a store may be used from many threads.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rust/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct EvenkeelStore EvenkeelStore;

enum {
  EVENKEEL_STORE_OK = 0,
  EVENKEEL_STORE_REFUSED = 1,   // an option or an address that cannot work
  EVENKEEL_STORE_PANICKED = 2,  // the library gave up
  EVENKEEL_STORE_NOT_FOUND = 3,
  EVENKEEL_STORE_DENIED = 4,       // credentials are missing, wrong or have no rights
  EVENKEEL_STORE_UNAVAILABLE = 5,  // try again later
  EVENKEEL_STORE_CHANGED = 6,      // the object has another ETag or size than the caller stated
  EVENKEEL_STORE_SHORT = 7,        // the object ends before the range
};

// Texts are empty where they are not given.
typedef struct EvenkeelStoreOptions {
  EvenkeelText endpoint;  // http(s)://host[:port]
  EvenkeelText region;
  EvenkeelText ca_file;  // PEM
  bool virtual_host;
  bool anonymous;
  bool allow_http;         // credentials may be sent without TLS
  double timeout_seconds;  // of a request without a byte
  uint32_t max_retries;
} EvenkeelStoreOptions;

// `url`: s3://bucket, gs://bucket, az://container, hf://datasets/owner/name@revision, http(s)://host[:port].
int32_t evenkeel_store_open(EvenkeelText url, EvenkeelStoreOptions options, EvenkeelStore** out);
void evenkeel_store_free(EvenkeelStore* store);

typedef struct EvenkeelObject {
  EvenkeelText key;
  EvenkeelText etag;  // empty: the server has none
  uint64_t num_bytes;
} EvenkeelObject;

int32_t evenkeel_store_head(const EvenkeelStore* store, EvenkeelText key, EvenkeelObject* out);
// The objects of a folder ("a/b", empty: the whole bucket's top), without those of folders in it, by key.
int32_t evenkeel_store_list(const EvenkeelStore* store, EvenkeelText folder, const EvenkeelObject** out,
                            size_t* num_objects);
// Fills `out` from `offset`. `etag`: the one that the object must have; empty: any.
int32_t evenkeel_store_read(const EvenkeelStore* store, EvenkeelText key, EvenkeelText etag, uint64_t offset,
                            uint8_t* out, size_t num_bytes);

// An object with all its bytes, by one request. `max_bytes`: of a larger one only what is known of it, without bytes.
int32_t evenkeel_store_read_whole(const EvenkeelStore* store, EvenkeelText key, uint64_t max_bytes,
                                  EvenkeelObject* out, EvenkeelText* bytes);

// Makes or replaces an object, in parts if it is large; a failure leaves what was there. REFUSED: hf:// and HTTP
// servers.
int32_t evenkeel_store_write(const EvenkeelStore* store, EvenkeelText key, EvenkeelText bytes);

// Of all stores of this process since it started.
typedef struct EvenkeelStoreCounts {
  uint64_t requests;              // sent, including retries and those for credentials
  uint64_t failed_requests;       // without an answer, or with a status of 400 and above
  uint64_t bytes;                 // of bodies, as they were delivered
  uint64_t request_microseconds;  // until the head of the answer
  uint64_t repeated_requests;     // made a second time because the first was slow
} EvenkeelStoreCounts;

void evenkeel_store_counts(EvenkeelStoreCounts* out);

// What the last call on this thread that was not OK said; valid until the next one.
EvenkeelText evenkeel_store_last_error(void);

#ifdef __cplusplus
}
#endif
