// The C interface of the tokenizer in rust/. Included by tokenizer.cc only.
//
// Ownership: a loaded tokenizer is the caller's, to be given to its free. Texts are views. Ids are a view of
// memory that the thread keeps, so that a call takes none: valid until the thread's next call of encode.
// Thread safety: a loaded tokenizer may be used from many threads; it is freed once, after its last use.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct EvenkeelTokenizer EvenkeelTokenizer;

typedef struct EvenkeelText {
  const uint8_t* bytes;
  size_t num_bytes;
} EvenkeelText;

typedef struct EvenkeelIds {
  const uint32_t* ids;   // [num_ids]
  const uint64_t* ends;  // [num_ids] the byte of the text where each token ends; null unless asked for
  size_t num_ids;
} EvenkeelIds;

enum {
  EVENKEEL_TOKENIZER_OK = 0,
  EVENKEEL_TOKENIZER_REFUSED = 1,   // the input is wrong
  EVENKEEL_TOKENIZER_PANICKED = 2,  // the library gave up, at the retry limit of its expressions, say
};

enum {
  EVENKEEL_TOKENIZER_ADD_SPECIAL_TOKENS = 1,
  EVENKEEL_TOKENIZER_UNTRUSTED = 2,  // special tokens in the text are ordinary letters
  EVENKEEL_TOKENIZER_WITH_ENDS = 4,
  EVENKEEL_TOKENIZER_CONTINUES = 8,  // of an untrusted text: it does not begin a sequence
};

int32_t evenkeel_tokenizer_load(EvenkeelText json, const EvenkeelText* added, size_t num_added,
                                EvenkeelTokenizer** out);
void evenkeel_tokenizer_free(EvenkeelTokenizer* tokenizer);

int32_t evenkeel_tokenizer_encode(const EvenkeelTokenizer* tokenizer, EvenkeelText text, uint32_t flags,
                                  EvenkeelIds* out);

// -1: no such token.
int64_t evenkeel_tokenizer_token_to_id(const EvenkeelTokenizer* tokenizer, EvenkeelText token);
size_t evenkeel_tokenizer_vocab_size(const EvenkeelTokenizer* tokenizer);

// What the last call on this thread that was not OK said; valid until the next one.
EvenkeelText evenkeel_tokenizer_last_error(void);

#ifdef __cplusplus
}
#endif
