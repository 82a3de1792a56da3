// The C interface of the template engine in rust/: a checkpoint's chat template over one conversation.
// Included by chat_template.cc only.
//
// A template sees what transformers 5 gives it: `messages`, `tools`, `documents`, `add_generation_prompt`, the
// special tokens by name, `raise_exception`, `strftime_now`, `namespace`, `range`, `dict`; blocks are trimmed, loops
// have `break` and `continue`, `tojson` writes as Python does, and values have Python's methods and print as in Python.
//
// Where a string of the conversation contains a whole special token, the text that is rendered has that token as
// letters: `spelled` has the byte at which each begins, so that a tokenizer can leave them alone.
//
// Ownership: a template and a chat are the caller's, to be given to their free. Texts are views. What a call of
// render returns is memory that the thread keeps: valid until the thread's next call.
// Thread safety: a template and a chat may be used from many threads; they are freed once, after their last use.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rust/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct EvenkeelTemplate EvenkeelTemplate;
typedef struct EvenkeelChat EvenkeelChat;

enum {
  EVENKEEL_TEMPLATE_OK = 0,
  EVENKEEL_TEMPLATE_REFUSED = 1,   // the template or the JSON is wrong, or the template failed
  EVENKEEL_TEMPLATE_PANICKED = 2,  // the library gave up
  EVENKEEL_TEMPLATE_RAISED = 3,    // the template called raise_exception; the last error is its message
  EVENKEEL_TEMPLATE_NO_DATE = 4,   // the template called strftime_now, and there is no date
  EVENKEEL_TEMPLATE_LIMIT = 5,     // more work or text than the limits allow
};

// Counted, so that a template fails alike on every machine.
typedef struct EvenkeelTemplateLimits {
  uint64_t max_work;          // instructions of one rendering
  uint64_t max_string_bytes;  // of all strings that it makes and writes
  uint64_t max_output_bytes;  // of what it returns
} EvenkeelTemplateLimits;

// `variables`: a JSON object whose members the template sees as variables. `date`: YYYY-MM-DD, what strftime_now
// writes; empty: it fails.
int32_t evenkeel_template_load(EvenkeelText source, EvenkeelText variables, EvenkeelText date,
                               const EvenkeelText* special_tokens, size_t num_special_tokens,
                               EvenkeelTemplateLimits limits, EvenkeelTemplate** out);
void evenkeel_template_free(EvenkeelTemplate* loaded);
// Whether the template marks what an assistant generates.
int32_t evenkeel_template_has_generation(const EvenkeelTemplate* loaded);

// `json`: an object of `messages` (a list of objects), and maybe `tools` and `documents`.
int32_t evenkeel_chat_parse(const EvenkeelTemplate* loaded, EvenkeelText json, EvenkeelChat** out);
void evenkeel_chat_free(EvenkeelChat* chat);

typedef struct EvenkeelRendered {
  EvenkeelText text;
  const uint64_t* spelled;  // [num_spelled] ascending
  size_t num_spelled;
  const uint64_t*
      generated;  // [2 * num_generated] begin and end byte of each generation block, in order of rendering
  size_t num_generated;
} EvenkeelRendered;

// The first `num_messages` messages; with `add_generation_prompt` also what precedes an answer.
int32_t evenkeel_chat_render(const EvenkeelTemplate* loaded, const EvenkeelChat* chat, size_t num_messages,
                             int32_t add_generation_prompt, EvenkeelRendered* out);

// What the last call on this thread that was not OK said; valid until the next one.
EvenkeelText evenkeel_template_last_error(void);

#ifdef __cplusplus
}
#endif
