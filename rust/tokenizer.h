// The C interface of the tokenizer in rust/. Included by tokenizer.cc only.
//
// Ownership: a loaded tokenizer is the caller's, to be given to its free. Texts are views. Ids are a view of
// memory that the thread keeps, so that a call takes none: valid until the thread's next call of encode.
// Thread safety: a loaded tokenizer may be used from many threads; it is freed once, after its last use.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rust/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct EvenkeelTokenizer EvenkeelTokenizer;

typedef struct EvenkeelIds {
  const uint32_t* ids;     // [num_ids]
  const uint64_t* begins;  // [num_ids] the byte of the text where each token begins; null unless asked for
  const uint64_t* ends;    // [num_ids] and where it ends; null unless asked for
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
  EVENKEEL_TOKENIZER_CONTINUES = 8,  // the text does not begin a sequence
};

// The texts of the checkpoint's other files; empty where there is none.
typedef struct EvenkeelTokenizerFiles {
  EvenkeelText tokenizer_config;
  EvenkeelText special_tokens_map;
  EvenkeelText generation_config;
} EvenkeelTokenizerFiles;

// tokenizer.json, with the special tokens that the other files name, as transformers 5 adds them, and then `added`.
int32_t evenkeel_tokenizer_load(EvenkeelText json, EvenkeelTokenizerFiles files, const EvenkeelText* added,
                                size_t num_added, EvenkeelTokenizer** out);
void evenkeel_tokenizer_free(EvenkeelTokenizer* tokenizer);

int32_t evenkeel_tokenizer_encode(const EvenkeelTokenizer* tokenizer, EvenkeelText text, uint32_t flags,
                                  EvenkeelIds* out);

// Of a trusted text: the special tokens that begin at the bytes `spelled`, ascending, are letters.
int32_t evenkeel_tokenizer_encode_spelled(const EvenkeelTokenizer* tokenizer, EvenkeelText text,
                                          const uint64_t* spelled, size_t num_spelled, uint32_t flags,
                                          EvenkeelIds* out);

// Views that are valid as long as the tokenizer.
size_t evenkeel_tokenizer_num_special_tokens(const EvenkeelTokenizer* tokenizer);
EvenkeelText evenkeel_tokenizer_special_token(const EvenkeelTokenizer* tokenizer, size_t i);
// The special tokens that have names, as a JSON object: {"eos_token": "</s>"}. And the first of a sequence; empty: none.
EvenkeelText evenkeel_tokenizer_variables(const EvenkeelTokenizer* tokenizer);
EvenkeelText evenkeel_tokenizer_bos_token(const EvenkeelTokenizer* tokenizer);
// The template of that name in tokenizer_config.json; empty: none. One without a name is "default".
EvenkeelText evenkeel_tokenizer_chat_template(const EvenkeelTokenizer* tokenizer, EvenkeelText name);
// What the files name as the end of a text, and what pads (else that end); -1: nothing.
int64_t evenkeel_tokenizer_text_end(const EvenkeelTokenizer* tokenizer);
int64_t evenkeel_tokenizer_pad(const EvenkeelTokenizer* tokenizer);

// -1: no such token.
int64_t evenkeel_tokenizer_token_to_id(const EvenkeelTokenizer* tokenizer, EvenkeelText token);
// The text of some ids, special tokens included; bytes that are not UTF-8 become U+FFFD. `out` is a view that is valid until
// the thread's next call.
int32_t evenkeel_tokenizer_decode(const EvenkeelTokenizer* tokenizer, const uint32_t* ids, size_t num_ids,
                                  EvenkeelText* out);
size_t evenkeel_tokenizer_vocab_size(const EvenkeelTokenizer* tokenizer);

// What the last call on this thread that was not OK said; valid until the next one.
EvenkeelText evenkeel_tokenizer_last_error(void);

#ifdef __cplusplus
}
#endif
